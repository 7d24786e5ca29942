//! Acknowledged writes, or signed entries, that the database lacks. What one server misses it notes in the ledger, which
//! stops all servers (`migrations/baseline/71_loss.sql`).

use std::time::Duration;

use pg::WriterPool;
use tokio::time::Instant;

use crate::evidence::records::Records;
use crate::evidence::values::rfc3339;
use crate::write::history::History;
use crate::write::obstacle::Loss;

/// The SQLSTATE with which a write is refused after a loss.
pub(crate) const LOST: &str = "CS007";

const TIMEOUT: Duration = Duration::from_secs(10);

const NOTE_SQL: &str = "select countersign.note_loss($1, $2, $3, $4)";

const LOSS_SQL: &str = concat!(
    "select ",
    rfc3339!("l.found_at"),
    " as found_at, to_jsonb(l.records) as records, ",
    rfc3339!("l.since"),
    " as since, l.entries, l.signed_entries, l.timeline_before, l.timeline \
     from countersign.loss l where l.log_no = (select max(i.no) from countersign.identity i)"
);

/// Compares the database with what this server knows. `signed`: the number of entries that were signed, if the log
/// contradicts that. Returns whether writes are stopped.
///
/// # Errors
/// The query failed. A pool without a free session is no error, since writes compare, too.
pub(crate) async fn note(writer: &WriterPool, history: &History, signed: Option<u64>) -> Result<bool, pg::Error> {
    let [known, writes, times] = history.loss_arguments();
    let params = [known, writes, times, signed.map(|signed| signed.to_string())];
    match writer.run_one(NOTE_SQL, &params, Instant::now() + TIMEOUT).await {
        Ok(noted) => Ok(noted.into_value().as_deref() == Some("t")),
        // The login of a person, or a standby: neither notes anything.
        Err(pg::Error::Server(error)) if matches!(error.sqlstate.as_str(), "42501" | "25006") => Ok(false),
        Err(pg::Error::PoolTimeout { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// What the ledger says is lost.
pub(crate) async fn load(records: &Records) -> Result<Option<Loss>, pg::Error> {
    Ok(records.rows(LOSS_SQL, &[]).await?.into_iter().next())
}
