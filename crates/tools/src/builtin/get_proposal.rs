//! `get_proposal`: one proposal with all its fields.

use ledger::proposals::{Proposals, not_found};
use ledger::schema_changes::SchemaChanges;
use manifest::Access;
use schemars::JsonSchema;
use serde::Deserialize;
use types::{ProposalId, SchemaChangeId};

use super::propose_schema_change::{SchemaChangeData, parse};
use super::{Builtin, proposal_id};
use crate::confirmation::Confirmation;
use crate::proposal_data::ProposalData;
use crate::schema::builtin_info;
use crate::services::Services;
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

struct GetProposal {
    proposals: Proposals,
    changes: SchemaChanges,
    confirmation: Confirmation,
}

pub(super) fn tool(services: &Services, access: Access) -> Box<dyn Tool> {
    let info = builtin_info::<Arguments, ProposalData>(NAME, "Look up a proposal", DESCRIPTION, access);
    let (proposals, changes) = (services.ledger.proposals(), services.ledger.schema_changes());
    let tool = GetProposal { proposals, changes, confirmation: Confirmation::new(services) };
    Builtin::boxed(info, tool, |tool, given, call| Box::pin(tool.get(given, call)))
}

impl GetProposal {
    async fn get(&self, given: Arguments, call: Call) -> ToolResult {
        let id = proposal_id(NAME, &given.proposal_id)?;
        let Some(found) = self.proposals.get(Some(&call.principal), id).await? else {
            return self.schema_change(id, &call).await;
        };
        let changes = self.proposals.row_changes_for(&call.principal, &found, call.deadline).await?;
        let masks = call.masks.as_deref();
        let shown = ShownProposal::new(&found, masks).without_masked_params().with_changes(changes, masks);
        let (console, is_for_person) = (self.confirmation.console(), self.confirmation.is_for_person(&found, &call));
        let data = match given.rows {
            None => ProposalData::new(&shown, console, is_for_person),
            Some(_) => ProposalData::page(&shown, console, is_for_person, given.after),
        };
        ToolOutput::read(&data).map(|output| ToolOutput { is_masked: true, ..output })
    }

    /// The schema change with this id.
    async fn schema_change(&self, id: ProposalId, call: &Call) -> ToolResult {
        let id = SchemaChangeId::parse(&id.to_string()).ok_or_else(not_found)?;
        let found = self.changes.get(Some(&call.principal), id).await?.ok_or_else(not_found)?;
        let text = parse(found.sql.clone()).await.ok();
        let data = SchemaChangeData::new(found, text.as_ref());
        ToolOutput::read(&data).map(|output| ToolOutput { is_masked: true, ..output })
    }
}
