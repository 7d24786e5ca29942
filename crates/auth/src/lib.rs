//! The identity behind an `Authorization` header: bearer tokens that the configuration knows by their hashes, and
//! JWTs of OAuth issuers. [`Authenticator::identify`] is the entry point. It reads only the `Authorization` header:
//! a token in a query string would be logged by every proxy. [`OidcProvider`] lets people sign in to the console; the
//! same code verifies its ID tokens. This crate serves no HTTP and knows no MCP.
//!
//! ```text
//! request     `authenticator` reads the header
//! token       `bearer`, by its hash
//! JWT         `jwt` parses and verifies it, `verified_tokens` caches that it is valid
//! keys        `jwks_cache` fetches them, `issuer_metadata` finds their URL, `jwk` has their algorithms
//! identity    `issuer` maps claims to an `identity`; or `challenge`, the answer to a request without one
//! sign-in     `oidc`, of people
//! settings    `error`: what is wrong with the configuration
//! tests       `tests`, with real keys and a real server of an issuer's keys
//! ```

mod authenticator;
mod bearer;
mod challenge;
mod error;
mod identity;
mod issuer;
mod issuer_metadata;
mod jwk;
mod jwks_cache;
mod jwt;
mod oidc;
mod verified_tokens;

pub use authenticator::Authenticator;
pub use bearer::{BearerToken, RandomnessError, TokenError, TokenHash, TokenHashError, generate_token, hash_token};
pub use challenge::AuthError;
pub use error::AuthConfigError;
pub use identity::{Authentication, CredentialKind, Identity, LABEL_RULE, StrongerScopes, is_label};
pub use issuer::Issuer;
pub use jwk::JwksError;
pub use jwks_cache::JwksSource;
pub use oidc::{
    AuthorizationResponse, AuthorizationResponseError, IdToken, OidcClient, OidcError, OidcProvider, SignInRequest,
    SignInSecrets,
};

#[cfg(test)]
mod tests;
