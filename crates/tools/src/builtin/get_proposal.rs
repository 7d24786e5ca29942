//! `get_proposal`: one proposal with all its fields.

use std::pin::Pin;

use ledger::proposals::{Proposals, not_found};
use manifest::Access;
use schemars::JsonSchema;
use serde::Deserialize;

use super::proposal_id;
use crate::proposal_data::ProposalData;
use crate::proposal_text::shown_description;
use crate::schema::arguments;
use crate::schema::builtin_info;
use crate::services::ConsoleLinks;
use crate::shown_proposal::ShownProposal;
use crate::tool::{Call, Tool, ToolInfo, ToolOutput, ToolResult};

pub(super) const NAME: &str = "get_proposal";

const DESCRIPTION: &str = "Look up one proposed write of this account: what it would do, who has to agree, its digest, and what has \
    become of it. An executed one has the correlation_id of its write, for get_mutation_detail.";

/// What the agent sends.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The proposal_id of the proposal.
    proposal_id: String,
}

pub(super) struct GetProposal {
    info: ToolInfo,
    proposals: Proposals,
    console: Option<ConsoleLinks>,
}

impl GetProposal {
    pub(super) fn new(proposals: Proposals, console: Option<ConsoleLinks>) -> Self {
        let info = builtin_info::<Arguments, ProposalData>(NAME, "Look up a proposal", DESCRIPTION, Access::Write);
        Self { info, proposals, console }
    }
}

impl Tool for GetProposal {
    fn info(&self) -> &ToolInfo {
        &self.info
    }

    fn call(&self, mut call: Call) -> Pin<Box<dyn Future<Output = ToolResult> + Send + '_>> {
        Box::pin(async move {
            let arguments: Arguments = arguments(NAME, std::mem::take(&mut call.arguments))?;
            let id = proposal_id(NAME, &arguments.proposal_id)?;
            let found = self.proposals.get(Some(&call.principal.account_id), id).await?.ok_or_else(not_found)?;
            let shown = ShownProposal::new(&found, call.masks.as_deref());
            let description = shown_description(call.title_of(&found.tool_name), &shown);
            ToolOutput::read(&ProposalData::new(found, description, self.console.as_ref()))
        })
    }
}
