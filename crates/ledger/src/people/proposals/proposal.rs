//! The stored form of a proposal, and the request for one.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use types::{AccountId, ApprovalRule, ClientInfo, CorrelationId, Failure, Principal, ProposalId, Tier};

use super::preview::Preview;
use super::state::{ProposalStatus, closed};
use crate::write::executor::{WriteExecutor, WriteRequest};

/// A write that is to be proposed.
#[derive(Clone)]
pub struct NewProposal {
    /// The requested write.
    pub request: WriteRequest,
    /// The tool.
    pub tool: String,
    /// `meta.tool_version` of its answers.
    pub tool_version: String,
    /// The tier of approval.
    pub tier: Tier,
    /// Who has to approve, if the tier is approve.
    pub rule: ApprovalRule,
    /// The caller's own key, if there is one.
    pub idempotency_key: Option<String>,
    /// The executor of the write.
    pub executor: Arc<dyn WriteExecutor>,
}

/// A stored proposal. Times are RFC 3339, UTC.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Proposal {
    /// Its name.
    pub proposal_id: ProposalId,
    /// The account that proposed.
    pub account_id: AccountId,
    /// The label of the actor that proposed.
    pub actor: Option<String>,
    /// The client that proposed; absent if it is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientInfo>,
    /// The tool.
    pub tool_name: String,
    /// The version of the tool.
    pub tool_version: String,
    /// SHA-256 of what the tool does.
    pub definition: String,
    /// The tier of approval.
    pub tier: Tier,
    /// The number of people who have to approve, and their group.
    #[serde(flatten)]
    pub rule: ApprovalRule,
    /// Those who have approved, the first one first.
    #[serde(default, deserialize_with = "null_is_none")]
    pub approved_by: Vec<Approval>,
    /// The expected work, for people.
    pub description: String,
    /// Every effective parameter.
    pub params: Map<String, Value>,
    /// The fingerprint of the call.
    pub params_hash: String,
    /// The caller's own key.
    pub idempotency_key: Option<String>,
    /// The preview.
    pub preview: Preview,
    /// The digest that an approval names, in 64 hexadecimal digits.
    pub digest: String,
    /// When it was proposed.
    pub created_at: String,
    /// Until when it can be agreed to.
    pub expires_at: String,
    /// The status. A pending proposal past its time reads expired, also before the sweep ends it.
    pub status: ProposalStatus,
    /// The account, or the user of the operating system, that decided.
    pub decided_by: Option<String>,
    /// The database login of the decision.
    pub decided_login: Option<String>,
    /// The way in which the decision was made.
    pub decided_via: Option<String>,
    /// When.
    pub decided_at: Option<String>,
    /// The reason of a rejection, in the words of its author.
    pub reason: Option<String>,
    /// The mutation that ended it.
    pub correlation_id: Option<CorrelationId>,
    /// The error code of a failed execution.
    pub error_code: Option<String>,
    /// The message of that error.
    pub error_message: Option<String>,
    /// When it ended.
    pub completed_at: Option<String>,
}

/// A proposal in short: without parameters and preview, which may be large.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ProposalSummary {
    /// Its name.
    pub proposal_id: ProposalId,
    /// The account that proposed.
    pub account_id: AccountId,
    /// The label of the actor that proposed.
    pub actor: Option<String>,
    /// The tool.
    pub tool_name: String,
    /// The tier of approval.
    pub tier: Tier,
    /// The number of people who have to approve, and their group.
    #[serde(flatten)]
    pub rule: ApprovalRule,
    /// Those who have approved, the first one first.
    #[serde(default, deserialize_with = "null_is_none")]
    pub approved_by: Vec<Approval>,
    /// The expected work, for people.
    pub description: String,
    /// The digest that an approval names.
    pub digest: String,
    /// When it was proposed.
    pub created_at: String,
    /// Until when it can be agreed to.
    pub expires_at: String,
    /// As in [`Proposal`].
    pub status: ProposalStatus,
    /// The account or user that decided.
    pub decided_by: Option<String>,
    /// As in [`Proposal`].
    pub decided_login: Option<String>,
    /// The way in which the decision was made.
    pub decided_via: Option<String>,
    /// When.
    pub decided_at: Option<String>,
    /// The mutation that ended it.
    pub correlation_id: Option<CorrelationId>,
    /// The error code of a failed execution.
    pub error_code: Option<String>,
    /// The message of that error.
    pub error_message: Option<String>,
    /// When it ended.
    pub completed_at: Option<String>,
}

/// An approval of a proposal of tier approve.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approval {
    /// Who counts: the database login of the command line, or the person whom the console has verified.
    pub person: String,
    /// The person, or the user of the operating system that the command line named.
    pub decided_by: String,
    /// The database login.
    pub decided_login: String,
    /// The way in which the approval was made.
    pub decided_via: String,
    /// When.
    pub decided_at: String,
}

fn null_is_none<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Approval>, D::Error> {
    Option::<Vec<Approval>>::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// Which proposals to list.
#[derive(Debug, Clone, Default)]
pub struct ProposalFilter {
    /// Only of this account; `None` for people, who see all.
    pub account: Option<AccountId>,
    /// Only in this state.
    pub status: Option<ProposalStatus>,
    /// The most proposals, the newest first.
    pub limit: u32,
}

impl Proposal {
    /// The failure for a request that the state does not allow.
    #[must_use]
    pub fn closed(&self) -> Failure {
        closed(self.status, self.error_message.as_deref().or(self.reason.as_deref()))
    }

    /// On whose behalf it is carried out.
    #[must_use]
    pub fn request(&self) -> WriteRequest {
        let principal = Principal {
            account_id: self.account_id.clone(),
            actor: self.actor.clone(),
            client: self.client.clone().unwrap_or_default(),
        };
        WriteRequest { principal, params: self.params.clone() }
    }
}
