//! A proxy between the server under test and PostgreSQL's unix socket, which loses connections at chosen moments.
//!
//! It forwards whole messages in both directions, and understands enough of the protocol to recognise the gate's
//! statements: the Bind of a statement parsed from a known text, and its CommandComplete. An admission commits
//! without a statement `commit`, so a fault that is armed for a COMMIT always hits the transaction of a write.

use std::collections::HashMap;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};

use crate::cluster::Database;

/// The moment of a write at which a fault is injected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultPoint {
    /// PostgreSQL has received the whole transaction except COMMIT.
    BeforeCommit,
    /// PostgreSQL has committed, and its answer is on its way.
    AfterCommit,
    /// The attempt is admitted and committed, and the answer is on its way.
    AfterAdmission,
    /// The work is rolled back, and its failure is about to be recorded.
    BeforeFailure,
    /// The failure of a write is recorded, and the answer is on its way.
    AfterFailure,
}

impl FaultPoint {
    /// Whether this is the text of the statement to wait for.
    fn is_at(self, sql: &[u8]) -> bool {
        match self {
            Self::BeforeCommit | Self::AfterCommit => sql == b"commit",
            Self::AfterAdmission => sql == b"commit and chain",
            Self::BeforeFailure | Self::AfterFailure => {
                sql.starts_with(b"select countersign.fail(") || sql.starts_with(b"select countersign.record_failure(")
            }
        }
    }

    /// Whether this message is the successful answer to the statement. PostgreSQL sends it after the pipeline, so
    /// after the commit.
    fn is_answered_by(self, message: &[u8]) -> bool {
        match self {
            Self::BeforeCommit | Self::AfterCommit | Self::AfterAdmission => message == b"C\0\0\0\x0bCOMMIT\0",
            Self::BeforeFailure | Self::AfterFailure => message == b"C\0\0\0\x0dSELECT 1\0",
        }
    }
}

/// Fault of a connection at the chosen point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionFault {
    /// Both sides see the connection closed.
    Cut,
    /// The proxy cuts all connections and refuses new ones until [`Proxy::accept_connections`].
    CutAndRefuse,
    /// Nothing is forwarded on the connection until [`Proxy::thaw`]. Neither side can notice this.
    Freeze,
}

/// A unix socket to PostgreSQL whose connections can be made to fail.
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
    /// A ParameterStatus message, or nothing.
    reported: Mutex<Vec<u8>>,
    refusing: watch::Sender<bool>,
    refused: watch::Sender<u64>,
    thaws: watch::Sender<u64>,
    swallows: watch::Sender<u64>,
    traffic: [AtomicUsize; 2],
    /// Pipelines that PostgreSQL has not answered to their ends.
    unanswered: watch::Sender<isize>,
}

#[derive(Debug)]
struct Armed {
    when: FaultPoint,
    what: ConnectionFault,
    fired: oneshot::Sender<()>,
}

impl Proxy {
    /// A proxy in front of the server of this database.
    pub fn before(database: &Database) -> Self {
        Self::before_socket(database, &database.socket_dir())
    }

    /// A proxy in front of the socket in this folder, such as a pooler's.
    pub fn before_socket(database: &Database, server: &Path) -> Self {
        let folder = tempfile::Builder::new()
            .prefix("cs-proxy-")
            // A pooler behind the proxy runs as another user.
            .permissions(PermissionsExt::from_mode(0o711))
            .tempdir_in("/tmp")
            .expect("a short folder");
        let socket = format!(".s.PGSQL.{}", database.port());
        let listener = UnixListener::bind(folder.path().join(&socket)).expect("a socket to listen on");
        let anybody = PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(folder.path().join(&socket), anybody).expect("a socket for everybody");
        let state = Arc::new(State {
            server: server.join(&socket),
            armed: Mutex::default(),
            reported: Mutex::default(),
            refusing: watch::Sender::new(false),
            refused: watch::Sender::new(0),
            thaws: watch::Sender::new(0),
            swallows: watch::Sender::new(0),
            traffic: Default::default(),
            unanswered: watch::Sender::new(0),
        });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&state)));
        Self { folder, database: database.clone(), state, accepting }
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// From now on, new connections are told the value of this parameter at their start, after PostgreSQL's own.
    pub fn report(&self, name: &str, value: &str) {
        let strings = [name, value].map(|text| format!("{text}\0")).concat();
        let length = u32::try_from(strings.len() + 4).expect("a short text");
        let message = [b"S", &length.to_be_bytes()[..], strings.as_bytes()].concat();
        *self.state.reported.lock().expect("nobody panics while holding it") = message;
    }

    /// The connection string through this proxy.
    pub fn url(&self) -> String {
        let (folder, port) = (self.folder.path().display(), self.database.port());
        format!("host={folder} port={port} user=postgres dbname={}", self.database.name())
    }

    /// The number of statements and of pipelines (ended by Sync) that were forwarded so far, without those that reset
    /// a session.
    pub fn traffic(&self) -> [usize; 2] {
        self.state.traffic.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    /// Injects this fault at the next such moment, once. The receiver is notified afterwards.
    pub fn arm(&self, when: FaultPoint, what: ConnectionFault) -> oneshot::Receiver<()> {
        let (fired, heard) = oneshot::channel();
        *self.state.armed() = Some(Armed { when, what, fired });
        heard
    }

    /// Cancels an armed fault that has not happened yet.
    pub fn disarm(&self) {
        self.state.armed().take();
    }

    /// Waits until a connection has been refused.
    pub async fn until_refused(&self) {
        self.state.refused.subscribe().wait_for(|refused| *refused > 0).await.expect("the state is ours");
    }

    /// Cuts all connections and refuses new ones, until [`Proxy::accept_connections`].
    pub fn refuse(&self) {
        self.state.refusing.send_replace(true);
    }

    /// Accepts connections again, after [`ConnectionFault::CutAndRefuse`] or [`Proxy::refuse`].
    pub fn accept_connections(&self) {
        self.state.refusing.send_replace(false);
    }

    /// Waits until everything that was forwarded to PostgreSQL has been answered, also the reset of a session that no
    /// call waits for.
    pub async fn until_answered(&self) {
        self.state.unanswered.subscribe().wait_for(|pipelines| *pipelines == 0).await.expect("the state is ours");
    }

    /// From now on, the open connections drop all data without either side noticing, as after a failover without RST.
    /// New connections work.
    pub fn swallow(&self) {
        self.state.swallows.send_modify(|swallows| *swallows += 1);
    }

    /// Forwards again after [`ConnectionFault::Freeze`].
    pub fn thaw(&self) {
        self.state.thaws.send_modify(|thaws| *thaws += 1);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // The connections belong to the task and are closed with it.
        self.accepting.abort();
    }
}

impl State {
    fn armed(&self) -> MutexGuard<'_, Option<Armed>> {
        self.armed.lock().expect("nobody panics while holding it")
    }

    fn take_armed_at(&self, sql: &[u8]) -> Option<Armed> {
        self.armed().take_if(|armed| armed.when.is_at(sql))
    }
}

async fn accept(listener: UnixListener, state: Arc<State>) {
    let mut connections = JoinSet::new();
    loop {
        let (client, _) = listener.accept().await.expect("a connection");
        while connections.try_join_next().is_some() {}
        let state = Arc::clone(&state);
        connections.spawn(async move {
            let (mut refusing, mut swallows) = (state.refusing.subscribe(), state.swallows.subscribe());
            if *refusing.borrow() {
                state.refused.send_modify(|refused| *refused += 1);
                return;
            }
            // If PostgreSQL is down, the client sees a connection that closes at once.
            let Ok(server) = UnixStream::connect(&state.server).await else { return };
            let forwarding = forward(client, server, &state);
            tokio::pin!(forwarding);
            let ended = async {
                tokio::select! {
                    biased;
                    // Both sockets stay open and unread.
                    _ = swallows.changed() => std::future::pending().await,
                    () = &mut forwarding => {}
                }
            };
            tokio::select! {
                biased;
                _ = refusing.wait_for(|refusing| *refusing) => {}
                () = ended => {}
            }
        });
    }
}

/// Forwards until one side closes or the connection is cut.
async fn forward(client: UnixStream, server: UnixStream, state: &State) {
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    // The fault to inject when the response passes.
    let waiting = Mutex::new(None);
    let progress = Progress::default();
    let unanswered = Unanswered::of(state);
    tokio::select! {
        _ = requests(from_client, to_server, &unanswered, &waiting, &progress) => {}
        _ = answers(from_server, to_client, &unanswered, &waiting, &progress) => {}
    }
    // The connection ended without that answer, so the fault applies to the next one.
    if let Some(unused) = waiting.into_inner().expect("nobody panics while holding it") {
        state.armed().get_or_insert(unused);
    }
}

async fn requests(
    client: OwnedReadHalf,
    mut server: OwnedWriteHalf,
    unanswered: &Unanswered<'_>,
    waiting: &Mutex<Option<Armed>>,
    progress: &Progress,
) -> io::Result<()> {
    let state = unanswered.state;
    let mut messages = Messages { stream: client, bytes: Vec::new(), tagged: false };
    let (mut prepared, mut is_reset) = (HashMap::new(), false);
    while let Some(message) = messages.next().await? {
        let sql = bound_statement(&message, &mut prepared);
        is_reset |= sql == Some(RESET);
        if let Some(sql) = sql
            && let Some(armed) = state.take_armed_at(sql)
        {
            let is_before = matches!(armed.when, FaultPoint::BeforeCommit | FaultPoint::BeforeFailure);
            *waiting.lock().expect("nobody panics while holding it") = Some(armed);
            if is_before {
                server.write_all(FLUSH).await?;
                progress.until_all_is_done().await;
                let armed = waiting.lock().expect("nobody panics while holding it").take();
                if inject(armed.expect("nobody else takes it before the COMMIT"), state).await {
                    return Ok(());
                }
            }
        }
        let [statements, pipelines] = &state.traffic;
        match message.first() {
            Some(b'E') => {
                progress.sent.fetch_add(1, Ordering::Relaxed);
                statements.fetch_add(usize::from(!is_reset), Ordering::Relaxed);
            }
            Some(b'S') => _ = pipelines.fetch_add(usize::from(!std::mem::take(&mut is_reset)), Ordering::Relaxed),
            _ => {}
        }
        unanswered.add(isize::from(matches!(message.first(), Some(b'S' | b'Q'))));
        server.write_all(&message).await?;
    }
    Ok(())
}

async fn answers(
    server: OwnedReadHalf,
    mut client: OwnedWriteHalf,
    unanswered: &Unanswered<'_>,
    waiting: &Mutex<Option<Armed>>,
    progress: &Progress,
) -> io::Result<()> {
    let mut messages = Messages { stream: server, bytes: Vec::new(), tagged: true };
    let mut reported = Some(unanswered.state.reported.lock().expect("nobody panics while holding it").clone());
    while let Some(message) = messages.next().await? {
        // BackendKeyData follows PostgreSQL's own ParameterStatus messages.
        if message.first() == Some(&b'K')
            && let Some(reported) = reported.take()
        {
            client.write_all(&reported).await?;
        }
        let armed = waiting
            .lock()
            .expect("nobody panics while holding it")
            .take_if(|armed: &mut Armed| armed.when.is_answered_by(&message));
        if let Some(armed) = armed
            && inject(armed, unanswered.state).await
        {
            return Ok(());
        }
        progress.hears(&message);
        client.write_all(&message).await?;
        unanswered.add(-isize::from(message.first() == Some(&b'Z')));
    }
    Ok(())
}

/// The first statement of the pipeline that resets a session. No call waits for this pipeline, so it is not counted.
const RESET: &[u8] = b"set session authorization default";

/// A Flush message.
const FLUSH: &[u8] = b"H\0\0\0\x04";

/// Numbers of statements sent and completed on a connection.
#[derive(Default)]
struct Progress {
    sent: AtomicUsize,
    done: watch::Sender<usize>,
}

impl Progress {
    fn hears(&self, message: &[u8]) {
        match message.first() {
            Some(b'C' | b'I') => self.done.send_modify(|done| *done += 1),
            // After an error the rest is skipped, and ReadyForQuery follows.
            Some(b'E' | b'Z') => drop(self.done.send_replace(self.sent.load(Ordering::Relaxed))),
            _ => {}
        }
    }

    /// Waits until every statement that was sent has completed, so that a transaction that loses its COMMIT has done
    /// everything else.
    async fn until_all_is_done(&self) {
        let sent = self.sent.load(Ordering::Relaxed);
        self.done.subscribe().wait_for(|done| *done >= sent).await.expect("the sender is ours");
    }
}

/// The pipelines of a connection that PostgreSQL has not answered to their ends. Its start is one as well.
struct Unanswered<'a> {
    state: &'a State,
    pipelines: AtomicIsize,
}

impl<'a> Unanswered<'a> {
    fn of(state: &'a State) -> Self {
        let start = Self { state, pipelines: AtomicIsize::new(0) };
        start.add(1);
        start
    }

    fn add(&self, pipelines: isize) {
        self.pipelines.fetch_add(pipelines, Ordering::Relaxed);
        self.state.unanswered.send_modify(|all| *all += pipelines);
    }
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        self.add(-self.pipelines.load(Ordering::Relaxed));
    }
}

/// Injects the armed fault. Returns whether the connection must be closed now.
async fn inject(armed: Armed, state: &State) -> bool {
    // Subscribed before the receiver is notified, so that an immediate thaw is not missed.
    let mut thaws = state.thaws.subscribe();
    if armed.what == ConnectionFault::CutAndRefuse {
        state.refusing.send_replace(true);
    }
    let _nobody_listens = armed.fired.send(());
    if armed.what == ConnectionFault::Freeze {
        let _proxy_gone = thaws.changed().await;
    }
    armed.what != ConnectionFault::Freeze
}

/// The text of the statement that this message of the client binds. `prepared` has the texts of parsed statements by
/// name.
fn bound_statement<'a>(message: &[u8], prepared: &'a mut HashMap<Vec<u8>, Vec<u8>>) -> Option<&'a [u8]> {
    // Both messages begin with two strings: Parse with name and text, Bind with portal and name.
    let mut strings = message.get(5..)?.split(|byte| *byte == 0);
    let (first, second) = (strings.next()?, strings.next()?);
    match message.first()? {
        b'P' => {
            prepared.insert(first.to_vec(), second.to_vec());
            None
        }
        b'B' => prepared.get(second).map(Vec::as_slice),
        _ => None,
    }
}

/// Splits a stream into messages.
struct Messages<R> {
    stream: R,
    bytes: Vec<u8>,
    /// The very first message of a client has no type byte.
    tagged: bool,
}

impl<R: AsyncRead + Unpin> Messages<R> {
    /// The next message; `None` at the end of the stream.
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
