//! A schema change as the table has it. The owner of the ledger can alter the row, so its digest is computed here, from
//! the columns that were read: a function of the database could be altered with them.

use serde::Deserialize;
use serde_json::{Value, json};
use types::{ErrorCode, Failure, SchemaChangeId};

use super::SchemaChange;
use crate::fingerprint::sha256_hex;

/// A row of the table, with the columns of its digest that nobody is shown.
#[derive(Debug, Deserialize)]
pub(super) struct StoredSchemaChange {
    #[serde(flatten)]
    change: SchemaChange,
    proposed_login: String,
    hashed_context: Option<String>,
    hashed_creation: String,
    hashed_expiry: String,
}

/// A stored change that is not what was proposed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "schema change {change_id} was altered in the database after it was proposed: its digest is {digest}, and {proposed} \
     was proposed"
)]
pub struct AlteredSchemaChange {
    pub change_id: SchemaChangeId,
    /// The digest of what is stored now.
    pub digest: String,
    /// The digest on record.
    pub proposed: String,
}

impl From<AlteredSchemaChange> for Failure {
    fn from(altered: AlteredSchemaChange) -> Self {
        Self::new(ErrorCode::DigestMismatch, altered.to_string())
    }
}

impl StoredSchemaChange {
    /// The change, if it has the digest that was stored with it.
    pub(super) fn verified(self) -> Result<SchemaChange, AlteredSchemaChange> {
        let (digest, change) = (self.digest(), self.change);
        if digest == change.digest {
            return Ok(change);
        }
        Err(AlteredSchemaChange { change_id: change.change_id, digest, proposed: change.digest })
    }

    /// SHA-256 of what the change says: `countersign.schema_change_digest` hashes the same text.
    fn digest(&self) -> String {
        let change = &self.change;
        let hashed: [Value; 11] = [
            json!("countersign schema change 1"),
            json!(change.change_id.to_string()),
            json!(change.account_id.as_str()),
            json!(change.actor),
            json!(change.origin),
            json!(self.proposed_login),
            json!(change.reason),
            json!(change.sql),
            json!(self.hashed_context),
            json!(self.hashed_creation),
            json!(self.hashed_expiry),
        ];
        // `json_build_array` writes a space after each comma.
        let hashed = hashed.map(|part| part.to_string()).join(", ");
        sha256_hex(&format!("[{hashed}]"))
    }
}
