//! Whether calls can be answered: the life of a server from its start to its stop, and what the database says meanwhile.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, watch};
use tokio::time::Instant;

use super::refusal::Refusal;
use super::{Offer, Open, STOPPING};

/// How long a request waits for a server that is starting: longer than a start takes when the database is there.
const START_PATIENCE: Duration = Duration::from_secs(5);

/// How long the database has to say that it is there.
const CHECK_TIMEOUT: Duration = Duration::from_secs(2);

/// How long what it said counts.
const CHECK_AGAIN: Duration = Duration::from_secs(1);

/// Where a server is in its life.
#[derive(Clone)]
enum Phase {
    /// Not yet: why.
    Starting(String),
    Open(Arc<Open>),
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

    /// Says why there is nothing to offer yet.
    pub(crate) fn not_yet(&self, reason: String) {
        self.leave_starting(Phase::Starting(reason));
    }

    /// Calls can be answered from now on, unless the server is stopping already.
    pub(crate) fn open(&self, open: Open) {
        self.leave_starting(Phase::Open(Arc::new(open)));
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
    pub(crate) fn current(&self) -> Result<Arc<Open>, Refusal> {
        match &*self.phase.borrow() {
            Phase::Open(open) => Ok(Arc::clone(open)),
            Phase::Starting(reason) => Err(Refusal::Unavailable(reason.clone())),
            Phase::Stopping => Err(Refusal::Stopping),
        }
    }

    /// What is offered now or, while the server is starting, within [`START_PATIENCE`].
    pub(crate) async fn wait(&self) -> Result<Arc<Open>, Refusal> {
        let mut phases = self.phase.subscribe();
        let started = phases.wait_for(|phase| !matches!(phase, Phase::Starting(_)));
        // Too late or not: what follows says which.
        let _ = tokio::time::timeout(START_PATIENCE, started).await;
        self.current()
    }

    /// Whether calls can be answered now; why not. Every client may ask, so the database is asked once a second at most, in a task
    /// that goes on without the client.
    pub(crate) async fn check(self: &Arc<Self>) -> Result<(), String> {
        let this = Arc::clone(self);
        let asking = tokio::spawn(async move { this.check_in_turn().await });
        asking.await.unwrap_or_else(|_| Err("the check failed".to_owned()))
    }

    async fn check_in_turn(&self) -> Result<(), String> {
        let mut last = self.checked.lock().await;
        let phase = self.phase.borrow().clone();
        let open = match phase {
            Phase::Starting(reason) => return Err(reason),
            Phase::Stopping => return Err(STOPPING.to_owned()),
            Phase::Open(open) => open,
        };
        if let Some((at, checked)) = &*last
            && at.elapsed() < CHECK_AGAIN
        {
            return checked.clone();
        }
        let checked = ask(&open.offer).await;
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

async fn ask(offer: &Offer) -> Result<(), String> {
    let checked = tokio::time::timeout(CHECK_TIMEOUT, (offer.check)()).await;
    checked.unwrap_or_else(|_| Err(format!("the database did not answer within {} s", CHECK_TIMEOUT.as_secs())))
}
