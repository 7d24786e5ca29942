//! `countersign serve`: MCP on standard input and output.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::cli::ServeArgs;
use crate::settings::Settings;
use crate::{connection, demo_data, wiring};

pub(crate) async fn run(arguments: &ServeArgs, settings: &Settings) -> anyhow::Result<()> {
    let mut sources = wiring::read_manifests(&settings.manifests)?;
    // Held until the end: the private PostgreSQL lives as long as its users.
    let mut private = None;
    let target = if arguments.demo && settings.database.is_none() {
        let database = demo_data::prepare(false, |step| tracing::info!("{step}")).await?;
        private.insert(database).target()?
    } else {
        connection::configured(settings)?
    };
    if arguments.demo {
        sources.push(demo_data::manifest());
    }
    let wired = wiring::wire(target, &sources, settings).await?;
    let stop = stop_on_signals()?;
    let served = mcp::serve_stdio(wired.server, stop).await;
    wired.gate.drain().await;
    drop(private);
    Ok(served?)
}

/// SIGTERM and SIGINT end the service: what runs is drained, then the process exits.
fn stop_on_signals() -> anyhow::Result<CancellationToken> {
    let stop = CancellationToken::new();
    for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
        let mut signals = signal(kind)?;
        let stop = stop.clone();
        tokio::spawn(async move {
            signals.recv().await;
            tracing::info!("stopping");
            stop.cancel();
        });
    }
    Ok(stop)
}
