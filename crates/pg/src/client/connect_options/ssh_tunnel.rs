//! A tunnel through a bastion: the user's own `ssh` forwards a unix socket in a private folder to the database's
//! server. The socket carries what a TCP connection would: TLS is negotiated with the database, for its own name.
//!
//! A unix socket, since other users of the machine could use a port. One `ssh -L` for all connections to a server, and
//! not one `ssh -W` for each: people confirm the use of their keys, and bastions limit logins.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::process::{Child, ChildStderr, ChildStdin, Command};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::ConnectOptionsError;
pub use super::ssh_guard::guard_ssh;
use super::ssh_guard::{GUARD, SOCKET};

/// The time limit for `ssh` to log in and to listen.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// The interval at which a starting tunnel is tried.
const TRY_INTERVAL: Duration = Duration::from_millis(20);

/// The pause after a first failure. It doubles after each further one: a bastion may lock out who fails often.
const FIRST_PAUSE: Duration = Duration::from_millis(250);

const MAX_PAUSE: Duration = Duration::from_secs(15);

/// The time that a tunnel must last for its end to be no failure of a series.
const STABLE_TIME: Duration = Duration::from_secs(60);

/// The least time between two logged messages of one running `ssh`.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// The longest wait for a message about a failed connection.
const LOG_DELAY: Duration = Duration::from_millis(200);

/// The bytes of standard error that are kept.
const MAX_KEPT_BYTES: usize = 1000;

/// The lines of standard error that a reason quotes: the last ones.
const QUOTED_LINES: usize = 3;

/// What applies whatever the user's configuration says. The tunnel has a connection of its own, since its process has
/// to end with it, and runs nothing.
const OPTIONS: [&str; 8] = [
    "BatchMode=yes",
    "ExitOnForwardFailure=yes",
    "ServerAliveInterval=10",
    "ServerAliveCountMax=3",
    "ControlMaster=no",
    "ControlPath=none",
    "PermitLocalCommand=no",
    "LogLevel=INFO",
];

/// The tunnels through one bastion. Clones share them. A tunnel opens at the first connection to its server.
#[derive(Debug, Clone)]
pub struct SshTunnel {
    bastion: Arc<Bastion>,
    forwards: Arc<Mutex<HashMap<(String, u16), SharedForward>>>,
}

#[derive(Debug)]
struct Bastion {
    destination: String,
    /// Notified when something that `ssh` has written was logged.
    logged: Notify,
}

impl PartialEq for SshTunnel {
    fn eq(&self, other: &Self) -> bool {
        self.bastion.destination == other.bastion.destination
    }
}

impl SshTunnel {
    /// A tunnel through a destination of `ssh`: `user@bastion`, a name of its configuration, or
    /// `ssh://user@bastion:port`.
    ///
    /// # Errors
    /// [`ConnectOptionsError`] if the text would be an option of `ssh`, or is no destination.
    pub fn new(destination: String) -> Result<Self, ConnectOptionsError> {
        if destination.is_empty()
            || destination.starts_with('-')
            || destination.contains(|c: char| c.is_whitespace() || c.is_control())
        {
            let problem = "it is a destination of ssh: user@bastion, or a name of ~/.ssh/config".to_owned();
            return Err(ConnectOptionsError::Setting { origin: "ssh_tunnel".to_owned(), problem });
        }
        Ok(Self { bastion: Arc::new(Bastion { destination, logged: Notify::new() }), forwards: Arc::default() })
    }

    /// Connects to a server, whose name the bastion looks up. The log has the reason of a failure, since agents read
    /// errors and `ssh` may have written anything.
    pub(crate) async fn connect(&self, host: &str, port: u16) -> io::Result<UnixStream> {
        let forward = {
            let mut forwards = self.forwards.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(forwards.entry((host.to_owned(), port)).or_default())
        };
        let (bastion, host) = (Arc::clone(&self.bastion), host.to_owned());
        // In a task: a caller that gives up leaves the tunnel to the next one.
        let task = tokio::spawn(async move { forward.lock().await.connect(&bastion, &host, port).await });
        task.await.ok().flatten().ok_or_else(|| {
            let message = "the SSH tunnel is not open; the log, and `countersign doctor`, say why";
            io::Error::new(io::ErrorKind::NetworkUnreachable, message)
        })
    }

    /// Waits until the log has what `ssh` says of a failed connection, which comes at about the same time: a command
    /// ends with its error.
    pub(crate) async fn until_logged(&self) {
        let _ = timeout(LOG_DELAY, self.bastion.logged.notified()).await;
    }
}

type SharedForward = Arc<tokio::sync::Mutex<Forward>>;

/// The tunnel to one server.
#[derive(Debug, Default)]
struct Forward {
    ssh: Option<Ssh>,
    /// The number of failures in a row, and when the last one was.
    failures: u32,
    failed_at: Option<Instant>,
}

impl Forward {
    async fn connect(&mut self, bastion: &Arc<Bastion>, host: &str, port: u16) -> Option<UnixStream> {
        let destination = bastion.destination.as_str();
        if let Some(mut ssh) = self.ssh.take() {
            if let Ok(None) = ssh.guard.try_wait() {
                return UnixStream::connect(&self.ssh.insert(ssh).socket).await.ok();
            }
            let failures_before = if ssh.since.elapsed() < STABLE_TIME { self.failures } else { 0 };
            self.failed(bastion, &ssh.said.reason().await, failures_before);
        }
        if self.failed_at.is_some_and(|at| at.elapsed() < pause(self.failures)) {
            return None;
        }
        match Ssh::start(bastion, host, port).await {
            Ok((ssh, stream)) => {
                tracing::info!(destination, host, port, "the SSH tunnel is open");
                self.ssh = Some(ssh);
                Some(stream)
            }
            Err(reason) => {
                self.failed(bastion, &reason, self.failures);
                None
            }
        }
    }

    fn failed(&mut self, bastion: &Bastion, reason: &str, failures_before: u32) {
        tracing::warn!(destination = bastion.destination, reason, "there is no SSH tunnel");
        bastion.logged.notify_one();
        (self.failures, self.failed_at) = (failures_before + 1, Some(Instant::now()));
    }
}

fn pause(failures: u32) -> Duration {
    FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1))).min(MAX_PAUSE)
}

/// A running `ssh`.
#[derive(Debug)]
struct Ssh {
    guard: Child,
    /// Closed when this is dropped, and when the process ends however it does: then the guard ends `ssh`.
    _lifeline: Option<ChildStdin>,
    socket: PathBuf,
    said: StandardError,
    since: Instant,
}

impl Ssh {
    /// Starts `ssh`, and connects as soon as it listens.
    async fn start(bastion: &Arc<Bastion>, host: &str, port: u16) -> Result<(Self, UnixStream), String> {
        let failed = |error: io::Error| format!("ssh cannot be run: {error}");
        let private = std::fs::Permissions::from_mode(0o700);
        let folder = tempfile::Builder::new().prefix("countersign-ssh-").permissions(private).tempdir();
        let folder = folder.map_err(failed)?;
        let socket = folder.path().join(SOCKET);
        let mut forward = OsString::from(&socket);
        forward.push(if host.contains(':') { format!(":[{host}]:{port}") } else { format!(":{host}:{port}") });
        let mut command = Command::new(own_program().map_err(failed)?);
        command.arg(GUARD).arg(folder.path()).arg("-N");
        OPTIONS.iter().for_each(|option| {
            command.args(["-o", option]);
        });
        command.arg("-L").arg(forward).arg("--").arg(&bastion.destination);
        for (name, _) in std::env::vars_os() {
            if name.to_str().is_some_and(|name| name.starts_with("COUNTERSIGN_") || name.starts_with("PG"))
                || name == "DATABASE_URL"
            {
                // Passwords are not for ssh.
                command.env_remove(name);
            }
        }
        // Of a process group of its own, so that Ctrl-C in a terminal does not end what running calls still use.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut guard = command.spawn().map_err(failed)?;
        // The guard removes it.
        let _ = folder.keep();
        let (lifeline, said) = (guard.stdin.take(), StandardError::read(guard.stderr.take(), bastion));
        let began = Instant::now();
        while began.elapsed() < START_TIMEOUT {
            if timeout(TRY_INTERVAL, guard.wait()).await.is_ok() {
                return Err(said.reason().await);
            }
            if let Ok(stream) = UnixStream::connect(&socket).await {
                said.log_from_now_on();
                return Ok((Self { guard, _lifeline: lifeline, socket, said, since: Instant::now() }, stream));
            }
        }
        Err(format!("ssh did not open a tunnel within {} s", START_TIMEOUT.as_secs()))
    }
}

/// This program, also when its file has been replaced.
fn own_program() -> io::Result<PathBuf> {
    if cfg!(target_os = "linux") { Ok(PathBuf::from("/proc/self/exe")) } else { std::env::current_exe() }
}

/// What `ssh` writes to standard error.
#[derive(Debug)]
struct StandardError {
    kept: Arc<Mutex<Kept>>,
    reading: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Kept {
    bytes: Vec<u8>,
    is_logged: bool,
}

impl StandardError {
    fn read(stream: Option<ChildStderr>, bastion: &Arc<Bastion>) -> Self {
        let kept = Arc::<Mutex<Kept>>::default();
        let reading = tokio::spawn(read_all(stream, Arc::clone(&kept), Arc::clone(bastion)));
        Self { kept, reading }
    }

    /// What was written before an open tunnel, such as a banner, was no failure.
    fn log_from_now_on(&self) {
        *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = Kept { is_logged: true, ..Kept::default() };
    }

    /// The last lines of an `ssh` that has ended.
    async fn reason(self) -> String {
        // A program that ssh has started may still have the stream.
        let _ = timeout(Duration::from_secs(1), self.reading).await;
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        Some(last_lines(&kept.bytes)).filter(|lines| !lines.is_empty()).unwrap_or_else(|| "ssh has ended".to_owned())
    }
}

async fn read_all(stream: Option<ChildStderr>, kept: Arc<Mutex<Kept>>, bastion: Arc<Bastion>) {
    let Some(mut stream) = stream else { return };
    let (mut bytes, mut logged_at) = ([0; MAX_KEPT_BYTES], None::<Instant>);
    while let Ok(count @ 1..) = stream.read(&mut bytes).await {
        let written = bytes.get(..count).unwrap_or_default();
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.bytes.extend_from_slice(written);
        let excess = kept.bytes.len().saturating_sub(MAX_KEPT_BYTES);
        kept.bytes.drain(..excess);
        if !kept.is_logged {
            continue;
        }
        if logged_at.is_none_or(|at| at.elapsed() >= LOG_INTERVAL) {
            logged_at = Some(Instant::now());
            tracing::warn!(ssh = last_lines(written), "a connection through the SSH tunnel failed");
        }
        bastion.logged.notify_one();
    }
}

fn last_lines(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let last = lines.get(lines.len().saturating_sub(QUOTED_LINES)..).unwrap_or_default();
    types::visible(&last.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_is_no_option_of_ssh() {
        for wrong in ["", "-oProxyCommand=touch /tmp/x", "a b", "bastion\n"] {
            let error = SshTunnel::new(wrong.to_owned()).unwrap_err().to_string();
            assert!(error.starts_with("ssh_tunnel: it is a destination of ssh"), "{error}");
        }
        for right in ["bastion", "anna@bastion.example.com", "ssh://anna@[::1]:2222"] {
            assert!(SshTunnel::new(right.to_owned()).is_ok(), "{right}");
        }
    }

    #[test]
    fn pauses_grow_up_to_a_limit() {
        assert_eq!([1, 2, 3, 7, 99].map(|failures| pause(failures).as_millis()), [250, 500, 1000, 15_000, 15_000]);
    }

    #[test]
    fn a_reason_is_the_last_lines_in_which_nothing_is_hidden() {
        let said = b"@@@@\r\n\r\nOffending key\r\nkey has \x1b[31mchanged\r\nHost key verification failed.\r\n";
        assert_eq!(last_lines(said), "Offending key; key has \\u001b[31mchanged; Host key verification failed.");
        assert_eq!(last_lines(b"\xff"), "\u{fffd}");
    }
}
