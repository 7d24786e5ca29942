//! The outcome of an identical earlier call. The gate looks for it if this server remembers such a call, and before a
//! proposal is made.

use pg::{ContextStatements, PipelineStatement, WriterPool};
use serde_json::Value;
use tokio::time::Instant;
use types::{CallerContext, CorrelationId};

use crate::fingerprint::Fingerprint;

/// An identical call that wrote.
#[derive(Debug, Clone)]
pub(crate) enum ExistingWrite {
    /// Its effect is in force. The repeated call gets this result.
    Executed(CorrelationId, Value),
    /// Its effect is no longer in force, for this reason (`countersign.superseded_by`, `countersign.changed_since`).
    Superseded(CorrelationId, Value),
    /// The earlier call has already undone the write that this call would undo.
    AlreadyReversed(CorrelationId),
    /// The earlier call had the same idempotency key and other arguments.
    KeyReused,
}

/// If the write has recorded rows, they decide whether it is in force.
const EXISTING_WRITE_SQL: &str = "select s.verdict, s.original, s.original_result, \
    coalesce(s.detail, case when s.verdict operator(pg_catalog.=) 'standing' then countersign.changed_since(s.original) end) \
    from countersign.existing_write($1, $2) s";

/// Finds an earlier call of this caller with this slot or fingerprint. Returns `None` if there is none.
pub(crate) async fn find(
    writer: &WriterPool,
    (slot, fingerprint): (&str, &Fingerprint),
    caller: &CallerContext,
    deadline: Instant,
) -> Result<Option<ExistingWrite>, pg::Error> {
    let params = [slot, fingerprint.as_str()].map(|text| Some(text.to_owned()));
    let statements = ContextStatements::of(caller);
    let mut lease = writer.acquire(deadline).await?;
    let statement = PipelineStatement::new(EXISTING_WRITE_SQL, &params);
    let outcome = lease.run_one_for(statements.as_ref(), statement, deadline).await?;
    let row = outcome.into_row::<4>();
    let Some([verdict, original, result, detail]) = row else { return Ok(None) };
    let json = |text: Option<String>| text.and_then(|text| serde_json::from_str::<Value>(&text).ok());
    let Some(original) = original.as_deref().and_then(CorrelationId::parse) else { return Ok(None) };
    Ok(match (verdict.as_deref(), json(detail)) {
        (Some("standing"), None) => Some(ExistingWrite::Executed(original, json(result).unwrap_or_default())),
        (Some("standing" | "superseded"), detail) => {
            Some(ExistingWrite::Superseded(original, detail.unwrap_or_default()))
        }
        (Some("already_reversed"), _) => Some(ExistingWrite::AlreadyReversed(original)),
        (Some("key_reused"), _) => Some(ExistingWrite::KeyReused),
        _ => None,
    })
}
