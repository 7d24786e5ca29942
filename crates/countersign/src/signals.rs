//! Signals that end a service.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// SIGTERM and SIGINT end the service: running calls are drained, then the process exits. A second signal ends the
/// process at once.
pub(crate) fn stop_on_signals() -> anyhow::Result<CancellationToken> {
    let stop = CancellationToken::new();
    for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
        let mut signals = signal(kind)?;
        let stop = stop.clone();
        tokio::spawn(async move {
            while signals.recv().await.is_some() {
                if stop.is_cancelled() {
                    tracing::warn!(
                        "ended by a second signal: what was under way is left to the other servers and the next start"
                    );
                    std::process::exit(128 + kind.as_raw_value());
                }
                tracing::info!("stopping: what is under way is answered first; a second signal ends it at once");
                stop.cancel();
            }
        });
    }
    Ok(stop)
}
