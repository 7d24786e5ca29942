//! Errors of the configuration.

use std::io;
use std::path::PathBuf;

use crate::bearer::TokenHash;
use crate::jwk::JwksError;

/// Why an authenticator cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum AuthConfigError {
    /// A token is configured for two principals.
    #[error("the token {0} is configured twice")]
    SameToken(TokenHash),
    /// `jwks_file` cannot be read.
    #[error("the issuer's keys in {path} (jwks_file) cannot be read")]
    KeysNotRead { path: PathBuf, source: io::Error },
    /// `jwks_file` has no usable keys.
    #[error("the issuer's keys in {path} (jwks_file) cannot be used")]
    NoKeys { path: PathBuf, source: JwksError },
    /// No certificate authority is available to verify the issuer's server.
    #[error("the issuer's keys cannot be fetched")]
    Roots(#[source] io::Error),
}
