//! The keys that seal what clients carry for the servers of a ledger: the state of a question, and the ids of sessions.
//!
//! A new key opens at once, and seals three minutes later, when every server has it. The old keys open until nothing that they
//! sealed is good any more.

use std::time::Duration;

use pg::WriterPool;
use tokio::time::Instant;
use types::Secret;

const KEYS_SQL: &str = "select k.id, k.key, k.seals from countersign.state_keys() k";
const ROTATE_SQL: &str = "select countersign.rotate_state_key($1)";

/// The time limit for a query about the keys.
const DEADLINE: Duration = Duration::from_secs(30);

/// The keys of one ledger.
#[derive(Debug, Clone)]
pub struct StateKeys {
    writer: WriterPool,
}

/// One key.
#[derive(Debug, Clone)]
pub struct StateKey {
    /// Its number.
    pub id: String,
    /// 32 bytes in hexadecimal digits, the same for all servers of the ledger.
    pub key: Secret,
    /// Whether servers seal with it now; they open with all keys.
    pub seals: bool,
}

impl StateKeys {
    pub(crate) fn new(writer: WriterPool) -> Self {
        Self { writer }
    }

    /// All keys, the oldest first. For logins of servers.
    ///
    /// # Errors
    /// Whatever the database says.
    pub async fn all(&self) -> Result<Vec<StateKey>, pg::Error> {
        let answer = self.writer.run_one(KEYS_SQL, &[], Instant::now() + DEADLINE).await?;
        let key = |row: Vec<Option<String>>| match <[Option<String>; 3]>::try_from(row).ok()? {
            [Some(id), Some(key), seals] => {
                Some(StateKey { id, key: Secret::new(key), seals: seals.as_deref() == Some("t") })
            }
            _ => None,
        };
        Ok(answer.rows.into_iter().filter_map(key).collect())
    }

    /// Adds a key; its number. At once: it seals now, and every older key is removed. For members of the ledger's owner.
    ///
    /// # Errors
    /// Whatever the database says.
    pub async fn rotate(&self, at_once: bool) -> Result<String, pg::Error> {
        let answer = self.writer.run_one(ROTATE_SQL, &[Some(at_once.to_string())], Instant::now() + DEADLINE).await?;
        let id = answer.rows.into_iter().flatten().flatten().next();
        id.ok_or_else(|| std::io::Error::other("the ledger did not say which key it made").into())
    }
}
