//! Pools of sessions, and the lease that makes sure that only a clean session goes back.

use std::time::Duration;

use deadpool::managed::{self, Metrics, Object, Pool as Deadpool, RecycleError, RecycleResult};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use crate::error::{ConnectError, Error};
use crate::session::{Outcome, Session, Step};
use crate::target::Target;
use crate::wire;

#[derive(Debug)]
struct Manager {
    target: Target,
    settings: Vec<(&'static str, &'static str)>,
    /// Sessions that are being stopped.
    stopping: TaskTracker,
}

impl managed::Manager for Manager {
    type Type = Session;
    type Error = ConnectError;

    async fn create(&self) -> Result<Session, ConnectError> {
        Session::connect(&self.target, &self.settings).await
    }

    async fn recycle(&self, session: &mut Session, _: &Metrics) -> RecycleResult<ConnectError> {
        if session.is_reusable() { Ok(()) } else { Err(RecycleError::message("left in the middle of something")) }
    }
}

/// A pool of sessions on one database as one role.
#[derive(Debug, Clone)]
pub struct Pool {
    pool: Deadpool<Manager>,
}

impl Pool {
    /// A pool that opens a session when one is needed, at most `sessions` at once.
    #[must_use]
    pub fn new(target: Target, settings: Vec<(&'static str, &'static str)>, sessions: usize) -> Self {
        let manager = Manager { target, settings, stopping: TaskTracker::new() };
        let builder = Deadpool::builder(manager).max_size(sessions);
        // Without timeouts of its own a pool needs no runtime, and building it cannot fail.
        let pool = builder.build().unwrap_or_else(|_| unreachable!("a pool without timeouts can be built"));
        Self { pool }
    }

    /// A session, before `deadline`.
    ///
    /// # Errors
    /// [`Error::Deadline`] if none came free in time, or why none could be opened.
    pub async fn lease(&self, deadline: Instant) -> Result<Lease, Error> {
        match tokio::time::timeout_at(deadline, self.pool.get()).await {
            Ok(Ok(session)) => Ok(Lease { session: Some(session) }),
            Ok(Err(managed::PoolError::Backend(error))) => Err(Error::Connect(error)),
            Ok(Err(error)) => Err(Error::Lost(std::io::Error::other(error.to_string()))),
            Err(_) => Err(Error::Deadline),
        }
    }

    /// Where the sessions go.
    #[must_use]
    pub fn target(&self) -> &Target {
        &self.pool.manager().target
    }

    /// Waits until PostgreSQL has been told of every session that is to stop: a process that ends before leaves backends
    /// behind, which do not notice that their client is gone until they have something to send.
    pub async fn drain(&self) {
        let stopping = &self.pool.manager().stopping;
        stopping.close();
        if tokio::time::timeout(STOP_TIMEOUT, stopping.wait()).await.is_err() {
            tracing::warn!("the server did not take all cancel requests");
        }
    }

    /// The server has restarted, or so it seems: whatever lies in the pool is of no use.
    pub fn forget_idle(&self) {
        self.pool.retain(|_, _| false);
    }
}

/// A session on loan. Given back by drop if it is idle; otherwise the server is asked to stop what it is doing and the
/// session is thrown away, so that neither the work nor a late cancel can reach the next caller.
#[derive(Debug)]
pub struct Lease {
    session: Option<Object<Manager>>,
}

/// How long a backend is told to stop, and how long it has to do so before it is told again.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
const STOP_INTERVAL: Duration = Duration::from_millis(25);

/// How long the server has to take a cancel request in.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);

impl Lease {
    /// The session.
    pub fn session(&mut self) -> &mut Session {
        self.session.as_mut().unwrap_or_else(|| unreachable!("a lease holds its session until it is dropped"))
    }

    /// Runs one statement of our own to its end, before `deadline`; a row may be as large as a record of the ledger.
    ///
    /// # Errors
    /// [`Error::Deadline`], or whatever the session says.
    pub async fn ask(&mut self, sql: &str, params: &[Option<String>], deadline: Instant) -> Result<Outcome, Error> {
        let step = Step { sql, params, param_types: &[] };
        let outcomes = tokio::time::timeout_at(deadline, self.session().run_large(&[step]))
            .await
            .map_err(|_| Error::Deadline)?
            .map_err(|failed| failed.error)?;
        Ok(outcomes.into_iter().next().unwrap_or_default())
    }

    /// Throws the session away, whatever its state.
    pub fn discard(mut self) {
        if let Some(session) = self.session.take() {
            stop(session);
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(session) = self.session.take_if(|session| !session.is_reusable()) {
            stop(session);
        }
    }
}

fn stop(session: Object<Manager>) {
    let stopping = Object::pool(&session).map(|pool| pool.manager().stopping.clone()).unwrap_or_default();
    let session = Object::take(session);
    let is_idle = session.is_idle();
    let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
    let stopped = async move {
        let mut session = session;
        if !is_idle && tokio::time::timeout(STOP_TIMEOUT, interrupt(&mut session)).await.is_err() {
            tracing::warn!(backend_pid = session.backend_pid(), "the backend does not stop");
        }
        // The socket stays open until the cancel is in: a closed one would let the backend's number be used again.
        session.close().await;
    };
    runtime.spawn(stopping.track_future(stopped));
}

/// Asks the server to stop what the session runs, until it has.
///
/// Once is not enough: a backend that has not begun yet, because the statement is still on its way, takes no notice of a
/// cancel, and runs the statement afterwards for nobody.
async fn interrupt(session: &mut Session) {
    loop {
        let cancelled = tokio::time::timeout(CANCEL_TIMEOUT, wire::cancel(&session.cancel_key())).await;
        if !matches!(cancelled, Ok(Ok(()))) {
            tracing::debug!(backend_pid = session.backend_pid(), "the server did not take the cancel request");
        }
        if tokio::time::timeout(STOP_INTERVAL, session.connection.until_quiet()).await.is_ok() {
            return;
        }
    }
}
