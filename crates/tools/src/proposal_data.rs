//! A proposal as agents see it.

use contract::{CorrelationId, ProposalId};
use ledger::proposals::{Preview, Proposal, ProposalStatus, Tier};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

/// What is told of a proposal. What is not there is left out.
#[derive(Debug, Serialize)]
pub(crate) struct ProposalData {
    proposal_id: ProposalId,
    action: String,
    tier: Tier,
    status: ProposalStatus,
    description: String,
    params: Map<String, Value>,
    preview: Value,
    digest: String,
    created_at: String,
    expires_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    proposed_by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    decided_by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    decided_via: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    decided_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    correlation_id: Option<CorrelationId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error_code: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error_message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    completed_at: Option<String>,
}

impl ProposalData {
    pub(crate) fn new(proposal: Proposal) -> Self {
        // What a proposal depends on is for the server, and for the reviewer.
        let preview = Preview { definitions: Vec::new(), ..proposal.preview };
        let preview = serde_json::to_value(preview).unwrap_or_default();
        Self {
            proposal_id: proposal.proposal_id,
            action: proposal.tool_name,
            tier: proposal.tier,
            status: proposal.status,
            description: proposal.description,
            params: proposal.params,
            preview,
            digest: proposal.digest,
            created_at: proposal.created_at,
            expires_at: proposal.expires_at,
            proposed_by: proposal.actor,
            decided_by: proposal.decided_by,
            decided_via: proposal.decided_via,
            decided_at: proposal.decided_at,
            reason: proposal.reason,
            correlation_id: proposal.correlation_id,
            error_code: proposal.error_code,
            error_message: proposal.error_message,
            completed_at: proposal.completed_at,
        }
    }
}

impl JsonSchema for ProposalData {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Proposal".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let schema = manifest::proposal_schema();
        schemars::Schema::try_from(schema).unwrap_or_default()
    }
}
