//! Signals that end a process, or let it read its configuration again.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

use tokio_util::sync::CancellationToken;

#[cfg(unix)]
pub(crate) use unix::{EndSignals, HangupSignals};
#[cfg(windows)]
pub(crate) use windows::{EndSignals, HangupSignals};

/// A signal ends the service: running calls are drained, then the process exits. A second signal ends the process at
/// once.
pub(crate) fn stop_on_signals() -> anyhow::Result<CancellationToken> {
    let stop = CancellationToken::new();
    let mut signals = EndSignals::listen()?;
    let stopped = stop.clone();
    tokio::spawn(async move {
        signals.recv().await;
        tracing::info!("stopping: what is under way is answered first; a second signal ends it at once");
        stopped.cancel();
        let code = signals.recv().await;
        tracing::warn!("ended by a second signal: what was under way is left to the other servers and the next start");
        std::process::exit(code);
    });
    Ok(stop)
}
