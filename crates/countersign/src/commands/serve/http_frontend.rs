//! The parts of HTTP that a reload changes: the accepted credentials, and the certificate.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use auth::{Authenticator, Identity};
use http_server::ReloadableTls;
use mcp_http::AppState;
use tools::metrics::Metrics;

use crate::settings::{HttpSettings, Settings};

/// The parts between the network and the tools that can change while serving.
#[derive(Clone)]
pub(crate) struct HttpFrontend {
    pub(super) state: Arc<AppState>,
    pub(super) tls: Option<ReloadableTls>,
}

impl HttpFrontend {
    pub(super) fn new(
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
