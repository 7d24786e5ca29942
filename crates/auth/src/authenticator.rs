//! Identifies the caller of a request from its `Authorization` header.

use std::collections::HashMap;

use http::{HeaderMap, header};
use serde_json::Value;
use time::OffsetDateTime;
use types::Principal;

use crate::bearer::{self, BearerToken, TokenHash};
use crate::challenge::AuthError;
use crate::error::AuthConfigError;
use crate::identity::{Authentication, CredentialKind, Identity, StrongerScopes};
use crate::issuer::{Issuer, JwtVerifier};
use crate::jwt;

/// Authenticates requests. Immutable except for the issuer's keys: a changed configuration makes a new authenticator.
#[derive(Debug)]
pub struct Authenticator {
    tokens: HashMap<TokenHash, BearerToken>,
    pub(crate) issuer: Option<JwtVerifier>,
}

impl Authenticator {
    /// Creates an authenticator. Reads the issuer's keys if they are in a file, and makes no network request.
    pub fn new(tokens: Vec<BearerToken>, issuer: Option<Issuer>) -> Result<Self, AuthConfigError> {
        let mut known = HashMap::with_capacity(tokens.len());
        for token in tokens {
            if let Some(same) = known.insert(token.hash, token) {
                return Err(AuthConfigError::SameToken(same.hash));
            }
        }
        Ok(Self { tokens: known, issuer: issuer.map(JwtVerifier::new).transpose()? })
    }

    /// Whether no credential is configured.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty() && self.issuer.is_none()
    }

    /// Whether the credentials may belong to more than one account.
    #[must_use]
    pub fn has_multiple_accounts(&self) -> bool {
        let mut accounts = self.tokens.values().map(|token| &token.account);
        let first = accounts.next();
        self.issuer.is_some() || accounts.any(|account| Some(account) != first)
    }

    /// Authenticates a request without verifying a signature: by a configured token, or a JWT that was verified
    /// before.
    pub fn recognize(&self, headers: &HeaderMap) -> Option<Authentication> {
        let hash = TokenHash::of(self.bearer(headers).ok()?);
        match self.tokens.get(&hash) {
            Some(known) => self.identify_token(known).ok(),
            None => self.issuer.as_ref()?.recognize(hash),
        }
    }

    /// Authenticates a request.
    ///
    /// # Errors
    /// [`AuthError`] if the request is not authenticated. The log has more detail than the response, and never the
    /// token.
    pub async fn identify(&self, headers: &HeaderMap) -> Result<Authentication, AuthError> {
        let token = self.bearer(headers)?;
        // Looked up by hash: the time of a comparison reveals at most bits of the hash, and the token cannot be
        // derived from it.
        let hash = TokenHash::of(token);
        if let Some(known) = self.tokens.get(&hash) {
            return self.identify_token(known);
        }
        match &self.issuer {
            Some(issuer) if jwt::looks_like_jwt(token) => issuer.identify(token, hash).await,
            _ => Err(self.invalid(UNKNOWN_TOKEN, None)),
        }
    }

    /// The metadata that tells clients how to get a token for the resource at this URL (RFC 9728); `None` without an
    /// issuer.
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
        let identity = Identity {
            principal,
            profile: token.profile.clone(),
            databases: token.databases.clone(),
            credential: CredentialKind::Token,
        };
        Ok(Authentication { identity, expires: token.expires, stronger: StrongerScopes::default() })
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
        if token.len() > bearer::MAX_TOKEN_BYTES {
            return Err(self.invalid("the token is too long", None));
        }
        Ok(token)
    }

    fn invalid(&self, description: &str, log: Option<String>) -> AuthError {
        AuthError::Invalid { description: description.to_owned(), log, scopes: self.scopes() }
    }

    fn scopes(&self) -> Vec<String> {
        self.issuer.as_ref().map(JwtVerifier::requested_scopes).unwrap_or_default()
    }
}

/// One message for every rejected token, so that it does not reveal which tokens exist.
const UNKNOWN_TOKEN: &str = "the token is unknown or has expired";
