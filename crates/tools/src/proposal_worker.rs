//! Executes approved proposals, including those that a stopped server left unexecuted, and checks proposals.

use std::time::Duration;

use ledger::proposals::Proposals;
use tokio::time::MissedTickBehavior;

use crate::live_registry::LiveRegistry;

/// The poll interval. It is short, because a reviewer waits for the execution of an approved proposal.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// The sweep runs once in this number of polls. It only tidies up: an expired proposal is closed when a caller uses
/// it.
const POLLS_PER_SWEEP: u32 = 60;

/// Executes proposals immediately and then every second, as long as the future is polled. Several servers may do this
/// at the same time.
pub async fn run_proposal_worker(proposals: Proposals, registry: LiveRegistry) {
    let mut ticks = tokio::time::interval(POLL_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut until_sweep = 0;
    loop {
        ticks.tick().await;
        if until_sweep == 0 {
            sweep(&proposals).await;
        }
        until_sweep = (until_sweep + 1) % POLLS_PER_SWEEP;
        let Some(executors) = registry.executors() else { continue };
        // The ledger has logged the reason of a failure. It cannot be asked for checks then, either.
        if proposals.recover(&executors).await.is_ok() {
            let _ = proposals.check_requested(&executors).await;
        }
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
