//! Sealing: final records become entries of a chain, each with a hash over all before it.

use serde::{Deserialize, Serialize};

use super::{Audit, number, one_row};
use crate::values::rfc3339;

/// The end of the chain. A copy outside of the database shows later whether the chain is still the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// The number of entries in the chain.
    pub entries: i64,
    /// The number of records in these entries, pruned ones included.
    pub records: i64,
    /// The largest `record.id` that they cover.
    pub last_id: i64,
    /// The last entry's hash, 64 hex digits; empty while there is no entry.
    pub hash: String,
    /// When this was read, by the database's clock (RFC 3339).
    pub at: String,
}

/// Records of one call: a second's work at most, so that servers that wait for their turn do not wait long.
const BATCH: i64 = 5000;
const SEAL_SQL: &str = "select countersign.seal_records($1::integer)::text";

const CHECKPOINT_SQL: &str = concat!(
    "select coalesce(max(s.no), 0)::text, coalesce(sum(cardinality(s.record_ids)), 0)::text, coalesce(max(s.to_id), 0)::text, \
     coalesce((select encode(l.hash, 'hex') from countersign.seal l order by l.no desc limit 1), ''), ",
    rfc3339!("clock_timestamp()"),
    " from countersign.seal s"
);

impl Audit {
    /// Seals every final record, and returns their number. Records wait after a pending one, and while a transaction
    /// may still commit an older one. Several processes may seal at once.
    ///
    /// # Errors
    /// An error of the database; records sealed so far stay sealed.
    pub async fn seal(&self) -> Result<i64, pg::Error> {
        let mut total = 0;
        loop {
            let rows = self.ask(SEAL_SQL, &[Some(BATCH.to_string())]).await?;
            let [sealed] = one_row(rows)?;
            let sealed = number(sealed.as_ref())?;
            total += sealed;
            if sealed < BATCH {
                return Ok(total);
            }
        }
    }

    /// The current end of the chain.
    ///
    /// # Errors
    /// An error of the database.
    pub async fn checkpoint(&self) -> Result<Checkpoint, pg::Error> {
        let [entries, records, last_id, hash, at] = one_row(self.ask(CHECKPOINT_SQL, &[]).await?)?;
        Ok(Checkpoint {
            entries: number(entries.as_ref())?,
            records: number(records.as_ref())?,
            last_id: number(last_id.as_ref())?,
            hash: hash.unwrap_or_default(),
            at: at.unwrap_or_default(),
        })
    }
}
