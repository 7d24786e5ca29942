//! The stored form of a proposal, and the request for one.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use types::{
    AccountId, ApprovalRule, CallerContext, ClientInfo, CorrelationId, Failure, Principal, ProposalId, TOOL_VERSION,
    Tier,
};

use super::preview::Preview;
use super::state::{ProposalStatus, closed};
use crate::write::executor::WriteRequest;

/// What the proposal of a call has besides the call.
#[derive(Debug, Clone)]
pub struct NewProposal {
    /// What the call does, for people: the summary of its tool, or the title of the tool.
    pub title: String,
    /// The parameters whose values the title has.
    pub in_title: Vec<String>,
    /// The `meta.tool_version` of the tool's answers.
    pub tool_version: String,
    /// The tier of approval.
    pub tier: Tier,
    /// Who must approve, if the tier is `approve`.
    pub rule: ApprovalRule,
    /// What people should look at.
    pub warnings: Vec<String>,
}

impl NewProposal {
    /// A proposal of a built-in tool.
    #[must_use]
    pub fn builtin(title: &str, tier: Tier, rule: ApprovalRule) -> Self {
        let (title, tool_version) = (title.to_owned(), TOOL_VERSION.to_owned());
        Self { title, in_title: Vec::new(), tool_version, tier, rule, warnings: Vec::new() }
    }
}

/// A stored proposal. Times are RFC 3339, UTC.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Proposal {
    pub proposal_id: ProposalId,
    pub account_id: AccountId,
    /// The label of the actor that proposed.
    pub actor: Option<String>,
    /// The client that proposed; absent if it is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientInfo>,
    /// The role and the claims that the write runs with; absent if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller_context: Option<CallerContext>,
    /// The agent's reason for the write, as it wrote it.
    pub reason: Option<String>,
    pub tool_name: String,
    pub title: String,
    pub tool_version: String,
    pub definition: String,
    pub tier: Tier,
    /// The number of people who must approve, and their group.
    #[serde(flatten)]
    pub rule: ApprovalRule,
    /// The approvals so far, the first one first.
    #[serde(default, deserialize_with = "null_is_none")]
    pub approved_by: Vec<Approval>,
    /// What reviewers have asked, the first question first.
    #[serde(default, deserialize_with = "null_is_none")]
    pub questions: Vec<Question>,
    /// The description of the write, for people.
    pub description: String,
    /// Every effective parameter.
    pub params: Map<String, Value>,
    pub params_hash: String,
    pub idempotency_key: Option<String>,
    pub preview: Preview,
    /// The digest that an approval must name: 64 hexadecimal digits.
    pub digest: String,
    pub created_at: String,
    pub expires_at: String,
    /// The status. A pending proposal past `expires_at` is reported as expired even before the sweep ends it.
    pub status: ProposalStatus,
    /// The account that decided, or the user of the operating system.
    pub decided_by: Option<String>,
    pub decided_login: Option<String>,
    /// The channel of the decision, such as `elicitation` or `command_line`.
    pub decided_via: Option<String>,
    pub decided_at: Option<String>,
    /// The reason of a rejection, as its author wrote it.
    pub decision_reason: Option<String>,
    pub correlation_id: Option<CorrelationId>,
    /// The error code of a failed execution.
    pub error_code: Option<String>,
    pub error_message: Option<String>,
    pub completed_at: Option<String>,
    /// The newest later proposal of the same call.
    #[serde(default)]
    pub newer: Option<ProposalId>,
    /// The newest check.
    #[serde(default)]
    pub check: Option<ProposalCheck>,
}

/// The newest check of a proposal.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ProposalCheck {
    /// When the check was asked for.
    pub requested_at: String,
    /// When a server made it; `None` if none has yet.
    pub checked_at: Option<String>,
    /// The difference between the preview and what would happen; `None` if there is none.
    pub difference: Option<String>,
    /// What would happen, if the write could be tried and is not as it was shown.
    pub found: Option<Preview>,
}

/// A proposal without its parameters and preview, which may be large.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ProposalSummary {
    pub proposal_id: ProposalId,
    pub account_id: AccountId,
    /// The label of the actor that proposed.
    pub actor: Option<String>,
    pub reason: Option<String>,
    pub tool_name: String,
    pub title: String,
    pub tier: Tier,
    /// The number of people who must approve, and their group.
    #[serde(flatten)]
    pub rule: ApprovalRule,
    /// The approvals so far, the first one first.
    #[serde(default, deserialize_with = "null_is_none")]
    pub approved_by: Vec<Approval>,
    /// What reviewers have asked, the first question first.
    #[serde(default, deserialize_with = "null_is_none")]
    pub questions: Vec<Question>,
    /// The description of the write, for people.
    pub description: String,
    /// The digest that an approval must name.
    pub digest: String,
    pub created_at: String,
    pub expires_at: String,
    pub status: ProposalStatus,
    /// The account or user that decided.
    pub decided_by: Option<String>,
    pub decided_login: Option<String>,
    /// The channel of the decision, such as `elicitation` or `command_line`.
    pub decided_via: Option<String>,
    pub decided_at: Option<String>,
    pub correlation_id: Option<CorrelationId>,
    /// The error code of a failed execution.
    pub error_code: Option<String>,
    pub error_message: Option<String>,
    pub completed_at: Option<String>,
}

/// A proposal, and the outline of its call and preview.
#[derive(Debug, Clone, Deserialize)]
pub struct OutlinedProposal {
    #[serde(flatten)]
    pub proposal: ProposalSummary,
    pub outline: ProposalOutline,
}

/// The parameters of a call, and the numbers of its preview, without the rows.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ProposalOutline {
    /// The parameters that are given and that the title does not have. Of long ones, the beginning as text.
    pub params: Map<String, Value>,
    pub counts: WriteCounts,
}

/// The numbers of a preview. They contain no value of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteCounts {
    /// The number of rows that the statements of the write would change; `None` if it was only planned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<u64>,
    /// The number of rows of tracked tables that the write would change.
    pub changed: u64,
    /// The number of these rows that the proposal lists.
    pub listed: u64,
    /// Whether the write could be undone.
    pub reversible: bool,
    /// The number of tables that an UPDATE or DELETE without a condition changes.
    pub unfiltered: u64,
    /// The number of values that their columns do not usually have.
    pub unusual: u64,
    /// The number of warnings.
    pub warnings: u64,
}

/// An approval of a proposal of tier approve.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approval {
    /// The person whose approval is counted: the database login on the command line, or the verified person in the
    /// console.
    pub person: String,
    /// The person in the console, or the user of the operating system that the command line reported.
    pub decided_by: String,
    pub decided_login: String,
    /// The channel of the approval: `command_line` or `console`.
    pub decided_via: String,
    pub decided_at: String,
}

/// A question that a reviewer has asked the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// The person in the console, or the user of the operating system that the command line reported.
    pub asked_by: String,
    pub asked_login: String,
    /// The channel: `command_line` or `console`.
    pub asked_via: String,
    pub asked_at: String,
    pub question: String,
}

fn null_is_none<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    Option::<Vec<T>>::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// Selects the proposals of a list.
#[derive(Debug, Clone, Default)]
pub struct ProposalFilter {
    /// The account whose proposals are listed; `None` for all accounts, which only people may list.
    pub account: Option<AccountId>,
    /// The role and the claims of the caller whose proposals are listed; `None` for any.
    pub context: Option<Arc<CallerContext>>,
    /// The status of the listed proposals; `None` for any.
    pub status: Option<ProposalStatus>,
    /// The maximum number of proposals, the newest first.
    pub limit: u32,
}

impl Proposal {
    /// The failure of a request that the state does not allow.
    #[must_use]
    pub fn closed(&self) -> Failure {
        closed(self.status, self.error_message.as_deref().or(self.decision_reason.as_deref()))
    }

    /// The request with which the proposal is executed, on behalf of its account.
    #[must_use]
    pub fn request(&self) -> WriteRequest {
        let principal = Principal {
            account_id: self.account_id.clone(),
            actor: self.actor.clone(),
            context: Arc::new(self.caller_context.clone().unwrap_or_default()),
            client: self.client.clone().unwrap_or_default(),
        };
        WriteRequest { principal, params: self.params.clone() }
    }
}
