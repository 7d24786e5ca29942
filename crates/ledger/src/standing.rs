//! Whether a success still stands: asked by primary key, for calls that this server remembers.

use contract::CorrelationId;
use pg::Writer;
use serde_json::Value;
use tokio::time::Instant;

/// The guard says for how long a success counts, and that it counts no more once it was reversed.
const STANDING_SQL: &str = "select a.result from countersign.mutation_audit a \
     join countersign.idempotency_guard g on g.holder operator(pg_catalog.=) a.correlation_id \
     where a.correlation_id operator(pg_catalog.=) $1 and a.status operator(pg_catalog.=) 'success' \
       and g.expires_at operator(pg_catalog.>) pg_catalog.clock_timestamp()";

/// What the success was answered, if an identical call now would be its duplicate.
pub(crate) async fn result(
    writer: &Writer,
    original: CorrelationId,
    deadline: Instant,
) -> Result<Option<Value>, pg::Error> {
    let outcome = writer.ask(STANDING_SQL, &[Some(original.to_string())], deadline).await?;
    let row = outcome.rows.into_iter().next();
    let text = row.and_then(|row| row.into_iter().next().flatten());
    Ok(text.and_then(|text| serde_json::from_str(&text).ok()))
}
