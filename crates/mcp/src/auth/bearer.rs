//! Bearer tokens that the configuration knows by their hashes.

use std::fmt::{self, Write};
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest;
use ring::rand::{SecureRandom, SystemRandom};
use time::OffsetDateTime;
use types::{AccountId, Secret};

/// What a token of ours begins with, so that scanners for secrets can find one.
const PREFIX: &str = "cs_";

/// The shortest token that is hashed, in characters. Ours have 46; one of hexadecimal digits has 128 bits in 32.
const MIN_CHARACTERS: usize = 32;

/// A token as the configuration has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BearerToken {
    /// Of the whole token.
    pub hash: TokenHash,
    /// On whose behalf whoever has the token calls.
    pub account: AccountId,
    /// Which tools they see.
    pub profile: String,
    /// The actor of their records.
    pub label: Option<String>,
    /// From when on the token counts no more; `None` for never.
    pub expires: Option<OffsetDateTime>,
}

/// SHA-256 of a token, written `sha256:` and 64 hexadecimal digits. A token is random and long, so whoever reads its
/// hash cannot try tokens until one fits, and a slow hash would only slow every request down.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TokenHash([u8; digest::SHA256_OUTPUT_LEN]);

/// A text that is no hash of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a hash is written sha256: and 64 hexadecimal digits, as `countersign token new` and `token hash` print it")]
pub struct TokenHashError;

impl TokenHash {
    const SCHEME: &str = "sha256:";

    /// The hash of whatever a request shows.
    #[must_use]
    pub fn of(token: &str) -> Self {
        let mut bytes = [0; digest::SHA256_OUTPUT_LEN];
        bytes.copy_from_slice(digest::digest(&digest::SHA256, token.as_bytes()).as_ref());
        Self(bytes)
    }
}

impl FromStr for TokenHash {
    type Err = TokenHashError;

    fn from_str(text: &str) -> Result<Self, TokenHashError> {
        let digits = text.strip_prefix(Self::SCHEME).filter(|digits| digits.len() == 64).ok_or(TokenHashError)?;
        let mut bytes = [0; digest::SHA256_OUTPUT_LEN];
        for (byte, pair) in bytes.iter_mut().zip(digits.as_bytes().chunks_exact(2)) {
            // from_str_radix takes a sign as well.
            let pair = std::str::from_utf8(pair).ok().filter(|pair| pair.bytes().all(|b| b.is_ascii_hexdigit()));
            *byte = pair.and_then(|pair| u8::from_str_radix(pair, 16).ok()).ok_or(TokenHashError)?;
        }
        Ok(Self(bytes))
    }
}

impl fmt::Display for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::SCHEME)?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl BearerToken {
    /// How logs call it: by its label, else by the beginning of its hash.
    pub(super) fn name(&self) -> String {
        self.label.clone().unwrap_or_else(|| self.hash.to_string().chars().take(TokenHash::SCHEME.len() + 12).collect())
    }

    pub(super) fn has_expired(&self, now: OffsetDateTime) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }
}

/// The operating system gave no random numbers.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the operating system gave no random numbers")]
pub struct RandomnessError;

/// A new token: `cs_` and 32 bytes of the operating system's random numbers as 43 characters of base64url.
///
/// # Errors
/// If there are no random numbers.
pub fn generate_token() -> Result<Secret, RandomnessError> {
    let mut bytes = [0_u8; 32];
    SystemRandom::new().fill(&mut bytes).map_err(|_| RandomnessError)?;
    let mut token = String::from(PREFIX);
    let _ = token.write_str(&URL_SAFE_NO_PAD.encode(bytes));
    Ok(Secret::new(token))
}

/// Why a text cannot be a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// It could be guessed.
    #[error("a token has {MIN_CHARACTERS} characters or more: a shorter one can be guessed from its hash")]
    Short,
    /// It would be refused in every request.
    #[error("a token has {} characters at most", super::MAX_TOKEN_BYTES)]
    Long,
    /// It cannot stand in a header.
    #[error("a token has letters, digits and -._~+/ only, and perhaps = at its end (RFC 6750)")]
    Characters,
}

/// The hash of a token that was made elsewhere.
///
/// # Errors
/// If it is too short to be safe, or cannot be sent.
pub fn hash_token(token: &str) -> Result<TokenHash, TokenError> {
    if token.len() > super::MAX_TOKEN_BYTES {
        return Err(TokenError::Long);
    }
    if !is_token68(token) {
        return Err(TokenError::Characters);
    }
    if token.trim_end_matches('=').len() < MIN_CHARACTERS {
        return Err(TokenError::Short);
    }
    Ok(TokenHash::of(token))
}

/// What may stand behind `Bearer ` (RFC 6750, section 2.1).
pub(super) fn is_token68(text: &str) -> bool {
    let body = text.trim_end_matches('=');
    !body.is_empty() && body.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._~+/".contains(&b))
}
