//! The stored form of a schema change.

use schema_change::SchemaChangeStep;
use serde::{Deserialize, Serialize};
use types::{AccountId, SchemaChangeId};

types::text_enum! {
    /// The state of a schema change. `migrations/baseline/72_schema_changes.sql` has the state machine.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum SchemaChangeStatus {
        /// It waits for a person.
        Pending = "pending",
        /// A person has begun it, and its end is not on record.
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
    /// How many of its steps have ended, one after the other.
    pub ended_steps: u32,
}

impl SchemaChange {
    /// How far a step of it is.
    #[must_use]
    pub const fn step_state(&self, step: &SchemaChangeStep) -> &'static str {
        let is_begun = matches!(self.status, SchemaChangeStatus::Applying | SchemaChangeStatus::Failed);
        match (is_begun && step.number == self.ended_steps + 1, step.is_alone) {
            _ if step.number <= self.ended_steps => "ended",
            (true, _) if self.error_message.is_some() => "failed",
            (true, true) => "its end is not on record: look whether the database has what it makes",
            (true, false) => "its end is not on record: nothing of it is done",
            (false, _) => "not begun",
        }
    }

    /// What a person can do about a change that was begun, and whose end is not on record.
    #[must_use]
    pub fn without_end(&self) -> Option<String> {
        let (SchemaChangeStatus::Applying, Some(at), Some(by)) = (self.status, &self.decided_at, &self.decided_by)
        else {
            return None;
        };
        Some(format!(
            "{by} has begun it at {at}, and its end is not on record: it is being carried out now, or its process has \
             ended. Its steps say how far it came. `countersign schema reject {}` gives it up; what is left is then \
             proposed again",
            self.change_id
        ))
    }
}
