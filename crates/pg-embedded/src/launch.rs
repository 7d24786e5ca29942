//! Starts the server and waits until it answers.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::binaries::Binaries;
use crate::environment;
use crate::error::{Error, at};
use crate::initdb::last_lines;
use crate::place::{PORT, Place, socket_path};
use crate::postmaster::{self, Found};
use crate::probe::{self, Answer};
use crate::process::{self, wait_until};

/// How long a server may take until it answers, recovery included.
pub(crate) const READY_LIMIT: Duration = Duration::from_secs(30);

/// How long one login attempt may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// The log is put aside at a start when it is longer than this.
const LOG_LIMIT: u64 = 10 << 20;

/// How much of the log an error shows.
const LOG_LINES: usize = 20;

/// A program that is to run as the server's user, in a group of its own (Ctrl-C in our terminal is not for it), which
/// writes its process id into the place's `child` file before it does anything else, so that a watcher can end it
/// whenever we die. Its standard error is the caller's choice.
pub(crate) fn child_command(place: &Place, program: &Path) -> Result<Command, Error> {
    let path = place.home().join("child");
    let child = File::create(&path).map_err(at("create", &path))?;
    // Neither our connection strings and keys, nor libpq's variables, nor a locale that this machine may not have.
    let mut command = environment::plain("/bin/sh");
    command.args(["-c", r#"echo $$; exec "$0" "$@" >&2"#]).arg(program);
    command.current_dir("/").stdin(Stdio::null()).stdout(child).process_group(0);
    command.env("LC_ALL", "C").env("HOME", "/");
    place.account().applied_to(&mut command);
    Ok(command)
}

/// What every server of ours runs with. A caller's settings come later and win.
fn base_settings(place: &Place) -> Vec<(&'static str, String)> {
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
    if place.is_temporary() {
        // Commits wait for the WAL as always, so that their order and a crash of the server are as in earnest; only a
        // crash of the machine would tell the difference, and then the folder is lost anyway.
        settings.extend([
            ("fsync", "off".to_owned()),
            ("full_page_writes", "off".to_owned()),
            ("synchronous_commit", "on".to_owned()),
            ("shared_buffers", "16MB".to_owned()),
        ]);
    }
    settings
}

/// What makes the cluster private and recognisable; no caller may change it.
fn fixed_settings(place: &Place) -> [(&'static str, String); 4] {
    [
        ("unix_socket_directories", place.socket_dir().display().to_string()),
        ("unix_socket_permissions", "0700".to_owned()),
        ("port", PORT.to_string()),
        ("cluster_name", place.cluster_name().to_owned()),
    ]
}

/// Writes the server's configuration. It lies outside the data folder, so that nothing of a former run remains in force.
pub(crate) fn write_configuration(place: &Place, chosen: &[(String, String)]) -> Result<(), Error> {
    let fixed = fixed_settings(place);
    let mut text = String::from("# Written by countersign at each start.\n");
    let mut put = |name: &str, value: &str| {
        let value = value.replace('\\', "\\\\").replace('\'', "''").replace('\n', "\\n");
        text.push_str(&format!("{name} = '{value}'\n"));
    };
    for (name, value) in &base_settings(place) {
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
    let path = place.home().join("server.conf");
    fs::write(&path, text).map_err(at("write", &path))
}

/// Removes what a dead server left that would keep a new one from starting. Under the start lock, with no server alive.
pub(crate) fn clear_the_way(place: &Place) -> Result<(), Error> {
    if let Found::Stale(lock) = postmaster::look_at(&place.data()) {
        // Its children hold the shared memory; PostgreSQL refuses to start while they live.
        if !process::end_children_of_cluster(place.cluster_name(), &place.data()) {
            return Err(Error::DidNotStop { pid: lock.pid });
        }
        // PostgreSQL takes whatever has that process id for the server, even a zombie or another program. A zombie is
        // reaped at once if its parent is a countersign; what still exists then has nothing to do with this data.
        wait_until(Duration::from_secs(1), || !process::exists(lock.pid) || process::runs(lock.pid));
        if process::exists(lock.pid) {
            let path = place.data().join("postmaster.pid");
            fs::remove_file(&path).map_err(at("remove", &path))?;
        }
    }
    let socket = socket_path(place.socket_dir());
    for path in [socket.with_file_name(format!(".s.PGSQL.{PORT}.lock")), socket] {
        if path.symlink_metadata().is_ok() {
            fs::remove_file(&path).map_err(at("remove", &path))?;
        }
    }
    Ok(())
}

/// A server that we started: its process is reaped the moment it ends, whoever ended it.
#[derive(Debug, Clone)]
pub(crate) struct Reaped {
    pid: i32,
    exit: Arc<Mutex<Option<ExitStatus>>>,
}

impl Reaped {
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

/// A server that answers.
#[derive(Debug, Clone)]
pub(crate) struct Running {
    pub(crate) pid: i32,
    pub(crate) socket_dir: std::path::PathBuf,
    /// `server_version`, empty if the server was too busy to tell.
    pub(crate) version: String,
}

/// Starts the server on data that exists, with the way cleared, and waits until it answers. Under the start lock. If it
/// fails, no server is left running.
pub(crate) fn launch(place: &Place, binaries: &Binaries) -> Result<Running, Error> {
    let log = place.log();
    let (file, from) = open_log(&log)?;
    let program = binaries.program("postgres");
    let mut command = child_command(place, &program)?;
    command.arg("-D").arg(place.data()).arg("-c");
    command.arg(format!("config_file={}", place.home().join("server.conf").display()));
    let child = command
        .stderr(file)
        .spawn()
        .map_err(|source| Error::Program { program: program.display().to_string(), source })?;
    let server = Reaped::adopt(child);
    wait_ready(place, &server, from).inspect_err(|_| {
        process::send(server.pid, Signal::SIGQUIT);
        if !wait_until(Duration::from_secs(5), || server.exit().is_some()) {
            process::send(server.pid, Signal::SIGKILL);
        }
    })
}

fn wait_ready(place: &Place, server: &Reaped, from: u64) -> Result<Running, Error> {
    let mut running = None;
    let mut ended = None;
    wait_until(READY_LIMIT, || {
        ended = server.exit();
        running = answering(place).filter(|running| running.pid == server.pid);
        ended.is_some() || running.is_some()
    });
    match (running, ended) {
        (Some(running), None) => Ok(running),
        (_, Some(status)) => Err(did_not_start(place, format!("ended while it was starting ({status})"), from)),
        (None, None) => {
            let reason = format!("did not answer within {} s", READY_LIMIT.as_secs());
            Err(did_not_start(place, reason, from))
        }
    }
}

/// The server of this place, if it says that it is ready and a login proves it.
pub(crate) fn answering(place: &Place) -> Option<Running> {
    let Found::Alive(lock) = postmaster::look_at(&place.data()) else { return None };
    let socket_dir = lock.socket_dir.filter(|_| lock.status == "ready")?;
    match probe::ask(&socket_path(&socket_dir), PATIENCE) {
        Answer::Ready(version) => Some(Running { pid: lock.pid, socket_dir, version }),
        Answer::NotYet => None,
    }
}

/// An error with the end of the server's log, from a position on.
pub(crate) fn did_not_start(place: &Place, reason: String, from: u64) -> Error {
    let log = place.log();
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
