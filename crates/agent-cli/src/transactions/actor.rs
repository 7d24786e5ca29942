//! The task of one transaction: runs its commands one after another and enforces the transaction timeout.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::FutureExt;
use pg::{ExecuteError, Query, QuerySummary, Transaction};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{ActorMessage, NewTransaction, TransactionCommand, TransactionRequest};
use crate::error::{CliError, EventErrorCode};
use crate::error_event;
use crate::events::{Event, Notice, Request, ResultEvent, Rows, SqlError, Trace};
use crate::run_query::{self, COMMIT_GRACE, ExecutionContext, STOP_GRACE, StopTokens, passed, stopped_for};

/// SQLSTATE `transaction_timeout`.
const TRANSACTION_TIMEOUT: &str = "25P04";

/// State of one transaction, except its queue.
pub(super) struct Actor {
    new: NewTransaction,
    has_failed: Arc<AtomicBool>,
    state: State,
}

enum State {
    Open { transaction: Box<dyn Transaction>, until: Instant },
    Over(Over),
}

/// The reason why a query cannot run in the transaction.
#[derive(Debug, Clone)]
enum Over {
    /// The transaction has not begun yet.
    Waiting,
    TimedOut,
    Failed(CliError),
}

/// Whether the transaction continues.
enum Flow {
    GoesOn,
    Ended,
}

impl Actor {
    pub(super) fn new(new: NewTransaction, has_failed: Arc<AtomicBool>) -> Self {
        Self { new, has_failed, state: State::Over(Over::Waiting) }
    }

    /// Runs until the end is requested or all senders are gone. Then the transaction is rolled back.
    pub(super) async fn run(mut self, mut jobs: mpsc::UnboundedReceiver<ActorMessage>) {
        loop {
            let until = match &self.state {
                State::Open { until, .. } => Some(*until),
                State::Over(_) => None,
            };
            let job = tokio::select! {
                biased;
                () = passed(until) => {
                    self.time_out().await;
                    continue;
                }
                job = jobs.recv() => job,
            };
            let job = match job {
                None => break,
                Some(ActorMessage::Refused(problem)) => {
                    self.refuse(problem).await;
                    continue;
                }
                Some(ActorMessage::TransactionCommand(asked)) => asked,
            };
            if job.is_claimed.swap(true, Ordering::AcqRel) {
                // The sender already knows that the query was cancelled.
                let problem = CliError::new(EventErrorCode::Cancelled, "a query of it was cancelled");
                match job.task {
                    TransactionCommand::Begin => self.did_not_begin(problem),
                    // A part of the transaction must not be committed without the rest.
                    TransactionCommand::Query(_) => self.give_up(problem).await,
                    TransactionCommand::Commit | TransactionCommand::RollBack => {}
                }
                continue;
            }
            if let Flow::Ended = self.perform(job).await {
                return;
            }
        }
        self.leave().await;
    }

    /// Rolls the transaction back: a part of it must not be committed without the rejected command.
    async fn refuse(&mut self, problem: CliError) {
        let message = format!("a command was refused: {}", problem.message);
        let problem = CliError { message, hint: None, retryable: false, ..problem };
        if let State::Over(Over::Waiting) = self.state {
            self.did_not_begin(problem);
        } else {
            self.give_up(problem).await;
        }
    }

    async fn perform(&mut self, job: TransactionRequest) -> Flow {
        let TransactionRequest { request, task, cancel, answer, .. } = job;
        let (event, next) = match task {
            TransactionCommand::Begin => (self.open(&request, &cancel).await, Flow::GoesOn),
            TransactionCommand::Query(query) => {
                let (event, is_late) = self.query(query, &request, &cancel).await;
                // The receiver may be gone.
                let _ = answer.send(event);
                if is_late {
                    self.time_out().await;
                }
                return Flow::GoesOn;
            }
            // The session ended before the turn of this command.
            TransactionCommand::Commit if cancel.is_cancelled() => {
                self.give_up(CliError::new(EventErrorCode::Cancelled, "the session ended before its commit began"))
                    .await;
                (self.commit(&request, &cancel).await, Flow::Ended)
            }
            TransactionCommand::Commit => (self.commit(&request, &cancel).await, Flow::Ended),
            TransactionCommand::RollBack => {
                self.leave().await;
                (done(&request, "ROLLBACK", QuerySummary::default(), false), Flow::Ended)
            }
        };
        let _ = answer.send(event);
        next
    }

    async fn open(&mut self, request: &Request, cancel: &CancellationToken) -> Event {
        let begun = tokio::select! {
            biased;
            begun = guarded(self.new.executor.begin(&self.new.place, self.new.begin)) => begun,
            () = cancel.cancelled() => Err(ExecuteError::Cancelled),
        };
        match begun {
            Ok(transaction) => {
                self.state = State::Open { transaction, until: Instant::now() + self.new.begin.timeout };
                done(request, "BEGIN", QuerySummary::default(), false)
            }
            Err(failed) => {
                let event = error_event::event(failed, Some(&self.new.place.target), request);
                self.did_not_begin(why(&event));
                event
            }
        }
    }

    /// Runs a query. Returns the event, and whether the transaction timed out meanwhile.
    async fn query(&mut self, query: Query, request: &Request, cancel: &CancellationToken) -> (Event, bool) {
        let (transaction, until) = match &mut self.state {
            State::Open { transaction, until } => (transaction, *until),
            State::Over(over) => {
                let over = over.clone();
                return (self.refused(&over, request), false);
            }
        };
        let late = cancel.child_token();
        let stop = StopTokens::only(&late);
        let runner = ExecutionContext::In(transaction.as_mut(), &self.new.place);
        let running =
            std::panic::AssertUnwindSafe(run_query::run(runner, request, query, &self.new.event_sender, &stop));
        let mut running = Box::pin(running.catch_unwind());
        let (outcome, is_late) = tokio::select! {
            biased;
            outcome = &mut running => (outcome, false),
            () = tokio::time::sleep_until(until) => {
                late.cancel();
                (running.as_mut().await, true)
            }
        };
        drop(running);
        let Ok(outcome) = outcome else {
            let event = request.defect();
            self.fail(why(&event));
            return (event, false);
        };
        let is_lost =
            matches!(&outcome.event, Event::Error(error) if error.error_code == EventErrorCode::ConnectionLost);
        match outcome.event {
            event if is_late && event.is_failure() => (self.timed_out(request), true),
            event => {
                if outcome.is_abandoned || is_lost {
                    self.fail(why(&event));
                }
                (event, is_late)
            }
        }
    }

    async fn commit(&mut self, request: &Request, cancel: &CancellationToken) -> Event {
        match std::mem::replace(&mut self.state, State::Over(Over::Waiting)) {
            State::Open { transaction, .. } => {
                let correlation_id = transaction.correlation_id();
                let committed = tokio::select! {
                    biased;
                    committed = guarded(transaction.commit()) => committed,
                    () = stopped_for(cancel, COMMIT_GRACE) => Err(run_query::unknown(correlation_id)),
                };
                match committed {
                    Ok(completed) => done(request, "COMMIT", completed, !self.new.begin.read_only),
                    Err(failed) => error_event::event(failed, Some(&self.new.place.target), request),
                }
            }
            State::Over(Over::TimedOut) => self.timed_out(request),
            State::Over(Over::Failed(problem)) => {
                let message = format!("nothing was committed: {}", problem.message);
                request.failed(CliError { message, hint: None, ..problem })
            }
            State::Over(Over::Waiting) => {
                request.failed(CliError::invalid("nothing was committed: the transaction has not begun"))
            }
        }
    }

    /// Rolls the transaction back because it timed out, and emits a notice.
    async fn time_out(&mut self) {
        self.leave().await;
        self.state = State::Over(Over::TimedOut);
        let notice = Notice {
            id: None,
            session: self.new.place.session.clone(),
            severity: "WARNING".to_owned(),
            sqlstate: TRANSACTION_TIMEOUT.to_owned(),
            message: self.late_message(),
            detail: None,
            hint: Some("send rollback; then begin again".to_owned()),
            trace: Trace::default(),
        };
        // The output may be closed.
        let _ = self.new.event_sender.emit(&Event::Notice(Box::new(notice))).await;
    }

    fn late_message(&self) -> String {
        format!("the transaction of this session was rolled back after {} ms", self.new.begin.timeout.as_millis())
    }

    /// Rolls the open transaction back. The connection is discarded if that takes too long.
    async fn leave(&mut self) {
        if let State::Open { transaction, .. } = std::mem::replace(&mut self.state, State::Over(Over::Waiting)) {
            // If the rollback does not arrive, PostgreSQL rolls back when the connection is dropped.
            let _ = tokio::time::timeout(STOP_GRACE, guarded(transaction.roll_back())).await;
        }
    }

    /// Rolls the transaction back because it can no longer be complete.
    async fn give_up(&mut self, problem: CliError) {
        if let State::Open { .. } = self.state {
            self.leave().await;
            self.fail(problem);
        }
    }

    /// Marks the transaction as over for this reason.
    fn fail(&mut self, problem: CliError) {
        let message = format!("the transaction of this session was rolled back: {}", problem.message);
        self.state = State::Over(Over::Failed(CliError { message, ..problem }));
    }

    /// Marks the transaction as unusable. Another one may begin instead.
    fn did_not_begin(&mut self, problem: CliError) {
        let message = format!("the transaction of this session did not begin: {}", problem.message);
        self.state = State::Over(Over::Failed(CliError { message, ..problem }));
        self.has_failed.store(true, Ordering::Release);
    }

    fn refused(&self, over: &Over, request: &Request) -> Event {
        let message = match over {
            Over::TimedOut => self.late_message(),
            Over::Failed(problem) => problem.message.clone(),
            Over::Waiting => "the transaction of this session has not begun".to_owned(),
        };
        request.failed(CliError::invalid(message).hint("send rollback first"))
    }

    /// The event for a query or a commit after the transaction has timed out.
    fn timed_out(&self, request: &Request) -> Event {
        Event::SqlError(Box::new(SqlError {
            id: request.id.clone(),
            session: request.session.clone(),
            sqlstate: TRANSACTION_TIMEOUT.to_owned(),
            message: format!("{}: nothing was committed", self.late_message()),
            detail: None,
            hint: Some("begin again, or give it a longer transaction_timeout_ms".to_owned()),
            position: None,
            trace: request.trace(),
        }))
    }
}

/// The reason in a failure event.
fn why(event: &Event) -> CliError {
    match event {
        Event::Error(error) => CliError::new(error.error_code, error.error.clone()),
        Event::SqlError(error) => CliError::invalid(format!("{} ({})", error.message, error.sqlstate)),
        _ => CliError::invalid("it ended"),
    }
}

/// Returns the terminal event of a begin, a commit or a rollback.
fn done(request: &Request, tag: &str, completed: QuerySummary, is_commit: bool) -> Event {
    let trace = Trace { row_count: Some(0), payload_bytes: Some(0), ..request.trace() };
    Event::Result(Box::new(ResultEvent {
        id: request.id.clone(),
        session: request.session.clone(),
        command_tag: completed.tag.unwrap_or_else(|| tag.to_owned()),
        columns: Vec::new(),
        rows: Rows::default(),
        row_count: 0,
        correlation_id: completed.correlation_id,
        is_commit,
        trace,
    }))
}

/// Turns a panic into an error, so that the waiting caller gets an answer.
async fn guarded<T>(running: impl Future<Output = Result<T, ExecuteError>>) -> Result<T, ExecuteError> {
    let ended = std::panic::AssertUnwindSafe(running).catch_unwind().await;
    ended.unwrap_or_else(|_| Err(ExecuteError::Internal("it ended by a defect of countersign".to_owned())))
}
