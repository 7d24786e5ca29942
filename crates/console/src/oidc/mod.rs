//! Signing in at an OpenID Connect provider: what is configured, and who a verified person is.

mod person;

use auth::OidcProvider;

pub(crate) use person::PersonError;
pub use person::{AccountClaims, PersonRules};

/// The path that browsers come back to from the provider.
pub const CALLBACK_PATH: &str = "/login/oidc/callback";

/// A provider, and what its people may do in the console.
#[derive(Debug)]
pub struct Oidc {
    /// The provider.
    pub provider: OidcProvider,
    /// Its name on the login page.
    pub name: String,
    /// Who its people are.
    pub rules: PersonRules,
}
