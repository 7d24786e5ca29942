//! The reasons why a sign-in fails.

use crate::jwt::JwtError;

/// Why a sign-in fails. The texts are for the operator's log, and contain no secret.
#[derive(Debug, Clone, thiserror::Error)]
pub enum OidcError {
    /// The provider does not answer, or its answer violates the protocol.
    #[error("the provider cannot be used now: {0}")]
    Unavailable(String),
    /// The provider's metadata are not usable for this client, or the provider does not accept this client.
    #[error("the provider and the settings of this client do not fit together: {0}")]
    Configuration(String),
    /// The response does not name the provider as its sender (RFC 9207).
    #[error("the response is not from the provider: its iss is {0}")]
    Issuer(String),
    /// The provider has not signed the person in. It sent an error code and a description.
    #[error("the provider has answered {code}: {description}")]
    Denied {
        /// The error code: `access_denied` and others of RFC 6749 and OpenID Connect.
        code: String,
        /// The provider's description; empty if there is none.
        description: String,
    },
    /// The provider does not accept the code: it was redeemed before, has expired, or belongs to another sign-in.
    #[error("the provider does not accept the code: {0}")]
    Code(String),
    /// The ID token is invalid, or does not belong to this sign-in.
    #[error("the ID token is not accepted: {0}")]
    IdToken(JwtError),
}
