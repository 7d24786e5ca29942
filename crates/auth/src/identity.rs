//! Identities and the labels of tokens.

use time::OffsetDateTime;
use types::{DatabaseName, Principal};

const MAX_LABEL_BYTES: usize = 255;

/// The rule of [`is_label`], for messages.
pub const LABEL_RULE: &str =
    "1 to 255 bytes, with a letter or digit, without spaces at its ends and without invisible characters";

/// Whether a text can be the label of a token, which is the actor in records, or the name of a person. People read
/// labels and must be able to tell two of them apart.
#[must_use]
pub fn is_label(text: &str) -> bool {
    let is_printed = text.chars().any(char::is_alphanumeric) && text.trim() == text;
    is_printed && text.len() <= MAX_LABEL_BYTES && types::visible(text) == text
}

/// The authenticated caller of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The owner of the records, proposals and sessions that the caller may see.
    pub principal: Principal,
    pub profile: String,
    /// The databases that the credential reaches; `None` for all that the profile reaches.
    pub databases: Option<Vec<DatabaseName>>,
    /// The kind of credential: `token`, `jwt` or `none`.
    pub credential: &'static str,
}

/// An identity, and how long its credential is valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authentication {
    pub identity: Identity,
    /// When the credential expires; `None` for never.
    pub expires: Option<OffsetDateTime>,
}
