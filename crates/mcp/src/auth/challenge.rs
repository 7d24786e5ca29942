//! Why a request is not answered, as HTTP says it (RFC 6750, RFC 9728, MCP "Authorization").

use http::{HeaderValue, StatusCode};
use types::AccountId;

use super::jwks_cache::FIRST_LOOKUP_INTERVAL;

/// Why somebody is not let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuthError {
    /// The request shows no token: 401 without an error, so that a client learns where to get one.
    Missing {
        /// The scopes that a client is to ask the issuer for; none without an issuer.
        scopes: Vec<String>,
    },
    /// What it shows does not count: 401 `invalid_token`.
    Invalid {
        /// For whoever wrote the client. Names no secret and no account.
        description: String,
        /// What the operator's log says instead, if it says more.
        log: Option<String>,
        /// As of `Missing`.
        scopes: Vec<String>,
    },
    /// The token counts, and gives none of our profiles: 403 `insufficient_scope`.
    InsufficientScope {
        /// Any of these would do.
        needed: Vec<String>,
        /// The account of the token, for the operator's log.
        account: AccountId,
    },
    /// Whether it counts cannot be told now: 503.
    Unavailable {
        /// For the operator's log.
        reason: String,
    },
}

impl AuthError {
    /// 401, 403 or 503.
    #[must_use]
    pub const fn status(&self) -> StatusCode {
        match self {
            Self::Missing { .. } | Self::Invalid { .. } => StatusCode::UNAUTHORIZED,
            Self::InsufficientScope { .. } => StatusCode::FORBIDDEN,
            Self::Unavailable { .. } => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// Whether the caller has shown nothing that is valid, as far as that can be told.
    #[must_use]
    pub const fn is_failed_attempt(&self) -> bool {
        !matches!(self, Self::Unavailable { .. })
    }

    /// After how many seconds the same request may have another answer.
    #[must_use]
    pub const fn retry_after_s(&self) -> Option<u64> {
        match self {
            Self::Unavailable { .. } => Some(FIRST_LOOKUP_INTERVAL.as_secs()),
            _ => None,
        }
    }

    /// The value of `WWW-Authenticate`; `None` where no other token would help. `metadata_url` is where
    /// [`Authenticator::metadata`](super::Authenticator::metadata) is served.
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

    /// One sentence for the body of the answer.
    #[must_use]
    pub fn message(&self) -> String {
        match self {
            Self::Missing { .. } => "this server wants a token: Authorization: Bearer TOKEN".to_owned(),
            Self::Invalid { description, .. } => description.clone(),
            Self::InsufficientScope { needed, .. } => {
                format!("the token has none of the scopes that this server knows: {}", needed.join(", "))
            }
            Self::Unavailable { .. } => {
                "the keys of the issuer cannot be read at the moment: try again in a few seconds".to_owned()
            }
        }
    }
}

impl AuthError {
    /// One sentence for the operator's log. Never has the token in it.
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

/// What may stand between the quotes of a parameter; anything else is a question mark.
fn quoted_string(text: &str) -> String {
    text.chars().map(|c| if matches!(c, ' '..='~') && !matches!(c, '"' | '\\') { c } else { '?' }).collect()
}
