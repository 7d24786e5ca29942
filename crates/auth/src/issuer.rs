//! An OAuth issuer, and the mapping of its claims to identities.
//!
//! With one prefix, `anna` of one issuer would have the records of `anna` of another; a prefix made of the URL would
//! rename accounts when an issuer moves. So two issuers share accounts only if both tables name the same prefix.

use std::collections::BTreeMap;
use std::sync::Arc;

use time::OffsetDateTime;
use tokio::sync::Semaphore;
use types::{AccountId, CallerContext, ClaimName, Principal, RoleName, quoted};

use crate::identity::ScopeProfiles;
use crate::jwks_cache::{JwksCache, JwksSource, KeyLookupError};
use crate::jwt::{JwtClaims, UnverifiedJwt};
use crate::verified_tokens::{VerifiedToken, VerifiedTokenCache};
use crate::{
    AuthConfigError, AuthError, Authentication, CredentialKind, Identity, StrongerScopes, TokenHash, is_label,
};
use http_client::HttpsUrl;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issuer {
    /// The required `iss` claim, compared exactly.
    pub issuer: HttpsUrl,
    /// The value that the `aud` claim must contain: this server.
    pub audience: String,
    pub keys: JwksSource,
    pub account_claim: String,
    /// The prefix of its accounts, so that no claim of the issuer can name the account of a configured token.
    pub account_prefix: String,
    /// The claim that names the actor.
    pub label_claim: Option<String>,
    /// The claims that become settings of the caller's transactions: for each setting, the claim.
    pub claims: BTreeMap<ClaimName, String>,
    /// The claim that names the role of the caller's statements.
    pub role_claim: Option<String>,
    /// The roles that a token may name.
    pub roles: Vec<RoleName>,
    /// Scopes and their profiles. If several apply, the last one takes precedence.
    pub scopes: Vec<(String, String)>,
    /// The scopes that clients are told to request.
    pub request_scopes: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct JwtVerifier {
    issuer: Issuer,
    /// Those of the issuer, shared with its verified tokens.
    scopes: ScopeProfiles,
    keys: JwksCache,
    verified: VerifiedTokenCache,
}

impl JwtVerifier {
    pub(crate) fn new(issuer: Issuer) -> Result<Self, AuthConfigError> {
        Ok(Self {
            keys: JwksCache::new(&issuer.keys)?,
            scopes: issuer.scopes.as_slice().into(),
            issuer,
            verified: VerifiedTokenCache::default(),
        })
    }

    #[cfg(test)]
    pub(crate) const fn keys(&self) -> &JwksCache {
        &self.keys
    }

    pub(crate) fn issuer(&self) -> &str {
        self.issuer.issuer.as_str()
    }

    pub(crate) fn requested_scopes(&self) -> &[String] {
        &self.issuer.request_scopes
    }

    /// The result for a token with this hash that was verified before.
    pub(crate) fn recognize(&self, hash: TokenHash) -> Option<Authentication> {
        let keys = self.keys.current()?;
        self.verified.get(hash, &keys, now_s()).map(VerifiedToken::into_authentication)
    }

    /// Authenticates a token that names this issuer. `verifications` limits concurrent signature checks.
    pub(crate) async fn identify(
        &self,
        token: UnverifiedJwt<'_>,
        hash: TokenHash,
        verifications: &Semaphore,
    ) -> Result<Authentication, AuthError> {
        let key_id = token.key_id.clone();
        let key_id = key_id.as_deref();
        let keys = match self.keys.keys_for(key_id, token.algorithm).await {
            Ok(keys) => keys,
            Err(KeyLookupError::Unknown) => {
                return Err(self.invalid("the issuer has no key that the token could be signed with"));
            }
            Err(KeyLookupError::Unavailable(reason)) => return Err(AuthError::Unavailable { reason }),
        };
        let verified = {
            // Waits in order of arrival. It fails only if the semaphore is closed, and no code closes it.
            let _permit = verifications.acquire().await;
            let candidates = keys.candidates(key_id, token.algorithm);
            token.verify(&candidates)
        };
        let (claims, key) = verified.map_err(|fault| self.invalid(fault))?;
        let Issuer { issuer, audience, .. } = &self.issuer;
        let valid_until = claims.check(issuer.as_str(), audience, now_s()).map_err(|fault| self.invalid(fault))?;
        let (identity, stronger) = self.identity(&claims)?;
        let accepted = VerifiedToken { identity, stronger, key, valid_until };
        self.verified.insert(hash, accepted.clone());
        Ok(accepted.into_authentication())
    }

    fn identity(&self, claims: &JwtClaims) -> Result<(Identity, StrongerScopes), AuthError> {
        let Issuer { account_claim, account_prefix, .. } = &self.issuer;
        let account = claims.text(account_claim).filter(|account| !account.is_empty());
        let account = account.and_then(|account| AccountId::new(format!("{account_prefix}{account}")));
        let account_id = account.ok_or_else(|| {
            let log = format!("the token has no account: its claim {account_claim} is not a valid account id");
            let description = "the token names no account".to_owned();
            AuthError::Invalid { description, log: Some(log), scopes: self.requested_scopes().to_vec() }
        })?;
        let granted: Vec<&str> = claims.scopes().collect();
        let mut given = self.scopes.iter().enumerate().rev();
        let Some((strongest, (_, profile))) = given.find(|(_, (scope, _))| granted.contains(&scope.as_str())) else {
            return Err(AuthError::InsufficientScope { needed: self.requested_scopes().to_vec(), account: account_id });
        };
        let label = self.issuer.label_claim.as_deref().and_then(|claim| claims.text(claim));
        let actor = label.filter(|label| is_label(label)).map(ToOwned::to_owned);
        let context = Arc::new(self.context(claims)?);
        let principal = Principal { account_id, actor, context, ..Principal::default() };
        let identity =
            Identity { principal, profile: profile.clone(), databases: None, credential: CredentialKind::Jwt };
        Ok((identity, StrongerScopes::new(Arc::clone(&self.scopes), strongest + 1)))
    }

    /// The role and the claims of a token.
    fn context(&self, claims: &JwtClaims) -> Result<CallerContext, AuthError> {
        let Issuer { role_claim, roles, .. } = &self.issuer;
        let invalid = |description: String| {
            let scopes = self.requested_scopes().to_vec();
            AuthError::Invalid { description, log: None, scopes }
        };
        let role = role_claim.as_ref().map(|claim| {
            let name = claims.text(claim).ok_or_else(|| invalid(format!("the token names no role (claim {claim})")))?;
            let role = roles.iter().find(|role| role.as_str() == name).cloned();
            role.ok_or_else(|| invalid(format!("the token names the role {}, which is not in roles", quoted(name))))
        });
        let value = |(name, claim): (&ClaimName, &String)| match claims.setting(claim) {
            Ok(value) => Ok((name.clone(), value)),
            Err(why) => Err(invalid(format!("the claim {claim} of the token {why}"))),
        };
        let claims = self.issuer.claims.iter().map(value).collect::<Result<_, _>>()?;
        Ok(CallerContext { role: role.transpose()?, claims })
    }

    fn invalid(&self, fault: &str) -> AuthError {
        AuthError::Invalid { description: fault.to_owned(), log: None, scopes: self.requested_scopes().to_vec() }
    }
}

impl VerifiedToken {
    fn into_authentication(self) -> Authentication {
        // A time that no clock reaches is treated as never.
        let expires = OffsetDateTime::from_unix_timestamp(self.valid_until.ceil() as i64).ok();
        Authentication { identity: self.identity, expires, stronger: self.stronger }
    }
}

/// The current time, in seconds since 1970.
fn now_s() -> f64 {
    OffsetDateTime::now_utc().unix_timestamp() as f64
}
