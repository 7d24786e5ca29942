//! The state of an identical call, for calls in the dedup cache and before a write is proposed.

use pg::WriterPool;
use serde_json::Value;
use tokio::time::Instant;
use types::CorrelationId;

/// An identical call that has written.
#[derive(Debug, Clone)]
pub(crate) enum ExistingWrite {
    /// Its effect is in force: the call would be answered with this.
    Executed(CorrelationId, Value),
    /// Its effect does not, because of this (`countersign.superseded_by`, `countersign.changed_since`).
    Superseded(CorrelationId, Value),
    /// The write was undone by this other call, and the call that asks would undo it as well.
    AlreadyReversed(CorrelationId),
    /// It had other arguments, and the caller's key is bound to them.
    KeyReused,
}

/// The rows of a write have the last word, where they are on record.
const STANDING_SQL: &str = "select s.verdict, s.original, s.original_result, \
    coalesce(s.detail, case when s.verdict operator(pg_catalog.=) 'standing' then countersign.changed_since(s.original) end) \
    from countersign.existing_write($1, $2) s";

/// `None`: the call would write.
pub(crate) async fn standing(
    writer: &WriterPool,
    slot: Option<String>,
    fingerprint: Option<String>,
    deadline: Instant,
) -> Result<Option<ExistingWrite>, pg::Error> {
    let outcome = writer.run_one(STANDING_SQL, &[slot, fingerprint], deadline).await?;
    let row = outcome.rows.into_iter().next().and_then(|row| <[Option<String>; 4]>::try_from(row).ok());
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
