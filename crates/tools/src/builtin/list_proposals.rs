//! `list_proposals`: the account's proposals, newest first.

use std::sync::Arc;

use ledger::proposals::{self, ProposalFilter, ProposalStatus, Proposals};
use manifest::Access;
use review::masked_error;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use types::{CorrelationId, ProposalId, Tier, visible};

use super::Builtin;
use crate::schema::{AnyJson, builtin_info, default_list_limit, one_of};
use crate::tool::{Call, Tool, ToolOutput, ToolResult};

pub(super) const NAME: &str = "list_proposals";

const DESCRIPTION: &str = "List the proposed writes of this account, newest first: what each would do, who has to agree and until \
    when, and what has become of it. get_proposal has one of them whole, with its preview.";

/// What the agent sends.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The most proposals to list.
    #[serde(default = "default_list_limit")]
    #[schemars(range(min = 1, max = 100))]
    limit: u32,
    /// Only proposals in this state.
    #[schemars(schema_with = "statuses", default)]
    status: Option<String>,
}

fn statuses(_: &mut SchemaGenerator) -> Schema {
    one_of(&ProposalStatus::ALL.map(ProposalStatus::as_str))
}

/// `data` of the answer.
#[derive(Debug, Serialize, JsonSchema)]
struct ProposalsData {
    /// The proposals, newest first.
    #[schemars(with = "Vec<AnyJson>")]
    proposals: Vec<ProposalSummary>,
    /// How many there are in `proposals`.
    count: usize,
}

#[derive(Debug, Serialize)]
struct ProposalSummary {
    /// What the other tools name it by.
    proposal_id: ProposalId,
    /// The tool that was called.
    action: String,
    /// confirm or approve.
    tier: Tier,
    /// pending, confirmed, rejected, expired, executed, failed or stale.
    status: ProposalStatus,
    /// What would happen.
    description: String,
    /// Why the agent wants to write; absent if it did not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// How many questions reviewers have asked, which get_proposal has; absent if they have not.
    #[serde(skip_serializing_if = "Option::is_none")]
    questions: Option<usize>,
    /// When it was proposed.
    created_at: String,
    /// Until when it can be agreed to.
    expires_at: String,
    /// The receipt of the write; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    correlation_id: Option<CorrelationId>,
    /// Why it failed; absent if it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error_message: Option<String>,
}

impl ProposalSummary {
    /// The stored description and title contain parameters, which cannot be masked afterwards. So a caller with masks
    /// gets a different description, and no error of a statement.
    fn new(proposal: proposals::ProposalSummary, call: &Call) -> Self {
        let description = match &call.masks {
            None => proposal.description,
            Some(_) => format!("{}. Its parameters are in the answer to its call.", visible(&proposal.tool_name)),
        };
        let error_message = match &call.masks {
            None => proposal.error_message,
            Some(_) => masked_error(proposal.error_code.as_deref(), proposal.error_message),
        };
        Self {
            proposal_id: proposal.proposal_id,
            action: proposal.tool_name,
            tier: proposal.tier,
            status: proposal.status,
            description,
            reason: proposal.reason,
            questions: Some(proposal.questions.len()).filter(|count| *count > 0),
            created_at: proposal.created_at,
            expires_at: proposal.expires_at,
            correlation_id: proposal.correlation_id,
            error_message,
        }
    }
}

pub(super) fn tool(proposals: Proposals) -> Box<dyn Tool> {
    let info = builtin_info::<Arguments, ProposalsData>(NAME, "List proposals", DESCRIPTION, Access::Write);
    Builtin::boxed(info, proposals, |proposals, given, call| Box::pin(list(proposals, given, call)))
}

async fn list(proposals: &Proposals, given: Arguments, call: Call) -> ToolResult {
    let filter = ProposalFilter {
        account: Some(call.principal.account_id.clone()),
        context: Some(Arc::clone(&call.principal.context)),
        status: given.status.as_deref().and_then(ProposalStatus::parse),
        limit: given.limit,
    };
    let found = proposals.list(&filter).await?.into_iter();
    let proposals: Vec<_> = found.map(|proposal| ProposalSummary::new(proposal, &call)).collect();
    ToolOutput::read(&ProposalsData { count: proposals.len(), proposals })
}
