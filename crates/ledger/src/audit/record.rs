//! Records as people read them, whatever their account.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use types::{ClientInfo, Conflict, CorrelationId, Effects, Member, ProposalId, Rollback};

/// A record in a list. Parameters and results are the texts of their JSON, cut off perhaps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecordLine {
    /// Its number; a write in flight has none.
    pub id: Option<i64>,
    /// When it was made.
    pub created_at: String,
    /// Its state.
    pub status: String,
    /// Its tool.
    pub tool_name: String,
    /// Its account.
    pub account_id: String,
    /// On behalf of this person.
    pub actor: Option<String>,
    /// Its receipt.
    pub correlation_id: CorrelationId,
    /// The time that it took.
    pub elapsed_ms: Option<i64>,
    /// Its parameters.
    pub params_summary: Option<String>,
    /// Its result.
    pub result_summary: Option<String>,
    /// Why it failed.
    pub error_code: Option<String>,
    /// The same in a sentence.
    pub error_message: Option<String>,
    /// The [`RecordApproval`] that let it run, as it was written.
    pub approval: Option<Value>,
    /// Its client.
    pub client: Option<ClientInfo>,
    /// Whether later writes have undone it.
    pub is_reversed: bool,
}

/// A write of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedWrite {
    /// Its receipt.
    pub correlation_id: CorrelationId,
    /// Its tool.
    pub tool_name: String,
    /// Its account.
    pub account_id: String,
    /// On behalf of this person.
    pub actor: Option<String>,
    /// Its parameters, as in [`RecordLine`].
    pub params_summary: Option<String>,
    /// The end of it.
    pub completed_at: Option<String>,
}

/// The decision that let a write run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct RecordApproval {
    /// The proposal; an operator's undo has none.
    #[serde(default)]
    pub proposal_id: Option<ProposalId>,
    /// Who decided.
    #[serde(default)]
    pub decided_by: Option<String>,
    /// The database login of the decision.
    #[serde(default)]
    pub decided_login: Option<String>,
    /// The way in which it was made.
    #[serde(default)]
    pub decided_via: Option<String>,
    /// When.
    #[serde(default)]
    pub decided_at: Option<String>,
}

/// A record whole, with the records that it is tied to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// As in [`RecordLine`].
    pub id: Option<i64>,
    /// Its receipt.
    pub correlation_id: CorrelationId,
    /// Its state.
    pub status: String,
    /// Its tool.
    pub tool_name: String,
    /// Its account.
    pub account_id: String,
    /// On behalf of this person.
    pub actor: Option<String>,
    /// Its client.
    pub client: Option<ClientInfo>,
    /// When it was made.
    pub created_at: String,
    /// The end of it.
    pub completed_at: Option<String>,
    /// The time that it took.
    pub elapsed_ms: Option<i64>,
    /// The caller's own key.
    pub idempotency_key: Option<String>,
    /// The fingerprint of the call.
    pub params_hash: Option<String>,
    /// Its parameters.
    pub params: Option<Value>,
    /// Its result.
    pub result: Option<Value>,
    /// How many rows it changed.
    pub rows_affected: Option<i64>,
    /// The rows before it, if its tool looked at them.
    pub before_image: Option<Value>,
    /// The rows after it.
    pub after_image: Option<Value>,
    /// Its [`Rollback`], as it was written.
    pub rollback_action: Option<Value>,
    /// Why it failed.
    pub error_code: Option<String>,
    /// PostgreSQL's code of that.
    pub error_sqlstate: Option<String>,
    /// The same in a sentence.
    pub error_message: Option<String>,
    /// What is known of it: the conflicts of an undo.
    pub error_detail: Option<Value>,
    /// The [`RecordApproval`] that let it run, as it was written.
    pub approval: Option<Value>,
    /// Its transaction.
    pub exec_xid: Option<String>,
    /// The write that it repeats.
    pub duplicate_of: Option<CorrelationId>,
    /// How many repeat it.
    pub duplicates: u64,
    /// The first of them.
    pub first_duplicates: Option<Vec<CorrelationId>>,
    /// The calls that undo it.
    pub undo_calls: Option<Vec<RecordUndo>>,
    /// The writes that it undid.
    pub reverses: Option<Vec<CorrelationId>>,
    /// Its entry in the log.
    pub log_entry: Option<i64>,
    /// What is in the way of its undo by its recorded changes, as far as the ledger knows; null for a write that was undone, or is
    /// undone otherwise or never.
    #[serde(default)]
    pub undo_obstacles: Option<Vec<Conflict<Value>>>,
    /// Its effects; only of a success.
    #[serde(default, skip_serializing_if = "Member::is_absent")]
    pub effects: Member<Effects<Value>>,
}

/// A call that undoes a record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordUndo {
    /// Its tool.
    pub tool_name: Option<String>,
    /// Its record, if it was made.
    pub reversed_by: Option<CorrelationId>,
}

impl RecordLine {
    /// The decision that let it run.
    #[must_use]
    pub fn approval(&self) -> Option<RecordApproval> {
        read(self.approval.as_ref())
    }
}

impl Record {
    /// The decision that let it run.
    #[must_use]
    pub fn approval(&self) -> Option<RecordApproval> {
        read(self.approval.as_ref())
    }

    /// How it can be undone.
    #[must_use]
    pub fn rollback(&self) -> Option<Rollback> {
        read(self.rollback_action.as_ref())
    }
}

fn read<'a, T: Deserialize<'a>>(json: Option<&'a Value>) -> Option<T> {
    json.and_then(|json| T::deserialize(json).ok())
}
