//! A cache of verified JWTs: a client that sends its token with every request costs one signature check.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use crate::jwk::{Jwks, PublicKey};
use crate::{Identity, StrongerScopes, TokenHash};

#[derive(Debug, Clone)]
pub(crate) struct VerifiedToken {
    pub(crate) identity: Identity,
    pub(crate) stronger: StrongerScopes,
    /// The key that signed it.
    pub(crate) key: Arc<PublicKey>,
    /// The end of its validity, in seconds since 1970.
    pub(crate) valid_until: f64,
}

#[derive(Debug, Default)]
pub(crate) struct VerifiedTokenCache(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries {
    by_hash: HashMap<TokenHash, VerifiedToken>,
    /// The hashes, from the oldest to the newest.
    order: VecDeque<TokenHash>,
}

impl VerifiedTokenCache {
    /// The most cached tokens. Each takes a few hundred bytes; the oldest is evicted first.
    pub(crate) const CAPACITY: usize = 10_000;

    /// The token with this hash, if it is still valid at `now` (in seconds since 1970) and the issuer still publishes
    /// its key.
    pub(crate) fn get(&self, hash: TokenHash, keys: &Jwks, now: f64) -> Option<VerifiedToken> {
        let token = self.0.lock().unwrap_or_else(PoisonError::into_inner).by_hash.get(&hash).cloned()?;
        (now < token.valid_until && keys.contains(&token.key)).then_some(token)
    }

    pub(crate) fn insert(&self, hash: TokenHash, token: VerifiedToken) {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.by_hash.insert(hash, token).is_none() {
            entries.order.push_back(hash);
        }
        if entries.order.len() > Self::CAPACITY
            && let Some(oldest) = entries.order.pop_front()
        {
            entries.by_hash.remove(&oldest);
        }
    }
}
