//! Pools of sessions. A leased session returns to its pool only if it is clean.
//!
//! A cancel is sent again until the backend has stopped, because PostgreSQL ignores one that arrives before its
//! statement. Until then the session keeps its slot: there are never more backends than configured, and a late cancel
//! cannot reach the next caller. A silent connection is probed with Close and Flush before its first message; a pooler
//! may wait for a server, so it is not probed.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use deadpool::Runtime;
use deadpool::managed::{
    self, Metrics, Object, Pool as Deadpool, QueueMode, RecycleError, RecycleResult, TimeoutType, Timeouts,
};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use crate::client::connect_options::ConnectOptions;
use crate::client::error::{ConnectError, Error};
use crate::client::session::{ContextStatements, PipelineStatement, Session, StatementResult};
use crate::client::session_settings::SessionSettings;
use crate::client::wire;

#[derive(Debug)]
struct Manager {
    target: ConnectOptions,
    settings: SessionSettings,
    /// When a connection was last found lost. Older sessions are not trusted.
    lost: Mutex<Option<std::time::Instant>>,
    stopping: TaskTracker,
}

impl Manager {
    fn retire_all(&self) {
        *self.lost.lock().unwrap_or_else(PoisonError::into_inner) = Some(std::time::Instant::now());
    }

    fn is_trusted(&self, metrics: &Metrics) -> bool {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).is_none_or(|lost| metrics.created > lost)
    }
}

impl managed::Manager for Manager {
    // Boxed because futures contain both types: the future of a call that may have to connect would otherwise have 15
    // KiB, and each call would move several of them.
    type Type = Box<Session>;
    type Error = ConnectError;

    async fn create(&self) -> Result<Box<Session>, ConnectError> {
        let connecting = Box::pin(Session::connect(&self.target, &self.settings));
        Ok(Box::new(connecting.await?))
    }

    async fn recycle(&self, session: &mut Box<Session>, metrics: &Metrics) -> RecycleResult<ConnectError> {
        if session.was_closed() {
            return Err(RecycleError::message("closed by the server"));
        }
        if session.is_reusable() && self.is_trusted(metrics) {
            // A pending reset takes as long as the answer to a probe.
            match tokio::time::timeout(self.target.keepalive.probe_timeout, session.await_reset()).await {
                Ok(Ok(())) => {
                    session.push_probe();
                    return Ok(());
                }
                Ok(Err(_)) => {}
                Err(_) => self.retire_all(),
            }
        }
        // The session must have ended before the next one connects. No Terminate is sent to a server that cannot be
        // reached.
        session.end(GOODBYE_BEFORE_THE_NEXT).await;
        Err(RecycleError::message("not to be used again"))
    }
}

/// A pool of sessions on one database as one role.
#[derive(Debug, Clone)]
pub struct Pool {
    pool: Deadpool<Manager>,
}

/// The state of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PoolStatus {
    /// The most sessions that it opens.
    pub max: usize,
    /// Sessions that are lent, or are being stopped.
    pub in_use: usize,
    /// Sessions that are not leased.
    pub idle: usize,
    /// The number of callers that wait for a session: for a free slot, or until it has connected.
    pub waiting: usize,
}

impl PoolStatus {
    /// The state of two pools, as that of one.
    #[must_use]
    pub(crate) const fn plus(self, other: Self) -> Self {
        Self {
            max: self.max + other.max,
            in_use: self.in_use + other.in_use,
            idle: self.idle + other.idle,
            waiting: self.waiting + other.waiting,
        }
    }
}

/// The first pause before a read tries to connect again. It is short, since a server restarts in milliseconds.
const FIRST_PAUSE: Duration = Duration::from_millis(25);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The time limit for the end of an old session while a call waits for a new one.
const GOODBYE_BEFORE_THE_NEXT: Duration = Duration::from_millis(100);

/// The time limit for the end of a discarded session.
const GOODBYE: Duration = Duration::from_secs(1);

/// How long a read tries to connect to a server that does not answer; with the last attempt, the read fails in less
/// than 5 s. If the server reports that it is starting, the read waits until its deadline.
const PATIENCE_WITH_NOBODY: Duration = Duration::from_secs(4);

/// Added to other timeouts, so that the pool's own timeout comes first: its error names the cause.
const GRACE: Duration = Duration::from_millis(10);

impl Pool {
    /// A pool that opens a session when one is needed, at most `sessions` at once.
    #[must_use]
    pub fn new(target: ConnectOptions, settings: SessionSettings, sessions: usize) -> Self {
        let manager = Manager { target, settings, lost: Mutex::default(), stopping: TaskTracker::new() };
        // The session that was used last: its backend has its plans and catalog entries at hand.
        let builder = Deadpool::builder(manager).max_size(sessions).queue_mode(QueueMode::Lifo);
        let pool = builder
            .runtime(Runtime::Tokio1)
            .build()
            .unwrap_or_else(|_| unreachable!("a pool with a runtime can be built"));
        Self { pool }
    }

    /// A pool of as many sessions of another login, with the same settings.
    #[must_use]
    pub(crate) fn with_login(&self, target: ConnectOptions) -> Self {
        Self::new(target, self.pool.manager().settings.clone(), self.pool.status().max_size)
    }

    /// Leases a session, before `deadline`.
    ///
    /// # Errors
    /// [`Error::PoolTimeout`] if no session became free in time, [`Error::Deadline`] if connecting took too long,
    /// otherwise the reason why no session could be opened.
    pub async fn acquire(&self, deadline: Instant) -> Result<PooledSession, Error> {
        let wait = Some(deadline.saturating_duration_since(Instant::now()));
        let timeouts = Timeouts { wait, create: None, recycle: None };
        match tokio::time::timeout_at(deadline + GRACE, self.pool.timeout_get(&timeouts)).await {
            Ok(Ok(session)) => Ok(PooledSession { session: Some(session), since: Instant::now() }),
            Ok(Err(managed::PoolError::Backend(error))) => Err(Error::Connect(error)),
            Ok(Err(managed::PoolError::Timeout(TimeoutType::Wait))) => {
                Err(Error::PoolTimeout { sessions: self.pool.status().max_size })
            }
            Ok(Err(error)) => Err(Error::Lost(std::io::Error::other(error.to_string()))),
            Err(_) => Err(Error::Deadline),
        }
    }

    /// Leases a session for a read. A read can wait for a server that restarts: it tries to connect again until
    /// `deadline`.
    ///
    /// # Errors
    /// As [`Pool::acquire`], or the error of the last attempt to connect.
    pub(crate) async fn acquire_with_retry(&self, deadline: Instant) -> Result<PooledSession, Error> {
        let mut pause = FIRST_PAUSE;
        let mut failure = None;
        let read_timeout = Instant::now() + PATIENCE_WITH_NOBODY;
        loop {
            match (self.acquire(deadline).await, failure.take()) {
                (Err(Error::Connect(error)), _) if error.is_transient() => failure = Some(Error::Connect(error)),
                (Err(Error::Deadline), Some(failure)) => return Err(failure),
                (outcome, _) => return outcome,
            }
            // Between half of the pause and all of it, so that waiting calls do not all retry at the same moment.
            let pause_now = pause.mul_f64(0.5 + fastrand::f64() / 2.0);
            let is_silent = matches!(&failure, Some(Error::Connect(error)) if !error.is_server_response());
            let last_try = if is_silent { read_timeout.min(deadline) } else { deadline };
            if Instant::now() + pause_now >= last_try {
                return failure.map_or(Err(Error::Deadline), Err);
            }
            tracing::debug!(?pause_now, "no connection for a read; trying again");
            tokio::time::sleep(pause_now).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Whether to try a read with this error again on a fresh session: its backend is gone, or was cancelled by
    /// another session. Timeouts and cancels of this process do not occur before `deadline`.
    pub(crate) fn should_retry_read(&self, error: &Error, deadline: Instant) -> bool {
        match error {
            Error::Lost(error) => {
                tracing::info!(%error, "a connection was lost; reading again on a fresh one");
                self.retire_all();
                true
            }
            Error::Server(error) if error.sqlstate == "57014" && Instant::now() < deadline => {
                tracing::info!(%error, "a read was cancelled from outside; reading again");
                true
            }
            _ => false,
        }
    }

    /// The current state.
    #[must_use]
    pub fn status(&self) -> PoolStatus {
        let status = self.pool.status();
        PoolStatus {
            max: status.max_size,
            in_use: status.size.saturating_sub(status.available),
            idle: status.available,
            waiting: status.waiting,
        }
    }

    /// The server and login of the sessions.
    #[must_use]
    pub fn target(&self) -> &ConnectOptions {
        &self.pool.manager().target
    }

    /// Waits until PostgreSQL has received every pending cancel request. If the process ended earlier, backends would
    /// continue to run: a backend notices the loss of its client only when it sends something.
    pub async fn drain(&self) {
        let stopping = &self.pool.manager().stopping;
        stopping.close();
        if tokio::time::timeout(STOP_TIMEOUT, stopping.wait()).await.is_err() {
            tracing::warn!("the server did not take all cancel requests");
        }
    }

    /// Closes the idle sessions that were not used for this time.
    pub async fn close_unused(&self, time: Duration) {
        for mut session in self.pool.retain(|_, metrics| metrics.last_used() < time).removed {
            session.end(GOODBYE).await;
        }
    }

    /// Retires all present sessions, after a restart of the server. Idle ones are closed when their slots are needed.
    pub fn retire_all(&self) {
        self.pool.manager().retire_all();
    }
}

/// A leased session. Dropping it returns it to the pool if it is idle. Otherwise the server is asked to cancel its
/// statement and the session is discarded, so that neither the statement nor a late cancel can reach the next caller.
#[derive(Debug)]
pub struct PooledSession {
    session: Option<Object<Manager>>,
    since: Instant,
}

/// The time limit for a backend to stop. The pauses between its cancel requests grow, since each request costs the
/// server a process.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
const FIRST_STOP_PAUSE: Duration = Duration::from_millis(25);
const LONGEST_STOP_PAUSE: Duration = Duration::from_secs(1);

/// The number of cancel requests in a row that the server may fail to receive.
const MAX_UNDELIVERED: usize = 3;

const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);

impl PooledSession {
    /// The session.
    pub fn session(&mut self) -> &mut Session {
        self.session.as_mut().unwrap_or_else(|| unreachable!("a lease holds its session until it is dropped"))
    }

    /// Whether an error may come from what the session has planned for earlier leases, so that it is not leased again.
    #[must_use]
    pub fn is_outdated(&self) -> bool {
        self.session.as_ref().is_some_and(|it| Object::metrics(it).recycle_count > 0 && !it.is_reusable())
    }

    /// Runs one of the server's own statements to its end, before `deadline`. A row may be as large as a record of
    /// the ledger.
    pub async fn run_one(
        &mut self,
        sql: &str,
        params: &[Option<String>],
        deadline: Instant,
    ) -> Result<StatementResult, Error> {
        self.run_one_for(None, PipelineStatement::new(sql, params), deadline).await
    }

    /// As [`PooledSession::run_one`], in a transaction with the settings of a caller, and the rights of the login.
    pub async fn run_one_for(
        &mut self,
        caller: Option<&ContextStatements>,
        statement: PipelineStatement<'_>,
        deadline: Instant,
    ) -> Result<StatementResult, Error> {
        let steps: Vec<PipelineStatement<'_>> =
            caller.map(ContextStatements::context).into_iter().chain([statement]).collect();
        let Ok(ran) = tokio::time::timeout_at(deadline, self.session().run_large(&steps)).await else {
            self.suspect_silence();
            return Err(Error::Deadline);
        };
        Ok(ran.map_err(|failed| failed.error)?.into_iter().next_back().unwrap_or_default())
    }

    /// Handles a call that has ended by its deadline. If nothing has arrived since the lease began, the peer may be
    /// gone without notice. Then the idle sessions of the pool may be lost too, and none of them is leased again.
    pub(crate) fn suspect_silence(&self) {
        let Some(session) = &self.session else { return };
        if let Some(pool) = Object::pool(session).filter(|_| session.connection.last_heard < self.since) {
            tracing::info!(backend_pid = session.backend_pid(), "nothing was heard until the deadline");
            pool.manager().retire_all();
        }
    }

    /// Closes the session instead of returning it to the pool.
    pub fn discard(mut self) {
        if let Some(session) = self.session.take() {
            stop(session);
        }
    }
}

impl Drop for PooledSession {
    fn drop(&mut self) {
        if let Some(session) = self.session.take_if(|session| !session.is_reusable()) {
            stop(session);
        }
    }
}

/// Ends a session in the background. Its slot stays taken until the backend is gone, so the number of backends never
/// exceeds the limit of the pool.
fn stop(mut session: Object<Manager>) {
    let Ok(runtime) = tokio::runtime::Handle::try_current() else { return drop(Object::take(session)) };
    if session.is_broken() {
        return drop(Object::take(session));
    }
    let stopping = Object::pool(&session).map(|pool| pool.manager().stopping.clone()).unwrap_or_default();
    runtime.spawn(stopping.track_future(async move {
        if !session.is_idle() && tokio::time::timeout(STOP_TIMEOUT, interrupt(&mut session)).await.is_err() {
            tracing::warn!(backend_pid = session.backend_pid(), "the backend does not stop");
        }
        // The socket stays open until the cancel request has arrived. If it closed earlier, the process id of the
        // backend could be reused.
        session.end(GOODBYE).await;
        drop(Object::take(session));
    }));
}

/// Asks the server to cancel the statement of the session until it has stopped.
///
/// One request is not enough: a backend that has not yet received the statement ignores the request, and runs the
/// statement afterwards.
async fn interrupt(session: &mut Session) {
    let key = session.cancel_key();
    if !key.is_given() {
        return;
    }
    let (mut pause, mut undelivered) = (FIRST_STOP_PAUSE, 0);
    while undelivered < MAX_UNDELIVERED {
        let cancelled = tokio::time::timeout(CANCEL_TIMEOUT, wire::cancel(&key)).await;
        if matches!(cancelled, Ok(Ok(()))) {
            undelivered = 0;
        } else {
            undelivered += 1;
            tracing::debug!(backend_pid = session.backend_pid(), "the server did not take the cancel request");
        }
        if tokio::time::timeout(pause, session.connection.drain_responses()).await.is_ok() {
            return;
        }
        pause = (pause * 2).min(LONGEST_STOP_PAUSE);
    }
}
