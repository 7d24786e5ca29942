//! Transactions that are shared by the queries of a session.
//!
//! ```text
//! begin ──▶ open ──▶ query, query, ..            one after another, in the order of arrival
//!             │  └─▶ commit, rollback            the end, whatever the response is
//!             └────▶ over (it has timed out)     queries are refused until a commit or a rollback
//! ```
//! A failed begin also leaves the session in `over`: later queries were sent on the assumption that there is a
//! transaction, and must not be committed one by one. The same holds for a command that was refused before it reached
//! the transaction: the others must not be committed without it.

mod actor;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pg::{NamedSession, Query, SqlExecutor, TransactionOptions};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::error::{CliError, EventErrorCode};
use crate::events::{Event, Request};
use crate::writer::EventSender;
use actor::Actor;
use types::quoted;

#[derive(Default)]
pub(crate) struct Transactions {
    by_session: HashMap<String, TransactionHandle>,
}

/// The transaction of a session, as a query finds it.
pub(crate) enum TransactionLookup<'t> {
    /// There is none. `after` completes when a transaction that is ending has ended.
    None {
        /// Cancelled when the previous transaction has ended.
        after: Option<CancellationToken>,
    },
    /// An open transaction that accepts the query.
    Open(&'t TransactionHandle),
}

/// A transaction that is open as far as the pipe knows.
pub(crate) struct TransactionHandle {
    /// Queued messages: at most one for each request in flight and each rejected line.
    jobs: mpsc::UnboundedSender<ActorMessage>,
    pub(crate) read_only: bool,
    /// Whether its begin has failed.
    has_failed: Arc<AtomicBool>,
    /// Whether a commit or a rollback was requested.
    is_ending: bool,
    /// Cancelled when the transaction has ended.
    ended: CancellationToken,
}

/// A message to a transaction, in the order of the input.
enum ActorMessage {
    TransactionCommand(TransactionRequest),
    /// A command that may have been part of the transaction was rejected.
    Refused(CliError),
}

/// A command to execute in a transaction.
struct TransactionRequest {
    request: Request,
    task: TransactionCommand,
    cancel: CancellationToken,
    /// The side that sets it first answers: the transaction, when it starts the command, or the waiting task, when it
    /// gives up.
    is_claimed: Arc<AtomicBool>,
    answer: oneshot::Sender<Event>,
}

pub(crate) enum TransactionCommand {
    Begin,
    Query(Query),
    Commit,
    RollBack,
}

pub(crate) struct NewTransaction {
    pub(crate) executor: Arc<dyn SqlExecutor>,
    pub(crate) place: NamedSession,
    pub(crate) begin: TransactionOptions,
    pub(crate) event_sender: EventSender,
    pub(crate) tasks: TaskTracker,
}

impl Transactions {
    pub(crate) fn find(&mut self, session: &str) -> TransactionLookup<'_> {
        let is_ended = self.by_session.get(session).is_some_and(|handle| handle.ended.is_cancelled());
        if is_ended {
            self.by_session.remove(session);
        }
        match self.by_session.get(session) {
            None => TransactionLookup::None { after: None },
            Some(handle) if handle.is_ending => TransactionLookup::None { after: Some(handle.ended.clone()) },
            Some(handle) => TransactionLookup::Open(handle),
        }
    }

    /// Whether there is a transaction that has not ended.
    pub(crate) fn is_open(&mut self, session: &str) -> bool {
        !matches!(self.find(session), TransactionLookup::None { after: None })
    }

    pub(crate) fn check_begin(&mut self, session: &str) -> Result<(), CliError> {
        match self.find(session) {
            TransactionLookup::Open(handle) if !handle.has_failed() => {
                Err(CliError::invalid(format!("the session {} has an open transaction", quoted(session)))
                    .hint("commit or roll it back first, or use another session"))
            }
            _ => Ok(()),
        }
    }

    /// Begins a transaction. The future returns the terminal event of the request.
    pub(crate) fn begin(
        &mut self,
        new: NewTransaction,
        request: Request,
        cancel: CancellationToken,
    ) -> impl Future<Output = Event> + Send + use<> {
        self.insert(new).submit(TransactionCommand::Begin, request, cancel)
    }

    /// Ends the session's transaction because a command that may belong to it was refused.
    pub(crate) fn refuse(&mut self, session: &str, problem: &CliError) {
        if let TransactionLookup::Open(handle) = self.find(session) {
            handle.refuse(problem);
        }
    }

    /// Ends all transactions, since the session of a refused command is unknown.
    pub(crate) fn refuse_all(&mut self, problem: &CliError) {
        for handle in self.by_session.values().filter(|handle| !handle.is_ending) {
            handle.refuse(problem);
        }
    }

    /// Records that a begin was refused before it reached PostgreSQL.
    pub(crate) fn refuse_begin(&mut self, new: NewTransaction, problem: &CliError) {
        if let TransactionLookup::Open(handle) = self.find(&new.place.session) {
            handle.refuse(problem);
            return;
        }
        let handle = self.insert(new);
        handle.has_failed.store(true, Ordering::Release);
        handle.refuse(problem);
    }

    /// Inserts a transaction, which begins when the previous one has ended.
    fn insert(&mut self, new: NewTransaction) -> &TransactionHandle {
        let session = new.place.session.clone();
        let after = match self.find(&session) {
            TransactionLookup::None { after } => after,
            TransactionLookup::Open(_) => None,
        };
        let (jobs, queue) = mpsc::unbounded_channel();
        let (has_failed, ended) = (Arc::new(AtomicBool::new(false)), CancellationToken::new());
        let handle = TransactionHandle {
            jobs,
            read_only: new.begin.read_only,
            has_failed: Arc::clone(&has_failed),
            is_ending: false,
            ended: ended.clone(),
        };
        let tasks = new.tasks.clone();
        let actor = Actor::new(new, has_failed);
        tasks.spawn(async move {
            // Also after a panic: callers that wait for the end continue.
            let _ended = ended.drop_guard();
            if let Some(after) = after {
                after.cancelled().await;
            }
            actor.run(queue).await;
        });
        self.by_session.entry(session).insert_entry(handle).into_mut()
    }

    /// Ends a transaction. The future returns the terminal event of the request.
    pub(crate) fn end(
        &mut self,
        task: TransactionCommand,
        request: Request,
        cancel: CancellationToken,
    ) -> Option<impl Future<Output = Event> + Send + use<>> {
        let handle = self.by_session.get_mut(&request.session)?;
        handle.is_ending = true;
        Some(handle.submit(task, request, cancel))
    }

    pub(crate) fn check_end(&mut self, session: &str) -> Result<(), CliError> {
        match self.find(session) {
            TransactionLookup::Open(_) => Ok(()),
            TransactionLookup::None { .. } => {
                Err(CliError::invalid(format!("the session {} has no open transaction", quoted(session)))
                    .hint("a begin command opens one"))
            }
        }
    }
}

impl TransactionHandle {
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Acquire)
    }

    fn refuse(&self, problem: &CliError) {
        let _ = self.jobs.send(ActorMessage::Refused(problem.clone()));
    }

    /// Queues a command. The future returns the terminal event of its request. If the request is cancelled before its
    /// turn, it no longer waits for the answer.
    pub(crate) fn submit(
        &self,
        task: TransactionCommand,
        request: Request,
        cancel: CancellationToken,
    ) -> impl Future<Output = Event> + Send + use<> {
        let (answer, mut answered) = oneshot::channel();
        let is_claimed = Arc::new(AtomicBool::new(false));
        let asked = TransactionRequest {
            request: request.clone(),
            task,
            cancel: cancel.clone(),
            is_claimed: Arc::clone(&is_claimed),
            answer,
        };
        // If the receiver is gone, the answer is dropped with it.
        let _ = self.jobs.send(ActorMessage::TransactionCommand(asked));
        async move {
            let answer = tokio::select! {
                biased;
                answer = &mut answered => answer,
                () = cancel.cancelled() => {
                    if !is_claimed.swap(true, Ordering::AcqRel) {
                        return request.cancelled();
                    }
                    answered.await
                }
            };
            answer.unwrap_or_else(|_| {
                let message = "the transaction ended by a defect of countersign";
                request.failed(CliError::new(EventErrorCode::InternalError, message))
            })
        }
    }
}
