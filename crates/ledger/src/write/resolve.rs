//! Finds the outcome of a write after a lost connection. It never guesses, and never runs the write again.

use std::time::Duration;

use pg::WriterPool;
use serde_json::Value;
use tokio::time::Instant;
use types::{CorrelationId, ErrorCode, Failure, Rollback};

use crate::write::attempt::{WriteAttempt, WriteOutcome};
use crate::write::execute::RECORD_FAILURE_SQL;
use crate::write::executor::WriteOutput;
use crate::write::failures::aborted;
use crate::write::write_tx::timeout_ms;

/// Like `resolve`, waits for the transaction that is executing the attempt.
const END_SQL: &str = "\
select pg_catalog.set_config('lock_timeout', $1, true), countersign.fail($2, $3, $4, $5, $6, $7, $8)";
const RESOLVE_SQL: &str = "select * from countersign.resolve($1, $2, $3, $4)";
const RECORD_SQL: &str = "\
select m.status, m.error_code, m.error_message, m.result, m.rows_affected, m.rollback \
from countersign.mutation m where m.correlation_id operator(pg_catalog.=) $1";

/// Whether a transaction of the attempt may still exist on the PostgreSQL server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OwnTransaction {
    /// The connection was lost or dropped, and PostgreSQL may not have noticed. Resolving waits for the transaction.
    MayRun,
    /// There was no transaction. Another call may hold the slot, and resolving does not wait for it.
    None,
}

/// The first pause before the next query. It is short, since a server can restart within milliseconds.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Looks the record up on fresh connections until there is an answer or `deadline` passes. If nothing was written,
/// `cause` is the reason, if known, and is recorded.
///
/// `pg_xact_status` is not used, because transaction ids can be reused after a crash.
pub(crate) async fn resolve(
    writer: &WriterPool,
    attempt: &WriteAttempt<'_>,
    own: OwnTransaction,
    cause: Option<&Failure>,
    deadline: Instant,
) -> Result<WriteOutcome, Failure> {
    let correlation_id = attempt.intent.correlation_id;
    let mut pause = FIRST_PAUSE;
    loop {
        match ask(writer, attempt, own, cause, deadline).await {
            Ok(truth) => return truth,
            Err(error) => {
                tracing::warn!(%correlation_id, %error, "the outcome cannot be read yet");
                if Instant::now() + pause >= deadline {
                    return Err(Failure::new(
                        ErrorCode::CommitOutcomeUnknown,
                        "the connection was lost and the outcome cannot be read yet: the write may or may not have happened",
                    )
                    .hint(
                        "Ask get_mutation_detail with this correlation_id later, or repeat exactly this call: if it was written, \
                         it is a duplicate. Write it in no other way before the outcome is known.",
                    ));
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
}

/// Ends an admitted attempt whose connection was lost before COMMIT was sent, so nothing was written. Returns whether
/// it was admitted. If that cannot be found out in time, returns true and leaves the attempt to the sweep.
pub(crate) async fn abort(writer: &WriterPool, attempt: &WriteAttempt<'_>, deadline: Instant) -> bool {
    let mut pause = FIRST_PAUSE;
    loop {
        let admitted = async {
            // If the answer to an earlier `end` was lost, the attempt has a record.
            let id = attempt.intent.correlation_id;
            Ok(end(writer, attempt, &aborted(), deadline).await? || ask_record(writer, id, deadline).await?.is_some())
        };
        match admitted.await {
            Ok(was_admitted) => return was_admitted,
            Err::<_, pg::Error>(error) if Instant::now() + pause >= deadline => {
                tracing::warn!(%error, "the end of a write that was lost could not be recorded; the sweep does it");
                return true;
            }
            Err(_) => {}
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

async fn ask(
    writer: &WriterPool,
    attempt: &WriteAttempt<'_>,
    own: OwnTransaction,
    cause: Option<&Failure>,
    deadline: Instant,
) -> Result<Result<WriteOutcome, Failure>, pg::Error> {
    if let Some(cause) = cause
        && end(writer, attempt, cause, deadline).await?
    {
        return Ok(Err(cause.clone()));
    }
    let intent = &attempt.intent;
    let params = |awaits_slot: bool| {
        let (id, slot) = (intent.correlation_id.to_string(), intent.slot.clone());
        [Some(id), Some(slot), Some(timeout_ms(deadline)), Some(awaits_slot.to_string())]
    };
    let awaited = params(own == OwnTransaction::MayRun);
    if let Some(truth) = outcome(writer, RESOLVE_SQL, &awaited, intent.correlation_id, deadline).await? {
        return Ok(truth);
    }
    // There is no attempt, and nothing of the write was committed. The record that is made here prevents a later
    // commit, and the caller can find it by the correlation id.
    let failure = cause.cloned().unwrap_or_else(aborted);
    writer.run_one(RECORD_FAILURE_SQL, &intent.failed(&failure), deadline).await?;
    // An admission that was still in flight may have committed meanwhile.
    let truth = outcome(writer, RESOLVE_SQL, &params(false), intent.correlation_id, deadline).await?;
    Ok(truth.unwrap_or_else(|| Err(aborted())).map_err(|failure| match (failure.code, cause) {
        (code, Some(cause)) if code == cause.code || code == ErrorCode::InDoubtAborted => cause.clone(),
        _ => failure,
    }))
}

/// Ends an attempt with this failure, after a transaction that is executing it has ended. Returns whether the attempt
/// was pending; no server can commit it afterwards.
async fn end(
    writer: &WriterPool,
    attempt: &WriteAttempt<'_>,
    cause: &Failure,
    deadline: Instant,
) -> Result<bool, pg::Error> {
    let mut params = vec![Some(timeout_ms(deadline))];
    params.extend(attempt.failed(cause));
    let ended = writer.run_one(END_SQL, &params, deadline).await?.into_row();
    Ok(ended.is_some_and(|[_, ended]| ended.as_deref() == Some("t")))
}

/// The outcome in the record; `None` if there is no record, or the attempt is still running.
pub(crate) async fn ask_record(
    writer: &WriterPool,
    correlation_id: CorrelationId,
    deadline: Instant,
) -> Result<Option<Result<WriteOutcome, Failure>>, pg::Error> {
    outcome(writer, RECORD_SQL, &[Some(correlation_id.to_string())], correlation_id, deadline).await
}

async fn outcome(
    writer: &WriterPool,
    sql: &str,
    params: &[Option<String>],
    correlation_id: CorrelationId,
    deadline: Instant,
) -> Result<Option<Result<WriteOutcome, Failure>>, pg::Error> {
    let row = writer.run_one(sql, params, deadline).await?.into_row();
    let Some([status, code, message, result, rows, undo]) = row else { return Ok(None) };
    if status.as_deref() == Some("pending") {
        return Ok(None);
    }
    let json =
        |text: Option<String>| text.and_then(|text| serde_json::from_str::<Value>(&text).ok()).unwrap_or_default();
    Ok(Some(match status.as_deref() {
        Some("success") => {
            let rows_affected = rows.and_then(|rows| rows.parse().ok()).unwrap_or_default();
            let output = WriteOutput::new(json(result), rows_affected, stored_rollback(json(undo)));
            Ok(WriteOutcome::Executed { correlation_id, output: output.into() })
        }
        _ if code.as_deref() == Some("in_doubt_aborted") => Err(aborted()),
        _ => {
            let known = ErrorCode::ALL.into_iter().find(|known| Some(known.as_str()) == code.as_deref());
            Err(Failure::new(known.unwrap_or(ErrorCode::InternalError), message.unwrap_or_default()))
        }
    }))
}

fn stored_rollback(stored: Value) -> Rollback {
    serde_json::from_value(stored)
        .unwrap_or_else(|_| Rollback::irreversible("The record of this write cannot be read."))
}
