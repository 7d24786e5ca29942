//! `countersign serve`: MCP on standard input and output.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tools::Toolbox;

use crate::cli::ServeArgs;
use crate::reload::{self, Reloader};
use crate::settings::{Settings, Sources};
use crate::wiring::{self, Workshop};
use crate::{connection, demo_data};

pub(crate) async fn run(arguments: &ServeArgs, sources: Sources, settings: Settings) -> anyhow::Result<()> {
    // Taken in from the first moment: a SIGHUP that nobody waits for ends a process.
    let hangup = signal(SignalKind::hangup())?;
    // Held until the end: the private PostgreSQL lives as long as its users.
    let mut private = None;
    let target = if arguments.demo && settings.database.is_none() {
        let database = demo_data::prepare(false, |step| tracing::info!("{step}")).await?;
        private.insert(database).target()?
    } else {
        connection::configured(&settings)?
    };
    let workshop = Workshop::open(&target, &settings, arguments.demo).await?;
    let shelves = workshop.shelves(&settings).await?;
    tracing::info!(
        tools = shelves.get(&settings.profile).map_or(0, |registry| registry.infos().count()),
        profile = settings.profile,
        account = settings.account.as_str(),
        database = target.dbname,
        place = target.place(),
        "ready"
    );
    tokio::spawn(workshop.ledger.clone().keep_swept());
    let toolbox = Toolbox::new(shelves);
    let server = wiring::server(&toolbox, &settings, wiring::asking(&workshop.ledger, &settings).await?);
    let carrying_out = tokio::spawn(tools::keep_carrying_out(workshop.ledger.proposals(), toolbox.clone()));
    let backends = workshop.backends.clone();
    tokio::spawn(reload::at_every(hangup, Reloader { sources, running: settings, workshop, toolbox }));
    let served = mcp::serve_stdio(server, stop_on_signals()?).await;
    // What it has begun goes on, and is waited for; nothing more is begun.
    carrying_out.abort();
    backends.gate.drain().await;
    if let Some(reader) = &backends.reader {
        reader.drain().await;
    }
    backends.states.drain().await;
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
