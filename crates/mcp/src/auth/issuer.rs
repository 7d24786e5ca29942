//! The OAuth issuer whose JWTs count, and what becomes of their claims.

use contract::{AccountId, Principal};
use serde_json::{Value, json};
use time::OffsetDateTime;

use super::fetch::WebUrl;
use super::jwt::{Claims, Unverified};
use super::keys::{KeySource, Keys, NoKey};
use super::{AuthError, Identity, Refusal, is_label};

/// An issuer as the configuration has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issuer {
    /// `iss`, to the letter.
    pub issuer: WebUrl,
    /// What `aud` must have: this server.
    pub audience: String,
    /// Where its keys stand.
    pub keys: KeySource,
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
pub(super) struct Verifier {
    issuer: Issuer,
    keys: Keys,
}

impl Verifier {
    pub(super) fn new(issuer: Issuer) -> Result<Self, AuthError> {
        Ok(Self { keys: Keys::of(&issuer.keys)?, issuer })
    }

    #[cfg(test)]
    pub(super) const fn keys(&self) -> &Keys {
        &self.keys
    }

    pub(super) fn scopes_to_ask_for(&self) -> Vec<String> {
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

    pub(super) async fn identify(&self, token: &str) -> Result<Identity, Refusal> {
        let token = Unverified::parse(token).map_err(|fault| self.invalid(fault))?;
        let key_id = token.key_id.as_deref();
        let keys = match self.keys.with(key_id, token.algorithm).await {
            Ok(keys) => keys,
            Err(NoKey::Unknown) => {
                return Err(self.invalid("the issuer has no key that the token could be signed with"));
            }
            Err(NoKey::Unavailable(reason)) => return Err(Refusal::Unavailable { reason }),
        };
        let claims = token.verify(&keys.fitting(key_id, token.algorithm)).map_err(|fault| self.invalid(fault))?;
        let Issuer { issuer, audience, .. } = &self.issuer;
        let now = OffsetDateTime::now_utc().unix_timestamp() as f64;
        claims.check(issuer.as_str(), audience, now).map_err(|fault| self.invalid(fault))?;
        self.identity(&claims)
    }

    fn identity(&self, claims: &Claims) -> Result<Identity, Refusal> {
        let Issuer { account_claim, account_prefix, .. } = &self.issuer;
        let account = claims.text(account_claim).filter(|account| !account.is_empty());
        let account = account.and_then(|account| AccountId::new(format!("{account_prefix}{account}")));
        let account_id = account.ok_or_else(|| {
            tracing::warn!(claim = account_claim, "a token has no account: its claim is no text that can be one");
            self.invalid("the token does not say whose it is")
        })?;
        let granted: Vec<&str> = claims.scopes().collect();
        let mut given = self.issuer.scopes.iter().rev();
        let Some((_, profile)) = given.find(|(scope, _)| granted.contains(&scope.as_str())) else {
            tracing::info!(account = account_id.as_str(), "a request was refused: its token has none of our scopes");
            return Err(Refusal::InsufficientScope { needed: self.scopes_to_ask_for() });
        };
        let label = self.issuer.label_claim.as_deref().and_then(|claim| claims.text(claim));
        let actor = label.filter(|label| is_label(label)).map(ToOwned::to_owned);
        let principal = Principal { account_id, actor };
        Ok(Identity { principal, profile: profile.clone(), credential: "jwt" })
    }

    fn invalid(&self, fault: &str) -> Refusal {
        tracing::info!("a request was refused: {fault}");
        Refusal::Invalid { description: fault.to_owned(), scopes: self.scopes_to_ask_for() }
    }
}
