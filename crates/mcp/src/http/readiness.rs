//! Whether calls can be answered: the life of a server from its start to its stop, and what the database says meanwhile.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, watch};
use tokio::time::Instant;

use super::error_response::HttpError;
use super::{Backend, OpenBackend, STOPPING};

/// How long a request waits for a server that is starting: longer than a start takes when the database is there.
const START_TIMEOUT: Duration = Duration::from_secs(5);

/// How long the database has to say that it is there.
const CHECK_TIMEOUT: Duration = Duration::from_secs(2);

/// How long what it said counts.
const CHECK_CACHE_TIME: Duration = Duration::from_secs(1);

/// Where a server is in its life.
#[derive(Clone)]
enum Phase {
    /// Not yet: why.
    Starting(String),
    OpenBackend(Arc<OpenBackend>),
    Stopping,
}

/// The phase of a server, and whether its database answers.
pub(crate) struct Readiness {
    phase: watch::Sender<Phase>,
    /// What the database said when it was last asked.
    checked: Mutex<Option<(Instant, Result<(), String>)>>,
}

impl Readiness {
    pub(crate) fn new() -> Arc<Self> {
        let phase = watch::Sender::new(Phase::Starting("the server is starting".to_owned()));
        Arc::new(Self { phase, checked: Mutex::default() })
    }

    /// Says why there is nothing to backend yet.
    pub(crate) fn set_starting(&self, reason: String) {
        self.leave_starting(Phase::Starting(reason));
    }

    /// Calls can be answered from now on, unless the server is stopping already.
    pub(crate) fn open(&self, open: OpenBackend) {
        self.leave_starting(Phase::OpenBackend(Arc::new(open)));
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

    /// What is offered now.
    pub(crate) fn current(&self) -> Result<Arc<OpenBackend>, HttpError> {
        match &*self.phase.borrow() {
            Phase::OpenBackend(open) => Ok(Arc::clone(open)),
            Phase::Starting(reason) => Err(HttpError::Unavailable(reason.clone())),
            Phase::Stopping => Err(HttpError::Stopping),
        }
    }

    /// What is offered now or, while the server is starting, within [`START_TIMEOUT`].
    pub(crate) async fn wait(&self) -> Result<Arc<OpenBackend>, HttpError> {
        let mut phases = self.phase.subscribe();
        let started = phases.wait_for(|phase| !matches!(phase, Phase::Starting(_)));
        // Too late or not: what follows says which.
        let _ = tokio::time::timeout(START_TIMEOUT, started).await;
        self.current()
    }

    /// Whether calls can be answered now; why not. Every client may ask, so the database is asked once a second at most, in a task
    /// that goes on without the client.
    pub(crate) async fn check(self: &Arc<Self>) -> Result<(), String> {
        let this = Arc::clone(self);
        let check = tokio::spawn(async move { this.check_cached().await });
        check.await.unwrap_or_else(|_| Err("the check failed".to_owned()))
    }

    async fn check_cached(&self) -> Result<(), String> {
        let mut last = self.checked.lock().await;
        let phase = self.phase.borrow().clone();
        let open = match phase {
            Phase::Starting(reason) => return Err(reason),
            Phase::Stopping => return Err(STOPPING.to_owned()),
            Phase::OpenBackend(open) => open,
        };
        if let Some((at, checked)) = &*last
            && at.elapsed() < CHECK_CACHE_TIME
        {
            return checked.clone();
        }
        let checked = run_check(&open.backend).await;
        let before = last.take().map(|(_, before)| before);
        match (&before, &checked) {
            (None | Some(Ok(())), Err(reason)) => tracing::warn!("the server is not ready: {reason}"),
            (Some(Err(_)), Ok(())) => tracing::info!("the server is ready again"),
            _ => {}
        }
        *last = Some((Instant::now(), checked.clone()));
        checked
    }
}

async fn run_check(backend: &Backend) -> Result<(), String> {
    let checked = tokio::time::timeout(CHECK_TIMEOUT, (backend.check)()).await;
    checked.unwrap_or_else(|_| Err(format!("the database did not answer within {} s", CHECK_TIMEOUT.as_secs())))
}
