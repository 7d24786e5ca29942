//! The keys that seal what clients carry: those of the ledgers of all databases.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use ledger::Ledger;
use mcp::{StateCodec, StateKey};
use types::DatabaseName;

/// The keys of a ledger, and the name of the current one.
pub(super) struct LedgerKeys {
    sealing: String,
    keys: Vec<StateKey>,
}

impl LedgerKeys {
    /// Reads the keys. With several databases, the name of each is part of the names of its keys.
    pub(super) async fn read(ledger: &Ledger, database: Option<&DatabaseName>) -> anyhow::Result<Self> {
        let keys = ledger.state_keys().all().await.context("the keys for states cannot be read from the ledger")?;
        let named = |id: &str| database.map_or_else(|| id.to_owned(), |database| format!("{database}/{id}"));
        let sealing =
            keys.iter().find(|key| key.seals).context("the ledger has no key for states: run `countersign init`")?;
        let sealing = named(&sealing.id);
        let keys = keys.into_iter().map(|key| StateKey { id: named(&key.id), key: key.key.expose().into() });
        Ok(Self { sealing, keys: keys.collect() })
    }
}

/// The keys of all databases that were reached. States are sealed with a key of the first one that has a ledger, and
/// opened with all keys. Until a ledger was reached, the keys are those of the process, and end with it.
#[derive(Clone)]
pub(super) struct KeyRing {
    codec: StateCodec,
    databases: Arc<Mutex<Vec<Option<LedgerKeys>>>>,
}

impl KeyRing {
    pub(super) fn new(databases: usize) -> anyhow::Result<Self> {
        let keys = std::iter::repeat_with(|| None).take(databases).collect();
        Ok(Self { codec: StateCodec::ephemeral()?, databases: Arc::new(Mutex::new(keys)) })
    }

    pub(super) fn codec(&self) -> StateCodec {
        self.codec.clone()
    }

    /// Replaces the keys of the database at this place.
    pub(super) fn set(&self, index: usize, keys: LedgerKeys) -> anyhow::Result<()> {
        let mut databases = self.databases.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = databases.get_mut(index) {
            *own = Some(keys);
        }
        let known = || databases.iter().flatten();
        let Some(first) = known().next() else { return Ok(()) };
        let all = known().flat_map(|own| own.keys.iter().cloned()).collect();
        Ok(self.codec.replace(&first.sealing, all)?)
    }
}

/// The interval at which a server looks for new keys. A key is used three minutes after it was made, when every
/// server knows it.
const KEY_INTERVAL: Duration = Duration::from_secs(60);

/// Keeps the keys of a database up to date. Never returns.
pub(super) async fn refresh(ring: KeyRing, index: usize, ledger: Ledger, database: Option<DatabaseName>) {
    let mut turns = tokio::time::interval(KEY_INTERVAL);
    turns.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    turns.tick().await;
    loop {
        turns.tick().await;
        let replaced = match LedgerKeys::read(&ledger, database.as_ref()).await {
            Ok(keys) => ring.set(index, keys),
            Err(error) => Err(error),
        };
        if let Err(error) = replaced {
            tracing::warn!("the keys for states were not read again, the old ones stay: {error:#}");
        }
    }
}
