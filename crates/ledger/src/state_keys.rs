//! The keys that seal values which clients keep for the servers of a ledger: the state of an elicitation, and the ids
//! of sessions.
//!
//! Every server opens values with a new key at once, but seals with it only after three minutes, when all servers
//! have loaded it. Older keys still open values until everything that was sealed with them has expired.

use std::time::Duration;

use pg::WriterPool;
use tokio::time::Instant;
use types::Secret;

const KEYS_SQL: &str = "select k.id, k.key, k.seals from countersign.state_keys() k";
const ROTATE_SQL: &str = "select countersign.rotate_state_key($1)";

const TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug, Clone)]
pub struct StateKeys {
    writer: WriterPool,
}

#[derive(Debug, Clone)]
pub struct StateKey {
    pub id: String,
    /// 32 bytes in hexadecimal digits, the same for all servers of the ledger.
    pub key: Secret,
    /// Whether servers seal with this key now. They open values with all keys.
    pub seals: bool,
}

impl StateKeys {
    pub(crate) fn new(writer: WriterPool) -> Self {
        Self { writer }
    }

    /// All keys, the oldest first. The query is permitted to the logins of servers.
    pub async fn all(&self) -> Result<Vec<StateKey>, pg::Error> {
        let answer = self.writer.run_one(KEYS_SQL, &[], Instant::now() + TIMEOUT).await?;
        let key = |row: Vec<Option<String>>| match <[Option<String>; 3]>::try_from(row).ok()? {
            [Some(id), Some(key), seals] => {
                Some(StateKey { id, key: Secret::new(key), seals: seals.as_deref() == Some("t") })
            }
            _ => None,
        };
        Ok(answer.rows.into_iter().filter_map(key).collect())
    }

    /// Adds a key, and returns its id. With `at_once`, servers seal with it immediately, and all older keys are
    /// removed. Only members of the ledger's owner may do this.
    pub async fn rotate(&self, at_once: bool) -> Result<String, pg::Error> {
        let answer = self.writer.run_one(ROTATE_SQL, &[Some(at_once.to_string())], Instant::now() + TIMEOUT).await?;
        let id = answer.rows.into_iter().flatten().flatten().next();
        id.ok_or_else(|| std::io::Error::other("the ledger did not say which key it made").into())
    }
}
