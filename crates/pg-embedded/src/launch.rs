//! Starts the server and waits until it answers.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::binaries::Binaries;
use crate::cluster_dir::{ClusterDir, PORT, socket_path};
use crate::error::{Error, at, last_lines};
use crate::postmaster::{self, ServerState};
use crate::probe::{self, ProbeResult};
use crate::process::{self, wait_until};

/// Time limit of a start, recovery included.
pub(crate) const READY_LIMIT: Duration = Duration::from_secs(30);

const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

/// Size in bytes beyond which a start renames the log.
const LOG_LIMIT: u64 = 10 << 20;

const LOG_LINES: usize = 20;

/// The settings of every cluster. The caller's settings follow and take precedence.
fn base_settings(dir: &ClusterDir) -> Vec<(&'static str, String)> {
    let mut settings = vec![
        ("listen_addresses", String::new()),
        ("log_destination", "stderr".to_owned()),
        ("logging_collector", "off".to_owned()),
        ("log_line_prefix", "%m [%p] ".to_owned()),
        ("log_timezone", "UTC".to_owned()),
        ("timezone", "UTC".to_owned()),
        ("max_connections", "100".to_owned()),
        ("shared_buffers", "64MB".to_owned()),
    ];
    if dir.is_temporary() {
        // Commits still wait for the WAL, so that a crash of the server behaves as usual. A crash of the machine
        // loses the temporary folder anyway.
        settings.extend([
            ("fsync", "off".to_owned()),
            ("full_page_writes", "off".to_owned()),
            ("synchronous_commit", "on".to_owned()),
            ("shared_buffers", "16MB".to_owned()),
            // Loading the JIT compiler, or starting workers, costs more than any query on a small database.
            ("jit", "off".to_owned()),
            ("max_parallel_workers_per_gather", "0".to_owned()),
        ]);
    }
    settings
}

/// The settings that keep the cluster private and identify its processes. The caller cannot change them.
fn fixed_settings(dir: &ClusterDir) -> [(&'static str, String); 4] {
    [
        ("unix_socket_directories", dir.socket_dir().display().to_string()),
        ("unix_socket_permissions", "0700".to_owned()),
        ("port", PORT.to_string()),
        ("cluster_name", dir.cluster_name().to_owned()),
    ]
}

/// Writes the server's configuration. It is outside the data folder, so that no setting of an earlier run applies.
pub(crate) fn write_configuration(dir: &ClusterDir, chosen: &[(String, String)]) -> Result<(), Error> {
    let fixed = fixed_settings(dir);
    let mut text = String::from("# Written by countersign at each start.\n");
    let mut put = |name: &str, value: &str| {
        let value = value.replace('\\', "\\\\").replace('\'', "''").replace('\n', "\\n");
        text.push_str(&format!("{name} = '{value}'\n"));
    };
    for (name, value) in &base_settings(dir) {
        put(name, value);
    }
    for (name, value) in chosen {
        let plain = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'.');
        if !plain || fixed.iter().any(|(fixed, _)| fixed.eq_ignore_ascii_case(name)) {
            let what = format!("{name:?} is not a server setting that can be chosen for an embedded cluster");
            return Err(Error::Invalid { what });
        }
        put(name, value);
    }
    for (name, value) in &fixed {
        put(name, value);
    }
    let path = dir.home().join("server.conf");
    fs::write(&path, text).map_err(at("write", &path))
}

/// Removes what a dead server left behind and what would keep a new one from starting. Needs the start lock, while no
/// server is running.
pub(crate) fn remove_dead_server(dir: &ClusterDir) -> Result<(), Error> {
    if let ServerState::Stale(lock) = postmaster::server_state(&dir.data()) {
        // Its children still use the shared memory; PostgreSQL refuses to start while they run.
        if !process::end_children_of_cluster(dir.cluster_name(), &dir.data()) {
            return Err(Error::DidNotStop { pid: lock.pid });
        }
        // PostgreSQL takes any process with that id for the server, even a zombie or another program. A zombie whose
        // parent is a countersign process is reaped at once. A process that still exists after this wait is not the
        // server.
        wait_until(Duration::from_secs(1), || !process::exists(lock.pid) || process::runs(lock.pid));
        if process::exists(lock.pid) {
            let path = dir.data().join("postmaster.pid");
            fs::remove_file(&path).map_err(at("remove", &path))?;
        }
    }
    let socket = socket_path(dir.socket_dir());
    for path in [socket.with_file_name(format!(".s.PGSQL.{PORT}.lock")), socket] {
        if path.symlink_metadata().is_ok() {
            fs::remove_file(&path).map_err(at("remove", &path))?;
        }
    }
    Ok(())
}

/// A server that this process started. A thread reaps it as soon as it ends.
#[derive(Debug, Clone)]
pub(crate) struct ServerChild {
    pid: i32,
    exit: Arc<Mutex<Option<ExitStatus>>>,
}

impl ServerChild {
    fn adopt(mut child: Child) -> Self {
        let pid = i32::try_from(child.id()).unwrap_or_default();
        let exit = Arc::new(Mutex::new(None));
        let seen = Arc::clone(&exit);
        thread::spawn(move || {
            let status = child.wait();
            *seen.lock().unwrap_or_else(PoisonError::into_inner) = status.ok();
        });
        Self { pid, exit }
    }

    fn exit(&self) -> Option<ExitStatus> {
        *self.exit.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Clone)]
pub(crate) struct ServerProcess {
    pub(crate) pid: i32,
    pub(crate) socket_dir: std::path::PathBuf,
    /// `server_version`, empty if the server refused the login because it had too many clients.
    pub(crate) version: String,
}

/// Starts the server on existing data, after [`remove_dead_server`], and waits until it answers. Needs the start
/// lock. After a failure no server is running.
pub(crate) fn launch(dir: &ClusterDir, binaries: &Binaries) -> Result<ServerProcess, Error> {
    let log = dir.log();
    let (file, from) = open_log(&log)?;
    let program = binaries.program("postgres");
    let mut command = dir.command(&program);
    command.arg("-D").arg(dir.data()).arg("-c");
    command.arg(format!("config_file={}", dir.home().join("server.conf").display()));
    let child = command
        .stderr(file)
        .spawn()
        .map_err(|source| Error::Program { program: program.display().to_string(), source })?;
    let server = ServerChild::adopt(child);
    wait_ready(dir, &server, from).inspect_err(|_| {
        process::send(server.pid, Signal::SIGQUIT);
        if !wait_until(Duration::from_secs(5), || server.exit().is_some()) {
            process::send(server.pid, Signal::SIGKILL);
        }
    })
}

fn wait_ready(dir: &ClusterDir, server: &ServerChild, from: u64) -> Result<ServerProcess, Error> {
    let mut running = None;
    let mut ended = None;
    wait_until(READY_LIMIT, || {
        ended = server.exit();
        running = answering(dir).filter(|running| running.pid == server.pid);
        ended.is_some() || running.is_some()
    });
    match (running, ended) {
        (Some(running), None) => Ok(running),
        (_, Some(status)) => Err(did_not_start(dir, format!("ended while it was starting ({status})"), from)),
        (None, None) => {
            let reason = format!("did not answer within {} s", READY_LIMIT.as_secs());
            Err(did_not_start(dir, reason, from))
        }
    }
}

/// The server of this folder, if its `postmaster.pid` says `ready` and a login succeeds.
pub(crate) fn answering(dir: &ClusterDir) -> Option<ServerProcess> {
    let ServerState::Alive(lock) = postmaster::server_state(&dir.data()) else { return None };
    let socket_dir = lock.socket_dir.filter(|_| lock.status == "ready")?;
    match probe::ask(&socket_path(&socket_dir), PROBE_TIMEOUT) {
        ProbeResult::Ready(version) => Some(ServerProcess { pid: lock.pid, socket_dir, version }),
        ProbeResult::NotYet => None,
    }
}

/// An error with the last lines of the server's log after a position.
pub(crate) fn did_not_start(dir: &ClusterDir, reason: String, from: u64) -> Error {
    let log = dir.log();
    let mut text = Vec::new();
    let _best_effort = File::open(&log).and_then(|mut file| {
        file.seek(SeekFrom::Start(from))?;
        file.take(LOG_LIMIT).read_to_end(&mut text)
    });
    let tail = last_lines(&String::from_utf8_lossy(&text), LOG_LINES);
    Error::DidNotStart { reason, log, tail: if tail.is_empty() { "(empty)".to_owned() } else { tail } }
}

fn open_log(log: &Path) -> Result<(File, u64), Error> {
    if log.metadata().is_ok_and(|found| found.len() > LOG_LIMIT) {
        fs::rename(log, log.with_extension("old")).map_err(at("rename", log))?;
    }
    let file = OpenOptions::new().create(true).append(true).open(log).map_err(at("open", log))?;
    let length = file.metadata().map_err(at("look at", log))?.len();
    Ok((file, length))
}
