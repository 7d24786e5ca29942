//! The stored form of a schema change.

use serde::{Deserialize, Serialize};
use types::{AccountId, SchemaChangeId};

types::text_enum! {
    /// The state of a schema change. `migrations/baseline/72_schema_changes.sql` has the state machine.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum SchemaChangeStatus {
        /// It waits for a person.
        Pending = "pending",
        /// A person has begun it. It can be gone on with.
        Applying = "applying",
        /// Every step has ended.
        Applied = "applied",
        /// A step failed, or it was given up. Steps that ended before stay.
        Failed = "failed",
        /// A person rejected it.
        Rejected = "rejected",
        /// Nobody has begun it in time.
        Expired = "expired",
    }
}

impl SchemaChangeStatus {
    /// Whether it can be carried out.
    #[must_use]
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Pending | Self::Applying)
    }
}

types::text_enum! {
    /// Where a schema change is from.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum SchemaChangeOrigin {
        /// An agent proposed it. Somebody else carries it out.
        Tool = "tool",
        /// A person brought it, and may carry it out.
        CommandLine = "command_line",
    }
}

/// A stored schema change. Times are RFC 3339, UTC.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchemaChange {
    pub change_id: SchemaChangeId,
    /// The account of the agent, or the login of the person who brought it.
    pub account_id: AccountId,
    /// The label of the actor that proposed it, or the user of the operating system.
    pub actor: Option<String>,
    pub origin: SchemaChangeOrigin,
    /// Why it is wanted.
    pub reason: String,
    /// Exactly what is carried out.
    pub sql: String,
    /// The digest that carrying it out must name: 64 hexadecimal digits.
    pub digest: String,
    pub created_at: String,
    pub expires_at: String,
    /// The status. A pending change past `expires_at` is reported as expired even before the sweep ends it.
    pub status: SchemaChangeStatus,
    /// The user of the operating system who has begun or rejected it.
    pub decided_by: Option<String>,
    pub decided_login: Option<String>,
    pub decided_at: Option<String>,
    /// Why it was rejected or given up.
    pub decision_reason: Option<String>,
    /// Why it failed.
    pub error_message: Option<String>,
    pub completed_at: Option<String>,
    /// The steps on record, in order.
    pub steps: Vec<SchemaStep>,
}

/// A step on record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchemaStep {
    /// The number, from 1.
    pub number: u32,
    /// SHA-256 of its SQL.
    pub sql_digest: String,
    /// Whether it is a statement that runs outside of a transaction.
    pub is_alone: bool,
    pub login: String,
    pub attempts: u32,
    pub began_at: String,
    /// When it ended. Absent with an error: it failed. Absent without one: whether it ended is not known.
    pub ended_at: Option<String>,
    pub error: Option<String>,
}
