//! JWTs whose signatures were verified before: a client that sends its token with every request costs one verification.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use super::jwk::{Jwks, PublicKey};
use super::{Identity, TokenHash};

/// A token that was accepted.
#[derive(Debug, Clone)]
pub(super) struct VerifiedToken {
    pub(super) identity: Identity,
    /// The key that signed it.
    pub(super) key: Arc<PublicKey>,
    /// In seconds since 1970.
    pub(super) valid_until: f64,
}

/// The tokens that this server has accepted, by their hashes.
#[derive(Debug, Default)]
pub(super) struct VerifiedTokenCache(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    by_hash: HashMap<TokenHash, VerifiedToken>,
    /// From the oldest to the newest.
    order: VecDeque<TokenHash>,
}

impl VerifiedTokenCache {
    /// Tokens that are remembered, the newest ones: a few hundred bytes each.
    pub(super) const CAPACITY: usize = 10_000;

    /// The token with this hash, if it has not expired at `now` (in seconds since 1970) and the issuer still publishes its key.
    pub(super) fn get(&self, hash: TokenHash, keys: &Jwks, now: f64) -> Option<VerifiedToken> {
        let token = self.0.lock().unwrap_or_else(PoisonError::into_inner).by_hash.get(&hash).cloned()?;
        (now < token.valid_until && keys.contains(&token.key)).then_some(token)
    }

    pub(super) fn insert(&self, hash: TokenHash, token: VerifiedToken) {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if table.by_hash.insert(hash, token).is_none() {
            table.order.push_back(hash);
        }
        if table.order.len() > Self::CAPACITY
            && let Some(oldest) = table.order.pop_front()
        {
            table.by_hash.remove(&oldest);
        }
    }
}
