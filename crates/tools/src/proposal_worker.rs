//! Carries out what people have approved, and what somebody agreed to and a server that went away did not carry out.

use std::time::Duration;

use ledger::proposals::Proposals;
use tokio::time::MissedTickBehavior;

use crate::live_registry::LiveRegistry;

/// A person who approves waits for it.
const EVERY: Duration = Duration::from_secs(1);
/// What has expired is ended when somebody wants something of it; the rest is tidiness.
const SWEEP_EVERY: u32 = 60;

/// Does it now and then every second, for as long as the future is polled. Several servers may do it at once.
pub async fn run_proposal_worker(proposals: Proposals, toolbox: LiveRegistry) {
    let mut ticks = tokio::time::interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut until_sweep = 0;
    let mut is_reachable = true;
    loop {
        ticks.tick().await;
        if until_sweep == 0 {
            sweep(&proposals).await;
        }
        until_sweep = (until_sweep + 1) % SWEEP_EVERY;
        let Some(executors) = toolbox.executors() else { continue };
        match proposals.recover(&executors).await {
            Ok(()) => is_reachable = true,
            Err(failure) if is_reachable => {
                is_reachable = false;
                tracing::warn!(code = %failure.code, "cannot poll confirmed proposals; will retry: {}", failure.message);
            }
            Err(_) => {}
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
        Err(failure) => tracing::warn!(code = %failure.code, "proposals will be swept later: {}", failure.message),
    }
}
