//! The OpenID Connect provider from the settings.

use ::console::{CALLBACK_PATH, Console, Oidc};
use anyhow::Context;
use auth::{OidcClient, OidcProvider};

use crate::settings::OidcSettings;

/// The provider for a console at this origin.
pub(super) fn provider(settings: &OidcSettings, origin: &str) -> anyhow::Result<Oidc> {
    let OidcSettings { config, client_secret } = settings.clone();
    let client = OidcClient {
        issuer: config.issuer,
        client_id: config.client_id,
        client_secret: client_secret.map(|secret| secret.read()).transpose()?.map(|secret| secret.text),
        redirect_uri: format!("{origin}{CALLBACK_PATH}"),
        scopes: config.scopes,
    };
    let provider = OidcProvider::new(client).context("[console.oidc] cannot be used")?;
    Ok(Oidc { provider, name: config.name, rules: config.rules })
}

/// Fetches the provider's metadata at the start, so that errors in the settings are logged.
pub(super) async fn ask_provider(console: Console) {
    match console.discover().await {
        Ok(()) => {}
        Err(error) => tracing::warn!(%error, "nobody can sign in with the provider now"),
    }
}
