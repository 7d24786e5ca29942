//! `reject_proposal`: the proposing account withdraws a proposal of any tier.

use ledger::proposals::{DecisionChannel, ProposalStatus, Proposals};
use manifest::Access;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use types::ProposalId;

use super::{Builtin, proposal_id};
use crate::schema::builtin_info;
use crate::tool::{Annotations, Call, Tool, ToolInfo, ToolOutput, ToolResult};

pub(super) const NAME: &str = "reject_proposal";

const DESCRIPTION: &str = "Take back a proposed write that nobody has agreed to yet: the user does not want it, or it was a mistake. \
    Nothing is written. The same call again answers the same.";

/// What the agent sends.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The proposal_id of the proposal.
    proposal_id: String,
    /// Why, in the user's words.
    #[schemars(with = "String", length(max = 1000), default)]
    reason: Option<String>,
}

/// `data` of the answer.
#[derive(Debug, Serialize, JsonSchema)]
struct RejectData {
    /// The proposal.
    #[schemars(with = "String")]
    proposal_id: ProposalId,
    /// The tool that will not be executed.
    action: String,
    /// rejected.
    #[schemars(with = "String")]
    status: ProposalStatus,
    /// What happened.
    message: &'static str,
}

pub(super) fn tool(proposals: Proposals) -> Box<dyn Tool> {
    let info = builtin_info::<Arguments, RejectData>(NAME, "Reject a proposal", DESCRIPTION, Access::Write);
    let hints = Annotations { read_only: false, destructive: false, idempotent: true };
    let info = ToolInfo { hints, ..info };
    Builtin::boxed(info, proposals, |proposals, given, call| Box::pin(reject(proposals, given, call)))
}

async fn reject(proposals: &Proposals, given: Arguments, call: Call) -> ToolResult {
    let id = proposal_id(NAME, &given.proposal_id)?;
    let owner = &call.principal;
    let rejected = proposals.reject(owner, id, given.reason, DecisionChannel::Tool, call.deadline).await?;
    ToolOutput::read(&RejectData {
        proposal_id: id,
        action: rejected.tool_name,
        status: rejected.status,
        message: "The proposal is rejected. Nothing was written.",
    })
}
