//! The tools that every server has.

mod confirm_proposal;
pub(crate) mod describe_database;
pub(crate) mod execute_sql;
mod explain_query;
mod get_mutation_detail;
mod get_proposal;
mod get_recent_mutations;
mod list_proposals;
mod preview_mutation;
mod propose_schema_change;
mod query_database;
mod reject_proposal;
mod row_history;
mod undo;

use std::borrow::Cow;
use std::pin::Pin;
use std::sync::Arc;

use catalog::{CatalogNames, DatabaseDescriber, corrected, read_failure};
use ledger::read::{ReadError, ReadLimits, Reader};
use ledger::{DuplicateExecutor, ExecutorRegistry};
use manifest::{Access, QueryDefaults, ToolCatalog};
use serde::de::DeserializeOwned;
use serde_json::Value;
use types::{CorrelationId, ErrorCode, Failure, NumberFields, ProposalId, Tier};

use self::undo::{UndoExecutor, UndoKind, UndoTiers, UndoTool};
use crate::mask_policy::MaskPolicy;
use crate::schema::arguments;
use crate::services::Services;
use crate::tool::{Call, Tool, ToolError, ToolInfo, ToolResult};

type Answer<'a> = Pin<Box<dyn Future<Output = ToolResult> + Send + 'a>>;

/// A built-in tool: its description, its state, and a function of the state, the arguments and the call. The
/// arguments of the call itself are empty.
struct Builtin<A, S> {
    info: ToolInfo,
    number_fields: Option<Arc<NumberFields>>,
    state: S,
    run: fn(&S, A, Call) -> Answer<'_>,
}

impl<A: DeserializeOwned + 'static, S: Send + Sync + 'static> Builtin<A, S> {
    fn boxed(info: ToolInfo, state: S, run: fn(&S, A, Call) -> Answer<'_>) -> Box<dyn Tool> {
        Box::new(Self { info, number_fields: None, state, run })
    }
}

impl<A: DeserializeOwned + 'static, S: Send + Sync + 'static> Tool for Builtin<A, S> {
    fn info(&self) -> &ToolInfo {
        &self.info
    }

    fn number_fields(&self) -> Option<&Arc<NumberFields>> {
        self.number_fields.as_ref()
    }

    fn call(&self, mut call: Call) -> Answer<'_> {
        match arguments(&self.info.name, std::mem::take(&mut call.arguments)) {
            Ok(given) => (self.run)(&self.state, given, call),
            Err(failure) => Box::pin(async move { Err(failure.into()) }),
        }
    }
}

/// What the tools need that take a query.
#[derive(Clone)]
struct QueryReader {
    reader: Reader,
    names: CatalogNames,
    masks: MaskPolicy,
}

impl QueryReader {
    /// The reader with the masks of the caller.
    fn of(&self, call: &Call) -> Cow<'_, Reader> {
        self.masks.reader(&self.reader, call, false)
    }

    async fn failure(&self, error: ReadError, query: &str, call: &Call) -> ToolError {
        let failure = read_failure(error, self.reader.limits().deadline);
        corrected(&self.names.for_caller(&call.principal.context), query, failure, call.deadline).await.into()
    }
}

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
        Some(settings) => executors.register(execute_sql::NAME, execute_sql::executor(settings)),
        None => Ok(()),
    }
}

/// The built-in tools, in the order in which clients list them. A new tool is one line here.
pub(crate) fn all(services: &Services, catalog: &ToolCatalog, executors: &ExecutorRegistry) -> Vec<Box<dyn Tool>> {
    let mut tools: Vec<Box<dyn Tool>> = Vec::new();
    let names = services.reader.clone().map(CatalogNames::new);
    if let (Some(reader), Some(names)) = (&services.reader, &names) {
        let queries = queries(reader, names, services);
        tools.push(query_database::tool(queries.clone(), query_defaults(catalog)));
        let describer = DatabaseDescriber::new(names.clone(), catalog);
        tools.push(describe_database::tool(describer, services.masks.clone()));
        tools.push(explain_query::tool(queries));
    }
    if !services.has_ledger {
        return tools;
    }
    tools.push(get_recent_mutations::tool(services.ledger.records()));
    tools.push(get_mutation_detail::tool(services.ledger.records()));
    if let (Some(reader), Some(names)) = (&services.reader, &names) {
        tools.push(row_history::tool(services.ledger.audit(), queries(reader, names, services)));
    }
    if let (Some(settings), Some(executor)) = (&services.execute_sql, executors.get(execute_sql::NAME)) {
        tools.push(execute_sql::ExecuteSql::new(services, settings, executor, names.clone()).boxed());
    }
    let tiers = UndoTiers::new(services, catalog);
    if let Some(executor) = executors.get(UndoKind::Mutation.name()) {
        tools.push(UndoTool::new(UndoKind::Mutation, services, tiers.clone(), Arc::clone(executor)).boxed());
    }
    if let Some(executor) = executors.get(UndoKind::Run.name()) {
        tools.push(undo::plan::tool(services, tiers.clone(), Arc::clone(executor)));
        tools.push(UndoTool::new(UndoKind::Run, services, tiers.clone(), Arc::clone(executor)).boxed());
    }
    tools.push(preview_mutation::tool(services, catalog, executors, &tiers, names));
    let asks =
        catalog.tools.iter().any(|spec| spec.strictest_tier().max(catalog.effective_undo_tier(spec)) > Tier::Auto);
    if asks || services.execute_sql.as_ref().is_some_and(|settings| settings.tier != Tier::Auto) {
        let proposals = services.ledger.proposals();
        tools.push(list_proposals::tool(proposals.clone()));
        tools.push(get_proposal::tool(services, Access::Write));
        tools.push(confirm_proposal::tool(services));
        tools.push(reject_proposal::tool(proposals.clone()));
    } else {
        // Only schema changes are proposed.
        tools.push(get_proposal::tool(services, Access::Admin));
    }
    tools.push(propose_schema_change::tool(services.ledger.schema_changes()));
    tools
}

fn queries(reader: &Reader, names: &CatalogNames, services: &Services) -> QueryReader {
    QueryReader { reader: reader.clone(), names: names.clone(), masks: services.masks.clone() }
}

/// Whether a call of the tool reads rows, so that the log of reads has it.
pub(crate) fn reads_rows(info: &ToolInfo) -> bool {
    info.access == Access::Read || info.name == row_history::NAME
}

/// The descriptions of the tools that can read any relation.
pub(crate) fn builtin_infos(limits: &ReadLimits, catalog: &ToolCatalog) -> [ToolInfo; 3] {
    [query_database::info(limits, query_defaults(catalog)), describe_database::info(), explain_query::info()]
}

fn query_defaults(catalog: &ToolCatalog) -> QueryDefaults {
    catalog.builtin.get(query_database::NAME).map(|tool| tool.query).unwrap_or_default()
}

/// The names that no manifest may use, even if the tool is not served, in the order in which clients list the tools.
pub const NAMES: [&str; 16] = [
    query_database::NAME,
    describe_database::NAME,
    explain_query::NAME,
    get_recent_mutations::NAME,
    get_mutation_detail::NAME,
    row_history::NAME,
    execute_sql::NAME,
    UndoKind::Mutation.name(),
    undo::plan::NAME,
    UndoKind::Run.name(),
    preview_mutation::NAME,
    list_proposals::NAME,
    get_proposal::NAME,
    confirm_proposal::NAME,
    reject_proposal::NAME,
    propose_schema_change::NAME,
];

/// What a profile needs to read and write by SQL.
pub(crate) const MINIMAL: [&str; 3] = [query_database::NAME, describe_database::NAME, execute_sql::NAME];

/// Whether a tool of this name is built in.
pub(crate) fn is_builtin(name: &str) -> bool {
    NAMES.contains(&name)
}

/// Sets the configured limit in the schema of an argument that limits rows.
fn limit_rows(info: &mut ToolInfo, argument: &str, limits: &ReadLimits) {
    let properties = Arc::make_mut(&mut info.input_schema).get_mut("properties").and_then(Value::as_object_mut);
    if let Some(schema) = properties.and_then(|all| all.get_mut(argument)).and_then(Value::as_object_mut) {
        schema.insert("maximum".to_owned(), limits.max_rows.into());
    }
}

fn correlation_id(tool: &str, text: &str) -> Result<CorrelationId, Failure> {
    CorrelationId::parse(text).ok_or_else(|| {
        let message = format!("{tool}: correlation_id must be a UUID like 3f0c1a52-9c1e-4c7e-8a55-0d9f6b1f2a34");
        Failure::new(ErrorCode::InvalidParams, message)
    })
}

fn no_write(named: &str) -> Failure {
    Failure::new(ErrorCode::NotFound, format!("this account has no write with correlation_id {named}"))
}

fn proposal_id(tool: &str, text: &str) -> Result<ProposalId, Failure> {
    ProposalId::parse(text).ok_or_else(|| {
        let message =
            format!("{tool}: argument \"proposal_id\" is a UUID of 36 characters, as list_proposals shows it");
        Failure::new(ErrorCode::InvalidParams, message)
    })
}
