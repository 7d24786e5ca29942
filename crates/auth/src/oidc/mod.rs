//! Sign-in of people at an OpenID Connect provider, with the authorization code flow and PKCE.
//!
//! ```text
//! discovery   what the provider says of itself, cached       `discovery`
//! request     where the browser is sent, with new secrets    `provider`, `secrets`
//! response    what the browser comes back with               `response`
//! code        redeemed for an ID token, which is verified    `provider`, `id_token`
//! ```
//! The caller, which serves the browser, keeps the secrets and binds them to the browser.

mod discovery;
mod error;
mod id_token;
mod provider;
mod response;
mod secrets;

pub use error::OidcError;
pub use id_token::IdToken;
pub use provider::{OidcClient, OidcProvider, SignInRequest};
pub use response::{AuthorizationResponse, AuthorizationResponseError};
pub use secrets::SignInSecrets;
