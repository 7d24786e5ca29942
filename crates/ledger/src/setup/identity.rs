//! Checks that a ledger belongs to its database. The SQL is in `migrations/baseline/80_people.sql`.

use tlog::SignedNote;

use crate::Ledger;
use crate::audit::SignError;
use crate::setup::schema::SchemaError;

const CURRENT_SQL: &str = "select i.ledger_id, i.is_here from countersign.current_identity() i";
const FORK_SQL: &str = "select f.ledger_id, f.proposals from countersign.fork($1::boolean, $2) f";

/// The new ledger of a copied database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fork {
    /// The new id of the ledger, a UUID.
    pub ledger_id: String,
    /// The number of proposals of the original that were ended in the copy.
    pub proposals: u64,
}

impl Ledger {
    /// Checks that the ledger was made for this database, so that a copy does not execute the same proposals again.
    /// Also checks that its log extends what was signed here, so that nothing is written to a restored backup.
    ///
    /// # Errors
    /// [`SchemaError::Copied`] if the database is a copy, [`SchemaError::Restored`] if the log contradicts what was
    /// signed.
    pub async fn check_identity(&self) -> Result<(), SchemaError> {
        let (ledger_id, is_original) = self.identity().await?;
        if !is_original {
            return Err(SchemaError::Copied { database: self.database() });
        }
        let signing = &self.settings.signing;
        self.audit().check_signed(signing, &ledger_id).await.map_err(|error| match error {
            SignError::Database(error) => SchemaError::Database(error),
            error => SchemaError::Restored { database: self.database(), error },
        })
    }

    /// Whether the ledger was made for this database.
    pub async fn is_original(&self) -> Result<bool, pg::Error> {
        Ok(self.identity().await?.1)
    }

    /// The id of the ledger, and whether it was made for this database.
    async fn identity(&self) -> Result<(String, bool), pg::Error> {
        let row = self.rows(CURRENT_SQL, &[]).await?.into_iter().next().unwrap_or_default();
        let mut values = row.into_iter();
        let ledger_id = values.next().flatten().unwrap_or_default();
        Ok((ledger_id, values.next().flatten().as_deref() == Some("t")))
    }

    /// Makes the ledger of a copied database an independent one; with `is_restored`, also that of a database that was
    /// restored in place. The first entry of its log names `previous`, the newest checkpoint of the original. Only
    /// members of the ledger's owner may do this.
    ///
    /// # Errors
    /// The query failed; with SQLSTATE 55000 if the database is not a copy.
    pub async fn fork(&self, is_restored: bool, previous: Option<&SignedNote>) -> Result<Fork, pg::Error> {
        let params = [Some(is_restored.to_string()), previous.map(|note| note.text().to_owned())];
        let row = self.rows(FORK_SQL, &params).await?.into_iter().next().unwrap_or_default();
        match <[Option<String>; 2]>::try_from(row) {
            Ok([Some(ledger_id), Some(proposals)]) => {
                Ok(Fork { ledger_id, proposals: proposals.parse().unwrap_or_default() })
            }
            _ => Err(std::io::Error::other("the ledger did not say how it goes on").into()),
        }
    }
}
