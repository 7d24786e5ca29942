//! `countersign serve`: MCP on standard input and output, or over HTTP.

mod http;

pub(crate) use http::Door;

use ledger::Target;
use mcp::{Asking, StateCodec};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tools::metrics::Metrics;
use tools::{Backends, Shelves, Toolbox};

use crate::cli::ServeArgs;
use crate::reload::{self, Reloader};
use crate::settings::{Settings, Sources};
use crate::wiring::{self, Workshop};
use crate::{connection, demo_data};

pub(crate) async fn run(arguments: &ServeArgs, sources: Sources, settings: Settings) -> anyhow::Result<()> {
    // Taken in from the first moment: a SIGHUP that nobody waits for ends a process.
    let hangup = signal(SignalKind::hangup())?;
    let stop = stop_on_signals()?;
    // Held until the end: the private PostgreSQL lives as long as its users.
    let mut private = None;
    let target = if arguments.demo && settings.database.is_none() {
        let database = demo_data::prepare(false, |step| tracing::info!("{step}")).await?;
        private.insert(database).target()?
    } else {
        connection::configured(&settings)?
    };
    let start = Start { target, demo: arguments.demo, sources, hangup, metrics: Metrics::new() };
    match settings.http.clone() {
        Some(options) => http::serve(start, settings, &options, stop).await,
        None => serve_stdio(start, settings, stop).await,
    }
}

async fn serve_stdio(start: Start, settings: Settings, stop: CancellationToken) -> anyhow::Result<()> {
    let opened = start.open(&settings).await?;
    let running = start.run(opened, &settings, None);
    running.announce(&settings);
    let server = wiring::server(&running.toolbox, &settings, running.asking.clone());
    let served = mcp::serve_stdio(server, stop).await;
    running.drain().await;
    Ok(served?)
}

/// What it takes to start.
struct Start {
    target: Target,
    demo: bool,
    sources: Sources,
    hangup: Signal,
    metrics: Metrics,
}

impl Start {
    /// Connects, looks whether everything is as a server needs it, and makes the tools.
    async fn open(&self, settings: &Settings) -> anyhow::Result<Opened> {
        let workshop = Workshop::open(&self.target, settings, self.demo, self.metrics.clone()).await?;
        let shelves = workshop.shelves(settings).await?;
        let codec = wiring::state_codec(&workshop.ledger).await?;
        Ok(Opened { workshop, shelves, codec })
    }

    /// Begins what goes on beside the calls.
    fn run(self, opened: Opened, settings: &Settings, door: Option<Door>) -> Running {
        let Opened { workshop, shelves, codec } = opened;
        let asking = Asking::new(codec.clone(), settings.ask_timeout);
        let tools = shelves.get(&settings.profile).map_or(0, |registry| registry.infos().count());
        let toolbox = Toolbox::new(shelves);
        tokio::spawn(workshop.ledger.clone().keep_swept());
        tokio::spawn(wiring::refresh_state_keys(workshop.ledger.clone(), codec));
        let carrying_out = tokio::spawn(tools::keep_carrying_out(workshop.ledger.proposals(), toolbox.clone()));
        let backends = workshop.backends.clone();
        let reloader =
            Reloader { sources: self.sources, running: settings.clone(), workshop, toolbox: toolbox.clone(), door };
        tokio::spawn(reload::at_every(self.hangup, reloader));
        Running { target: self.target, tools, toolbox, asking, carrying_out, backends }
    }
}

/// What a start has found and made.
struct Opened {
    workshop: Workshop,
    shelves: Shelves,
    codec: StateCodec,
}

/// What is served, and what goes on beside the calls.
struct Running {
    target: Target,
    /// How many the usual profile has.
    tools: usize,
    toolbox: Toolbox,
    asking: Asking,
    carrying_out: JoinHandle<()>,
    backends: Backends,
}

impl Running {
    /// Says that calls are answered from now on.
    fn announce(&self, settings: &Settings) {
        tracing::info!(
            tools = self.tools,
            executors = self.toolbox.executors().map_or(0, |executors| executors.names().count()),
            profile = settings.profile,
            account = settings.account.as_str(),
            database = self.target.dbname,
            place = self.target.place(),
            "ready"
        );
    }

    /// What has begun goes on, and is waited for; nothing more is begun.
    async fn drain(self) {
        self.carrying_out.abort();
        self.backends.gate.drain().await;
        if let Some(reader) = &self.backends.reader {
            reader.drain().await;
        }
        self.backends.states.drain().await;
    }
}

/// SIGTERM and SIGINT end the service: what runs is drained, then the process exits. A second one ends the process at once.
fn stop_on_signals() -> anyhow::Result<CancellationToken> {
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
