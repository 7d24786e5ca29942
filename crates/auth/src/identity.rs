//! Identities and the labels of tokens.

use time::OffsetDateTime;
use types::Principal;

/// The longest label, in bytes.
pub const MAX_LABEL_BYTES: usize = 255;

/// Whether a text can be the label of a token: the actor of a record.
#[must_use]
pub fn is_label(text: &str) -> bool {
    !text.is_empty() && text.len() <= MAX_LABEL_BYTES && !text.chars().any(char::is_control)
}

/// Who a request comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Whose records, proposals and sessions it may see.
    pub principal: Principal,
    /// Which tools there are for it.
    pub profile: String,
    /// How it is known: `token` or `jwt`.
    pub credential: &'static str,
}

/// An identity, and for how long what the request shows stands for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authentication {
    /// Who calls.
    pub identity: Identity,
    /// When the token expires; `None` for never.
    pub expires: Option<OffsetDateTime>,
}
