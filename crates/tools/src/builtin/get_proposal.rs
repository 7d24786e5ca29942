//! `get_proposal`: one proposal with all its fields.

use ledger::proposals::{Proposals, not_found};
use manifest::Access;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Builtin, proposal_id};
use crate::proposal_data::ProposalData;
use crate::schema::builtin_info;
use crate::services::ConsoleLinks;
use crate::shown_proposal::ShownProposal;
use crate::tool::{Call, Tool, ToolOutput, ToolResult};

pub(super) const NAME: &str = "get_proposal";

const DESCRIPTION: &str = "Look up one proposed write of this account: what it would do, who has to agree, its digest, what has \
    become of it, and whether its rows have changed since. An executed one has the correlation_id of its write, for get_mutation_detail.";

/// What the agent sends.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The proposal_id of the proposal.
    proposal_id: String,
    /// all: every row of the preview, and long texts whole, in pages.
    #[schemars(schema_with = "super::get_mutation_detail::shown_rows", default)]
    rows: Option<String>,
    /// With rows: next_after of the page before.
    #[serde(default)]
    after: usize,
}

pub(super) fn tool(proposals: Proposals, console: Option<ConsoleLinks>) -> Box<dyn Tool> {
    let info = builtin_info::<Arguments, ProposalData>(NAME, "Look up a proposal", DESCRIPTION, Access::Write);
    Builtin::boxed(info, (proposals, console), |(proposals, console), given, call| {
        Box::pin(get(proposals, console.as_ref(), given, call))
    })
}

async fn get(proposals: &Proposals, console: Option<&ConsoleLinks>, given: Arguments, call: Call) -> ToolResult {
    let id = proposal_id(NAME, &given.proposal_id)?;
    let found = proposals.get(Some(&call.principal), id).await?.ok_or_else(not_found)?;
    let changes = proposals.row_changes(&found).await?;
    let shown = ShownProposal::new(&found, call.masks.as_deref()).with_changes(changes, call.masks.as_deref());
    let data = match given.rows {
        None => ProposalData::new(&shown, console),
        Some(_) => ProposalData::page(&shown, console, given.after),
    };
    ToolOutput::read(&data).map(|output| ToolOutput { is_masked: true, ..output })
}
