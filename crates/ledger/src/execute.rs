//! T2: claim, work and outcome in one transaction.
//!
//! ```text
//! round trip 1   BEGIN · claim · SAVEPOINT · the executor's first statements
//! round trip 2   SET CONSTRAINTS ALL IMMEDIATE · RELEASE · outcome into the record · COMMIT
//! on a refusal   ROLLBACK TO · failure into the record · COMMIT
//! ```
//! Each line is a pipeline that stops at its first error, so COMMIT is never reached without the outcome.

use std::time::Duration;

use contract::{CorrelationId, ErrorCode, Failure};
use pg::{Lease, Outcome, ServerError, Step, StepError, Writer};
use serde_json::Value;
use tokio::time::Instant;

use crate::admit::FENCED;
use crate::executor::{ConstraintName, Opening, Refusal, Work, WriteTx, sql_failure};
use crate::fingerprint::Fingerprints;
use crate::gate::Attempt;
use crate::intent::MAX_OUTCOME_BYTES;
use crate::proposals::Agreed;
use crate::records::summary;

/// T2 did not succeed.
pub(crate) enum Unfinished {
    /// The record says why; nothing was written.
    Recorded(Failure),
    /// PostgreSQL refused the outcome itself, so it is known that nothing was written.
    Undone(Box<ServerError>),
    /// PostgreSQL refused the COMMIT, because of a deferred trigger or a conflict with others: nothing was written.
    Refused(Box<ServerError>),
    /// Whether it committed is not known.
    InDoubt(pg::Error),
}

const FINISH_SUCCESS_SQL: &str = "\
select countersign.finish_success($1, $2, $3, $4, $5, $6, $7, $8, $9, pg_catalog.make_interval(secs => $10::double precision))";
const FINISH_FAILURE_SQL: &str = "select countersign.finish_failure($1, $2, $3, $4)";
/// What a constraint or a unique index says: its definition has its columns, and no values of rows.
const CONSTRAINT_SQL: &str = "\
select pg_catalog.format('Constraint %I of %I.%I: %s', $3::text, $1::text, $2::text, \
    coalesce(pg_catalog.pg_get_constraintdef(con.oid), pg_catalog.pg_get_indexdef(i.oid))) \
from pg_catalog.pg_namespace n join pg_catalog.pg_class c on c.relnamespace = n.oid \
left join pg_catalog.pg_constraint con on con.conrelid = c.oid and con.conname = $3::text \
left join pg_catalog.pg_class i on i.relnamespace = n.oid and i.relkind in ('i', 'I') and i.relname = $3::text \
where n.nspname = $1::text and c.relname = $2::text and (con.oid is not null or i.oid is not null)";
const FINISH_PROPOSAL_SQL: &str = "select countersign.finish_proposal($1, $2, $3, $4, $5)";

pub(crate) async fn execute(
    writer: &Writer,
    lease: &mut Lease,
    correlation_id: CorrelationId,
    attempt: &Attempt,
    fingerprints: &Fingerprints,
) -> Result<Work, Unfinished> {
    let left = attempt.deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    let claim_params = [Some(correlation_id.to_string()), Some(left.as_millis().min(i32::MAX as u128).to_string())];
    let mut tx = WriteTx::new(lease, writer, &attempt.order.principal.account_id, Opening::Claim(claim_params));
    let executor = attempt.executor.as_ref();
    let executed = match &attempt.agreed {
        None => executor.execute(&mut tx, &attempt.order).await,
        Some(agreed) => agreed.execute(executor, &mut tx, &attempt.order).await,
    };
    let work = match executed {
        // An executor that ran no statement at all still has its record to claim.
        Ok(work) => tx.open().await.map(|()| work),
        Err(Refusal::Failure(failure)) => tx.open().await.and(Err(Refusal::Failure(failure))),
        lost => lost,
    };
    let violated = tx.violated.take();
    match work {
        Ok(work) if outcome_bytes(&work) > MAX_OUTCOME_BYTES => {
            fail(lease, correlation_id, attempt, too_large_to_keep(&work), None).await
        }
        Ok(work) => match succeed(lease, correlation_id, attempt, &work, fingerprints).await {
            Ok(()) => Ok(work),
            // A deferred constraint: the work is refused after all.
            Err(SucceedError::Work(error)) => {
                let violated = ConstraintName::of(&error);
                fail(lease, correlation_id, attempt, sql_failure(&error), violated).await
            }
            Err(SucceedError::Commit(error)) => Err(Unfinished::Refused(error)),
            Err(SucceedError::Other(error)) => Err(unfinished(error)),
        },
        Err(Refusal::Failure(failure)) => fail(lease, correlation_id, attempt, failure, violated).await,
        // Not this attempt's any more: the record says what became of it.
        Err(Refusal::Lost(pg::Error::Server(error))) if error.sqlstate == FENCED => {
            Err(Unfinished::InDoubt(pg::Error::Server(error)))
        }
        // T2 could not even begin: no right to claim, or no time left for it.
        Err(Refusal::Lost(error)) => Err(unfinished(error)),
    }
}

/// What of the work goes into the record, in bytes of JSON.
fn outcome_bytes(work: &Work) -> usize {
    let image = |image: &Option<Value>| image.as_ref().map_or(0, |image| image.to_string().len());
    let undo = serde_json::to_string(&work.rollback).map_or(0, |undo| undo.len());
    work.data.to_string().len() + image(&work.before) + image(&work.after) + undo
}

fn too_large_to_keep(work: &Work) -> Failure {
    let message = format!(
        "the result of the write, with its images and undo calls, is {} bytes of JSON, and a record keeps \
         {MAX_OUTCOME_BYTES}; nothing was written",
        outcome_bytes(work)
    );
    Failure::new(ErrorCode::ResultTooLarge, message).hint("Write fewer rows in one call, or return fewer columns.")
}

/// At which point of [`succeed`] something went wrong.
enum SucceedError {
    /// PostgreSQL refused the work itself, before its outcome was recorded.
    Work(Box<ServerError>),
    /// PostgreSQL refused the COMMIT.
    Commit(Box<ServerError>),
    /// The outcome could not be recorded, or the connection was lost.
    Other(pg::Error),
}

async fn succeed(
    lease: &mut Lease,
    correlation_id: CorrelationId,
    attempt: &Attempt,
    work: &Work,
    fingerprints: &Fingerprints,
) -> Result<(), SucceedError> {
    let images = [work.before.as_ref(), work.after.as_ref()];
    let redaction = attempt.redaction.clone().with_images(&images);
    let [before, after] = images.map(|image| image.map(|image| redaction.value(image).to_string()));
    let data = redaction.value(&work.data).to_string();
    let rollback =
        serde_json::to_value(&work.rollback).map_err(|error| SucceedError::Other(pg::Error::Lost(error.into())))?;
    let texts = |texts: Vec<Value>| {
        // An array of texts in PostgreSQL's form: names and hexadecimal digits, which need quoting at the most.
        let quoted: Vec<String> = texts.iter().map(ToString::to_string).collect();
        Some(format!("{{{}}}", quoted.join(",")))
    };
    let params = [
        Some(correlation_id.to_string()),
        Some(data.clone()),
        Some(summary(&data)),
        Some(work.rows_affected.to_string()),
        before,
        after,
        Some(redaction.value(&rollback).to_string()),
        texts(work.reversals.iter().map(|call| call.tool.as_str().into()).collect()),
        texts(work.reversals.iter().map(|call| fingerprints.of(&call.tool, &call.params).as_str().into()).collect()),
        Some(attempt.executor.dedup_window().as_secs_f64().to_string()),
    ];
    let proposal = attempt.agreed.as_ref().map(Agreed::executed);
    let mut steps = vec![
        Step::plain("set constraints all immediate"),
        // Not left to COMMIT: a mode that a statement has set for its subtransaction (READ ONLY) ends with it.
        Step::plain("release savepoint work"),
    ];
    // Before the record is final: it takes the approval in.
    steps.extend(proposal.as_ref().map(finish_proposal));
    steps.extend([Step { sql: FINISH_SUCCESS_SQL, params: &params, param_types: &[] }, Step::plain("commit")]);
    let commit = steps.len() - 1;
    committed(lease, &steps).await.map(drop).map_err(|failed| match failed {
        StepError { step: 0, error: pg::Error::Server(error) } => SucceedError::Work(error),
        StepError { step, error: pg::Error::Server(error) } if step == commit => SucceedError::Commit(error),
        StepError { error, .. } => SucceedError::Other(error),
    })
}

async fn fail(
    lease: &mut Lease,
    correlation_id: CorrelationId,
    attempt: &Attempt,
    failure: Failure,
    violated: Option<ConstraintName>,
) -> Result<Work, Unfinished> {
    let mut failure = failure.redacted(&attempt.redaction);
    // Of an executor that went on after the error, and failed for another reason.
    let violated = violated.filter(|_| failure.hint.is_none() && failure.code == ErrorCode::SqlError);
    let params = [
        Some(correlation_id.to_string()),
        Some(failure.code.as_str().to_owned()),
        failure.sqlstate.clone(),
        Some(failure.message.clone()),
    ];
    let proposal = attempt.agreed.as_ref().and_then(|agreed| agreed.refused(&failure));
    let mut steps = vec![Step::plain("rollback to savepoint work")];
    let constraint = violated.as_ref().map(|name| Step { sql: CONSTRAINT_SQL, params: &name.0, param_types: &[] });
    steps.extend(constraint);
    steps.extend(proposal.as_ref().map(finish_proposal));
    steps.extend([Step { sql: FINISH_FAILURE_SQL, params: &params, param_types: &[] }, Step::plain("commit")]);
    match committed(lease, &steps).await {
        Ok(outcomes) => {
            if violated.is_some() {
                failure.hint = outcomes.into_iter().nth(1).and_then(|found| found.rows.into_iter().flatten().next()?);
            }
            Err(Unfinished::Recorded(failure))
        }
        Err(StepError { error, .. }) => Err(unfinished(error)),
    }
}

fn finish_proposal(params: &[Option<String>; 5]) -> Step<'_> {
    Step { sql: FINISH_PROPOSAL_SQL, params, param_types: &[] }
}

fn unfinished(error: pg::Error) -> Unfinished {
    match error {
        // The session goes on after it, so this is PostgreSQL's last word on the transaction.
        pg::Error::Server(error) => Unfinished::Undone(error),
        error => Unfinished::InDoubt(error),
    }
}

/// Runs steps that end with COMMIT, and makes sure that it was one: COMMIT of a failed transaction is no error, it
/// answers ROLLBACK (attack CR07).
async fn committed(lease: &mut Lease, steps: &[Step<'_>]) -> Result<Vec<Outcome>, StepError> {
    let outcomes = lease.session().run(steps).await?;
    // The session may serve another account next. A session that cannot be reset is lost, and its pool sees that.
    let _ = lease.session().push_reset().await;
    match outcomes.last().map(|outcome| outcome.tag.as_str()) {
        Some("COMMIT") => Ok(outcomes),
        tag => {
            let said = format!("COMMIT was answered with {}", tag.unwrap_or("nothing"));
            Err(StepError { step: outcomes.len(), error: pg::Error::Lost(std::io::Error::other(said)) })
        }
    }
}
