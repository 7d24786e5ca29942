//! MCP over HTTP. The process listens before the database is available, and survives outages of the database.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Context;
use auth::{Authenticator, Identity};
use futures_util::future::{join_all, select_all};
use http_server::ReloadableTls;
use mcp_http::{AppState, Backend};
use tokio::net::TcpListener;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tools::metrics::Metrics;

use super::database::StartingDatabase;
use super::{Running, Starting};
use crate::settings::{HttpSettings, Settings};

/// The interval at which freed memory is returned to the system, such as after bursts of requests.
const GIVE_BACK: Duration = Duration::from_secs(10);

pub(super) async fn serve(starting: Starting, options: &HttpSettings, stop: CancellationToken) -> anyhow::Result<()> {
    let Starting { server, mut databases, sources, hangup } = starting;
    let settings = server.current_settings();
    let authenticator = settings.authenticator()?;
    anyhow::ensure!(
        options.listen.ip().is_loopback() || !authenticator.is_empty(),
        "--http {} can be reached from other machines, and nobody would have to say who they are: configure [[tokens]] \
         (`countersign token new` makes one) or [oauth], or listen on 127.0.0.1",
        options.listen
    );
    let http = HttpFrontend::new(options, authenticator, &settings, server.metrics.clone())?;
    let listener = TcpListener::bind(options.listen)
        .await
        .with_context(|| format!("cannot listen on {} (--http)", options.listen))?;
    let scheme = if http.tls.is_some() { "https" } else { "http" };
    tracing::info!("listening on {scheme}://{}/mcp", listener.local_addr()?);
    let serving = mcp_http::serve_http(listener, http.tls.clone(), Arc::clone(&http.state), stop.clone());
    let serving = tokio::spawn(serving);
    let giving_back = tokio::spawn(give_memory_back());
    let mut running = Running::default();
    if let Some(started) = stop.run_until_cancelled(started(&mut running, &mut databases, &http)).await {
        started?;
        server.is_serving.store(true, Ordering::Relaxed);
        let (registry, elicitation, content) = (server.registry.clone(), server.elicitation(), settings.content.into());
        http.state.open(Backend { registry, elicitation, content });
        server.reload_at(hangup, sources, Some(http));
    }
    serving.await.context("serving ended")?;
    giving_back.abort();
    running.extend(join_all(databases.into_iter().map(StartingDatabase::stop)).await);
    running.drain().await;
    Ok(())
}

/// Waits until one database was reached, and it is known which others take longer.
async fn started(
    running: &mut Running,
    databases: &mut Vec<StartingDatabase>,
    http: &HttpFrontend,
) -> anyhow::Result<()> {
    running.settle(databases).await?;
    if !running.is_empty() {
        return Ok(());
    }
    let mut failures: Vec<_> = databases.iter().map(|database| database.failure.clone()).collect();
    let reasons = failures.iter_mut().map(|failure| {
        Box::pin(async {
            loop {
                let reason = failure.borrow_and_update().message.clone();
                http.state.set_starting(reason);
                if failure.changed().await.is_err() {
                    // The start has ended.
                    return std::future::pending::<()>().await;
                }
            }
        })
    });
    let (ended, index) = {
        let ended = select_all(databases.iter_mut().map(|database| Box::pin(database.ended())));
        tokio::select! {
            (ended, index, _) = ended => (ended, index),
            _ = join_all(reasons) => return Ok(()),
        }
    };
    databases.remove(index);
    running.extend([Some(ended?)]);
    Ok(())
}

async fn give_memory_back() {
    let mut ticks = tokio::time::interval(GIVE_BACK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let begun = Instant::now();
        if tokio::task::spawn_blocking(malloc_tuning::give_back).await.is_ok() {
            tracing::debug!(took = ?begun.elapsed(), "freed memory was given back");
        }
    }
}

/// The parts between the network and the tools that can change while serving.
#[derive(Clone)]
pub(crate) struct HttpFrontend {
    state: Arc<AppState>,
    tls: Option<ReloadableTls>,
}

impl HttpFrontend {
    fn new(
        options: &HttpSettings,
        authenticator: Authenticator,
        settings: &Settings,
        metrics: Metrics,
    ) -> anyhow::Result<Self> {
        warn_of_audience(settings);
        let anonymous: Identity =
            mcp_http::anonymous_identity(settings.account.clone(), settings.actor.clone(), settings.profile.clone());
        let tls =
            options.tls.as_ref().map(|(certificate, key)| tls(certificate, key)).transpose()?.map(ReloadableTls::new);
        Ok(Self { state: AppState::new(options.options(), authenticator, anonymous, metrics), tls })
    }

    /// The settings that a reload changes: the accepted credentials, and the certificate.
    ///
    /// # Errors
    /// The configuration has an error. Nothing is changed then.
    pub(crate) fn reread(&self, settings: &Settings) -> anyhow::Result<ReloadedAuth> {
        let authenticator = settings.authenticator()?;
        warn_of_audience(settings);
        anyhow::ensure!(
            !(self.state.requires_credentials() && authenticator.is_empty()),
            "there are neither tokens nor an issuer any more, and nobody would have to say who they are: stop the server \
             if that is meant"
        );
        let files = settings.http.as_ref().and_then(|options| options.tls.as_ref());
        let certificate = files.map(|(certificate, key)| tls(certificate, key)).transpose()?;
        Ok(ReloadedAuth { authenticator, certificate })
    }

    pub(crate) fn apply(&self, ReloadedAuth { authenticator, certificate }: ReloadedAuth) {
        self.state.replace_authenticator(authenticator);
        if let (Some(shown), Some(certificate)) = (&self.tls, certificate) {
            shown.replace(certificate);
        }
    }
}

/// Some issuers always use one audience. So an audience other than the one that clients request is only a warning.
fn warn_of_audience(settings: &Settings) {
    let Some(url) = settings.http.as_ref().and_then(|options| options.public_url.as_deref()) else { return };
    let resource = mcp_http::resource_uri(url);
    for issuer in settings.oauth.iter().filter(|issuer| issuer.audience != resource) {
        tracing::warn!(
            issuer = issuer.issuer.as_str(),
            audience = issuer.audience,
            resource,
            "clients ask the issuer for tokens for the resource, and those for the audience count: leave oauth.audience \
             out, unless the issuer gives this audience to all of its tokens"
        );
    }
}

/// The settings that were read again for an [`HttpFrontend`].
pub(crate) struct ReloadedAuth {
    authenticator: Authenticator,
    certificate: Option<rustls::ServerConfig>,
}

fn tls(certificate: &Path, key: &Path) -> anyhow::Result<rustls::ServerConfig> {
    http_server::read_tls(certificate, key).with_context(|| {
        format!("the certificate {} and its key {} cannot be used", certificate.display(), key.display())
    })
}
