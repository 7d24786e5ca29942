//! A proposal as agents see it.

use std::collections::BTreeMap;

use ledger::proposals::{Preview, Proposal, ProposalStatus};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};
use types::{CorrelationId, ProposalId, Tier};

use crate::schema::AnyJson;
use crate::services::ConsoleLinks;

/// What is told of a proposal. What is not there is left out, and not in the schema: it is there once it is decided.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ProposalData {
    /// What the other tools name it by.
    #[schemars(with = "String")]
    proposal_id: ProposalId,
    /// Why the agent wants to write.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    reason: Option<String>,
    /// The tool that was called.
    action: String,
    /// Who has to agree: confirm (the user of this account) or approve (somebody else, outside of the conversation).
    #[schemars(with = "String")]
    tier: Tier,
    /// For approve: how many different people have to.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    approvals: Option<u32>,
    /// The group that they have to be in.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    approvers: Option<String>,
    /// Those who have approved so far.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(skip)]
    approved_by: Vec<String>,
    /// pending, confirmed, rejected, expired, executed, failed or stale.
    #[schemars(with = "String")]
    status: ProposalStatus,
    /// For people: what would happen.
    description: String,
    /// Every parameter that the write has.
    params: Map<String, Value>,
    /// What the write did when it was tried and rolled back.
    #[schemars(with = "BTreeMap<String, AnyJson>")]
    preview: Value,
    /// What is agreed to, in 64 digits: confirm_proposal needs it.
    digest: String,
    /// When it was proposed.
    created_at: String,
    /// Until when it can be agreed to.
    expires_at: String,
    /// For approve: the page of the console on which people decide.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    review_url: Option<String>,
    /// The label of the caller that proposed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    proposed_by: Option<String>,
    /// Who decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    decided_by: Option<String>,
    /// How they told.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    decided_via: Option<String>,
    /// When.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    decided_at: Option<String>,
    /// Why it was rejected.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    decision_reason: Option<String>,
    /// The receipt of the write.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    correlation_id: Option<CorrelationId>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    error_code: Option<String>,
    /// The same in a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    error_message: Option<String>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    completed_at: Option<String>,
}

impl ProposalData {
    /// `description` is the one that the caller may see
    /// ([`shown_description`](crate::proposal_text::shown_description)).
    pub(crate) fn new(proposal: Proposal, description: String, console: Option<&ConsoleLinks>) -> Self {
        // The definitions are for the server and the reviewer, not for the agent.
        let preview = Preview { definitions: Vec::new(), ..proposal.preview };
        let preview = serde_json::to_value(preview).unwrap_or_default();
        Self {
            review_url: console
                .filter(|_| proposal.tier == Tier::Approve)
                .map(|console| console.proposal(&proposal.proposal_id)),
            proposal_id: proposal.proposal_id,
            reason: proposal.reason,
            action: proposal.tool_name,
            tier: proposal.tier,
            approvals: (proposal.tier == Tier::Approve).then_some(proposal.rule.approvals),
            approvers: proposal.rule.approvers,
            approved_by: proposal.approved_by.into_iter().map(|approval| approval.person).collect(),
            status: proposal.status,
            description,
            params: proposal.params,
            preview,
            digest: proposal.digest,
            created_at: proposal.created_at,
            expires_at: proposal.expires_at,
            proposed_by: proposal.actor,
            decided_by: proposal.decided_by,
            decided_via: proposal.decided_via,
            decided_at: proposal.decided_at,
            decision_reason: proposal.decision_reason,
            correlation_id: proposal.correlation_id,
            error_code: proposal.error_code,
            error_message: proposal.error_message,
            completed_at: proposal.completed_at,
        }
    }
}
