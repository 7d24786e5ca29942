//! Executes approved proposals, including those that a stopped server left unexecuted, and checks proposals.

use std::time::Duration;

use ledger::proposals::Proposals;
use tokio::time::Instant;

use crate::activity::Activity;
use crate::live_registry::LiveDatabase;

/// The interval of the sweep. It only tidies up: an expired proposal is closed when a caller uses it.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);

/// Executes proposals immediately and then every second while the database is used, as long as the future is polled. Several servers may do this
/// at the same time.
pub async fn run_proposal_worker(proposals: Proposals, database: LiveDatabase, activity: Activity) {
    let mut swept: Option<Instant> = None;
    loop {
        if swept.is_none_or(|swept| swept.elapsed() >= SWEEP_INTERVAL) {
            swept = Some(Instant::now());
            sweep(&proposals).await;
            // As long as a proposal waits, its approval is executed at once.
            if proposals.waiting(1).await.is_ok_and(|waiting| !waiting.is_empty()) {
                activity.note();
            }
        }
        if let Some(executors) = database.executors() {
            // The ledger has logged the reason of a failure. It cannot be asked for checks then, either.
            if proposals.recover(&executors).await.is_ok() {
                let _ = proposals.check_requested(&executors).await;
            }
        }
        activity.turn().await;
    }
}

async fn sweep(proposals: &Proposals) {
    match proposals.sweep().await {
        Ok((0, _)) => {}
        Ok((ended, 0)) => tracing::info!(ended, "proposals have expired"),
        Ok((ended, confirmed)) => {
            tracing::warn!(
                ended,
                confirmed,
                "proposals have expired, and some that were agreed to: nothing of them was written"
            );
        }
        // The ledger has logged the reason.
        Err(_) => {}
    }
}
