//! `countersign serve`: MCP on standard input and output, or over HTTP.

mod http;
mod reload;
mod stdio;

use std::ops::ControlFlow;
use std::time::Duration;

pub(crate) use http::HttpFrontend;

use ledger::ConnectOptions;
use ledger::read::ConnectError;
use manifest::Source;
use mcp::{Elicitation, StateCodec, StateKey};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinHandle;
use tools::metrics::Metrics;
use tools::{LiveRegistry, ProfileRegistries, Services};

use self::reload::{CompiledState, Reloader};
use crate::commands::bootstrap::{self, BuiltTools, ServerBuilder};
use crate::commands::cli::ServeArgs;
use crate::commands::demo;
use crate::notify::Notifier;
use crate::settings::{ConfigSources, Settings};
use crate::{connection, signals};

pub(crate) async fn run(
    arguments: &ServeArgs,
    mut sources: ConfigSources,
    mut settings: Settings,
) -> anyhow::Result<()> {
    // Registered first: without a handler, SIGHUP ends the process.
    let hangup = signal(SignalKind::hangup())?;
    let stop = signals::stop_on_signals()?;
    // Checked at the start: otherwise only the log would report, once a minute, that nothing is signed.
    settings.ledger.signing.check()?;
    // Kept until the end: the private PostgreSQL runs while it has users.
    let mut private = None;
    let target = if arguments.demo && settings.database.is_none() {
        let database = demo::database::prepare(false, |step| tracing::info!("{step}")).await?;
        sources.add_signing_key(database.key_file());
        settings = sources.load()?;
        private.insert(database).target()?
    } else {
        connection::configured(&settings)?
    };
    let start = Startup { target, demo: arguments.demo, sources, hangup, metrics: Metrics::new() };
    match settings.http.clone() {
        Some(options) => http::serve(start, settings, &options, stop).await,
        None => stdio::serve(start, settings, stop).await,
    }
}

/// The first pause before a server tries to connect again. It doubles after each attempt.
const FIRST_PAUSE: Duration = Duration::from_millis(250);

/// The maximum pause if the database server has not responded.
const UNREACHABLE_PAUSE: Duration = Duration::from_secs(1);

/// The maximum pause if the database server has refused the login: each attempt adds a line to its log.
const REFUSED_PAUSE: Duration = Duration::from_secs(30);

/// The reason why a server has not started yet.
enum Obstacle<'a> {
    /// The database is not available or refuses the login.
    NoConnection(&'a ConnectError),
    /// The database does not meet the requirements of the server, or the manifests do not fit it.
    Unfit(anyhow::Error),
}

/// The state that calls use from the first one on, even while the database is unavailable.
#[derive(Clone)]
struct Served {
    registry: LiveRegistry,
    codec: StateCodec,
    elicitation: Elicitation,
}

impl Served {
    fn new(registries: ProfileRegistries, settings: &Settings) -> anyhow::Result<Self> {
        let codec = StateCodec::ephemeral()?;
        let elicitation = Elicitation::new(codec.clone(), settings.ask_timeout);
        Ok(Self { registry: LiveRegistry::new(registries), codec, elicitation })
    }
}

struct Startup {
    target: ConnectOptions,
    demo: bool,
    sources: ConfigSources,
    hangup: Signal,
    metrics: Metrics,
}

impl Startup {
    /// Connects, checks the requirements of a server, and builds the tools.
    async fn open(&self, settings: &Settings) -> anyhow::Result<Prepared> {
        let builder = ServerBuilder::open(&self.target, settings, self.demo, self.metrics.clone()).await?;
        let manifests = builder.sources(settings)?;
        let tools = builder.tools(&manifests, settings).await?;
        let state_keys = match builder.services.has_ledger {
            true => Some(bootstrap::state_keys(&builder.ledger).await?),
            false => None,
        };
        Ok(Prepared { builder, manifests, tools, state_keys })
    }

    /// Starts as soon as the database allows it. `told` is called for each obstacle and may stop the attempts.
    async fn open_when_possible(
        &self,
        settings: &Settings,
        mut told: impl FnMut(Obstacle<'_>) -> ControlFlow<anyhow::Error>,
    ) -> anyhow::Result<Prepared> {
        let mut pause = FIRST_PAUSE;
        let mut was_unfit = false;
        loop {
            let failure = match self.open(settings).await {
                Ok(opened) => return Ok(opened),
                Err(failure) => failure,
            };
            let (answer, longest) = match ledger::can_connect(&self.target).await {
                // The database became reachable during the check. This is not an error.
                Ok(()) if !was_unfit => {
                    was_unfit = true;
                    continue;
                }
                Ok(()) => (told(Obstacle::Unfit(failure)), REFUSED_PAUSE),
                Err(error) => {
                    was_unfit = false;
                    let longest = if error.is_unreachable() { UNREACHABLE_PAUSE } else { REFUSED_PAUSE };
                    (told(Obstacle::NoConnection(&error)), longest)
                }
            };
            if let ControlFlow::Break(error) = answer {
                return Err(error);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(longest);
        }
    }

    /// Starts the background tasks and serves the tools.
    fn run(
        self,
        opened: Prepared,
        served: Served,
        settings: &Settings,
        http: Option<HttpFrontend>,
    ) -> anyhow::Result<RunningServer> {
        let Prepared { builder, manifests, tools: built, state_keys } = opened;
        let Served { registry, codec, elicitation } = served;
        built.log_misfits();
        let BuiltTools { registries, misfits, watched } = built;
        let tools = registries.get(&settings.profile).map_or(0, |registry| registry.infos().count());
        registry.replace(registries);
        let mut proposal_worker = None;
        if let Some((sealing, keys)) = state_keys {
            codec.replace(&sealing, keys)?;
            tokio::spawn(builder.ledger.clone().run_sweeper());
            tokio::spawn(bootstrap::refresh_state_keys(builder.ledger.clone(), codec));
            let worker = tools::run_proposal_worker(builder.ledger.proposals(), registry.clone());
            proposal_worker = Some(tokio::spawn(worker));
            if let Some(notify) = settings.notify.clone() {
                tokio::spawn(Notifier::new(notify, builder.ledger.notices())?.run());
            }
        }
        let services = builder.services.clone();
        let read_log = services.read_log.start();
        let reloader = Reloader {
            sources: self.sources,
            running: settings.clone(),
            builder,
            registry: registry.clone(),
            http,
            has_found_ledger: false,
            compiled: CompiledState { settings: settings.clone(), manifests, misfits, watched, version: None },
        };
        tokio::spawn(reload::at_every(self.hangup, reloader));
        Ok(RunningServer { target: self.target, tools, registry, elicitation, proposal_worker, read_log, services })
    }
}

struct Prepared {
    builder: ServerBuilder,
    manifests: Vec<Source>,
    tools: BuiltTools,
    /// The sealing keys, and the name of the current one; `None` without a ledger. Then the keys of the process are
    /// used, and end with it.
    state_keys: Option<(String, Vec<StateKey>)>,
}

/// The served tools, and the background tasks.
struct RunningServer {
    target: ConnectOptions,
    /// The number of tools in the default profile.
    tools: usize,
    registry: LiveRegistry,
    elicitation: Elicitation,
    /// `None` without a ledger.
    proposal_worker: Option<JoinHandle<()>>,
    read_log: JoinHandle<()>,
    services: Services,
}

impl RunningServer {
    /// Logs that calls are answered from now on.
    fn announce(&self, settings: &Settings) {
        tracing::info!(
            tools = self.tools,
            executors = self.registry.executors().map_or(0, |executors| executors.names().count()),
            profile = settings.profile,
            account = settings.account.as_str(),
            database = self.target.dbname,
            place = self.target.address(),
            "ready"
        );
    }

    /// Stops accepting work and waits for running work.
    async fn drain(self) {
        if let Some(worker) = &self.proposal_worker {
            worker.abort();
        }
        self.services.gate.drain().await;
        if let Some(reader) = &self.services.reader {
            reader.drain().await;
        }
        self.services.read_log.finish(self.read_log).await;
        self.services.gauges.drain().await;
    }
}
