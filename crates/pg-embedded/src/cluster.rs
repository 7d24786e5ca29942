//! The handle of a running cluster: start or attach, crash and restart, leave and stop.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::binaries::{Binaries, Version};
use crate::error::Error;
use crate::initdb;
use crate::launch::{self, READY_LIMIT, Running};
use crate::options::Options;
use crate::place::{PORT, Place, is_private_to};
use crate::postmaster::{self, Found};
use crate::process::{self, wait_until};
use crate::progress::Progress;
use crate::users::{self, User};
use crate::watcher::Watcher;

/// A PostgreSQL server that answers, and our stake in it. Dropping the last stake stops the server; that blocks until it has
/// stopped, for at most some 20 seconds. A process that is killed, or that never drops it, is replaced by a watcher.
#[derive(Debug)]
pub struct Cluster {
    place: Place,
    binaries: Binaries,
    settings: Vec<(String, String)>,
    running: Mutex<Running>,
    attached: bool,
    /// Both are there until the end, and taken by it.
    stake: Option<(User, Watcher)>,
}

impl Cluster {
    /// Starts the cluster's server, or attaches to it if it already serves this folder; makes the data first if there is
    /// none. On return the server answers on its socket. Blocks: about a second with new data, less than 100 ms otherwise,
    /// up to a minute if the binaries must be fetched; do not call it on an async thread.
    pub fn start(options: Options, progress: &mut dyn FnMut(Progress)) -> Result<Self, Error> {
        let begun = Instant::now();
        let place = Place::open(&options)?;
        let started = start_at(&place, &options, progress);
        match started {
            Ok((stake, binaries, running, attached)) => {
                progress(Progress::Ready { elapsed: begun.elapsed() });
                let running = Mutex::new(running);
                Ok(Self { place, binaries, settings: options.settings, running, attached, stake: Some(stake) })
            }
            Err(error) => {
                if place.is_temporary() {
                    place.remove();
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

    /// The folder of the unix socket: short, without characters that need quoting, entered by its owner and root only.
    pub fn socket_dir(&self) -> PathBuf {
        self.running().socket_dir.clone()
    }

    /// The port, which is part of the socket's name. No TCP port is open.
    pub fn port(&self) -> u16 {
        PORT
    }

    /// The server's version, as it says itself.
    pub fn version(&self) -> Version {
        Version::parse(&self.running().version).unwrap_or(self.binaries.version())
    }

    /// The process id of the postmaster; of the last one, if it is down.
    pub fn pid(&self) -> i32 {
        match postmaster::look_at(&self.place.data()) {
            Found::Alive(lock) => lock.pid,
            _ => self.running().pid,
        }
    }

    /// What the server writes its log to.
    pub fn log_path(&self) -> PathBuf {
        self.place.log()
    }

    /// The data folder.
    pub fn data_dir(&self) -> PathBuf {
        self.place.data()
    }

    /// The programs that go with the server.
    pub fn binaries(&self) -> &Binaries {
        &self.binaries
    }

    /// Whether the server already ran when we came.
    pub fn attached(&self) -> bool {
        self.attached
    }

    /// Whether a postmaster of this cluster lives, ready or not.
    pub fn is_alive(&self) -> bool {
        matches!(postmaster::look_at(&self.place.data()), Found::Alive(_))
    }

    /// Kills the postmaster with SIGKILL, as the system does when memory runs out, and waits until that process is gone.
    /// Its children notice by themselves, sooner or later; `restart` deals with those that do not.
    pub fn kill9(&self) -> Result<(), Error> {
        let _lock = self.place.lock()?;
        end(&self.place, &[(Signal::SIGKILL, Duration::from_secs(5))])
    }

    /// Stops the server at once and without a checkpoint (SIGQUIT): the next start recovers as after a crash.
    pub fn stop_immediate(&self) -> Result<(), Error> {
        let _lock = self.place.lock()?;
        end(&self.place, &IMMEDIATE)
    }

    /// Brings the server up again on the same socket: after a crash, or after a fast stop if it runs. Other processes
    /// that use the cluster find it again, too.
    pub fn restart(&self) -> Result<(), Error> {
        let _lock = self.place.lock()?;
        end(&self.place, &FAST)?;
        let running = start_server(&self.place, &self.binaries, &self.settings)?;
        *self.running() = running;
        Ok(())
    }

    /// Gives up our stake; if it was the last one the server is stopped, and a temporary cluster removed. Dropping does
    /// the same without telling what went wrong.
    pub fn stop(mut self) -> Result<(), Error> {
        self.leave()
    }

    fn leave(&mut self) -> Result<(), Error> {
        let Some((user, watcher)) = self.stake.take() else { return Ok(()) };
        // If this fails, dropping the watcher undismissed makes it do the same.
        let lock = self.place.lock()?;
        let stopped = if user.others().is_empty() {
            end_with_children(&self.place, if self.place.is_temporary() { &IMMEDIATE } else { &FAST })
        } else {
            Ok(())
        };
        drop(user);
        watcher.dismiss();
        if self.place.is_temporary() {
            self.place.remove();
        }
        drop(lock);
        stopped
    }

    fn running(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _nobody_to_tell = self.leave();
    }
}

type Signals = [(Signal, Duration)];

/// Sessions are cut off, a checkpoint is written.
const FAST: [(Signal, Duration); 3] = [
    (Signal::SIGINT, Duration::from_secs(10)),
    (Signal::SIGQUIT, Duration::from_secs(5)),
    (Signal::SIGKILL, Duration::from_secs(5)),
];

/// No checkpoint.
const IMMEDIATE: [(Signal, Duration); 2] =
    [(Signal::SIGQUIT, Duration::from_secs(5)), (Signal::SIGKILL, Duration::from_secs(5))];

type Started = ((User, Watcher), Binaries, Running, bool);

fn start_at(place: &Place, options: &Options, progress: &mut dyn FnMut(Progress)) -> Result<Started, Error> {
    // Before the lock, because it may take long; what it depends on is looked at again below.
    let major = if options.fresh { None } else { place.data_major()? };
    let binaries = options.search.find(place.account(), major, progress)?;
    progress(Progress::Using {
        version: binaries.version(),
        bindir: binaries.bindir().to_path_buf(),
        found: binaries.found().to_owned(),
    });
    let lock = place.lock()?;
    let user = User::register(&place.home().join("users"))?;
    let watcher = Watcher::start(place, &user)?;
    users::wait_for_announced_stops(place.home());
    match bring_up(place, &user, &binaries, options, progress) {
        Ok((running, attached)) => {
            drop(lock);
            Ok(((user, watcher), binaries, running, attached))
        }
        Err(error) => {
            drop(user);
            watcher.dismiss();
            Err(error)
        }
    }
}

/// Attaches, or makes the data and starts the server. Under the start lock.
fn bring_up(
    place: &Place,
    user: &User,
    binaries: &Binaries,
    options: &Options,
    progress: &mut dyn FnMut(Progress),
) -> Result<(Running, bool), Error> {
    if options.fresh {
        let pids = user.others();
        if !pids.is_empty() {
            return Err(Error::InUse { folder: place.home().to_path_buf(), pids });
        }
        end(place, &IMMEDIATE)?;
        launch::clear_the_way(place)?;
        place.remove_data()?;
    } else if let Some(running) = attach(place)? {
        progress(Progress::Attached { pid: running.pid });
        return Ok((running, true));
    }
    place.remove_leftovers();
    match place.data_major()? {
        None => {
            progress(Progress::Initializing { data: place.data() });
            match &options.copy_of {
                Some(folder) => initdb::copy(place, folder)?,
                None => initdb::initialize(place, binaries)?,
            }
        }
        Some(data_major) if data_major != binaries.version().major => {
            return Err(Error::VersionMismatch {
                data: place.data(),
                data_major,
                available: binaries.version(),
                bindir: binaries.bindir().to_path_buf(),
            });
        }
        Some(_) => {}
    }
    progress(Progress::Starting);
    Ok((start_server(place, binaries, &options.settings)?, false))
}

/// The server that already serves this data, once it answers; `None` if there is none, or if it ended meanwhile.
fn attach(place: &Place) -> Result<Option<Running>, Error> {
    let mut running = None;
    let settled = wait_until(READY_LIMIT, || {
        running = launch::answering(place);
        running.is_some() || !matches!(postmaster::look_at(&place.data()), Found::Alive(_))
    });
    match running {
        // Whoever owns the socket's folder could sit behind the socket.
        Some(running) if !is_private_to(&running.socket_dir, place.account()) => {
            let reason = format!("listens in {}, which others can enter", running.socket_dir.display());
            Err(launch::did_not_start(place, reason, u64::MAX))
        }
        None if !settled => {
            let reason = format!("runs, but did not answer within {} s", READY_LIMIT.as_secs());
            Err(launch::did_not_start(place, reason, 0))
        }
        running => Ok(running),
    }
}

fn start_server(place: &Place, binaries: &Binaries, settings: &[(String, String)]) -> Result<Running, Error> {
    launch::clear_the_way(place)?;
    launch::write_configuration(place, settings)?;
    launch::launch(place, binaries)
}

/// Ends the server, and what it left behind if it did not end in order. Under the start lock.
fn end_with_children(place: &Place, signals: &Signals) -> Result<(), Error> {
    end(place, signals)?;
    match postmaster::look_at(&place.data()) {
        Found::Stale(lock) if !process::end_children_of_cluster(place.cluster_name(), &place.data()) => {
            Err(Error::DidNotStop { pid: lock.pid })
        }
        _ => Ok(()),
    }
}

/// Ends the server, if there is one, with one signal after the other. Under the start lock.
fn end(place: &Place, signals: &Signals) -> Result<(), Error> {
    let data = place.data();
    for (signal, limit) in signals {
        let Found::Alive(lock) = postmaster::look_at(&data) else { return Ok(()) };
        process::send(lock.pid, *signal);
        if wait_until(*limit, || !process::runs(lock.pid)) {
            return Ok(());
        }
    }
    match postmaster::look_at(&data) {
        Found::Alive(lock) => Err(Error::DidNotStop { pid: lock.pid }),
        _ => Ok(()),
    }
}
