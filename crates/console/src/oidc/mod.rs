//! Sign-in at an OpenID Connect provider: its configuration, and the roles of verified people.

mod person;

use auth::OidcProvider;

pub use person::{AccountClaims, PersonRules};
pub(crate) use person::{PersonError, SignedIn};

/// The path to which the provider redirects browsers.
pub const CALLBACK_PATH: &str = "/login/oidc/callback";

/// A provider, and the rules for its people.
#[derive(Debug)]
pub struct Oidc {
    pub provider: OidcProvider,
    /// The provider's name on the login page.
    pub name: String,
    /// The roles and groups of its people.
    pub rules: PersonRules,
}
