//! One database of a server: reaches it, again and again until it can be served, and serves it.

use std::ops::ControlFlow;
use std::time::Duration;

use ledger::ConnectOptions;
use ledger::read::ConnectError;
use manifest::Source;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tools::{Metrics, Services, Unavailable};
use types::{DatabaseName, ErrorCode, Failure};

use super::Server;
use super::reload::{CompiledState, DatabaseReloader};
use super::state_keys::{self, LedgerKeys};
use crate::commands::bootstrap::{self, BuiltTools, ToolBuilder};
use crate::notify::Notifier;
use crate::settings::{DatabaseSettings, Settings};

/// The first pause before a server tries to connect again. It doubles after each attempt.
const FIRST_PAUSE: Duration = Duration::from_millis(250);

/// The maximum pause if the database server has not responded.
const UNREACHABLE_PAUSE: Duration = Duration::from_secs(1);

/// The maximum pause if the database server has refused the login: each attempt adds a line to its log.
const REFUSED_PAUSE: Duration = Duration::from_secs(30);

/// Maximum wait for a database that neither responds nor refuses, before clients are served without it.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

/// The time limit for another connection after that.
const LAST_PATIENCE: Duration = Duration::from_secs(5);

const HINT: &str = "The server keeps trying, and announces its tools (notifications/tools/list_changed) once it is connected. \
    If this lasts, tell the operator: the message says what PostgreSQL, or the network, has answered.";

/// The reason why a database is not served yet.
enum Obstacle<'a> {
    /// The database is not available or refuses the login.
    NoConnection(&'a ConnectError),
    /// The database does not meet the requirements of the server, or the manifests do not fit it.
    Unfit(anyhow::Error),
}

/// A database that is being reached.
pub(super) struct StartingDatabase {
    target: ConnectOptions,
    /// Why it is not served yet.
    pub(super) failure: Unavailable,
    task: JoinHandle<anyhow::Result<RunningDatabase>>,
}

impl StartingDatabase {
    /// Waits for the end of the start, or until it is known that the start takes longer: then `None`. A start that is
    /// slow for another reason than the connection is not interrupted, unless the wait is limited.
    pub(super) async fn settled(&mut self, limit: Option<Duration>) -> Option<anyhow::Result<RunningDatabase>> {
        let waited = async {
            match limit {
                Some(limit) => tokio::time::sleep(limit).await,
                None => no_answer(&self.target).await,
            }
        };
        tokio::select! {
            ended = &mut self.task => Some(ended.unwrap_or_else(|error| Err(error.into()))),
            Ok(()) = self.failure.changed() => None,
            () = waited => None,
        }
    }

    /// Waits for the end of the start.
    pub(super) async fn ended(&mut self) -> anyhow::Result<RunningDatabase> {
        (&mut self.task).await?
    }

    /// The database, if it was reached; the start ends.
    pub(super) async fn stop(self) -> Option<RunningDatabase> {
        if !self.task.is_finished() {
            self.task.abort();
        }
        self.task.await.ok().and_then(Result::ok)
    }
}

/// Returns when the database has not responded for a while.
async fn no_answer(target: &ConnectOptions) {
    loop {
        tokio::time::sleep(PATIENCE).await;
        if !matches!(tokio::time::timeout(LAST_PATIENCE, ledger::can_connect(target)).await, Ok(Ok(()))) {
            return;
        }
    }
}

fn not_yet(why: &str) -> Failure {
    Failure::new(ErrorCode::DatabaseUnavailable, why).hint(HINT)
}

impl Server {
    /// Begins to reach the database at this place of the settings. Until then, calls of its tools say why it is not
    /// served.
    pub(super) fn start(
        &self,
        index: usize,
        own: &DatabaseSettings,
        target: ConnectOptions,
    ) -> anyhow::Result<StartingDatabase> {
        let (progress, failure) = watch::channel(not_yet("the database has not answered yet"));
        let metrics = self.metrics_of(own);
        let tools = bootstrap::unavailable_tools(&self.first, own, self.demo, &failure, &metrics)?;
        self.registry.database(index).replace(tools);
        let start = DatabaseStart { server: self.clone(), index, first: own.clone(), target: target.clone(), progress };
        Ok(StartingDatabase { target, failure, task: tokio::spawn(start.run()) })
    }

    fn metrics_of(&self, database: &DatabaseSettings) -> Metrics {
        database.name().map_or_else(|| self.metrics.clone(), |name| self.metrics.of_database(name))
    }
}

struct DatabaseStart {
    server: Server,
    index: usize,
    /// The settings at the start.
    first: DatabaseSettings,
    target: ConnectOptions,
    progress: watch::Sender<Failure>,
}

struct Prepared {
    builder: ToolBuilder,
    manifests: Vec<Source>,
    tools: BuiltTools,
    /// `None` without a ledger.
    keys: Option<LedgerKeys>,
}

impl DatabaseStart {
    /// Starts as soon as the database allows it.
    ///
    /// # Errors
    /// The only database of a server that does not serve yet does not meet its requirements.
    async fn run(self) -> anyhow::Result<RunningDatabase> {
        let mut pause = FIRST_PAUSE;
        let mut was_unfit = false;
        loop {
            let settings = self.server.current_settings();
            let own = settings.of_database(&self.first);
            let failure = match self.open(&settings, own).await {
                Ok(prepared) => return self.serve(prepared, &settings),
                Err(failure) => failure,
            };
            let (said, longest) = match ledger::can_connect(&self.target).await {
                // The database became reachable during the check. This is not an error.
                Ok(()) if !was_unfit => {
                    was_unfit = true;
                    continue;
                }
                Ok(()) => (self.said(Obstacle::Unfit(failure)), REFUSED_PAUSE),
                Err(error) => {
                    was_unfit = false;
                    let longest = if error.is_unreachable() { UNREACHABLE_PAUSE } else { REFUSED_PAUSE };
                    (self.said(Obstacle::NoConnection(&error)), longest)
                }
            };
            if let ControlFlow::Break(error) = said {
                return Err(error);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(longest);
        }
    }

    /// Connects, checks the requirements of a server, and builds the tools.
    async fn open(&self, settings: &Settings, own: &DatabaseSettings) -> anyhow::Result<Prepared> {
        let Server { demo, .. } = self.server;
        let builder = ToolBuilder::open(&self.target, settings, own, demo, self.server.metrics_of(own)).await?;
        let manifests = builder.sources(own)?;
        let tools = builder.tools(&manifests, settings, own).await?;
        let keys = match builder.services.has_ledger {
            true => Some(LedgerKeys::read(&builder.services.ledger, own.name()).await?),
            false => None,
        };
        Ok(Prepared { builder, manifests, tools, keys })
    }

    /// Logs an obstacle, and makes it the answer of calls. A database that does not fit ends a server that has no
    /// other one, and no clients yet.
    fn said(&self, obstacle: Obstacle<'_>) -> ControlFlow<anyhow::Error> {
        let failure = match obstacle {
            Obstacle::Unfit(error) if self.server.ends_with_its_database() => return ControlFlow::Break(error),
            Obstacle::Unfit(error) => {
                Failure { retryable: false, ..not_yet(&format!("the server cannot start: {error:#}")) }
            }
            Obstacle::NoConnection(error) => Failure { hint: Some(HINT.to_owned()), ..Failure::from(error) },
        };
        let is_new = self.progress.send_if_modified(|known| {
            let is_new = known.message != failure.message;
            if is_new {
                *known = failure.clone();
            }
            is_new
        });
        if is_new {
            // Afterwards: a server that begins to listen meanwhile has read it by itself.
            if let Some(http) = self.server.http.get() {
                http.set_starting(failure.message.clone());
            }
            let name = self.first.name().map(tracing::field::display);
            tracing::error!(name, "the database is not there yet; looking again: {}", failure.message);
        }
        ControlFlow::Continue(())
    }

    /// Starts the background tasks and serves the tools.
    fn serve(self, prepared: Prepared, settings: &Settings) -> anyhow::Result<RunningDatabase> {
        let Prepared { builder, manifests, tools: built, keys } = prepared;
        let Self { server, index, first: own, target, .. } = self;
        let (live, services) = (server.registry.database(index), builder.services.clone());
        built.log_missing();
        let BuiltTools { toolsets, left_out, misfits, watched } = built;
        let tools = toolsets.get(&settings.profile).map_or(0, |tools| tools.infos().count());
        live.open(toolsets, services.clone());
        let (activity, mut proposal_worker) = (&services.activity, None);
        if let Some(keys) = keys {
            let (ledger, name) = (&services.ledger, own.name().cloned());
            server.keys.set(index, keys)?;
            tokio::spawn(activity.clone().in_turn(ledger.clone().run_sweeper()));
            let refresh = state_keys::refresh(server.keys.clone(), index, ledger.clone(), name);
            tokio::spawn(activity.clone().in_turn(refresh));
            proposal_worker =
                Some(tokio::spawn(tools::run_proposal_worker(ledger.proposals(), live.clone(), activity.clone())));
            if let Some(notify) = settings.notify.clone() {
                let notifier = Notifier::new(notify, ledger.notices(), own.label.clone())?;
                tokio::spawn(notifier.run(activity.clone()));
            }
        }
        tokio::spawn(activity.clone().close_unused(services.ledger.clone(), services.reader.clone()));
        let read_log = services.ledger.read_log().start();
        let announcement = Announcement {
            tools,
            executors: live.executors().map_or(0, |executors| executors.names().count()),
            name: own.name().cloned(),
            target,
        };
        tokio::spawn(announcement.log(server.clone()));
        let compiled = CompiledState { manifests, left_out, misfits, watched, version: None };
        server.serve_changes(activity, DatabaseReloader::new(server.clone(), live.clone(), own, builder, compiled));
        Ok(RunningDatabase { proposal_worker, read_log, services })
    }
}

/// What the log says when calls of a database are answered.
struct Announcement {
    /// The number of tools in the default profile.
    tools: usize,
    executors: usize,
    name: Option<DatabaseName>,
    target: ConnectOptions,
}

impl Announcement {
    /// Logs it as soon as clients are served.
    async fn log(self, server: Server) {
        if server.is_serving.subscribe().wait_for(|is_serving| *is_serving).await.is_err() {
            return;
        }
        let Self { tools, executors, name, target } = self;
        tracing::info!(
            name = name.as_ref().map(tracing::field::display),
            tools,
            executors,
            profile = server.first.profile,
            account = server.first.account.as_str(),
            database = target.dbname,
            place = target.address(),
            "ready"
        );
    }
}

/// A database that is served, and its background tasks.
pub(super) struct RunningDatabase {
    /// `None` without a ledger.
    proposal_worker: Option<JoinHandle<()>>,
    read_log: JoinHandle<()>,
    services: Services,
}

impl RunningDatabase {
    /// Stops accepting work and waits for running work.
    pub(super) async fn drain(self) {
        let Self { proposal_worker, read_log, services } = self;
        if let Some(worker) = proposal_worker {
            worker.abort();
        }
        services.ledger.gate().drain().await;
        if let Some(reader) = &services.reader {
            reader.drain().await;
        }
        services.ledger.read_log().finish(read_log).await;
        services.scrape.drain().await;
    }
}
