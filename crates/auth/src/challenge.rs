//! Authentication errors and their HTTP form: status and `WWW-Authenticate` (RFC 6750, RFC 9728, MCP
//! "Authorization").

use http::{HeaderValue, StatusCode};
use types::AccountId;

use crate::jwks_cache::FIRST_LOOKUP_INTERVAL;

/// Why a request is not authenticated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuthError {
    /// The request has no token: 401 without an error code, which tells a client where to get a token.
    Missing {
        /// The scopes that a client should request from the issuer; empty without an issuer.
        scopes: Vec<String>,
    },
    /// The token is not valid: 401 `invalid_token`.
    Invalid {
        /// For the client's developer. Contains neither a secret nor an account.
        description: String,
        /// The text for the operator's log, if it has more detail.
        log: Option<String>,
        /// As in `Missing`.
        scopes: Vec<String>,
    },
    /// The token is valid and grants no configured profile: 403 `insufficient_scope`.
    InsufficientScope {
        /// The scopes of which the token needs one.
        needed: Vec<String>,
        /// The account of the token, for the operator's log.
        account: AccountId,
    },
    /// The token cannot be checked now: 503.
    Unavailable {
        /// For the operator's log.
        reason: String,
    },
}

impl AuthError {
    /// The HTTP status: 401, 403 or 503.
    #[must_use]
    pub const fn status(&self) -> StatusCode {
        match self {
            Self::Missing { .. } | Self::Invalid { .. } => StatusCode::UNAUTHORIZED,
            Self::InsufficientScope { .. } => StatusCode::FORBIDDEN,
            Self::Unavailable { .. } => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// Whether this counts as a failed attempt: the token has been checked and is not valid.
    #[must_use]
    pub const fn is_failed_attempt(&self) -> bool {
        !matches!(self, Self::Unavailable { .. })
    }

    /// Seconds after which the same request may succeed.
    #[must_use]
    pub const fn retry_after_s(&self) -> Option<u64> {
        match self {
            Self::Unavailable { .. } => Some(FIRST_LOOKUP_INTERVAL.as_secs()),
            _ => None,
        }
    }

    /// The value of `WWW-Authenticate`; `None` if another token would not help. `metadata_url` is the URL that serves
    /// [`Authenticator::metadata`](crate::Authenticator::metadata).
    #[must_use]
    pub fn challenge(&self, metadata_url: Option<&str>) -> Option<HeaderValue> {
        let (error, description, scopes) = match self {
            Self::Missing { scopes } => (None, None, scopes),
            Self::Invalid { description, scopes, .. } => (Some("invalid_token"), Some(description.clone()), scopes),
            Self::InsufficientScope { needed, .. } => (Some("insufficient_scope"), Some(self.message()), needed),
            Self::Unavailable { .. } => return None,
        };
        let scope = (!scopes.is_empty()).then(|| scopes.join(" "));
        let parts = [
            ("realm", Some("countersign")),
            ("error", error),
            ("error_description", description.as_deref()),
            ("scope", scope.as_deref()),
            ("resource_metadata", metadata_url),
        ];
        let parts = parts.into_iter().filter_map(|(name, value)| Some(format!("{name}=\"{}\"", quoted_string(value?))));
        HeaderValue::try_from(format!("Bearer {}", parts.collect::<Vec<_>>().join(", "))).ok()
    }

    /// The sentence for the response body.
    #[must_use]
    pub fn message(&self) -> String {
        match self {
            Self::Missing { .. } => "this server requires a token: Authorization: Bearer TOKEN".to_owned(),
            Self::Invalid { description, .. } => description.clone(),
            Self::InsufficientScope { needed, .. } => {
                format!("the token has none of the required scopes: {}", needed.join(", "))
            }
            Self::Unavailable { .. } => "the issuer's keys are not available: try again in a few seconds".to_owned(),
        }
    }
}

impl AuthError {
    /// The sentence for the operator's log. It never contains the token.
    #[must_use]
    pub fn log_message(&self) -> String {
        match self {
            Self::Invalid { log: Some(log), .. } => log.clone(),
            Self::InsufficientScope { account, .. } => {
                format!("{} (account {})", self.message(), types::quoted(account.as_str()))
            }
            Self::Unavailable { reason } => format!("{}: {reason}", self.message()),
            _ => self.message(),
        }
    }
}

/// Replaces characters that a quoted parameter cannot contain by question marks.
fn quoted_string(text: &str) -> String {
    text.chars().map(|c| if matches!(c, ' '..='~') && !matches!(c, '"' | '\\') { c } else { '?' }).collect()
}
