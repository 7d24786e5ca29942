//! Whether the server can answer calls: its phase between start and stop, and the state of its database.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, watch};
use tokio::time::Instant;
use tools::DatabaseHealth;

use crate::active_backend::ActiveBackend;
use crate::error_response::{HttpError, STOPPING};
use crate::request_context::Backend;

/// How long a request waits for a server that is starting: longer than a start takes with a reachable database.
const START_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a database may take to answer a check.
const CHECK_TIMEOUT: Duration = Duration::from_secs(2);

/// How long the result of a check is valid.
const CHECK_CACHE_TIME: Duration = Duration::from_secs(1);

/// The databases that do not answer, or the reason why no call can be answered.
type CheckResult = Result<Vec<DatabaseHealth>, String>;

#[derive(Clone)]
enum Phase {
    /// Not connected yet, for this reason.
    Starting(String),
    Open(Arc<ActiveBackend>),
    Stopping,
}

pub(crate) struct Readiness {
    phase: watch::Sender<Phase>,
    last_check: Mutex<Option<(Instant, CheckResult)>>,
}

impl Readiness {
    pub(crate) fn new() -> Arc<Self> {
        let phase = watch::Sender::new(Phase::Starting("the server is starting".to_owned()));
        Arc::new(Self { phase, last_check: Mutex::default() })
    }

    /// Sets the reason why the server is still starting.
    pub(crate) fn set_starting(&self, reason: String) {
        self.leave_starting(Phase::Starting(reason));
    }

    /// Opens the server for calls, unless it is stopping already.
    pub(crate) fn open(&self, active: ActiveBackend) {
        self.leave_starting(Phase::Open(Arc::new(active)));
    }

    fn leave_starting(&self, next: Phase) {
        self.phase.send_if_modified(|phase| {
            let is_starting = matches!(phase, Phase::Starting(_));
            if is_starting {
                *phase = next;
            }
            is_starting
        });
    }

    pub(crate) fn stop(&self) {
        self.phase.send_replace(Phase::Stopping);
    }

    /// The backend, if the server is open.
    pub(crate) fn current(&self) -> Result<Arc<ActiveBackend>, HttpError> {
        match &*self.phase.borrow() {
            Phase::Open(active) => Ok(Arc::clone(active)),
            Phase::Starting(reason) => Err(HttpError::Unavailable(reason.clone())),
            Phase::Stopping => Err(HttpError::Stopping),
        }
    }

    /// The backend. Waits up to [`START_TIMEOUT`] for a server that is starting.
    pub(crate) async fn wait(&self) -> Result<Arc<ActiveBackend>, HttpError> {
        let mut phases = self.phase.subscribe();
        let started = phases.wait_for(|phase| !matches!(phase, Phase::Starting(_)));
        // After a timeout the phase still is the reason.
        let _ = tokio::time::timeout(START_TIMEOUT, started).await;
        self.current()
    }

    /// Whether calls can be answered now; the error is the reason why not. Any client may ask, so the databases are
    /// checked at most once a second, in a task that outlives the request.
    pub(crate) async fn check(self: &Arc<Self>) -> CheckResult {
        let this = Arc::clone(self);
        let check = tokio::spawn(async move { this.check_cached().await });
        check.await.unwrap_or_else(|_| Err("the check failed".to_owned()))
    }

    async fn check_cached(&self) -> CheckResult {
        let mut last = self.last_check.lock().await;
        let phase = self.phase.borrow().clone();
        let active = match phase {
            Phase::Starting(reason) => return Err(reason),
            Phase::Stopping => return Err(STOPPING.to_owned()),
            Phase::Open(active) => active,
        };
        if let Some((at, checked)) = &*last
            && at.elapsed() < CHECK_CACHE_TIME
        {
            return checked.clone();
        }
        let checked = run_check(&active.backend).await;
        let before = last.take().map(|(_, before)| before);
        match (&before, &checked) {
            (None | Some(Ok(_)), Err(reason)) => tracing::warn!("the server is not ready: {reason}"),
            (Some(Err(_)), Ok(_)) => tracing::info!("the server is ready again"),
            _ => {}
        }
        *last = Some((Instant::now(), checked.clone()));
        checked
    }
}

/// Asks all databases. The server can answer calls as long as one of them answers.
async fn run_check(backend: &Backend) -> CheckResult {
    let mut databases = backend.registry.check(CHECK_TIMEOUT).await;
    let all = databases.len();
    databases.retain(|database| database.error.is_some());
    match databases.as_slice() {
        [first, ..] if databases.len() == all => Err(first.error.clone().unwrap_or_default()),
        _ => Ok(databases),
    }
}
