//! Identifies the caller of a request from its `Authorization` header.

use std::collections::HashMap;
use std::num::NonZeroUsize;

use http::{HeaderMap, header};
use serde_json::{Value, json};
use time::OffsetDateTime;
use tokio::sync::Semaphore;
use types::Principal;

use crate::bearer::{self, BearerToken, TokenHash};
use crate::challenge::AuthError;
use crate::error::AuthConfigError;
use crate::identity::{Authentication, CredentialKind, Identity, StrongerScopes};
use crate::issuer::{Issuer, JwtVerifier};
use crate::jwt::{self, UnverifiedJwt};

/// Authenticates requests. Immutable except for the keys of issuers: a changed configuration makes a new authenticator.
#[derive(Debug)]
pub struct Authenticator {
    tokens: HashMap<TokenHash, BearerToken>,
    pub(crate) issuers: Vec<JwtVerifier>,
    /// Limits concurrent signature checks. Any client can send tokens, and a check is a computation (some 50 µs for
    /// RSA with 4096 bits). Half of the processors remain for callers with known tokens.
    pub(crate) verifications: Semaphore,
}

impl Authenticator {
    /// Creates an authenticator. Reads the keys of issuers that are in files, and makes no network request.
    pub fn new(tokens: Vec<BearerToken>, issuers: Vec<Issuer>) -> Result<Self, AuthConfigError> {
        let mut known = HashMap::with_capacity(tokens.len());
        for token in tokens {
            if let Some(same) = known.insert(token.hash, token) {
                return Err(AuthConfigError::SameToken(same.hash));
            }
        }
        let processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let verifications = Semaphore::new((processors / 2).max(1));
        let issuers = issuers.into_iter().map(JwtVerifier::new).collect::<Result<_, _>>()?;
        Ok(Self { tokens: known, issuers, verifications })
    }

    /// Whether no credential is configured.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty() && self.issuers.is_empty()
    }

    /// Whether the credentials may belong to more than one account.
    #[must_use]
    pub fn has_multiple_accounts(&self) -> bool {
        let mut accounts = self.tokens.values().map(|token| &token.account);
        let first = accounts.next();
        !self.issuers.is_empty() || accounts.any(|account| Some(account) != first)
    }

    /// Authenticates a request without verifying a signature: by a configured token, or a JWT that was verified
    /// before.
    pub fn recognize(&self, headers: &HeaderMap) -> Option<Authentication> {
        let hash = TokenHash::of(self.bearer(headers).ok()?);
        match self.tokens.get(&hash) {
            Some(known) => self.identify_token(known).ok(),
            None => self.issuers.iter().find_map(|issuer| issuer.recognize(hash)),
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
        if self.issuers.is_empty() || !jwt::looks_like_jwt(token) {
            return Err(self.invalid(UNKNOWN_TOKEN, None));
        }
        let token = UnverifiedJwt::parse(token).map_err(|fault| self.invalid(fault, None))?;
        match self.issuers.iter().find(|issuer| token.issuer() == Some(issuer.issuer())) {
            Some(issuer) => issuer.identify(token, hash, &self.verifications).await,
            None => Err(self.invalid("the token is not from an issuer of this server (iss)", None)),
        }
    }

    /// The metadata that tells clients how to get a token for the resource at this URL (RFC 9728, section 2); `None`
    /// without an issuer.
    #[must_use]
    pub fn metadata(&self, resource: &str) -> Option<Value> {
        let issuers: Vec<&str> = self.issuers.iter().map(JwtVerifier::issuer).collect();
        (!issuers.is_empty()).then(|| {
            json!({
                "resource": resource,
                "authorization_servers": issuers,
                "scopes_supported": self.scopes(),
                "bearer_methods_supported": ["header"],
                "resource_name": "countersign",
            })
        })
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

    /// The scopes that clients are told to request, of whichever issuer.
    fn scopes(&self) -> Vec<String> {
        let mut scopes = Vec::new();
        for scope in self.issuers.iter().flat_map(JwtVerifier::requested_scopes) {
            if !scopes.contains(scope) {
                scopes.push(scope.clone());
            }
        }
        scopes
    }
}

/// One message for every rejected token, so that it does not reveal which tokens exist.
const UNKNOWN_TOKEN: &str = "the token is unknown or has expired";
