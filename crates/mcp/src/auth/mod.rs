//! Who a request over HTTP comes from: bearer tokens that the configuration knows by their hashes, and JWTs of one OAuth
//! issuer. Nothing here serves HTTP.
//!
//! [`Authenticator::identify`] reads the `Authorization` header alone. A token in the query string is in every log on its
//! way, and is never looked at.

mod bearer;
mod challenge;
mod issuer;
mod jwk;
mod jwks_cache;
mod jwks_fetch;
mod jwt;
mod verified_tokens;

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;

use http::{HeaderMap, header};
use serde_json::Value;
use time::OffsetDateTime;
use types::Principal;

pub use bearer::{BearerToken, RandomnessError, TokenError, TokenHash, TokenHashError, generate_token, hash_token};
pub use challenge::AuthError;
pub use issuer::Issuer;
pub use jwk::JwksError;
pub use jwks_cache::JwksSource;
pub use jwks_fetch::{HttpsUrl, HttpsUrlError};

/// The longest token that is looked at, in bytes.
pub(crate) const MAX_TOKEN_BYTES: usize = 8 * 1024;

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

/// Knows everybody who may call. Immutable but for the issuer's keys: a changed configuration makes a new one.
#[derive(Debug)]
pub struct Authenticator {
    tokens: HashMap<TokenHash, BearerToken>,
    issuer: Option<issuer::JwtVerifier>,
}

/// What keeps an authenticator from being made.
#[derive(Debug, thiserror::Error)]
pub enum AuthConfigError {
    /// One token would be two principals.
    #[error("the token {0} is configured twice")]
    SameToken(TokenHash),
    /// `jwks_file` is not there.
    #[error("the issuer's keys in {path} (jwks_file) cannot be read")]
    KeysNotRead {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// `jwks_file` has nothing to verify with.
    #[error("the issuer's keys in {path} (jwks_file) cannot be used")]
    NoKeys {
        /// The file.
        path: PathBuf,
        /// Why.
        source: JwksError,
    },
    /// `jwks_url` could not be trusted.
    #[error("the issuer's keys (jwks_url) cannot be asked for")]
    Roots(#[source] io::Error),
}

impl Authenticator {
    /// Reads the issuer's keys if they are in a file. Asks nobody.
    ///
    /// # Errors
    /// If a token is there twice, or the keys cannot be read.
    pub fn new(tokens: Vec<BearerToken>, issuer: Option<Issuer>) -> Result<Self, AuthConfigError> {
        let mut known = HashMap::with_capacity(tokens.len());
        for token in tokens {
            if let Some(same) = known.insert(token.hash, token) {
                return Err(AuthConfigError::SameToken(same.hash));
            }
        }
        Ok(Self { tokens: known, issuer: issuer.map(issuer::JwtVerifier::new).transpose()? })
    }

    /// Whether nobody can show anything that counts.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty() && self.issuer.is_none()
    }

    /// Whether those who show something may be of more than one account.
    #[must_use]
    pub fn has_multiple_accounts(&self) -> bool {
        let mut accounts = self.tokens.values().map(|token| &token.account);
        let first = accounts.next();
        self.issuer.is_some() || accounts.any(|account| Some(account) != first)
    }

    /// Who a request with these headers comes from, if that takes no signature to verify: a token of the configuration, or a
    /// JWT that was verified before.
    pub fn recognize(&self, headers: &HeaderMap) -> Option<Authentication> {
        let hash = TokenHash::of(self.bearer(headers).ok()?);
        match self.tokens.get(&hash) {
            Some(known) => self.identify_token(known).ok(),
            None => self.issuer.as_ref()?.recognize(hash),
        }
    }

    /// Who a request with these headers comes from.
    ///
    /// # Errors
    /// Why it is not answered. The log says more than the caller is told, and never the token.
    pub async fn identify(&self, headers: &HeaderMap) -> Result<Authentication, AuthError> {
        let token = self.bearer(headers)?;
        // By its hash: how long this takes says something of the hash at most, and nobody gets from there to the token.
        let hash = TokenHash::of(token);
        if let Some(known) = self.tokens.get(&hash) {
            return self.identify_token(known);
        }
        match &self.issuer {
            Some(issuer) if jwt::looks_like_jwt(token) => issuer.identify(token, hash).await,
            _ => Err(self.invalid(UNKNOWN_TOKEN, None)),
        }
    }

    /// What a client has to know to get a token (RFC 9728), for the resource at this URL; `None` without an issuer.
    #[must_use]
    pub fn metadata(&self, resource: &str) -> Option<Value> {
        self.issuer.as_ref().map(|issuer| issuer.metadata(resource))
    }

    fn identify_token(&self, token: &BearerToken) -> Result<Authentication, AuthError> {
        if token.has_expired(OffsetDateTime::now_utc()) {
            let log = format!("the token {} has expired", types::quoted(&token.name()));
            return Err(self.invalid(UNKNOWN_TOKEN, Some(log)));
        }
        let principal =
            Principal { account_id: token.account.clone(), actor: token.label.clone(), ..Principal::default() };
        let identity = Identity { principal, profile: token.profile.clone(), credential: "token" };
        Ok(Authentication { identity, expires: token.expires })
    }

    /// The token of the one `Authorization: Bearer` header.
    fn bearer<'h>(&self, headers: &'h HeaderMap) -> Result<&'h str, AuthError> {
        let mut given = headers.get_all(header::AUTHORIZATION).iter();
        let Some(value) = given.next() else { return Err(AuthError::Missing { scopes: self.scopes() }) };
        if given.next().is_some() {
            return Err(self.invalid("there is more than one Authorization header", None));
        }
        let (scheme, token) = value.to_str().ok().and_then(|value| value.split_once(' ')).unwrap_or_default();
        let token = token.trim_start_matches(' ');
        if !scheme.eq_ignore_ascii_case("bearer") || !bearer::is_token68(token) {
            return Err(self.invalid("the Authorization header is not of the form: Bearer TOKEN", None));
        }
        if token.len() > MAX_TOKEN_BYTES {
            return Err(self.invalid("the token is too long", None));
        }
        Ok(token)
    }

    fn invalid(&self, description: &str, log: Option<String>) -> AuthError {
        AuthError::Invalid { description: description.to_owned(), log, scopes: self.scopes() }
    }

    fn scopes(&self) -> Vec<String> {
        self.issuer.as_ref().map(issuer::JwtVerifier::requested_scopes).unwrap_or_default()
    }
}

/// The same for every token that does not count, so that nobody learns which ones there were.
const UNKNOWN_TOKEN: &str = "the token is unknown or has expired";

#[cfg(test)]
mod tests;
