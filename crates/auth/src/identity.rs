//! Identities and the labels of tokens.

use time::OffsetDateTime;
use types::Principal;

/// The longest label, in bytes.
pub const MAX_LABEL_BYTES: usize = 255;

/// Whether a text can be the label of a token, which is the actor of records.
#[must_use]
pub fn is_label(text: &str) -> bool {
    !text.is_empty() && text.len() <= MAX_LABEL_BYTES && !text.chars().any(char::is_control)
}

/// The authenticated caller of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The owner of the records, proposals and sessions that the caller may see.
    pub principal: Principal,
    /// The profile of tools.
    pub profile: String,
    /// The kind of credential: `token`, `jwt` or `none`.
    pub credential: &'static str,
}

/// An identity, and how long its credential is valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authentication {
    /// The caller.
    pub identity: Identity,
    /// When the credential expires; `None` for never.
    pub expires: Option<OffsetDateTime>,
}
