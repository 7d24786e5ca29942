//! Bearer tokens that the configuration knows by their hashes.

use std::fmt::{self, Write};
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest;
use ring::rand::{SecureRandom, SystemRandom};
use time::OffsetDateTime;
use types::{AccountId, DatabaseName, Secret};

/// Prefix of generated tokens, so that secret scanners can find them.
const PREFIX: &str = "cs_";

pub(crate) const MAX_TOKEN_BYTES: usize = 8 * 1024;

/// The shortest token that is hashed, in characters. Generated tokens have 46; 32 hexadecimal digits have 128 bits.
const MIN_CHARACTERS: usize = 32;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BearerToken {
    pub hash: TokenHash,
    pub account: AccountId,
    pub profile: String,
    /// The databases that the token reaches; `None` for all that the profile reaches.
    pub databases: Option<Vec<DatabaseName>>,
    /// The actor in records.
    pub label: Option<String>,
    /// When the token expires; `None` for never.
    pub expires: Option<OffsetDateTime>,
}

/// SHA-256 of a token, written `sha256:` and 64 hexadecimal digits. Tokens are random and long, so a reader of the
/// hash cannot find the token by trial. A slow hash would only slow down every request.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TokenHash([u8; digest::SHA256_OUTPUT_LEN]);

/// A text that is not the hash of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a hash is written sha256: and 64 hexadecimal digits, as `countersign token new` and `token hash` print it")]
pub struct TokenHashError;

impl TokenHash {
    const SCHEME: &str = "sha256:";

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
            // from_str_radix accepts a sign, too.
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
    /// The token's name in logs: its label, or the beginning of its hash.
    pub(crate) fn name(&self) -> String {
        self.label.clone().unwrap_or_else(|| self.hash.to_string().chars().take(TokenHash::SCHEME.len() + 12).collect())
    }

    pub(crate) fn has_expired(&self, now: OffsetDateTime) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }
}

/// The operating system returned no random numbers.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the operating system gave no random numbers")]
pub struct RandomnessError;

/// Generates a token: `cs_` and 32 random bytes of the operating system, as 43 characters of base64url.
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
    /// The token is too short: its hash could be reversed by trial.
    #[error("a token has {MIN_CHARACTERS} characters or more: a shorter one can be guessed from its hash")]
    Short,
    /// The token is too long: every request with it would be rejected.
    #[error("a token has {} characters at most", MAX_TOKEN_BYTES)]
    Long,
    /// The token has characters that a header cannot carry.
    #[error("a token has letters, digits and -._~+/ only, and perhaps = at its end (RFC 6750)")]
    Characters,
}

/// Hashes a token that was generated elsewhere.
pub fn hash_token(token: &str) -> Result<TokenHash, TokenError> {
    if token.len() > MAX_TOKEN_BYTES {
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

/// Whether a text may follow `Bearer ` (RFC 6750, section 2.1).
pub(crate) fn is_token68(text: &str) -> bool {
    let body = text.trim_end_matches('=');
    !body.is_empty() && body.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._~+/".contains(&b))
}
