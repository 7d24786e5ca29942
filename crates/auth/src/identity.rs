//! Identities and the labels of tokens.

use std::sync::Arc;

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
    pub credential: CredentialKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CredentialKind {
    /// The server requires no credentials.
    None,
    /// A configured token.
    Token,
    /// A token of an issuer.
    Jwt,
}

/// An identity, and how long its credential is valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authentication {
    pub identity: Identity,
    /// When the credential expires; `None` for never.
    pub expires: Option<OffsetDateTime>,
    /// What other tokens of the same issuer give; empty unless the credential is a JWT.
    pub stronger: StrongerScopes,
}

/// The scopes of an issuer, each with its profile, from the weakest to the strongest.
pub(crate) type ScopeProfiles = Arc<[(String, String)]>;

/// The scopes that are stronger than those of a token.
///
/// Weaker ones are not among them: a client requests a scope in addition to those that it has, and the strongest one
/// selects the profile.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StrongerScopes {
    scopes: ScopeProfiles,
    /// The number of scopes that are not stronger.
    skipped: usize,
}

impl StrongerScopes {
    pub(crate) const fn new(scopes: ScopeProfiles, skipped: usize) -> Self {
        Self { scopes, skipped }
    }

    /// The weakest scope with such a profile.
    pub fn weakest(&self, mut has_profile: impl FnMut(&str) -> bool) -> Option<&str> {
        let mut stronger = self.scopes.iter().skip(self.skipped);
        stronger.find(|(_, profile)| has_profile(profile)).map(|(scope, _)| scope.as_str())
    }
}
