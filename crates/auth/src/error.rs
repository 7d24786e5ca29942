//! Errors of the configuration.

use std::io;
use std::path::PathBuf;

use crate::bearer::TokenHash;
use crate::jwk::JwksError;

/// What keeps an authenticator from being made.
#[derive(Debug, thiserror::Error)]
pub enum AuthConfigError {
    /// One token would be two principals.
    #[error("the token {0} is configured twice")]
    SameToken(TokenHash),
    /// `jwks_file` is not there.
    #[error("the issuer's keys in {path} (jwks_file) cannot be read")]
    KeysNotRead {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// `jwks_file` has nothing to verify with.
    #[error("the issuer's keys in {path} (jwks_file) cannot be used")]
    NoKeys {
        /// The file.
        path: PathBuf,
        /// Why.
        source: JwksError,
    },
    /// `jwks_url` could not be trusted.
    #[error("the issuer's keys (jwks_url) cannot be asked for")]
    Roots(#[source] io::Error),
}
