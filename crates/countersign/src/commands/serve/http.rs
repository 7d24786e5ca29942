//! MCP over HTTP. The process listens before the database is available, and survives outages of the database.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use auth::{Authenticator, Identity};
use http_server::ReloadableTls;
use mcp_http::{AppState, Backend, ReadinessCheck};
use tokio::net::TcpListener;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tools::ProfileRegistries;
use tools::metrics::Metrics;

use super::{Obstacle, RunningServer, Served, Startup};
use crate::commands::bootstrap::ServerBuilder;
use crate::settings::{HttpSettings, Settings};

/// The interval at which freed memory is returned to the system, such as after bursts of requests.
const GIVE_BACK: Duration = Duration::from_secs(10);

const PING_TIMEOUT: Duration = Duration::from_secs(2);

pub(super) async fn serve(
    start: Startup,
    settings: Settings,
    options: &HttpSettings,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let authenticator = settings.authenticator()?;
    anyhow::ensure!(
        options.listen.ip().is_loopback() || !authenticator.is_empty(),
        "--http {} can be reached from other machines, and nobody would have to say who they are: configure [[tokens]] \
         (`countersign token new` makes one) or [oauth], or listen on 127.0.0.1",
        options.listen
    );
    let http = HttpFrontend::new(options, authenticator, &settings, start.metrics.clone())?;
    let listener = TcpListener::bind(options.listen)
        .await
        .with_context(|| format!("cannot listen on {} (--http)", options.listen))?;
    let scheme = if http.tls.is_some() { "https" } else { "http" };
    tracing::info!("listening on {scheme}://{}/mcp", listener.local_addr()?);
    let serving = mcp_http::serve_http(listener, http.tls.clone(), Arc::clone(&http.state), stop.clone());
    let serving = tokio::spawn(serving);
    let giving_back = tokio::spawn(give_memory_back());
    let started = stop.run_until_cancelled(started(start, &settings, &http)).await;
    let running = match started {
        Some(Ok((running, backend))) => {
            http.state.open(backend);
            running.announce(&settings);
            Some(running)
        }
        Some(Err(error)) => return Err(error),
        None => None,
    };
    serving.await.context("serving ended")?;
    giving_back.abort();
    if let Some(running) = running {
        running.drain().await;
    }
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

/// Starts as soon as the database is available. Errors in the database or the manifests end the process.
async fn started(start: Startup, settings: &Settings, http: &HttpFrontend) -> anyhow::Result<(RunningServer, Backend)> {
    let told = |obstacle: Obstacle<'_>| match obstacle {
        Obstacle::Unfit(error) => ControlFlow::Break(error),
        Obstacle::NoConnection(error) => {
            http.state.set_starting(error.to_string());
            tracing::warn!(%error, "the database is not there yet; looking again");
            ControlFlow::Continue(())
        }
    };
    let opened = start.open_when_possible(settings, told).await?;
    let check = check(&opened.builder);
    let served = Served::new(ProfileRegistries::default(), settings)?;
    let running = start.run(opened, served, settings, Some(http.clone()))?;
    let (registry, elicitation) = (running.registry.clone(), running.elicitation.clone());
    let (content, services) = (settings.content.into(), running.services.clone());
    Ok((running, Backend { registry, elicitation, content, services, check }))
}

fn check(builder: &ServerBuilder) -> ReadinessCheck {
    let (ledger, writes) = (builder.ledger.clone(), builder.services.has_ledger);
    Arc::new(move || {
        let ledger = ledger.clone();
        Box::pin(async move {
            let deadline = Instant::now() + PING_TIMEOUT;
            ledger.ping(deadline, writes).await.map_err(|reason| match Instant::now() < deadline {
                true => reason,
                false => format!("the database did not answer within {} s", PING_TIMEOUT.as_secs()),
            })
        })
    })
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
    let Some(issuer) = &settings.oauth else { return };
    let Some(url) = settings.http.as_ref().and_then(|options| options.public_url.as_deref()) else { return };
    let (audience, resource) = (issuer.audience.as_str(), mcp_http::resource_uri(url));
    if audience != resource {
        tracing::warn!(
            audience,
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
