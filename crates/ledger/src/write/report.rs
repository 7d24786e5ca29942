//! Reports a long-running write that was not admitted first, so that other servers see it. If this server dies, the
//! report remains as an attempt.

use std::pin::pin;
use std::time::Duration;

use pg::WriterPool;
use tokio::time::Instant;

use crate::write::intent::Intent;

/// A write that runs longer than this is reported.
const LONG: Duration = Duration::from_millis(250);

/// The time limit of each statement. The sweep removes reports that remain.
const TIMEOUT: Duration = Duration::from_secs(1);

const REPORT_SQL: &str = "select countersign.report_write($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, \
    pg_catalog.make_interval(secs => $18::double precision), $17)";
const WITHDRAW_SQL: &str = "select countersign.withdraw_report($1)";

/// Waits for the write, and reports it while it runs for long.
pub(crate) async fn while_it_runs<T>(writer: &WriterPool, intent: &Intent, write: impl Future<Output = T>) -> T {
    let mut write = pin!(write);
    tokio::select! {
        biased;
        outcome = &mut write => return outcome,
        () = tokio::time::sleep(LONG) => {}
    }
    let report = async {
        let reported = writer.run_one(REPORT_SQL, &intent.report(), Instant::now() + TIMEOUT).await;
        reported.inspect_err(|error| tracing::debug!(%error, "a long write could not be shown to others")).is_ok()
    };
    let (outcome, is_reported) = tokio::join!(write, report);
    if is_reported {
        let id = [Some(intent.correlation_id.to_string())];
        if let Err(error) = writer.run_one(WITHDRAW_SQL, &id, Instant::now() + TIMEOUT).await {
            tracing::debug!(%error, "the sweep removes the report of a write that has ended");
        }
    }
    outcome
}
