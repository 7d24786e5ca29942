//! Changes the tools while a server runs. At SIGHUP, manifests and profiles are read again; if the database has
//! changed, the tools are compiled again. If a file has an error, the old tools stay.

use anyhow::Context;
use ledger::{CatalogVersion, ReaderRoleError, WatchedTables};
use manifest::{Diagnostic, Diagnostics, Source};
use tokio::signal::unix::Signal;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;
use tools::LiveRegistry;
use types::{ErrorCode, Failure};

use super::HttpFrontend;
use crate::commands::bootstrap::{self, BuiltTools, ServerBuilder};
use crate::settings::{ConfigSources, Settings};

/// Reloads at every SIGHUP, and checks the database for changes at an interval, never both at the same time.
pub(crate) async fn at_every(mut hangup: Signal, mut reloader: Reloader) {
    let mut turns = tokio::time::interval(reloader.running.drift_check);
    turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
    turns.tick().await;
    loop {
        tokio::select! {
            signal = hangup.recv() => match signal {
                Some(()) => reloader.reload().await,
                None => return,
            },
            _ = turns.tick() => reloader.follow_database().await,
        }
    }
}

pub(crate) struct Reloader {
    pub(crate) sources: ConfigSources,
    /// The settings at the start.
    pub(crate) running: Settings,
    pub(crate) builder: ServerBuilder,
    pub(crate) registry: LiveRegistry,
    /// The HTTP part of the server, if it serves HTTP.
    pub(crate) http: Option<HttpFrontend>,
    /// Whether a server that was started without a ledger has found one.
    pub(crate) has_found_ledger: bool,
    pub(crate) compiled: CompiledState,
}

/// The inputs of the served tools.
pub(crate) struct CompiledState {
    pub(crate) settings: Settings,
    pub(crate) manifests: Vec<Source>,
    pub(crate) misfits: Vec<Diagnostic>,
    pub(crate) watched: WatchedTables,
    /// The version of the watched tables before the tools were compiled; `None` if unknown, as after the start. Then
    /// the first check compiles the tools again.
    pub(crate) version: Option<CatalogVersion>,
}

impl Reloader {
    async fn reload(&mut self) {
        match self.replace().await {
            Ok(tools) => tracing::info!(tools, "the manifests and profiles were read again and are served"),
            Err(error) => log("the manifests and profiles were not reloaded, the old ones stay", &error),
        }
    }

    /// Compiles and serves the tools again. Returns their number.
    async fn replace(&mut self) -> anyhow::Result<usize> {
        anyhow::ensure!(!self.has_found_ledger, NEW_LEDGER);
        let settings = self.sources.load()?;
        anyhow::ensure!(
            settings.has_profile(&self.running.profile),
            "the profile {} is served and is no longer there",
            self.running.profile
        );
        let reread = self.http.as_ref().map(|http| http.reread(&settings)).transpose()?;
        let manifests = self.builder.sources(&settings)?;
        let (built, version) = self.compile(&manifests, &settings).await?;
        if !settings.same_but_for_tools(&self.running) {
            tracing::warn!("other settings than manifests and profiles have changed: they count from the next start");
        }
        if let (Some(http), Some(reread)) = (&self.http, reread) {
            http.apply(reread);
        }
        built.log_misfits();
        self.compiled.settings = settings;
        self.compiled.manifests = manifests;
        Ok(self.serve(built, version))
    }

    /// Compiles the tools again if the tables that they use have changed.
    async fn follow_database(&mut self) {
        if !self.builder.services.has_ledger {
            return self.look_for_ledger().await;
        }
        let version = match self.builder.ledger.catalog_version(&self.compiled.watched).await {
            Ok(version) => version,
            // Calls report an unavailable database themselves.
            Err(error) => return tracing::debug!(%error, "whether the database has changed is not known"),
        };
        if self.compiled.version.as_ref() == Some(&version) {
            return;
        }
        let was_known = self.compiled.version.is_some();
        match self.compile(&self.compiled.manifests, &self.compiled.settings).await {
            Ok((built, current)) => {
                for mistake in built.misfits.iter().filter(|mistake| !self.compiled.misfits.contains(mistake)) {
                    tracing::error!("does not fit the database any more: {mistake}");
                }
                for mistake in self.compiled.misfits.iter().filter(|mistake| !built.misfits.contains(mistake)) {
                    tracing::info!("repaired: {mistake}");
                }
                let tools = self.serve(built, current);
                if was_known {
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
        match ledger::check_reader(reader).await {
            Err(refused @ ReaderRoleError::Privileged { .. }) if !self.running.allow_privileged_reader => {
                tracing::error!("query_database is not served any more: {refused}");
                let (_, failure) = watch::channel(Failure::new(ErrorCode::DatabaseUnavailable, NEW_LEDGER));
                let metrics = &self.builder.services.metrics;
                match bootstrap::unavailable_tools(&self.running, false, &failure, metrics) {
                    Ok(refusing) => self.registry.replace(refusing),
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
    ) -> anyhow::Result<(BuiltTools, Option<CatalogVersion>)> {
        if !self.builder.services.has_ledger {
            return Ok((self.builder.tools(manifests, settings).await?, None));
        }
        let mut watched = self.compiled.watched.clone();
        let mut rounds = 0;
        loop {
            let version = self.builder.ledger.catalog_version(&watched).await.context("the catalog cannot be read")?;
            let built = self.builder.tools(manifests, settings).await?;
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

    /// Serves these tools, and returns their number.
    fn serve(&mut self, built: BuiltTools, version: Option<CatalogVersion>) -> usize {
        let BuiltTools { registries, misfits, watched } = built;
        let tools = registries.get(&self.running.profile).map_or(0, |registry| registry.infos().count());
        self.registry.replace(registries);
        // Idle sessions have prepared statements of the old tools, so they are discarded.
        self.builder.ledger.forget_idle_sessions();
        (self.compiled.misfits, self.compiled.watched, self.compiled.version) = (misfits, watched, version);
        tools
    }
}

const NEW_LEDGER: &str = "the database has got a ledger since this server was started: start it again";

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
