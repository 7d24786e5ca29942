//! `countersign serve`: MCP on standard input and output, or over HTTP.
//!
//! ```text
//! run ── stdio, http   the transport, and what it says while no database was reached
//!   Server             what all databases share: registry, keys, settings, metrics
//!   database           starts one database, again and again until it can be served, and serves it
//!   reload             changes the tools of the databases: at SIGHUP, and when a database has changed
//!   state_keys         what clients carry is sealed with the keys of the ledgers
//! ```

mod database;
mod http;
mod http_frontend;
mod reload;
mod state_keys;
mod stdio;

use std::sync::{Arc, OnceLock};

use futures_util::future::join_all;
use mcp::Elicitation;
use mcp_http::AppState;
use tokio::sync::watch;
use tools::metrics::Metrics;
use tools::{Activity, LiveRegistry, ProfileToolsets, View};

use self::database::{RunningDatabase, StartingDatabase};
use self::http_frontend::HttpFrontend;
use self::reload::{DatabaseReloader, Reloader};
use self::state_keys::KeyRing;
use crate::commands::cli::ServeArgs;
use crate::commands::{bootstrap, demo};
use crate::connection;
use crate::settings::{ConfigSources, Settings};
use crate::signals::{HangupSignals, stop_on_signals};

pub(crate) async fn run(
    arguments: &ServeArgs,
    mut sources: ConfigSources,
    mut settings: Settings,
) -> anyhow::Result<()> {
    // Registered first: without a handler, SIGHUP ends the process.
    let hangup = HangupSignals::listen()?;
    let stop = stop_on_signals()?;
    // Kept until the end: the private PostgreSQL runs while it has users.
    let mut private = None;
    let targets = if arguments.demo && settings.database()?.url.is_none() {
        let database = demo::database::prepare(false, |step| tracing::info!("{step}")).await?;
        sources.add_signing_key(database.key_file());
        settings = sources.load()?;
        vec![private.insert(database).target()?]
    } else {
        settings.databases.iter().map(connection::configured).collect::<anyhow::Result<_>>()?
    };
    for database in &settings.databases {
        // Checked at the start: otherwise only the log would report, once a minute, that nothing is signed.
        database.ledger.signing.check()?;
    }
    bootstrap::check_several(&settings, arguments.demo)?;
    // A call of a server with several databases says which it is about.
    let namespace = targets.first().filter(|_| targets.len() == 1).map(|target| target.dbname.as_str());
    telemetry::start(&settings.telemetry, namespace)?;
    let http = settings.http.clone();
    let server = Server::new(settings, arguments.demo)?;
    let configured = server.first.databases.iter().enumerate().zip(targets);
    let databases = configured.map(|((index, own), target)| server.start(index, own, target));
    let databases = databases.collect::<anyhow::Result<_>>()?;
    let starting = Starting { server, databases, sources, hangup };
    let served = match http {
        Some(options) => http::serve(starting, &options, stop).await,
        None => stdio::serve(starting, stop).await,
    };
    telemetry::shut_down().await;
    served
}

/// What the databases of a server share. Clones share it.
#[derive(Clone)]
struct Server {
    /// The settings at the start.
    first: Arc<Settings>,
    /// The settings as they were read last.
    settings: watch::Sender<Arc<Settings>>,
    /// Whether the demo's manifests are included.
    demo: bool,
    registry: LiveRegistry,
    keys: KeyRing,
    metrics: Metrics,
    /// The databases that were reached, in the order in which that happened.
    reached: watch::Sender<Vec<DatabaseReloader>>,
    /// The state of HTTP, which says why no database was reached yet.
    http: Arc<OnceLock<Arc<AppState>>>,
    /// Whether clients are served.
    is_serving: watch::Sender<bool>,
}

impl Server {
    fn new(settings: Settings, demo: bool) -> anyhow::Result<Self> {
        let first = Arc::new(settings);
        let labels = first.databases.iter().map(|database| (database.label.clone(), ProfileToolsets::default()));
        Ok(Self {
            registry: LiveRegistry::new(labels),
            keys: KeyRing::new(first.databases.len())?,
            metrics: Metrics::new(),
            reached: watch::Sender::new(Vec::new()),
            settings: watch::Sender::new(Arc::clone(&first)),
            http: Arc::default(),
            is_serving: watch::Sender::new(false),
            demo,
            first,
        })
    }

    fn current_settings(&self) -> Arc<Settings> {
        Arc::clone(&self.settings.borrow())
    }

    fn elicitation(&self) -> Elicitation {
        Elicitation::new(self.keys.codec(), self.settings.borrow().ask_timeout)
    }

    /// Whether a database that cannot be served ends the server: it has no other one, and no clients yet.
    fn ends_with_its_database(&self) -> bool {
        self.first.databases.len() == 1 && !*self.is_serving.borrow()
    }

    /// The number of tools in this profile.
    fn tools_of(&self, profile: &str) -> usize {
        self.registry.view(View::of_profile(profile)).registry().infos().count()
    }

    /// Follows the changes of a database that was reached.
    fn serve_changes(&self, activity: &Activity, database: DatabaseReloader) {
        tokio::spawn(activity.clone().in_turn(database.clone().follow_database()));
        self.reached.send_modify(|databases| databases.push(database));
    }

    /// Reads the configuration again at every SIGHUP.
    fn reload_at(&self, hangup: HangupSignals, sources: ConfigSources, http: Option<HttpFrontend>) {
        let reloader = Reloader { server: self.clone(), sources, running: Arc::clone(&self.first), http };
        tokio::spawn(reload::at_hangup(hangup, reloader));
    }
}

/// A server whose databases are being reached.
struct Starting {
    server: Server,
    databases: Vec<StartingDatabase>,
    sources: ConfigSources,
    hangup: HangupSignals,
}

/// The databases that are served.
#[derive(Default)]
struct Running(Vec<RunningDatabase>);

impl Running {
    /// Waits until each database was reached, or it is known that this takes longer. Those that were reached move
    /// here.
    ///
    /// # Errors
    /// The server ends with its database.
    async fn settle(&mut self, databases: &mut Vec<StartingDatabase>) -> anyhow::Result<()> {
        // One of several does not keep clients from the others.
        let patience = (databases.len() > 1).then_some(database::PATIENCE);
        let settled = join_all(databases.iter_mut().map(|database| database.settled(patience))).await;
        let mut waiting = Vec::new();
        for (database, settled) in std::mem::take(databases).into_iter().zip(settled) {
            match settled {
                Some(running) => self.0.push(running?),
                None => waiting.push(database),
            }
        }
        *databases = waiting;
        Ok(())
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn extend(&mut self, databases: impl IntoIterator<Item = Option<RunningDatabase>>) {
        self.0.extend(databases.into_iter().flatten());
    }

    /// Stops accepting work and waits for running work.
    async fn drain(self) {
        join_all(self.0.into_iter().map(RunningDatabase::drain)).await;
    }
}

/// Checks the manifests of all databases, without a connection.
///
/// # Errors
/// With `Diagnostics` inside, if a manifest is wrong.
fn check_files(settings: &Settings, demo: bool) -> anyhow::Result<()> {
    settings.databases.iter().try_for_each(|database| bootstrap::check_files(database, demo).map(drop))
}
