//! The transaction of a write: it begins, the executor runs, and the outcome is recorded.
//!
//! ```text
//! round trip 1   BEGIN · begin_write · the executor's first statements
//! round trip 2   SET CONSTRAINTS ALL IMMEDIATE · finish · limit of rows · COMMIT
//! on a refusal   ROLLBACK · record_failure
//! ```
//! If the attempt is admitted before the write, the first pipeline begins with a transaction of its own, and a
//! failure is recorded by `fail`:
//!
//! ```text
//! round trip 1   BEGIN · take_slot · admission · policy · COMMIT AND CHAIN · claim · the executor's first statements
//! ```
//! The role and the claims of a caller are set before the executor's first statements, and the role is left after SET
//! CONSTRAINTS, within the same pipelines (`caller_part`).
//!
//! Each line is a pipeline that stops at its first error, so COMMIT is never reached without a recorded outcome.

use pg::{
    ContextStatements, PipelineError, PipelineStatement, PooledSession, ServerError, StatementResult, WriterPool,
};
use serde_json::Value;
use types::{ErrorCode, Failure, Rollback};

use crate::evidence::conflicts;
use crate::evidence::values::summary;
use crate::write::attempt::{WriteAttempt, WriteCall};
use crate::write::error_hints::HintQuery;
use crate::write::executor::WriteOutput;
use crate::write::failures::{ExecutorError, FENCED, frozen};
use crate::write::intent::MAX_OUTCOME_BYTES;
use crate::write::lock_wait;
use crate::write::remote_writes::{RemoteWriteError, RemoteWrites};
use crate::write::renewals::{self, OUTDATED, may_be_outdated};
use crate::write::row_limit;
use crate::write::write_tx::{TransactionOpening, TxState, Unopened, WriteStart, WriteTx};

/// A write that is committed.
pub(crate) struct Executed {
    pub(crate) output: WriteOutput,
    /// Where: [`TxState::incarnation`].
    pub(crate) incarnation: Option<String>,
}

pub(crate) enum CommitError {
    /// The transaction could not be opened; no statement of the executor has run.
    Unopened(Unopened),
    /// Nothing was written, and the record has the reason.
    Recorded(Failure),
    /// PostgreSQL refused to record the outcome, so nothing was written.
    Undone(Box<ServerError>),
    /// PostgreSQL refused the COMMIT, because of a deferred trigger or a conflict with another transaction. Nothing
    /// was written.
    Refused(Box<ServerError>),
    /// A migration has changed columns: the triggers that record the rows of tracked tables were renewed, or the session
    /// has older plans. Nothing was written, and the attempt may run again on a new session.
    Renewed,
    /// It is unknown whether the transaction committed.
    InDoubt(pg::Error),
}

const FINISH_SQL: &str = "\
select countersign.finish($1, $2, $3, $4, $5, $6, $7, pg_catalog.make_interval(secs => $8::double precision))";
const FAIL_SQL: &str = "select countersign.fail($1, $2, $3, $4, $5, $6, $7)";
/// Records a failure that has no attempt.
pub(crate) const RECORD_FAILURE_SQL: &str = "select countersign.record_failure($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, \
    $11, $12, $13, $14, $15, $16, $18, $19, $20, $21, pg_catalog.make_interval(secs => $22::double precision), $17)";

pub(crate) async fn execute(
    writer: &WriterPool,
    lease: &mut PooledSession,
    attempt: &WriteAttempt<'_>,
    (start, known): (WriteStart<'_>, Option<String>),
    remote_writes: &RemoteWrites,
) -> Result<Executed, CommitError> {
    let WriteCall { request, executor, deadline, .. } = attempt.call;
    let id = attempt.intent.correlation_id;
    let opening = TransactionOpening::Write(&attempt.intent, start, known);
    let pid = lock_wait::backend_pid(lease);
    let mut tx = WriteTx::new(lease, writer, (id, &request.principal), *deadline, opening);
    let work = match attempt.precondition {
        None => executor.execute(&mut tx, request),
        Some(precondition) => precondition.execute(executor.as_ref(), &mut tx, request),
    };
    let (executed, wait) = lock_wait::watched(writer, pid, work).await;
    let executed =
        wait.explain(executed).map(|work| WriteOutput { rollback: work.rollback.of_write(&id.to_string()), ..work });
    let TxState { work, unopened, hint_query, incarnation } = tx.close(executed).await;
    if let Some(unopened) = unopened {
        return Err(CommitError::Unopened(unopened));
    }
    match work {
        Ok(work) if outcome_bytes(&work) > MAX_OUTCOME_BYTES => {
            Err(fail(lease, attempt, start, too_large_to_keep(&work), None).await)
        }
        Ok(work) => match lock_wait::watched(writer, pid, succeed(lease, attempt, &work, remote_writes)).await {
            (Ok(receipt), _) => {
                let output = WriteOutput { rollback: work.rollback.with_ledger_findings(receipt), ..work };
                Ok(Executed { output, incarnation })
            }
            // A deferred constraint or trigger refuses the work.
            (Err(SucceedError::Work(error)), wait) => {
                if error.is_stale_function() && is_renewed(lease).await? {
                    return Err(CommitError::Renewed);
                }
                let hint_query = HintQuery::of(&error);
                Err(fail(lease, attempt, start, wait.sql_failure(&error), hint_query).await)
            }
            (Err(SucceedError::Finish(failure)), _) => Err(fail(lease, attempt, start, *failure, None).await),
            (Err(SucceedError::Commit(error)), _) => Err(CommitError::Refused(error)),
            (Err(SucceedError::Other(pg::Error::Server(error))), _) if error.sqlstate == OUTDATED => {
                is_renewed(lease).await.and(Err(CommitError::Renewed))
            }
            (Err(SucceedError::Other(error)), _) => Err(unfinished(error)),
        },
        Err(ExecutorError::Rejected(failure))
            if may_be_outdated(failure.sqlstate.as_deref()) && is_renewed(lease).await? =>
        {
            Err(CommitError::Renewed)
        }
        Err(ExecutorError::Rejected(failure)) => Err(fail(lease, attempt, start, failure, hint_query).await),
        // Another server has ended this attempt, and its record has the outcome.
        Err(ExecutorError::ConnectionLost(pg::Error::Server(error))) if error.sqlstate == FENCED => {
            Err(CommitError::InDoubt(pg::Error::Server(error)))
        }
        Err(ExecutorError::ConnectionLost(error)) => Err(unfinished(error)),
    }
}

/// As [`renewals::is_renewed`], in a write.
async fn is_renewed(lease: &mut PooledSession) -> Result<bool, CommitError> {
    renewals::is_renewed(lease).await.map_err(unfinished)
}

/// The size of the recorded outcome, in bytes of JSON.
fn outcome_bytes(work: &WriteOutput) -> usize {
    let image = |image: &Option<Value>| image.as_ref().map_or(0, |image| image.to_string().len());
    let undo = serde_json::to_string(&work.rollback).map_or(0, |undo| undo.len());
    work.data.to_string().len() + image(&work.before) + image(&work.after) + undo
}

fn too_large_to_keep(work: &WriteOutput) -> Failure {
    let message = format!(
        "the result of the write, with its images and undo calls, is {} bytes of JSON, and a record keeps \
         {MAX_OUTCOME_BYTES}; nothing was written",
        outcome_bytes(work)
    );
    Failure::new(ErrorCode::ResultTooLarge, message).hint("Write fewer rows in one call, or return fewer columns.")
}

/// The step of [`succeed`] that failed.
enum SucceedError {
    /// PostgreSQL refused the work itself, before the outcome was recorded.
    Work(Box<ServerError>),
    /// The ledger refused the outcome, with this failure.
    Finish(Box<Failure>),
    /// PostgreSQL refused the COMMIT.
    Commit(Box<ServerError>),
    /// The outcome could not be recorded, or the connection was lost.
    Other(pg::Error),
}

impl From<RemoteWriteError> for SucceedError {
    fn from(error: RemoteWriteError) -> Self {
        match error {
            RemoteWriteError::Deferred(error) => Self::Work(error),
            RemoteWriteError::Refused(failure) => Self::Finish(failure),
            RemoteWriteError::Database(error) => Self::Other(error),
        }
    }
}

async fn succeed(
    lease: &mut PooledSession,
    attempt: &WriteAttempt<'_>,
    work: &WriteOutput,
    remote_writes: &RemoteWrites,
) -> Result<Option<Rollback>, SucceedError> {
    remote_writes.refuse(lease).await?;
    let images = [work.before.as_ref(), work.after.as_ref()];
    let redaction = attempt.call.redaction.clone().with_images(&images);
    let [before, after] = images.map(|image| image.map(|image| redaction.value(image).to_string()));
    let data = redaction.value(&work.data).to_string();
    let rollback =
        serde_json::to_value(&work.rollback).map_err(|error| SucceedError::Other(pg::Error::Lost(error.into())))?;
    let correlation_id = attempt.intent.correlation_id.to_string();
    let params = [
        Some(correlation_id.clone()),
        Some(data.clone()),
        Some(summary(&data)),
        Some(work.rows_affected.to_string()),
        before,
        after,
        Some(redaction.value(&rollback).to_string()),
        Some(attempt.call.executor.dedup_window().as_secs_f64().to_string()),
    ];
    let row_limit = row_limit::arguments(attempt.call, correlation_id);
    let statements = ContextStatements::of(&attempt.call.request.principal.context);
    let mut steps = vec![PipelineStatement::without_params("set constraints all immediate")];
    steps.extend(statements.as_ref().and_then(ContextStatements::login));
    let finish = steps.len();
    steps.push(PipelineStatement::new(FINISH_SQL, &params));
    steps.extend(row_limit.as_ref().map(|arguments| PipelineStatement::new(row_limit::APPLY_SQL, arguments)));
    steps.push(PipelineStatement::without_params("commit"));
    let commit = steps.len() - 1;
    let outcomes = committed(lease, &steps).await;
    let outcomes = outcomes.map_err(|failed| match failed {
        PipelineError { step: 0, error: pg::Error::Server(error) } => SucceedError::Work(error),
        PipelineError { step, error: pg::Error::Server(error) } if step == commit => SucceedError::Commit(error),
        PipelineError { error: pg::Error::Server(error), .. } => match refusal_of_finish(&error, attempt) {
            Some(failure) => SucceedError::Finish(failure.into()),
            None => SucceedError::Other(pg::Error::Server(error)),
        },
        PipelineError { error, .. } => SucceedError::Other(error),
    })?;
    // The write is committed, even if its receipt cannot be parsed.
    Ok(outcomes.into_iter().nth(finish).and_then(receipt))
}

/// How the write can be undone, according to the ledger.
pub(crate) fn receipt(finished: StatementResult) -> Option<Rollback> {
    serde_json::from_str(&finished.into_value()?).ok()
}

/// The failure if the ledger refuses to record a success: the undo is not an exact inverse, the account was frozen
/// during the write, the write exceeds the row limit of the tool, or it is not what was agreed to.
fn refusal_of_finish(error: &ServerError, attempt: &WriteAttempt<'_>) -> Option<Failure> {
    let is_frozen = error.sqlstate == FENCED && error.detail.as_deref() == Some("frozen");
    let not_agreed = || attempt.precondition.and_then(|precondition| precondition.refused(error));
    let refused =
        || conflicts::refused_inverse(error).or_else(|| row_limit::refusal(error, attempt.call)).or_else(not_agreed);
    if is_frozen { Some(frozen()) } else { refused() }
}

/// Rolls the work back and records the failure. If the recording fails, resolving the attempt records it.
async fn fail(
    lease: &mut PooledSession,
    attempt: &WriteAttempt<'_>,
    start: WriteStart<'_>,
    failure: Failure,
    hint_query: Option<HintQuery>,
) -> CommitError {
    let mut failure = failure.redacted(&attempt.call.redaction);
    // Do not add a hint if the executor continued after the error and failed for another reason.
    let hint_query = hint_query.filter(|_| failure.hint.is_none() && failure.code == ErrorCode::SqlError);
    let (sql, params) = match start {
        WriteStart::Begin => (RECORD_FAILURE_SQL, attempt.intent.failed(&failure)),
        WriteStart::Admit { .. } | WriteStart::Claim => (FAIL_SQL, attempt.failed(&failure)),
    };
    let mut steps = vec![PipelineStatement::without_params("rollback")];
    steps.extend(hint_query.as_ref().map(HintQuery::step));
    steps.push(PipelineStatement::new(sql, &params));
    match lease.session().run(&steps).await {
        Ok(outcomes) => {
            if hint_query.is_some() {
                failure.hint = HintQuery::hint(outcomes.into_iter().nth(1));
            }
            CommitError::Recorded(failure)
        }
        Err(PipelineError { error, .. }) => unfinished(error),
    }
}

fn unfinished(error: pg::Error) -> CommitError {
    match error {
        // PostgreSQL has answered with an error on a session that still works, so the transaction did not commit.
        pg::Error::Server(error) => CommitError::Undone(error),
        error => CommitError::InDoubt(error),
    }
}

/// Runs steps that end with COMMIT, and checks its command tag: COMMIT of a failed transaction is not an error, but
/// returns ROLLBACK.
async fn committed(
    lease: &mut PooledSession,
    steps: &[PipelineStatement<'_>],
) -> Result<Vec<StatementResult>, PipelineError> {
    let outcomes: Vec<StatementResult> = lease.session().run(steps).await?;
    // The session may serve another account next. If it cannot be reset, its connection is lost, and the pool
    // discards it.
    let _ = lease.session().push_reset().await;
    match outcomes.last().map(|outcome| outcome.tag.as_str()) {
        Some("COMMIT") => Ok(outcomes),
        tag => {
            let message = format!("COMMIT was answered with {}", tag.unwrap_or("nothing"));
            Err(PipelineError { step: outcomes.len(), error: pg::Error::Lost(std::io::Error::other(message)) })
        }
    }
}
