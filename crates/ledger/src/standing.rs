//! Whether a success still stands: asked for calls that this server remembers.

use contract::CorrelationId;
use pg::Writer;
use serde_json::Value;
use tokio::time::Instant;

use crate::intent::Intent;

const STANDING_SQL: &str = "select s.original_result from countersign.standing_write($1, $2) s \
    where s.verdict operator(pg_catalog.=) 'standing' and s.original operator(pg_catalog.=) $3";

/// What the success was answered, if an identical call now would be its duplicate as far as the ledger knows.
pub(crate) async fn result(
    writer: &Writer,
    intent: &Intent,
    original: CorrelationId,
    deadline: Instant,
) -> Result<Option<Value>, pg::Error> {
    let params = [intent.slot(), intent.fingerprint(), Some(original.to_string())];
    let outcome = writer.ask(STANDING_SQL, &params, deadline).await?;
    let row = outcome.rows.into_iter().next();
    let text = row.and_then(|row| row.into_iter().next().flatten());
    Ok(text.and_then(|text| serde_json::from_str(&text).ok()))
}
