//! The handle of a running cluster: starts or attaches to the server, crashes, restarts and stops it.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::binaries::Binaries;
use crate::cluster_dir::{ClusterDir, PORT, is_private_to};
use crate::error::Error;
use crate::file_lock::FileLock;
use crate::initdb;
use crate::launch::{self, READY_LIMIT, ServerProcess};
use crate::options::Options;
use crate::postmaster::{self, ServerState};
use crate::process::{self, wait_until};
use crate::progress::Progress;
use crate::reaper::Reaper;
use crate::version::Version;

/// A running PostgreSQL server, and this process's use of it. Dropping the handle of the last user stops the server,
/// and blocks until it has stopped, for at most 20 seconds. If the process is killed or never drops the handle, the
/// reaper process removes a temporary cluster; the server of a persistent cluster keeps running until the next user
/// attaches to it and leaves.
#[derive(Debug)]
pub struct Cluster {
    dir: ClusterDir,
    binaries: Binaries,
    settings: Vec<(String, String)>,
    running: Mutex<ServerProcess>,
    attached: bool,
    /// `None` after [`Cluster::leave`] has taken it.
    registration: Option<Registration>,
}

/// The locks and the reaper of a process that uses a cluster.
#[derive(Debug)]
struct Registration {
    in_use: FileLock,
    reaper: Option<Reaper>,
}

impl Cluster {
    /// Starts the cluster's server, or attaches to it if it already serves this folder. Creates the data first if
    /// there is none. On return, the server answers on its socket. Blocks: about a second with new data, otherwise
    /// less than 100 ms, and up to a minute if the programs must be fetched. So do not call it on an async thread.
    pub fn start(options: Options, progress: &mut dyn FnMut(Progress)) -> Result<Self, Error> {
        let begun = Instant::now();
        let dir = ClusterDir::open(&options)?;
        let started = start_at(&dir, &options, progress);
        match started {
            Ok((registration, binaries, running, attached)) => {
                progress(Progress::Ready { elapsed: begun.elapsed() });
                let running = Mutex::new(running);
                Ok(Self {
                    dir,
                    binaries,
                    settings: options.settings,
                    running,
                    attached,
                    registration: Some(registration),
                })
            }
            Err(error) => {
                if dir.is_temporary() {
                    dir.remove();
                }
                Err(error)
            }
        }
    }

    /// A connection string in libpq's keywords, as superuser `postgres`, for this database.
    pub fn connection_string(&self, dbname: &str) -> String {
        let dbname = dbname.replace('\\', "\\\\").replace('\'', "\\'");
        format!("host={} port={PORT} user=postgres dbname='{dbname}'", self.socket_dir().display())
    }

    /// The folder of the unix socket. Its path is short and needs no quoting. Only its owner and root can enter it.
    pub fn socket_dir(&self) -> PathBuf {
        self.running().socket_dir.clone()
    }

    /// The port, which is part of the socket's name. No TCP port is open.
    pub fn port(&self) -> u16 {
        PORT
    }

    /// The server's version, as it reported it at login.
    pub fn version(&self) -> Version {
        Version::parse(&self.running().version).unwrap_or(self.binaries.version())
    }

    /// The process id of the postmaster, or of the last one if the server is down.
    pub fn pid(&self) -> i32 {
        match postmaster::server_state(&self.dir.data()) {
            ServerState::Alive(lock) => lock.pid,
            _ => self.running().pid,
        }
    }

    pub fn log_path(&self) -> PathBuf {
        self.dir.log()
    }

    pub fn data_dir(&self) -> PathBuf {
        self.dir.data()
    }

    /// The programs of the server's installation.
    pub fn binaries(&self) -> &Binaries {
        &self.binaries
    }

    /// Whether the server was already running when this process attached to it.
    pub fn attached(&self) -> bool {
        self.attached
    }

    /// Whether a postmaster of this cluster is running, ready or not.
    pub fn is_alive(&self) -> bool {
        matches!(postmaster::server_state(&self.dir.data()), ServerState::Alive(_))
    }

    /// Kills the postmaster with SIGKILL, as the out-of-memory killer does, and waits until that process has ended.
    /// Its children end later by themselves; `restart` ends those that do not.
    pub fn kill9(&self) -> Result<(), Error> {
        let _lock = self.dir.lock()?;
        end(&self.dir, &[(Signal::SIGKILL, Duration::from_secs(5))])
    }

    /// Stops the server immediately, without a checkpoint (SIGQUIT). The next start recovers as after a crash.
    pub fn stop_immediate(&self) -> Result<(), Error> {
        let _lock = self.dir.lock()?;
        end(&self.dir, &IMMEDIATE)
    }

    /// Starts the server again on the same socket, after a fast shutdown if it is running. Other processes that use
    /// the cluster can then connect again.
    pub fn restart(&self) -> Result<(), Error> {
        let _lock = self.dir.lock()?;
        end(&self.dir, &FAST)?;
        let running = start_server(&self.dir, &self.binaries, &self.settings)?;
        *self.running() = running;
        Ok(())
    }

    /// Ends this process's use of the cluster. The last user stops the server and removes a temporary cluster.
    /// Dropping the handle does the same, but ignores errors.
    pub fn stop(mut self) -> Result<(), Error> {
        self.leave()
    }

    fn leave(&mut self) -> Result<(), Error> {
        let Some(Registration { in_use, reaper }) = self.registration.take() else { return Ok(()) };
        // After a failure, dropping the reaper without dismissing it removes the cluster.
        let lock = self.dir.lock()?;
        drop(in_use);
        let stopped = match self.dir.register_use(true)? {
            Some(_last_user) => end_with_children(&self.dir, if self.dir.is_temporary() { &IMMEDIATE } else { &FAST }),
            None => Ok(()),
        };
        if let Some(reaper) = reaper {
            reaper.dismiss();
            self.dir.remove();
        }
        drop(lock);
        stopped
    }

    fn running(&self) -> MutexGuard<'_, ServerProcess> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // A drop cannot report an error; `stop` can.
        let _error = self.leave();
    }
}

type Signals = [(Signal, Duration)];

/// Terminates sessions and writes a checkpoint.
const FAST: [(Signal, Duration); 3] = [
    (Signal::SIGINT, Duration::from_secs(10)),
    (Signal::SIGQUIT, Duration::from_secs(5)),
    (Signal::SIGKILL, Duration::from_secs(5)),
];

/// Terminates sessions without a checkpoint.
const IMMEDIATE: [(Signal, Duration); 2] =
    [(Signal::SIGQUIT, Duration::from_secs(5)), (Signal::SIGKILL, Duration::from_secs(5))];

type Started = (Registration, Binaries, ServerProcess, bool);

fn start_at(dir: &ClusterDir, options: &Options, progress: &mut dyn FnMut(Progress)) -> Result<Started, Error> {
    // Done before the lock is taken, because it may take long. `bring_up` checks the version of the data again.
    let major = if options.fresh { None } else { dir.data_major()? };
    let binaries = options.search.find(dir.account(), major, progress)?;
    progress(Progress::Using {
        version: binaries.version(),
        bindir: binaries.bindir().to_path_buf(),
        found_by: binaries.found_by().to_owned(),
    });
    let _lock = dir.lock()?;
    let in_use = || Error::InUse { folder: dir.home().to_path_buf() };
    if options.fresh {
        // Released immediately: the start lock keeps other processes out.
        drop(dir.register_use(true)?.ok_or_else(in_use)?);
    }
    let registration = Registration {
        in_use: dir.register_use(false)?.ok_or_else(in_use)?,
        reaper: dir.is_temporary().then(|| Reaper::start(dir)).transpose()?,
    };
    let brought_up = bring_up(dir, &binaries, options, progress);
    match brought_up {
        Ok((running, attached)) => Ok((registration, binaries, running, attached)),
        Err(error) => {
            if let Some(reaper) = registration.reaper {
                reaper.dismiss();
            }
            Err(error)
        }
    }
}

/// Attaches to a running server, or creates the data and starts one. Needs the start lock.
fn bring_up(
    dir: &ClusterDir,
    binaries: &Binaries,
    options: &Options,
    progress: &mut dyn FnMut(Progress),
) -> Result<(ServerProcess, bool), Error> {
    if options.fresh {
        end(dir, &IMMEDIATE)?;
        launch::remove_dead_server(dir)?;
        dir.remove_data()?;
    } else if let Some(running) = attach(dir)? {
        progress(Progress::Attached { pid: running.pid });
        return Ok((running, true));
    }
    dir.remove_partial_data();
    match dir.data_major()? {
        None => {
            progress(Progress::Initializing { data: dir.data() });
            match &options.copy_of {
                Some(folder) => initdb::copy(dir, folder)?,
                None => initdb::initialize(dir, binaries)?,
            }
        }
        Some(data_major) if data_major != binaries.version().major => {
            return Err(Error::VersionMismatch {
                data: dir.data(),
                data_major,
                available: binaries.version(),
                bindir: binaries.bindir().to_path_buf(),
            });
        }
        Some(_) => {}
    }
    progress(Progress::Starting);
    Ok((start_server(dir, binaries, &options.settings)?, false))
}

/// The server that already serves this data, once it answers. `None` if there is none, or if it ended in the
/// meantime.
fn attach(dir: &ClusterDir) -> Result<Option<ServerProcess>, Error> {
    let mut running = None;
    let settled = wait_until(READY_LIMIT, || {
        running = launch::answering(dir);
        running.is_some() || !matches!(postmaster::server_state(&dir.data()), ServerState::Alive(_))
    });
    match running {
        // The owner of the socket's folder could have put another program behind the socket.
        Some(running) if !is_private_to(&running.socket_dir, dir.account()) => {
            let reason = format!("listens in {}, which others can enter", running.socket_dir.display());
            Err(launch::did_not_start(dir, reason, u64::MAX))
        }
        None if !settled => {
            let reason = format!("runs, but did not answer within {} s", READY_LIMIT.as_secs());
            Err(launch::did_not_start(dir, reason, 0))
        }
        running => Ok(running),
    }
}

fn start_server(dir: &ClusterDir, binaries: &Binaries, settings: &[(String, String)]) -> Result<ServerProcess, Error> {
    launch::remove_dead_server(dir)?;
    launch::write_configuration(dir, settings)?;
    launch::launch(dir, binaries)
}

/// Stops the server, and also its children if it did not shut down cleanly. Needs the start lock.
fn end_with_children(dir: &ClusterDir, signals: &Signals) -> Result<(), Error> {
    end(dir, signals)?;
    match postmaster::server_state(&dir.data()) {
        ServerState::Stale(lock) if !process::end_children_of_cluster(dir.cluster_name(), &dir.data()) => {
            Err(Error::DidNotStop { pid: lock.pid })
        }
        _ => Ok(()),
    }
}

/// Stops the server, if it is running, with one signal after the other. Needs the start lock.
fn end(dir: &ClusterDir, signals: &Signals) -> Result<(), Error> {
    let data = dir.data();
    for (signal, limit) in signals {
        let ServerState::Alive(lock) = postmaster::server_state(&data) else { return Ok(()) };
        process::send(lock.pid, *signal);
        if wait_until(*limit, || !process::runs(lock.pid)) {
            return Ok(());
        }
    }
    match postmaster::server_state(&data) {
        ServerState::Alive(lock) => Err(Error::DidNotStop { pid: lock.pid }),
        _ => Ok(()),
    }
}
