//! The order of the protocol: admit, execute, and, when the connection is lost on the way, resolve.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use contract::{CorrelationId, ErrorCode, Failure, Principal, Rollback};
use futures_util::FutureExt;
use pg::Writer;
use serde_json::{Map, Value};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use crate::admit::{self, Verdict};
use crate::executor::Executor;
use crate::fingerprint::Fingerprint;
use crate::{execute, resolve};

/// One call of a write tool that has passed validation and policy.
#[derive(Clone)]
pub struct Attempt {
    /// Who calls.
    pub principal: Principal,
    /// The tool.
    pub tool: String,
    /// Every effective parameter by name: defaults and server-filled ones included.
    pub params: Map<String, Value>,
    /// The caller's own key, if there is one.
    pub idempotency_key: Option<String>,
    /// How long an identical call without a key counts as the same call.
    pub dedup_window: Duration,
    /// From the call to the answer.
    pub deadline: Instant,
    /// What carries it out.
    pub executor: Arc<dyn Executor>,
}

/// A write that stands.
#[derive(Debug, Clone, PartialEq)]
pub enum Settled {
    /// This call wrote.
    Executed {
        /// The receipt.
        correlation_id: CorrelationId,
        /// What the executor answered.
        data: Value,
        /// How many rows it touched.
        rows_affected: u64,
        /// How it is undone.
        rollback: Rollback,
    },
    /// An identical call had written before.
    Duplicate {
        /// The receipt of this call.
        correlation_id: CorrelationId,
        /// The receipt of the call that wrote.
        original: CorrelationId,
        /// What that one was answered, whole.
        cached_result: Value,
    },
}

/// A write that did not happen. `correlation_id` is there once the gate was passed, that is: a record tells of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Stopped {
    /// The receipt.
    pub correlation_id: Option<CorrelationId>,
    /// Why.
    pub failure: Box<Failure>,
}

/// The only way to write.
#[derive(Debug, Clone)]
pub struct Gate {
    writer: Writer,
    /// What is on its way: clones of a gate share it.
    running: TaskTracker,
}

/// How long the truth is looked for after the deadline has passed or the connection was lost.
pub(crate) const RESOLVE_TIMEOUT: Duration = Duration::from_secs(10);

/// PostgreSQL ends the statement itself at the deadline, and the record then says why. This much later it is given up.
const CANCEL_GRACE: Duration = Duration::from_secs(2);

impl Gate {
    pub(crate) fn new(writer: Writer) -> Self {
        Self { writer, running: TaskTracker::new() }
    }

    /// Carries the attempt out, exactly once. The work goes on in a task of its own when the future is dropped: a
    /// caller that goes away must not leave a record without an outcome.
    ///
    /// # Errors
    /// [`Stopped`]: nothing was written, unless the code is [`ErrorCode::CommitOutcomeUnknown`].
    pub async fn perform(&self, attempt: Attempt) -> Result<Settled, Stopped> {
        let writer = self.writer.clone();
        let correlation_id = CorrelationId::new();
        let task = self.running.spawn(async move { Protocol { writer, attempt, correlation_id }.run().await });
        task.await.unwrap_or_else(|error| {
            tracing::error!(%correlation_id, %error, "the write protocol itself failed");
            Err(Stopped { correlation_id: Some(correlation_id), failure: internal_error().into() })
        })
    }

    /// Waits for the writes that are on their way: the process must not end under them. Each ends by its deadline and the
    /// time to find out its outcome.
    pub async fn drain(&self) {
        self.running.close();
        self.running.wait().await;
    }
}

pub(crate) fn internal_error() -> Failure {
    Failure::new(ErrorCode::InternalError, "the server failed inside; its log has the rest under the correlation id")
}

/// One attempt on its way.
struct Protocol {
    writer: Writer,
    attempt: Attempt,
    correlation_id: CorrelationId,
}

impl Protocol {
    #[tracing::instrument(name = "mutation", skip_all, fields(correlation_id = %self.correlation_id, tool = self.attempt.tool))]
    async fn run(self) -> Result<Settled, Stopped> {
        let fingerprint = Fingerprint::of(&self.attempt.tool, &self.attempt.params);
        let verdict = match admit::admit(&self.writer, self.correlation_id, &self.attempt, &fingerprint).await {
            Ok(verdict) => verdict,
            Err(stopped) => return Err(stopped),
        };
        let mut lease = match verdict {
            Verdict::Run(lease) => lease,
            Verdict::Duplicate { original, cached_result } => {
                tracing::info!(%original, "duplicate");
                return Ok(Settled::Duplicate { correlation_id: self.correlation_id, original, cached_result });
            }
            Verdict::Refused(failure) => return Err(self.stopped(failure)),
        };

        let executed = execute::execute(&self.writer, &mut lease, self.correlation_id, &self.attempt);
        // An executor may be anybody's code. After a panic the session is dropped in the middle, so T2 cannot commit.
        let caught = AssertUnwindSafe(executed).catch_unwind();
        let outcome = tokio::time::timeout_at(self.attempt.deadline + CANCEL_GRACE, caught).await;
        match outcome {
            Ok(Ok(Ok(done))) => {
                tracing::info!(rows_affected = done.rows_affected, "executed");
                Ok(Settled::Executed {
                    correlation_id: self.correlation_id,
                    data: done.data,
                    rows_affected: done.rows_affected,
                    rollback: done.rollback,
                })
            }
            Ok(Ok(Err(execute::Unfinished::Recorded(failure)))) => {
                tracing::info!(code = %failure.code, "failed");
                Err(self.stopped(failure))
            }
            Ok(Ok(Err(execute::Unfinished::InDoubt(error)))) => {
                tracing::warn!(%error, "the outcome is in doubt");
                lease.discard();
                let cause = match &error {
                    pg::Error::MessageTooLarge { .. } => {
                        Some(Failure::new(ErrorCode::ResultTooLarge, format!("{error}; nothing was written")))
                    }
                    _ => None,
                };
                self.resolve(cause).await
            }
            Ok(Err(_)) => {
                tracing::error!("the executor panicked");
                lease.discard();
                self.resolve(Some(internal_error())).await
            }
            Err(_) => {
                lease.discard();
                self.resolve(Some(Failure::new(ErrorCode::Timeout, "the write did not finish within its deadline")))
                    .await
            }
        }
    }

    /// `cause` is what the caller is told when it turns out that nothing was written.
    async fn resolve(&self, cause: Option<Failure>) -> Result<Settled, Stopped> {
        self.writer.forget_idle();
        let deadline = Instant::now() + RESOLVE_TIMEOUT;
        resolve::resolve(&self.writer, self.correlation_id, deadline).await.map_err(|failure| {
            self.stopped(match (failure.code, cause) {
                (ErrorCode::InDoubtAborted, Some(cause)) => cause,
                _ => failure,
            })
        })
    }

    fn stopped(&self, failure: Failure) -> Stopped {
        Stopped { correlation_id: Some(self.correlation_id), failure: failure.into() }
    }
}
