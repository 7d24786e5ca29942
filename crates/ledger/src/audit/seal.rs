//! Sealing: final records and events become leaves of the log.

use super::{Audit, number, one_row};

/// Leaves of one call: a second's work at most, so that servers that wait for their turn do not wait long.
const BATCH: i64 = 5000;
const SEAL_SQL: &str = "select countersign.seal($1::integer)::text";

impl Audit {
    /// Seals every final record and every event, and returns their number. Records wait while a transaction may still
    /// commit an older one. Several processes may seal at once.
    ///
    /// # Errors
    /// An error of the database: SQLSTATE 55000 in a copied database, for one. What was sealed so far stays sealed.
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
}
