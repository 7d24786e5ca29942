//! The OAuth issuer whose JWTs count, and what becomes of their claims.

use std::num::NonZeroUsize;

use serde_json::{Value, json};
use time::OffsetDateTime;
use tokio::sync::Semaphore;
use types::{AccountId, Principal};

use super::jwks_cache::{JwksCache, JwksSource, KeyLookupError};
use super::jwks_fetch::HttpsUrl;
use super::jwt::{JwtClaims, UnverifiedJwt};
use super::verified_tokens::{VerifiedToken, VerifiedTokenCache};
use super::{AuthConfigError, AuthError, Authentication, Identity, TokenHash, is_label};

/// An issuer as the configuration has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issuer {
    /// `iss`, to the letter.
    pub issuer: HttpsUrl,
    /// What `aud` must have: this server.
    pub audience: String,
    /// Where its keys stand.
    pub keys: JwksSource,
    /// The claim that names the account.
    pub account_claim: String,
    /// What stands before it in the account, so that nobody whom the issuer names has the account of a token.
    pub account_prefix: String,
    /// The claim that names the actor.
    pub label_claim: Option<String>,
    /// Which scope gives which profile; of several the last one counts.
    pub scopes: Vec<(String, String)>,
    /// Those that clients are told to ask for.
    pub request_scopes: Vec<String>,
}

/// An issuer and its keys.
#[derive(Debug)]
pub(super) struct JwtVerifier {
    issuer: Issuer,
    keys: JwksCache,
    verified: VerifiedTokenCache,
    /// Signatures that are verified at once. Tokens come from strangers, and a signature is a computation (some 50 µs for RSA
    /// with 4096 bits): half of the processors are left to those whose tokens are known.
    verifications: Semaphore,
}

impl JwtVerifier {
    pub(super) fn new(issuer: Issuer) -> Result<Self, AuthConfigError> {
        let processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let verifications = Semaphore::new((processors / 2).max(1));
        Ok(Self { keys: JwksCache::new(&issuer.keys)?, issuer, verified: VerifiedTokenCache::default(), verifications })
    }

    #[cfg(test)]
    pub(super) const fn verifications(&self) -> &Semaphore {
        &self.verifications
    }

    #[cfg(test)]
    pub(super) const fn keys(&self) -> &JwksCache {
        &self.keys
    }

    pub(super) fn requested_scopes(&self) -> Vec<String> {
        self.issuer.request_scopes.clone()
    }

    /// RFC 9728, section 2.
    pub(super) fn metadata(&self, resource: &str) -> Value {
        json!({
            "resource": resource,
            "authorization_servers": [self.issuer.issuer.as_str()],
            "scopes_supported": self.issuer.request_scopes,
            "bearer_methods_supported": ["header"],
            "resource_name": "countersign",
        })
    }

    /// The caller of a token with this hash that was verified before.
    pub(super) fn recognize(&self, hash: TokenHash) -> Option<Authentication> {
        let keys = self.keys.current()?;
        self.verified.get(hash, &keys, now_s()).map(VerifiedToken::into_authentication)
    }

    pub(super) async fn identify(&self, token: &str, hash: TokenHash) -> Result<Authentication, AuthError> {
        let token = UnverifiedJwt::parse(token).map_err(|fault| self.invalid(fault))?;
        let key_id = token.key_id.as_deref();
        let keys = match self.keys.keys_for(key_id, token.algorithm).await {
            Ok(keys) => keys,
            Err(KeyLookupError::Unknown) => {
                return Err(self.invalid("the issuer has no key that the token could be signed with"));
            }
            Err(KeyLookupError::Unavailable(reason)) => return Err(AuthError::Unavailable { reason }),
        };
        let verified = {
            // In turn. It is an error only if the semaphore is closed, which nothing does.
            let _permit = self.verifications.acquire().await;
            token.verify(&keys.candidates(key_id, token.algorithm))
        };
        let (claims, key) = verified.map_err(|fault| self.invalid(fault))?;
        let Issuer { issuer, audience, .. } = &self.issuer;
        let valid_until = claims.check(issuer.as_str(), audience, now_s()).map_err(|fault| self.invalid(fault))?;
        let accepted = VerifiedToken { identity: self.identity(&claims)?, key, valid_until };
        self.verified.insert(hash, accepted.clone());
        Ok(accepted.into_authentication())
    }

    fn identity(&self, claims: &JwtClaims) -> Result<Identity, AuthError> {
        let Issuer { account_claim, account_prefix, .. } = &self.issuer;
        let account = claims.text(account_claim).filter(|account| !account.is_empty());
        let account = account.and_then(|account| AccountId::new(format!("{account_prefix}{account}")));
        let account_id = account.ok_or_else(|| {
            let log = format!("the token has no account: its claim {account_claim} is not a text that can be one");
            let description = "the token does not say whose it is".to_owned();
            AuthError::Invalid { description, log: Some(log), scopes: self.requested_scopes() }
        })?;
        let granted: Vec<&str> = claims.scopes().collect();
        let mut given = self.issuer.scopes.iter().rev();
        let Some((_, profile)) = given.find(|(scope, _)| granted.contains(&scope.as_str())) else {
            return Err(AuthError::InsufficientScope { needed: self.requested_scopes(), account: account_id });
        };
        let label = self.issuer.label_claim.as_deref().and_then(|claim| claims.text(claim));
        let actor = label.filter(|label| is_label(label)).map(ToOwned::to_owned);
        let principal = Principal { account_id, actor, ..Principal::default() };
        Ok(Identity { principal, profile: profile.clone(), credential: "jwt" })
    }

    fn invalid(&self, fault: &str) -> AuthError {
        AuthError::Invalid { description: fault.to_owned(), log: None, scopes: self.requested_scopes() }
    }
}

impl VerifiedToken {
    fn into_authentication(self) -> Authentication {
        // A time that no clock reaches is never.
        let expires = OffsetDateTime::from_unix_timestamp(self.valid_until.ceil() as i64).ok();
        Authentication { identity: self.identity, expires }
    }
}

/// Now, in seconds since 1970.
fn now_s() -> f64 {
    OffsetDateTime::now_utc().unix_timestamp() as f64
}
