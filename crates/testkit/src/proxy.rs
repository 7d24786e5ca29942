//! Loses connections at the worst moment: a proxy between the server under test and PostgreSQL's unix socket.
//!
//! It forwards whole messages both ways and understands just enough of the protocol to know COMMIT: a Bind of a
//! statement that was parsed from the text `commit` on its way in, CommandComplete `COMMIT` on its way out. T1 commits
//! without such a statement, so what is armed always meets a T2.

use std::collections::HashSet;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};

use crate::cluster::Database;

/// Which side of a COMMIT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// PostgreSQL has everything of the transaction but the COMMIT (attack CR01).
    BeforeCommit,
    /// PostgreSQL has committed, and its answer is on its way (attack CR02).
    AfterCommit,
}

/// What happens to the connection then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// Both sides find it closed.
    Cut,
    /// The same, and so is every other one, until [`Proxy::let_through`].
    CutAndRefuse,
    /// Nothing gets through on it, until [`Proxy::thaw`]. Neither side can tell.
    Freeze,
}

/// A socket to PostgreSQL that can be told to fail.
#[derive(Debug)]
pub struct Proxy {
    folder: TempDir,
    database: Database,
    state: Arc<State>,
    accepting: JoinHandle<()>,
}

#[derive(Debug)]
struct State {
    server: PathBuf,
    armed: Mutex<Option<Armed>>,
    refusing: watch::Sender<bool>,
    thaws: watch::Sender<u64>,
}

#[derive(Debug)]
struct Armed {
    when: When,
    what: What,
    fired: oneshot::Sender<()>,
}

impl Proxy {
    /// In front of the server of this database.
    pub fn before(database: &Database) -> Self {
        let folder = tempfile::Builder::new().prefix("cs-proxy-").tempdir_in("/tmp").expect("a short folder");
        let socket = format!(".s.PGSQL.{}", database.cluster().port());
        let listener = UnixListener::bind(folder.path().join(&socket)).expect("a socket to listen on");
        let state = Arc::new(State {
            server: database.cluster().socket_dir().join(&socket),
            armed: Mutex::default(),
            refusing: watch::Sender::new(false),
            thaws: watch::Sender::new(0),
        });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&state)));
        Self { folder, database: database.clone(), state, accepting }
    }

    /// The connection string of the way through this proxy.
    pub fn url(&self) -> String {
        let (folder, port) = (self.folder.path().display(), self.database.cluster().port());
        format!("host={folder} port={port} user=postgres dbname={}", self.database.name())
    }

    /// Does this at the next COMMIT, once. The receiver hears when it has been done.
    pub fn arm(&self, when: When, what: What) -> oneshot::Receiver<()> {
        let (fired, heard) = oneshot::channel();
        *self.state.armed() = Some(Armed { when, what, fired });
        heard
    }

    /// Takes back what was armed and has not been done.
    pub fn disarm(&self) {
        self.state.armed().take();
    }

    /// After [`What::CutAndRefuse`].
    pub fn let_through(&self) {
        self.state.refusing.send_replace(false);
    }

    /// After [`What::Freeze`].
    pub fn thaw(&self) {
        self.state.thaws.send_modify(|thaws| *thaws += 1);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // Its connections are the task's own and go with it.
        self.accepting.abort();
    }
}

impl State {
    fn armed(&self) -> MutexGuard<'_, Option<Armed>> {
        self.armed.lock().expect("nobody panics while holding it")
    }

    fn take_armed(&self) -> Option<Armed> {
        self.armed().take()
    }
}

async fn accept(listener: UnixListener, state: Arc<State>) {
    let mut connections = JoinSet::new();
    loop {
        let (client, _) = listener.accept().await.expect("a connection");
        while connections.try_join_next().is_some() {}
        let state = Arc::clone(&state);
        connections.spawn(async move {
            let mut refusing = state.refusing.subscribe();
            // If PostgreSQL is down, the client sees a connection that closes at once.
            let Ok(server) = UnixStream::connect(&state.server).await else { return };
            tokio::select! {
                biased;
                _ = refusing.wait_for(|refusing| *refusing) => {}
                () = forward(client, server, &state) => {}
            }
        });
    }
}

/// Until one side closes, or the connection is cut.
async fn forward(client: UnixStream, server: UnixStream, state: &State) {
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    // What is to be done when the answer to the COMMIT comes by.
    let waiting = Mutex::new(None);
    tokio::select! {
        _ = requests(from_client, to_server, state, &waiting) => {}
        _ = answers(from_server, to_client, state, &waiting) => {}
    }
    // The connection ended without an answer to its COMMIT: the next one will do.
    if let Some(unused) = waiting.into_inner().expect("nobody panics while holding it") {
        state.armed().get_or_insert(unused);
    }
}

async fn requests(
    client: OwnedReadHalf,
    mut server: OwnedWriteHalf,
    state: &State,
    waiting: &Mutex<Option<Armed>>,
) -> io::Result<()> {
    let mut messages = Messages { stream: client, bytes: Vec::new(), tagged: false };
    let mut commits = HashSet::new();
    while let Some(message) = messages.next().await? {
        if is_commit(&message, &mut commits)
            && let Some(armed) = state.take_armed()
        {
            match armed.when {
                When::AfterCommit => *waiting.lock().expect("nobody panics while holding it") = Some(armed),
                When::BeforeCommit if strike(armed, state).await => return Ok(()),
                When::BeforeCommit => {}
            }
        }
        server.write_all(&message).await?;
    }
    Ok(())
}

async fn answers(
    server: OwnedReadHalf,
    mut client: OwnedWriteHalf,
    state: &State,
    waiting: &Mutex<Option<Armed>>,
) -> io::Result<()> {
    let mut messages = Messages { stream: server, bytes: Vec::new(), tagged: true };
    while let Some(message) = messages.next().await? {
        if message == *b"C\0\0\0\x0bCOMMIT\0" {
            let armed = waiting.lock().expect("nobody panics while holding it").take();
            if let Some(armed) = armed
                && strike(armed, state).await
            {
                return Ok(());
            }
        }
        client.write_all(&message).await?;
    }
    Ok(())
}

/// Does what was armed; whether the connection is to be closed now.
async fn strike(armed: Armed, state: &State) -> bool {
    // Before anybody hears of it: a thaw that follows at once must not be missed.
    let mut thaws = state.thaws.subscribe();
    if armed.what == What::CutAndRefuse {
        state.refusing.send_replace(true);
    }
    let _nobody_listens = armed.fired.send(());
    if armed.what == What::Freeze {
        let _proxy_gone = thaws.changed().await;
    }
    armed.what != What::Freeze
}

/// Whether this message from the client binds a `commit`; `commits` are the names of statements that are one.
fn is_commit(message: &[u8], commits: &mut HashSet<Vec<u8>>) -> bool {
    // Both begin with two strings: Parse with name and text, Bind with portal and name.
    let mut strings = message.get(5..).unwrap_or_default().split(|byte| *byte == 0);
    let (Some(first), Some(second)) = (strings.next(), strings.next()) else { return false };
    match message.first() {
        Some(b'P') if second == b"commit" => {
            commits.insert(first.to_vec());
            false
        }
        Some(b'P') => {
            commits.remove(first);
            false
        }
        Some(b'B') => commits.contains(second),
        _ => false,
    }
}

/// A stream cut into messages.
struct Messages<R> {
    stream: R,
    bytes: Vec<u8>,
    /// The very first message of a client has no type byte.
    tagged: bool,
}

impl<R: AsyncRead + Unpin> Messages<R> {
    /// The next message, whole; `None` at the end of the stream.
    async fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            let tag = usize::from(self.tagged);
            if let Some(length) = self.bytes.get(tag..tag + 4) {
                let length = u32::from_be_bytes([length[0], length[1], length[2], length[3]]);
                let size = tag + usize::try_from(length).expect("a size");
                if self.bytes.len() >= size {
                    self.tagged = true;
                    let rest = self.bytes.split_off(size);
                    return Ok(Some(std::mem::replace(&mut self.bytes, rest)));
                }
            }
            if self.stream.read_buf(&mut self.bytes).await? == 0 {
                return Ok(None);
            }
        }
    }
}
