//! After a lost connection: what really happened. Never by guessing, never by running it again.

use std::time::Duration;

use contract::{CorrelationId, ErrorCode, Failure, Rollback};
use pg::Writer;
use serde_json::Value;
use tokio::time::Instant;

use crate::admit::FENCED;
use crate::gate::Settled;
use crate::intent::Intent;

/// Waits for whoever works on the record, as `resolve` does.
const END_SQL: &str = "\
select pg_catalog.set_config('lock_timeout', $1, true), countersign.finish_failure($2, $3, $4, $5)";
const RESOLVE_SQL: &str = "select * from countersign.resolve($1, $2)";
const ABORTED_SQL: &str = "select countersign.record_aborted($1, $2, $3, $4, $5, $6, $7, $8, $9)";
const RECORDED_SQL: &str = "select from countersign.mutation_audit where correlation_id operator(pg_catalog.=) $1";

/// How long it waits before it asks again: soon at first, since a server restarts in milliseconds.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Asks the record, on fresh connections, until it answers or `deadline` passes. If nothing was written, `cause` is why, where
/// that is known, and the record says the same.
///
/// `pg_xact_status` is not asked: transaction ids are used again after a crash.
pub(crate) async fn resolve(
    writer: &Writer,
    intent: &Intent,
    cause: Option<&Failure>,
    deadline: Instant,
) -> Result<Settled, Failure> {
    let correlation_id = intent.correlation_id;
    let mut pause = FIRST_PAUSE;
    loop {
        match ask(writer, intent, cause, deadline).await {
            Ok(truth) => return truth,
            Err(error) => {
                tracing::warn!(%correlation_id, %error, "the outcome cannot be read yet");
                if Instant::now() + pause >= deadline {
                    return Err(Failure::new(
                        ErrorCode::CommitOutcomeUnknown,
                        "the connection was lost and the outcome cannot be read yet: the write may or may not have happened",
                    )
                    .hint("Ask get_mutation_detail with this correlation_id later; do not repeat the write before it answers."));
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
}

fn aborted() -> Failure {
    Failure::new(
        ErrorCode::InDoubtAborted,
        "the connection was lost before the write committed; nothing was written, and the call can be repeated",
    )
}

async fn ask(
    writer: &Writer,
    intent: &Intent,
    cause: Option<&Failure>,
    deadline: Instant,
) -> Result<Result<Settled, Failure>, pg::Error> {
    if let Some(cause) = cause
        && end(writer, intent.correlation_id, cause, deadline).await?
    {
        return Ok(Err(cause.clone()));
    }
    if let Some(truth) = ask_record(writer, intent.correlation_id, deadline).await? {
        return Ok(truth);
    }
    // T1 never committed either. From here on it cannot, and the receipt that the caller gets finds a record.
    writer.ask(ABORTED_SQL, intent.columns(), deadline).await?;
    // A T1 that was on its way after all has committed meanwhile.
    let truth = ask_record(writer, intent.correlation_id, deadline).await?.unwrap_or_else(|| Err(aborted()));
    Ok(truth.map_err(|failure| match (failure.code, cause) {
        (ErrorCode::InDoubtAborted, Some(cause)) => cause.clone(),
        _ => failure,
    }))
}

/// Ends a pending record with this failure, once whoever works on it is done. Whether it was still pending then: from here on
/// its T2 cannot commit.
async fn end(
    writer: &Writer,
    correlation_id: CorrelationId,
    cause: &Failure,
    deadline: Instant,
) -> Result<bool, pg::Error> {
    let mut lease = writer.lease(deadline).await?;
    let params = [
        Some(wait_ms(deadline)),
        Some(correlation_id.to_string()),
        Some(cause.code.as_str().to_owned()),
        cause.sqlstate.clone(),
        Some(cause.message.clone()),
    ];
    match lease.ask(END_SQL, &params, deadline).await {
        Ok(_) => Ok(true),
        Err(pg::Error::Server(error)) if error.sqlstate == FENCED => Ok(false),
        Err(error) => Err(error),
    }
}

/// How long a lock may be waited for, in milliseconds.
fn wait_ms(deadline: Instant) -> String {
    deadline.saturating_duration_since(Instant::now()).as_millis().clamp(1, i32::MAX as u128).to_string()
}

/// What a record says, once whoever works on it is done.
pub(crate) async fn ask_record(
    writer: &Writer,
    correlation_id: CorrelationId,
    deadline: Instant,
) -> Result<Option<Result<Settled, Failure>>, pg::Error> {
    let mut lease = writer.lease(deadline).await?;
    let params = [Some(correlation_id.to_string()), Some(wait_ms(deadline))];
    let row = lease.ask(RESOLVE_SQL, &params, deadline).await?.rows.into_iter().next();
    let Some([status, code, message, result, rows, undo]) =
        row.and_then(|row| <[Option<String>; 6]>::try_from(row).ok())
    else {
        return Ok(None);
    };
    let json =
        |text: Option<String>| text.and_then(|text| serde_json::from_str::<Value>(&text).ok()).unwrap_or_default();
    Ok(Some(match status.as_deref() {
        Some("success") => Ok(Settled::Executed {
            correlation_id,
            data: json(result),
            rows_affected: rows.and_then(|rows| rows.parse().ok()).unwrap_or_default(),
            rollback: stored_rollback(json(undo)),
        }),
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

/// Whether T1 of this id has committed.
pub(crate) async fn is_recorded(
    writer: &Writer,
    correlation_id: CorrelationId,
    deadline: Instant,
) -> Result<bool, pg::Error> {
    let outcome = writer.ask(RECORDED_SQL, &[Some(correlation_id.to_string())], deadline).await?;
    Ok(!outcome.rows.is_empty())
}
