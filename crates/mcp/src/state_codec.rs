//! Seals state that clients carry between the servers of a ledger: questions, and session ids.

use std::sync::{Arc, PoisonError, RwLock};

use rmcp::model::RequestStateCodec;

/// The sealing keys. The ledger stores them, so a client may continue with another server.
#[derive(Clone)]
pub struct StateCodec {
    codec: Arc<RwLock<Arc<RequestStateCodec>>>,
}

/// A key of the ring, of at least 32 bytes.
#[derive(Clone)]
pub struct StateKey {
    /// The name of the key. Sealed states contain it.
    pub id: String,
    pub key: Vec<u8>,
}

/// The keys cannot be used: one is too short, two have the same name, or none has the name of the sealing key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the keys that seal what clients carry cannot be used: {0}")]
pub struct StateKeyError(String);

impl StateCodec {
    /// A codec that seals with the key of this name, and opens with all of them.
    pub fn new(sealing: &str, keys: Vec<StateKey>) -> Result<Self, StateKeyError> {
        Ok(Self { codec: Arc::new(RwLock::new(ring(sealing, keys)?)) })
    }

    /// A codec with a random key that only this process has, until [`StateCodec::replace`]. Servers use it before
    /// they reach their ledger.
    pub fn ephemeral() -> Result<Self, StateKeyError> {
        let halves = [uuid::Uuid::new_v4(), uuid::Uuid::new_v4()].map(uuid::Uuid::into_bytes);
        let key = halves.concat();
        Self::new("process", vec![StateKey { id: "process".to_owned(), key }])
    }

    /// Replaces the keys, for every clone. States that only the old keys open become invalid.
    ///
    /// # Errors
    /// [`StateKeyError`] if the keys cannot be used. The old keys remain in use.
    pub fn replace(&self, sealing: &str, keys: Vec<StateKey>) -> Result<(), StateKeyError> {
        let new = ring(sealing, keys)?;
        *self.codec.write().unwrap_or_else(PoisonError::into_inner) = new;
        Ok(())
    }

    #[must_use]
    pub fn current(&self) -> Arc<RequestStateCodec> {
        Arc::clone(&self.codec.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl std::fmt::Debug for StateCodec {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("StateCodec")
    }
}

fn ring(sealing: &str, keys: Vec<StateKey>) -> Result<Arc<RequestStateCodec>, StateKeyError> {
    let keys = keys.into_iter().map(|StateKey { id, key }| (id, key));
    let codec = RequestStateCodec::new_with_keyring(sealing, keys);
    codec.map(Arc::new).map_err(|error| StateKeyError(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(ids: &[u8]) -> Vec<StateKey> {
        ids.iter().map(|id| StateKey { id: id.to_string(), key: vec![*id; 32] }).collect()
    }

    #[test]
    fn a_new_key_opens_what_the_old_one_sealed_until_the_old_one_is_removed() {
        let codec = StateCodec::new("1", keys(&[1])).unwrap();
        let clone = codec.clone();
        let sealed = clone.current().seal_json(&"state").unwrap();
        codec.replace("2", keys(&[1, 2])).unwrap();
        assert_eq!(clone.current().open_json::<String>(&sealed).unwrap(), "state");
        let newer = clone.current().seal_json(&"state").unwrap();
        codec.replace("2", keys(&[2])).unwrap();
        assert!(clone.current().open_json::<String>(&sealed).is_err());
        assert_eq!(clone.current().open_json::<String>(&newer).unwrap(), "state");
    }

    #[test]
    fn keys_that_cannot_be_used_leave_the_old_ones_in_place() {
        let codec = StateCodec::new("1", keys(&[1])).unwrap();
        let sealed = codec.current().seal_json(&"state").unwrap();
        assert!(codec.replace("3", keys(&[1, 2])).is_err());
        assert!(codec.replace("1", Vec::new()).is_err());
        assert!(codec.replace("1", vec![StateKey { id: "1".to_owned(), key: vec![1; 31] }]).is_err());
        assert!(codec.current().open_json::<String>(&sealed).is_ok());
    }
}
