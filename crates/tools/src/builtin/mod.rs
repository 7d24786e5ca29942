//! The tools that every server has.

mod confirm_proposal;
pub(crate) mod describe_database;
mod execute_sql;
mod explain_query;
mod get_mutation_detail;
mod get_proposal;
mod get_recent_mutations;
mod list_proposals;
mod preview_mutation;
mod query_database;
mod reject_proposal;
mod undo;

use std::sync::Arc;

use catalog::{CatalogNames, DatabaseDescriber};
use ledger::read::ReadLimits;
use ledger::{DuplicateExecutor, ExecutorRegistry};
use manifest::{QueryDefaults, ToolCatalog};
use serde_json::Value;
use types::{ErrorCode, Failure, ProposalId, Tier};

use self::undo::{UndoExecutor, UndoKind, UndoTiers, UndoTool};
use crate::services::Services;
use crate::tool::{Tool, ToolInfo};

pub(crate) fn register(
    services: &Services,
    catalog: &ToolCatalog,
    executors: &mut ExecutorRegistry,
) -> Result<(), DuplicateExecutor> {
    let tiers = UndoTiers::new(services, catalog);
    for kind in [UndoKind::Mutation, UndoKind::Run] {
        executors.register(kind.name(), Arc::new(UndoExecutor::new(kind, tiers.clone())))?;
    }
    match &services.execute_sql {
        Some(settings) => executors.register(execute_sql::NAME, Arc::new(execute_sql::AdhocSqlExecutor::new(settings))),
        None => Ok(()),
    }
}

/// The built-in tools, in the order in which clients list them. A new tool is one line here.
pub(crate) fn all(services: &Services, catalog: &ToolCatalog, executors: &ExecutorRegistry) -> Vec<Box<dyn Tool>> {
    let mut tools: Vec<Box<dyn Tool>> = Vec::new();
    if let Some(reader) = &services.reader {
        let names = CatalogNames::new(reader.clone());
        let defaults = query_defaults(catalog);
        tools.push(Box::new(query_database::QueryDatabase::new(services, reader.clone(), names.clone(), defaults)));
        let describer = DatabaseDescriber::new(names.clone(), catalog);
        tools.push(Box::new(describe_database::DescribeDatabase::new(describer, services.masks.clone())));
        tools.push(Box::new(explain_query::ExplainQuery::new(reader.clone(), names, services.masks.clone())));
    }
    tools.push(Box::new(get_recent_mutations::GetRecentMutations::new(services.records.clone())));
    tools.push(Box::new(get_mutation_detail::GetMutationDetail::new(services.records.clone())));
    if let (Some(settings), Some(executor)) = (&services.execute_sql, executors.get(execute_sql::NAME)) {
        tools.push(Box::new(execute_sql::ExecuteSql::new(services, settings, Arc::clone(executor))));
    }
    let tiers = UndoTiers::new(services, catalog);
    if let Some(executor) = executors.get(UndoKind::Mutation.name()) {
        let executor = Arc::clone(executor);
        tools.push(Box::new(UndoTool::new(UndoKind::Mutation, services, tiers.clone(), executor)));
    }
    if let Some(executor) = executors.get(UndoKind::Run.name()) {
        tools.push(Box::new(undo::plan::UndoPlan::new(services, tiers.clone(), Arc::clone(executor))));
        tools.push(Box::new(UndoTool::new(UndoKind::Run, services, tiers.clone(), Arc::clone(executor))));
    }
    tools.push(Box::new(preview_mutation::PreviewMutation::new(services, catalog, executors, &tiers)));
    let asks =
        catalog.tools.iter().any(|spec| spec.strictest_tier().max(catalog.effective_undo_tier(spec)) > Tier::Auto);
    if asks || services.execute_sql.as_ref().is_some_and(|settings| settings.tier != Tier::Auto) {
        let proposals = &services.proposals;
        tools.push(Box::new(list_proposals::ListProposals::new(proposals.clone())));
        tools.push(Box::new(get_proposal::GetProposal::new(proposals.clone(), services.console.clone())));
        tools.push(Box::new(confirm_proposal::ConfirmProposal::new(proposals.clone())));
        tools.push(Box::new(reject_proposal::RejectProposal::new(proposals.clone())));
    }
    tools
}

/// The descriptions of the tools that can read any relation.
pub(crate) fn builtin_infos(limits: &ReadLimits, catalog: &ToolCatalog) -> [ToolInfo; 3] {
    [query_database::info(limits, query_defaults(catalog)), describe_database::info(), explain_query::info()]
}

fn query_defaults(catalog: &ToolCatalog) -> QueryDefaults {
    catalog.builtin.get(query_database::NAME).map(|tool| tool.query).unwrap_or_default()
}

pub(crate) const EXECUTE_SQL: &str = execute_sql::NAME;

/// The names that no manifest may use, even if the tool is not served.
pub const NAMES: [&str; 14] = [
    query_database::NAME,
    describe_database::NAME,
    explain_query::NAME,
    get_recent_mutations::NAME,
    get_mutation_detail::NAME,
    preview_mutation::NAME,
    UndoKind::Mutation.name(),
    undo::plan::NAME,
    UndoKind::Run.name(),
    execute_sql::NAME,
    list_proposals::NAME,
    get_proposal::NAME,
    confirm_proposal::NAME,
    reject_proposal::NAME,
];

/// Sets the configured limit in the schema of an argument that limits rows.
fn limit_rows(info: &mut ToolInfo, argument: &str, limits: &ReadLimits) {
    let properties = Arc::make_mut(&mut info.input_schema).get_mut("properties").and_then(Value::as_object_mut);
    if let Some(schema) = properties.and_then(|all| all.get_mut(argument)).and_then(Value::as_object_mut) {
        schema.insert("maximum".to_owned(), limits.max_rows.into());
    }
}

fn proposal_id(tool: &str, text: &str) -> Result<ProposalId, Failure> {
    ProposalId::parse(text).ok_or_else(|| {
        let message =
            format!("{tool}: argument \"proposal_id\" is a UUID of 36 characters, as list_proposals shows it");
        Failure::new(ErrorCode::InvalidParams, message)
    })
}
