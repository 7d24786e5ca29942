//! Records for people, who may see every account.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use types::{CallerContext, ClientInfo, Conflict, CorrelationId, Effects, Member, ProposalId, Rollback};

/// A record in a list. Parameters and result are JSON texts, which may be cut.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecordLine {
    /// The number of the record; `None` for a running write.
    pub id: Option<i64>,
    pub created_at: String,
    /// The status: a name of [`crate::RecordStatus`].
    pub status: String,
    pub tool_name: String,
    pub account_id: String,
    /// The person or agent on whose behalf the call was made.
    pub actor: Option<String>,
    pub correlation_id: CorrelationId,
    pub elapsed_ms: Option<i64>,
    pub params_summary: Option<String>,
    pub result_summary: Option<String>,
    pub error_code: Option<String>,
    pub error_message: Option<String>,
    /// The [`RecordApproval`] of the write, as stored JSON.
    pub approval: Option<Value>,
    pub client: Option<ClientInfo>,
    /// The agent's reason for the write, if it gave one.
    pub reason: Option<String>,
    pub is_reversed: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedWrite {
    pub correlation_id: CorrelationId,
    pub tool_name: String,
    pub account_id: String,
    /// The person or agent on whose behalf the write was made.
    pub actor: Option<String>,
    /// The parameters, as in [`RecordLine`].
    pub params_summary: Option<String>,
    pub completed_at: Option<String>,
}

/// The decision that allowed a write.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct RecordApproval {
    /// The proposal; `None` for an operator's undo.
    #[serde(default)]
    pub proposal_id: Option<ProposalId>,
    #[serde(default)]
    pub decided_by: Option<String>,
    #[serde(default)]
    pub decided_login: Option<String>,
    /// The channel of the decision, such as `elicitation` or `command_line`.
    #[serde(default)]
    pub decided_via: Option<String>,
    #[serde(default)]
    pub decided_at: Option<String>,
}

/// A whole record, with the ids of related records.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    pub id: Option<i64>,
    pub correlation_id: CorrelationId,
    /// The status: a name of [`crate::RecordStatus`].
    pub status: String,
    pub tool_name: String,
    pub account_id: String,
    /// The person or agent on whose behalf the call was made.
    pub actor: Option<String>,
    pub client: Option<ClientInfo>,
    /// The role and the claims that the statements of the write ran with; absent if it had none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller_context: Option<CallerContext>,
    pub reason: Option<String>,
    pub created_at: String,
    pub completed_at: Option<String>,
    pub elapsed_ms: Option<i64>,
    pub idempotency_key: Option<String>,
    pub params_hash: Option<String>,
    pub params: Option<Value>,
    pub result: Option<Value>,
    /// The number of rows that the write changed.
    pub rows_affected: Option<i64>,
    /// The rows before the write, if the tool reads them.
    pub before_image: Option<Value>,
    pub after_image: Option<Value>,
    /// The [`Rollback`] of the write, as stored JSON.
    pub rollback_action: Option<Value>,
    pub error_code: Option<String>,
    pub error_sqlstate: Option<String>,
    pub error_message: Option<String>,
    pub error_detail: Option<Value>,
    /// The [`RecordApproval`] of the write, as stored JSON.
    pub approval: Option<Value>,
    pub exec_xid: Option<String>,
    /// The original write, if this call is a duplicate.
    pub duplicate_of: Option<CorrelationId>,
    /// The number of duplicates of this write.
    pub duplicates: u64,
    pub first_duplicates: Option<Vec<CorrelationId>>,
    pub undo_calls: Option<Vec<RecordUndo>>,
    pub reverses: Option<Vec<CorrelationId>>,
    /// The index of the record's entry in the log.
    pub log_entry: Option<i64>,
    /// What prevents an undo by the recorded effects, as far as the ledger knows. Null for a write that is undone
    /// already, or that is undone in another way or not at all.
    #[serde(default)]
    pub undo_obstacles: Option<Vec<Conflict<Value>>>,
    /// The effects; only of a success.
    #[serde(default, skip_serializing_if = "Member::is_absent")]
    pub effects: Member<Effects<Value>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordUndo {
    pub tool_name: Option<String>,
    /// The record of the undo, if it was made.
    pub reversed_by: Option<CorrelationId>,
}

impl RecordLine {
    /// The decision that allowed the write.
    #[must_use]
    pub fn approval(&self) -> Option<RecordApproval> {
        read(self.approval.as_ref())
    }
}

impl Record {
    /// The decision that allowed the write.
    #[must_use]
    pub fn approval(&self) -> Option<RecordApproval> {
        read(self.approval.as_ref())
    }

    /// How the write can be undone.
    #[must_use]
    pub fn rollback(&self) -> Option<Rollback> {
        read(self.rollback_action.as_ref())
    }
}

fn read<'a, T: Deserialize<'a>>(json: Option<&'a Value>) -> Option<T> {
    json.and_then(|json| T::deserialize(json).ok())
}
