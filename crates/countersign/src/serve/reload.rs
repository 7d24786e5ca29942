//! Reload on SIGHUP: manifests and profiles are read and compiled again. If they have a mistake, the old ones stay.

use manifest::Diagnostics;
use tokio::signal::unix::Signal;
use tools::LiveRegistry;

use super::HttpFrontend;
use crate::bootstrap::ServerBuilder;
use crate::settings::{ConfigSources, Settings};

/// Reloads at every signal, one reload at a time.
pub(crate) async fn at_every(mut hangup: Signal, reloader: Reloader) {
    while hangup.recv().await.is_some() {
        reloader.reload().await;
    }
}

/// The state of reloads.
pub(crate) struct Reloader {
    pub(crate) sources: ConfigSources,
    /// The settings at the start.
    pub(crate) running: Settings,
    pub(crate) builder: ServerBuilder,
    pub(crate) registry: LiveRegistry,
    /// For a server over HTTP.
    pub(crate) http: Option<HttpFrontend>,
}

impl Reloader {
    async fn reload(&self) {
        match self.replace().await {
            Ok(tools) => tracing::info!(tools, "the manifests and profiles were read again and are served"),
            Err(error) => {
                tracing::error!("the manifests and profiles were not reloaded, the old ones stay: {}", outline(&error));
                for mistake in error.downcast_ref::<Diagnostics>().into_iter().flat_map(|mistakes| &mistakes.0) {
                    tracing::error!("{mistake}");
                }
            }
        }
    }

    /// Returns the number of tools that are served now.
    async fn replace(&self) -> anyhow::Result<usize> {
        let settings = self.sources.load()?;
        anyhow::ensure!(
            settings.has_profile(&self.running.profile),
            "the profile {} is served and is no longer there",
            self.running.profile
        );
        let reread = self.http.as_ref().map(|http| http.reread(&settings)).transpose()?;
        let registries = self.builder.registries(&settings).await?;
        if !settings.same_but_for_tools(&self.running) {
            tracing::warn!("other settings than manifests and profiles have changed: they count from the next start");
        }
        if let (Some(http), Some(reread)) = (&self.http, reread) {
            http.put(reread);
        }
        let tools = registries.get(&self.running.profile).map_or(0, |registry| registry.infos().count());
        self.registry.replace(registries);
        // The idle sessions contain prepared statements of the old tools, so they are discarded.
        self.builder.ledger.forget_idle_sessions();
        Ok(tools)
    }
}

/// Returns the message without the mistakes, which have separate lines.
fn outline(error: &anyhow::Error) -> String {
    if error.downcast_ref::<Diagnostics>().is_some() { error.to_string() } else { format!("{error:#}") }
}
