//! Changes the tools while a server runs. At SIGHUP, manifests and profiles are read again; if a database has
//! changed, its tools are compiled again. If a file has an error, the old tools stay.

use std::sync::Arc;

use anyhow::Context;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use ledger::{CatalogVersion, ReaderRoleError, WatchedTables};
use manifest::{Diagnostic, Diagnostics, Source};
use tokio::sync::{Mutex, watch};
use tokio::time::MissedTickBehavior;
use tools::LiveDatabase;
use types::{ErrorCode, Failure};

use super::Server;
use super::http_frontend::HttpFrontend;
use crate::commands::bootstrap::{self, BuiltTools, ToolBuilder};
use crate::settings::{ConfigSources, DatabaseSettings, Settings};
use crate::signals::HangupSignals;

/// Reads the configuration again at every SIGHUP, as soon as a database was reached.
pub(super) async fn at_hangup(mut hangup: HangupSignals, mut reloader: Reloader) {
    let mut reached = reloader.server.reached.subscribe();
    if reached.wait_for(|databases| !databases.is_empty()).await.is_err() {
        return;
    }
    loop {
        hangup.recv().await;
        match reloader.reload().await {
            Ok(tools) => tracing::info!(tools, "the manifests and profiles were read again and are served"),
            Err(error) => log("the manifests and profiles were not reloaded, the old ones stay", &error),
        }
    }
}

/// Reads the configuration again.
pub(super) struct Reloader {
    pub(super) server: Server,
    pub(super) sources: ConfigSources,
    /// The settings at the start.
    pub(super) running: Arc<Settings>,
    /// The HTTP part of the server, if it serves HTTP.
    pub(super) http: Option<HttpFrontend>,
}

impl Reloader {
    /// Compiles and serves the tools of every database again. Returns the number of tools in the profile of clients
    /// without credentials. What is shared changes as soon as the tools of one database have been compiled.
    async fn reload(&mut self) -> anyhow::Result<usize> {
        let settings = self.sources.load()?;
        anyhow::ensure!(
            settings.has_profile(&self.running.profile),
            "the profile {} is served and is no longer there",
            self.running.profile
        );
        let mut reread = self.http.as_ref().map(|http| http.reread(&settings)).transpose()?;
        bootstrap::check_several(&settings, self.server.demo)?;
        let settings = Arc::new(settings);
        let databases = self.server.reached.borrow().clone();
        let mut compiled: FuturesUnordered<_> =
            databases.iter().map(|database| database.compile_again(Arc::clone(&settings))).collect();
        let (mut errors, mut is_applied) = (Vec::new(), false);
        while let Some(outcome) = compiled.next().await {
            match outcome {
                Ok(change) => {
                    if !std::mem::replace(&mut is_applied, true) {
                        if !settings.same_but_for_tools(&self.running) {
                            tracing::warn!(
                                "other settings than manifests and profiles have changed: they count from the next start"
                            );
                        }
                        if let (Some(http), Some(reread)) = (&self.http, reread.take()) {
                            http.apply(reread);
                        }
                        self.server.settings.send_replace(Arc::clone(&settings));
                    }
                    change.serve();
                }
                Err(error) => errors.push(error),
            }
        }
        match errors.into_iter().next() {
            Some(error) if !is_applied => return Err(error),
            Some(error) => log("the tools of a database were not reloaded, the old ones stay", &error),
            None => {}
        }
        Ok(self.server.tools_of(&self.running.profile))
    }
}

/// Changes the tools of one database. Clones share it.
#[derive(Clone)]
pub(super) struct DatabaseReloader {
    state: Arc<Mutex<ReloaderState>>,
}

struct ReloaderState {
    server: Server,
    live: LiveDatabase,
    /// The settings at the start.
    first: DatabaseSettings,
    builder: ToolBuilder,
    /// Whether a database that was reached without a ledger has got one.
    has_found_ledger: bool,
    compiled: CompiledState,
}

/// The inputs of the served tools.
pub(super) struct CompiledState {
    pub(super) manifests: Vec<Source>,
    pub(super) left_out: Vec<Diagnostic>,
    pub(super) misfits: Vec<Diagnostic>,
    pub(super) watched: WatchedTables,
    /// The version of the watched tables before the tools were compiled; `None` if unknown, as after the start. Then
    /// the first check compiles the tools again.
    pub(super) version: Option<CatalogVersion>,
}

/// Tools that were compiled, and are not served yet.
struct CompiledChange {
    state: tokio::sync::OwnedMutexGuard<ReloaderState>,
    manifests: Vec<Source>,
    built: BuiltTools,
    version: Option<CatalogVersion>,
}

impl CompiledChange {
    fn serve(mut self) {
        self.built.log_missing();
        self.state.compiled.manifests = self.manifests;
        self.state.serve(self.built, self.version);
    }
}

impl DatabaseReloader {
    pub(super) fn new(
        server: Server,
        live: LiveDatabase,
        first: DatabaseSettings,
        builder: ToolBuilder,
        compiled: CompiledState,
    ) -> Self {
        let state = ReloaderState { server, live, first, builder, has_found_ledger: false, compiled };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// Looks for changes of the database at an interval, and never while the tools are reloaded. Never returns.
    pub(super) async fn follow_database(self) {
        let interval = self.state.lock().await.first.drift_check;
        let mut turns = tokio::time::interval(interval);
        turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
        turns.tick().await;
        loop {
            turns.tick().await;
            self.state.lock().await.follow_database().await;
        }
    }

    /// Compiles the tools with these settings.
    async fn compile_again(&self, settings: Arc<Settings>) -> anyhow::Result<CompiledChange> {
        let state = Arc::clone(&self.state).lock_owned().await;
        anyhow::ensure!(!state.has_found_ledger, NEW_LEDGER);
        let own = settings.of_database(&state.first);
        let manifests = state.builder.sources(own)?;
        let (built, version) = state.compile(&manifests, &settings, own).await?;
        Ok(CompiledChange { state, manifests, built, version })
    }
}

impl ReloaderState {
    /// Compiles the tools again if the tables that they use have changed.
    async fn follow_database(&mut self) {
        let ledger = &self.builder.services.ledger;
        if !self.builder.services.has_ledger {
            return self.look_for_ledger().await;
        }
        let version = match ledger.catalog_version(&self.compiled.watched).await {
            Ok(version) => version,
            // Calls report an unavailable database themselves.
            Err(error) => return tracing::debug!(%error, "whether the database has changed is not known"),
        };
        if self.compiled.version.as_ref() == Some(&version) {
            return;
        }
        let was_known = self.compiled.version.is_some();
        let settings = self.server.current_settings();
        let own = settings.of_database(&self.first);
        match self.compile(&self.compiled.manifests, &settings, own).await {
            Ok((built, current)) => {
                for missing in built.left_out.iter().filter(|missing| !self.compiled.left_out.contains(missing)) {
                    tracing::warn!("left out: {missing}");
                }
                for mistake in built.misfits.iter().filter(|mistake| !self.compiled.misfits.contains(mistake)) {
                    tracing::error!("does not fit the database any more: {mistake}");
                }
                for mistake in self.compiled.misfits.iter().filter(|mistake| !built.misfits.contains(mistake)) {
                    tracing::info!("repaired: {mistake}");
                }
                self.serve(built, current);
                if was_known {
                    let tools = self.server.tools_of(&settings.profile);
                    tracing::info!(tools, "the database has changed, and the tools that fit it are served");
                }
            }
            Err(error) => {
                log("the database has changed, and the old tools stay", &error);
                // Without a database, the tools are compiled once it is available again.
                if error.downcast_ref::<Diagnostics>().is_some() && self.builder.is_reachable().await {
                    self.compiled.version = Some(version);
                }
            }
        }
    }

    /// Looks for a ledger that was made since the start. Reads end as soon as their login may read it.
    async fn look_for_ledger(&mut self) {
        let Some(reader) = &self.builder.services.reader else { return };
        if !self.builder.finds_ledger().await.unwrap_or_default() {
            return;
        }
        if !std::mem::replace(&mut self.has_found_ledger, true) {
            tracing::warn!("{NEW_LEDGER}");
        }
        let settings = self.server.current_settings();
        let own = settings.of_database(&self.first);
        match ledger::check_reader(reader).await {
            Err(refused @ ReaderRoleError::Privileged { .. }) if !own.allow_privileged_reader => {
                tracing::error!("query_database is not served any more: {refused}");
                let (_, failure) = watch::channel(Failure::new(ErrorCode::DatabaseUnavailable, NEW_LEDGER));
                let metrics = &self.builder.services.metrics;
                match bootstrap::unavailable_tools(&settings, own, false, &failure, metrics) {
                    Ok(refusing) => self.live.replace(refusing),
                    Err(error) => return log("the tools were not replaced", &error),
                }
                self.builder.services.reader = None;
            }
            Ok(()) | Err(_) => {}
        }
    }

    /// Compiles the tools. The returned version is from before the compilation, so that no later change is missed;
    /// `None` if the database changes too fast to determine it.
    async fn compile(
        &self,
        manifests: &[Source],
        settings: &Settings,
        own: &DatabaseSettings,
    ) -> anyhow::Result<(BuiltTools, Option<CatalogVersion>)> {
        if !self.builder.services.has_ledger {
            return Ok((self.builder.tools(manifests, settings, own).await?, None));
        }
        let ledger = &self.builder.services.ledger;
        let mut watched = self.compiled.watched.clone();
        let mut rounds = 0;
        loop {
            let version = ledger.catalog_version(&watched).await.context("the catalog cannot be read")?;
            let built = self.builder.tools(manifests, settings, own).await?;
            rounds += 1;
            if built.watched == watched {
                return Ok((built, Some(version)));
            }
            if rounds == MAX_ROUNDS {
                return Ok((built, None));
            }
            watched = built.watched;
        }
    }

    fn serve(&mut self, built: BuiltTools, version: Option<CatalogVersion>) {
        let BuiltTools { toolsets, left_out, misfits, watched } = built;
        self.live.replace(toolsets);
        // Idle sessions have prepared statements of the old tools, so they are discarded.
        self.builder.services.ledger.forget_idle_sessions();
        let manifests = std::mem::take(&mut self.compiled.manifests);
        self.compiled = CompiledState { manifests, left_out, misfits, watched, version };
    }
}

const NEW_LEDGER: &str = "This database got a ledger after the server started. Restart the server.";

/// The maximum number of compilations in a row if each one uses other tables.
const MAX_ROUNDS: u32 = 3;

/// Logs the message, and one line for each error.
fn log(what: &str, error: &anyhow::Error) {
    let mistakes = error.downcast_ref::<Diagnostics>();
    let why = if mistakes.is_some() { error.to_string() } else { format!("{error:#}") };
    tracing::error!("{what}: {why}");
    for mistake in mistakes.into_iter().flat_map(|mistakes| &mistakes.0) {
        tracing::error!("{mistake}");
    }
}
