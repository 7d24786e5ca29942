//! Recorded writes of the command line. Each is a mutation of the tool `cli_write` and passes the gate like any other
//! write.
//!
//! ```text
//! one statement    record · statement, rows streamed and acknowledged · outcome, COMMIT
//! begin .. commit  one record with all statements; its outcome is that of the transaction
//! ```
//! Every statement is a new write, even if its text was sent before: identical statements are not deduplicated.

use std::sync::Arc;
use std::time::Duration;

use agent_cli::executor::{
    BoxFuture, ExecuteError, IsolationLevel, Query, QueryEvent, QuerySummary, Transaction, TransactionOptions,
};
use ledger::{Gate, WriteCall, WriteError, WriteOutcome, WriteRequest};
use serde_json::{Map, Value};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use types::{CorrelationId, ErrorCode, Principal, Redaction};

use super::cli_write::{CliStep, CliWrite, SentStatement, TOOL};
use super::write_errors::failed;

/// Time for the write protocol, in addition to the statement's own timeout.
const PROTOCOL_MARGIN: Duration = Duration::from_secs(2);

/// Time for the gate's answer, in addition to the statement's own timeout. The gate still resolves and records the
/// outcome later.
const ANSWER_MARGIN: Duration = Duration::from_millis(4500);

const BEGIN_TIMEOUT: Duration = Duration::from_secs(15);

/// Time limit of a statement without a timeout.
const NO_LIMIT: Duration = Duration::from_secs(24 * 3600);

/// Writes to one ledger on behalf of one principal.
#[derive(Debug, Clone)]
pub(super) struct LedgerExecutor {
    gate: Gate,
    principal: Principal,
    /// One permit per session of the gate. The wait for a permit does not count towards a deadline.
    permits: Arc<Semaphore>,
}

impl LedgerExecutor {
    pub(super) fn new(gate: Gate, principal: Principal, sessions: usize) -> Self {
        Self { gate, principal, permits: Arc::new(Semaphore::new(sessions)) }
    }

    async fn acquire(&self) -> Result<OwnedSemaphorePermit, ExecuteError> {
        let permit = Arc::clone(&self.permits).acquire_owned().await;
        permit.map_err(|error| ExecuteError::Internal(error.to_string()))
    }

    /// Starts a write at the gate and returns its task.
    fn perform(
        &self,
        permit: OwnedSemaphorePermit,
        params: Map<String, Value>,
        write: &Arc<CliWrite>,
        within: Duration,
    ) -> JoinHandle<Result<WriteOutcome, WriteError>> {
        let call = WriteCall {
            request: WriteRequest { principal: self.principal.clone(), params },
            tool: TOOL.to_owned(),
            reason: None,
            redaction: Redaction::default(),
            // A random key: identical statements are separate writes.
            idempotency_key: Some(CorrelationId::new().to_string()),
            deadline: Instant::now() + within + PROTOCOL_MARGIN,
            executor: Arc::<CliWrite>::clone(write),
        };
        let gate = self.gate.clone();
        tokio::spawn(async move {
            let settled = gate.perform(call).await;
            drop(permit);
            settled
        })
    }

    /// Runs one statement in a separate recorded transaction.
    pub(super) async fn query(
        &self,
        query: Query,
        out: mpsc::Sender<QueryEvent>,
        cancel: CancellationToken,
    ) -> Result<QuerySummary, ExecuteError> {
        let params =
            [("sql".to_owned(), query.sql.as_str().into()), ("params".to_owned(), query.params.clone().into())];
        let within = limit(query.statement_timeout);
        let permit = tokio::select! {
            biased;
            () = cancel.cancelled() => return Err(ExecuteError::Cancelled),
            permit = self.acquire() => permit?,
        };
        let (step, steps) = mpsc::channel(1);
        let (done, mut outcome) = oneshot::channel();
        let sent = SentStatement { query, out, cancel, done };
        let _ = step.send(CliStep::Run(Box::new(sent))).await;
        let write = Arc::new(CliWrite::single(steps));
        let performing = self.perform(permit, params.into_iter().collect(), &write, within);
        let Ok(performed) = tokio::time::timeout(within + ANSWER_MARGIN, performing).await else {
            return Err(match outcome.try_recv() {
                // The statement failed before COMMIT was sent.
                Ok(Err(failed)) => failed,
                Ok(Ok(completed)) => unanswered(completed.correlation_id),
                // Without its steps the write can no longer start.
                Err(_) if write.take_steps().is_some() => {
                    ExecuteError::Lost("the ledger did not answer; nothing was written".to_owned())
                }
                Err(_) => unanswered(None),
            });
        };
        match (settled(performed)?, outcome.await) {
            // The statement's error has more detail than its record.
            (Err(stopped), Ok(Err(failed))) if stopped.failure.code != ErrorCode::CommitOutcomeUnknown => Err(failed),
            (Err(stopped), _) => Err(failed(&stopped)),
            (Ok(correlation_id), Ok(Ok(completed))) => {
                Ok(QuerySummary { correlation_id: Some(correlation_id), ..completed })
            }
            (Ok(_), _) => Err(ExecuteError::Internal("the write was recorded without an outcome".to_owned())),
        }
    }

    pub(super) async fn begin(&self, begin: TransactionOptions) -> Result<Box<dyn Transaction>, ExecuteError> {
        if begin.isolation.is_some_and(|isolation| isolation != IsolationLevel::ReadCommitted) {
            return Err(ExecuteError::Unsupported {
                message: "a recorded transaction has the isolation level read committed".to_owned(),
                hint: Some(
                    "Leave isolation_level out, or give --no-audit where the configuration allows it.".to_owned(),
                ),
            });
        }
        let params = [("transaction".to_owned(), Value::Bool(true))];
        let (step, steps) = mpsc::channel(1);
        let (open, opened) = oneshot::channel();
        let write = Arc::new(CliWrite::transaction(steps, open));
        let permit = self.acquire().await?;
        let settled_later = self.perform(permit, params.into_iter().collect(), &write, begin.timeout);
        let Ok(opened) = tokio::time::timeout(BEGIN_TIMEOUT, opened).await else {
            return Err(ExecuteError::Lost("the ledger did not answer to BEGIN; nothing was written".to_owned()));
        };
        let Ok(correlation_id) = opened else {
            return match settled(settled_later.await)? {
                Err(stopped) => Err(failed(&stopped)),
                Ok(_) => Err(ExecuteError::Internal("the transaction ended before it began".to_owned())),
            };
        };
        Ok(Box::new(OpenTransaction { correlation_id, step, settled: settled_later, longest: Duration::ZERO }))
    }
}

/// An open transaction. Dropping it rolls it back.
struct OpenTransaction {
    correlation_id: Option<String>,
    step: mpsc::Sender<CliStep>,
    settled: JoinHandle<Result<WriteOutcome, WriteError>>,
    /// The longest statement timeout so far, the limit of COMMIT.
    longest: Duration,
}

impl Transaction for OpenTransaction {
    fn correlation_id(&self) -> Option<String> {
        self.correlation_id.clone()
    }

    fn query<'a>(
        &'a mut self,
        query: Query,
        out: mpsc::Sender<QueryEvent>,
        cancel: CancellationToken,
    ) -> BoxFuture<'a, QuerySummary> {
        Box::pin(async move {
            self.longest = self.longest.max(limit(query.statement_timeout));
            let (done, outcome) = oneshot::channel();
            let sent = SentStatement { query, out, cancel, done };
            self.step.send(CliStep::Run(Box::new(sent))).await.map_err(|_| ExecuteError::in_failed_transaction())?;
            outcome.await.unwrap_or_else(|_| Err(ExecuteError::in_failed_transaction()))
        })
    }

    fn commit(self: Box<Self>) -> BoxFuture<'static, QuerySummary> {
        Box::pin(async move {
            let Self { step, settled: later, correlation_id, longest } = *self;
            let is_open = step.send(CliStep::Commit).await.is_ok();
            drop(step);
            let Ok(later) = tokio::time::timeout(longest + ANSWER_MARGIN, later).await else {
                return Err(if is_open { unanswered(correlation_id) } else { ExecuteError::in_failed_transaction() });
            };
            match settled(later)? {
                Ok(correlation_id) => {
                    let (tag, correlation_id) = (Some("COMMIT".to_owned()), Some(correlation_id));
                    Ok(QuerySummary { tag, correlation_id, ..QuerySummary::default() })
                }
                Err(stopped) if is_open || stopped.failure.code == ErrorCode::CommitOutcomeUnknown => {
                    Err(failed(&stopped))
                }
                Err(_) => Err(ExecuteError::in_failed_transaction()),
            }
        })
    }

    fn roll_back(self: Box<Self>) -> BoxFuture<'static, QuerySummary> {
        Box::pin(async move {
            let Self { step, settled: later, .. } = *self;
            drop(step);
            // Waits until the record is final, unless the server does not answer.
            let _ = tokio::time::timeout(ANSWER_MARGIN, later).await;
            Ok(QuerySummary { tag: Some("ROLLBACK".to_owned()), ..QuerySummary::default() })
        })
    }
}

/// Time limit of a statement; a timeout of zero is none.
fn limit(statement_timeout: Duration) -> Duration {
    if statement_timeout.is_zero() { NO_LIMIT } else { statement_timeout }
}

/// The error of a write without an answer.
fn unanswered(correlation_id: Option<String>) -> ExecuteError {
    let message = "the ledger did not answer: the write may or may not have happened".to_owned();
    ExecuteError::CommitOutcomeUnknown { message, correlation_id }
}

/// Result of a write's task.
type Outcome = Result<Result<WriteOutcome, WriteError>, tokio::task::JoinError>;

/// The correlation id of an executed write, or the error of the gate.
fn settled(outcome: Outcome) -> Result<Result<String, WriteError>, ExecuteError> {
    match outcome {
        Ok(Ok(WriteOutcome::Executed { correlation_id, .. })) => Ok(Ok(correlation_id.to_string())),
        Ok(Ok(WriteOutcome::Duplicate { .. })) => {
            Err(ExecuteError::Internal("internal: duplicate key collision".to_owned()))
        }
        Ok(Ok(WriteOutcome::NeedsApproval(_))) => {
            Err(ExecuteError::Internal("internal: a statement of a person has no rules".to_owned()))
        }
        Ok(Err(stopped)) => Ok(Err(stopped)),
        Err(error) => Err(ExecuteError::Internal(error.to_string())),
    }
}
