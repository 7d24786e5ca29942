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
mod undo_mutation;
mod undo_plan;
mod undo_run;
mod undo_tiers;

use std::sync::Arc;
use std::time::Duration;

use ledger::plans::Plans;
use ledger::proposals::{Proposals, Tier};
use ledger::read::{ReadError, ReadLimits, Reader, TruncatedBy};
use ledger::{DuplicateExecutor, ExecutorRegistry, Gate, LedgerGauges, Records};
use manifest::{Access, ToolCatalog};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use types::{ErrorCode, Failure, ProposalId, TOOL_VERSION};

use self::undo_tiers::UndoTiers;
use crate::discovery::DatabaseDescriber;
use crate::metrics::Metrics;
use crate::tool::{Annotations, Tool, ToolInfo};

/// What tools work on.
#[derive(Debug, Clone)]
pub struct Services {
    /// The read path; `None` if there is no login that may be used for it.
    pub reader: Option<Reader>,
    /// The way to write.
    pub gate: Gate,
    /// The ledger's records.
    pub records: Records,
    /// The undo of many writes.
    pub plans: Plans,
    /// How long any call may take.
    pub call_deadline: Duration,
    /// The writes that wait for somebody to agree.
    pub proposals: Proposals,
    /// What of the ledger is open, for [`Metrics::render`].
    pub states: LedgerGauges,
    /// Where calls are counted: for as long as the process lives, whatever tools it serves.
    pub metrics: Metrics,
    /// `None` if execute_sql is not served.
    pub execute_sql: Option<ExecuteSqlSettings>,
}

/// How execute_sql is served.
#[derive(Debug, Clone)]
pub struct ExecuteSqlSettings {
    /// The bounds of what it returns.
    pub limits: ReadLimits,
    /// Who has to agree; `None` for nobody.
    pub tier: Option<Tier>,
}

/// Makes the executors of built-in tools available.
pub(crate) fn register(
    backends: &Services,
    catalog: &ToolCatalog,
    executors: &mut ExecutorRegistry,
) -> Result<(), DuplicateExecutor> {
    let tiers = UndoTiers::new(backends, catalog);
    executors.register(undo_mutation::NAME, Arc::new(undo_mutation::UndoExecutor::new(tiers.clone())))?;
    executors.register(undo_run::NAME, Arc::new(undo_run::PlanExecutor::new(tiers)))?;
    match &backends.execute_sql {
        Some(settings) => executors.register(execute_sql::NAME, Arc::new(execute_sql::AdhocSqlExecutor::new(settings))),
        None => Ok(()),
    }
}

/// The built-in tools, in the order in which clients see them. A new one is one line here.
///
/// # Errors
/// The name of a tool whose argument schema cannot be used, and why.
pub(crate) fn all(
    backends: &Services,
    catalog: &ToolCatalog,
    executors: &ExecutorRegistry,
) -> Result<Vec<Box<dyn Tool>>, (String, String)> {
    let mut tools: Vec<Box<dyn Tool>> = Vec::new();
    if let Some(reader) = &backends.reader {
        tools.push(Box::new(query_database::QueryDatabase::new(reader.clone())));
        let describer = DatabaseDescriber::new(reader.clone(), catalog);
        tools.push(Box::new(describe_database::DescribeDatabase::new(describer)));
        tools.push(Box::new(explain_query::ExplainQuery::new(reader.clone())));
    }
    tools.push(Box::new(get_recent_mutations::GetRecentMutations::new(backends.records.clone())));
    tools.push(Box::new(get_mutation_detail::GetMutationDetail::new(backends.records.clone())));
    if let (Some(settings), Some(executor)) = (&backends.execute_sql, executors.get(execute_sql::NAME)) {
        tools.push(Box::new(execute_sql::ExecuteSql::new(backends, settings, Arc::clone(executor))));
    }
    let tiers = UndoTiers::new(backends, catalog);
    if let Some(executor) = executors.get(undo_mutation::NAME) {
        let executor = Arc::clone(executor);
        tools.push(Box::new(undo_mutation::UndoMutation::new(backends, tiers.clone(), executor)));
    }
    if let Some(executor) = executors.get(undo_run::NAME) {
        tools.push(Box::new(undo_plan::UndoPlan::new(backends, tiers.clone(), Arc::clone(executor))));
        tools.push(Box::new(undo_run::UndoRun::new(backends, tiers.clone(), Arc::clone(executor))));
    }
    tools.push(Box::new(preview_mutation::PreviewMutation::new(backends, catalog, executors, &tiers)?));
    let asks = catalog.tools.iter().any(|spec| spec.tier.max(spec.undo_tier) > manifest::Tier::Auto);
    if asks || backends.execute_sql.as_ref().is_some_and(|settings| settings.tier.is_some()) {
        let proposals = &backends.proposals;
        tools.push(Box::new(list_proposals::ListProposals::new(proposals.clone())));
        tools.push(Box::new(get_proposal::GetProposal::new(proposals.clone())));
        tools.push(Box::new(confirm_proposal::ConfirmProposal::new(proposals.clone())));
        tools.push(Box::new(reject_proposal::RejectProposal::new(proposals.clone())));
    }
    Ok(tools)
}

/// What clients are told of the tools that read any relation.
pub(crate) fn reading_infos(limits: &ReadLimits) -> [ToolInfo; 3] {
    [query_database::info(limits), describe_database::info(), explain_query::info()]
}

/// Names that no manifest may take, whether the tool is served or not.
pub const NAMES: [&str; 14] = [
    query_database::NAME,
    describe_database::NAME,
    explain_query::NAME,
    get_recent_mutations::NAME,
    get_mutation_detail::NAME,
    preview_mutation::NAME,
    undo_mutation::NAME,
    undo_plan::NAME,
    undo_run::NAME,
    execute_sql::NAME,
    list_proposals::NAME,
    get_proposal::NAME,
    confirm_proposal::NAME,
    reject_proposal::NAME,
];

/// The info of a built-in tool that reads: arguments from their type, the envelope around `data`.
fn reading_info<A: schemars::JsonSchema, D: schemars::JsonSchema>(
    name: &str,
    title: &str,
    description: &str,
    access: Access,
) -> ToolInfo {
    ToolInfo {
        name: name.to_owned(),
        title: Some(title.to_owned()),
        description: description.to_owned(),
        version: TOOL_VERSION.to_owned(),
        access,
        tier: None,
        input_schema: schema_of::<A>(),
        output_schema: answer_schema::<D>(),
        hints: Annotations { read_only: true, destructive: false, idempotent: true },
        sensitive: Vec::new(),
        meta: Map::new(),
    }
}

/// The envelope around `data` of this type.
fn answer_schema<D: schemars::JsonSchema>() -> Map<String, Value> {
    manifest::envelope_schema(manifest::outline(&schema_of::<D>()))
}

/// Puts the configured limit into the schema of an argument that limits rows.
fn limit_rows(info: &mut ToolInfo, argument: &str, limits: &ReadLimits) {
    let properties = info.input_schema.get_mut("properties").and_then(Value::as_object_mut);
    if let Some(schema) = properties.and_then(|all| all.get_mut(argument)).and_then(Value::as_object_mut) {
        schema.insert("maximum".to_owned(), limits.max_rows.into());
    }
}

/// The argument that names a proposal.
fn proposal_id(tool: &str, text: &str) -> Result<ProposalId, Failure> {
    ProposalId::parse(text).ok_or_else(|| {
        let message =
            format!("{tool}: argument \"proposal_id\" is a UUID of 36 characters, as list_proposals shows it");
        Failure::new(ErrorCode::InvalidParams, message)
    })
}

/// The arguments as their type. Their shape was checked against the schema that the type made, so a mistake here is one
/// of the schema's; but for U+0000, which JSON Schema has no good word for, and PostgreSQL no place.
fn arguments<A: serde::de::DeserializeOwned>(tool: &str, given: Map<String, Value>) -> Result<A, Failure> {
    if let Some((name, _)) = given.iter().find(|(_, value)| value.as_str().is_some_and(|text| text.contains('\0'))) {
        return Err(Failure::new(ErrorCode::InvalidParams, format!("{tool}: {name} holds U+0000")));
    }
    serde_json::from_value(Value::Object(given))
        .map_err(|error| Failure::new(ErrorCode::InvalidParams, format!("{tool}: {error}")))
}

/// The schema of a type, in the subset that clients take: everything inline, nothing but the object at the root.
fn schema_of<T: schemars::JsonSchema>() -> Map<String, Value> {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = match settings.into_generator().into_root_schema_for::<T>().to_value() {
        Value::Object(schema) => schema,
        _ => Map::new(),
    };
    schema.remove("title");
    schema.remove("description");
    simplify(&mut schema);
    schema
}

/// Takes out what Rust's types add and clients stumble over: formats such as `uint32`, and defaults that are null.
fn simplify(schema: &mut Map<String, Value>) {
    if schema.get("format").and_then(Value::as_str).is_some_and(|format| format.starts_with("uint")) {
        schema.remove("format");
    }
    schema.retain(|key, value| key != "default" || !value.is_null());
    // It says nothing, and clients refuse boolean schemas.
    schema.retain(|key, value| key != "additionalProperties" || *value != Value::Bool(true));
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
    for property in properties.into_iter().flat_map(|properties| properties.iter_mut().map(|(_, property)| property)) {
        property.as_object_mut().into_iter().for_each(simplify);
    }
    schema.get_mut("items").and_then(Value::as_object_mut).into_iter().for_each(simplify);
}

/// A place where every JSON value fits. `{}` and not `true`: clients refuse boolean schemas.
pub(crate) struct AnyJson;

impl JsonSchema for AnyJson {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "AnyJson".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({})
    }
}

/// Rows as objects, with what was cut.
#[derive(Debug, Serialize)]
pub(crate) struct RowsPage {
    pub(crate) rows: Vec<Box<RawValue>>,
    pub(crate) row_count: usize,
    #[serde(flatten)]
    pub(crate) truncation: Truncation,
}

/// Whether rows were left out of an answer, and how to have them.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Truncation {
    /// Whether there were more rows than are shown.
    truncated: bool,
    /// The limit that left rows out: `row_limit` or `max_bytes`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    truncated_by: Option<&'static str>,
    /// How to have the rest.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    hint: Option<&'static str>,
}

impl Truncation {
    /// `hint` says how to have the rest of rows that were left out by this limit.
    pub(crate) fn new(by: Option<TruncatedBy>, hint: impl FnOnce(TruncatedBy) -> &'static str) -> Self {
        let name = |by| match by {
            TruncatedBy::RowLimit => "row_limit",
            TruncatedBy::MaxBytes => "max_bytes",
        };
        Self { truncated: by.is_some(), truncated_by: by.map(name), hint: by.map(hint) }
    }
}

/// What PostgreSQL says of pg_cancel_backend, where it speaks English; everything else of this SQLSTATE is a timeout.
const CANCELLED_BY_SOMEBODY: &str = "canceling statement due to user request";

const CHEAPER: &str = "The same query most likely takes as long again. explain_query shows its plan without running it: read fewer \
    rows (a condition on an indexed column), or aggregate less at once.";

/// What an agent is told when a read did not work (promises D4).
pub(crate) fn read_failure(error: ReadError, deadline: Duration) -> Failure {
    const PREFIX: &str = "Database query failed: ";
    let timed_out = || {
        let after = match deadline.subsec_millis() {
            0 => format!("{} seconds", deadline.as_secs()),
            _ => format!("{} ms", deadline.as_millis()),
        };
        let failure = Failure::new(ErrorCode::Timeout, format!("{PREFIX}Query timed out after {after}"));
        Failure { retryable: false, ..failure }.hint(CHEAPER)
    };
    match error {
        ReadError::NoResultColumns | ReadError::Copy => not_read_only(),
        ReadError::WouldWrite(error) => {
            Failure { sqlstate: Some(error.sqlstate), detail: Some(error.message), ..not_read_only() }
        }
        ReadError::PlannedWrite(_) => Failure { detail: Some(error.to_string()), ..not_read_only() },
        ReadError::ForbiddenFunction { .. } => {
            Failure::new(ErrorCode::NotPermitted, format!("{PREFIX}{error}")).hint("Nothing was executed.")
        }
        ReadError::RefusedRelation { .. } => Failure::new(ErrorCode::NotPermitted, format!("{PREFIX}{error}")).hint(
            "Nothing was executed. get_recent_mutations and get_mutation_detail show the records of your own account.",
        ),
        ReadError::Params(reason) => Failure::new(ErrorCode::InvalidParams, format!("{PREFIX}{reason}")),
        // Of the plan: PostgreSQL's error, or one in its form.
        ReadError::TooLarge(ledger::read::Error::Server(error)) => Failure {
            sqlstate: Some(error.sqlstate),
            hint: error.hint,
            ..Failure::new(ErrorCode::ResultTooLarge, format!("{PREFIX}{}", error.message))
        },
        ReadError::TooLarge(error) => Failure::new(ErrorCode::ResultTooLarge, format!("{PREFIX}{error}"))
            .hint("Select fewer or shorter columns, for example left(column, 200)."),
        ReadError::Database(ledger::read::Error::Server(error))
            if error.sqlstate == "57014" && error.message != CANCELLED_BY_SOMEBODY =>
        {
            timed_out()
        }
        ReadError::Database(ledger::read::Error::Server(error)) => {
            let is_forbidden = error.sqlstate == "42501";
            let code = if is_forbidden { ErrorCode::NotPermitted } else { ErrorCode::SqlError };
            let advice = "The login that reads has no right to this: describe_database lists what may be read.";
            Failure {
                retryable: error.is_retryable(),
                sqlstate: Some(error.sqlstate),
                detail: error.detail,
                hint: error.hint.or_else(|| is_forbidden.then(|| advice.to_owned())),
                position: error.position,
                ..Failure::new(code, format!("{PREFIX}{}", error.message))
            }
        }
        ReadError::Database(ledger::read::Error::Deadline) => timed_out(),
        ReadError::Database(error @ ledger::read::Error::PoolTimeout { .. }) => {
            Failure::new(ErrorCode::DatabaseUnavailable, format!("{PREFIX}{error}")).hint(
                "The query was not started: ask again when fewer run at once. The operator can raise read_sessions or query_timeout_ms.",
            )
        }
        ReadError::Database(ledger::read::Error::Connect(error)) => {
            tracing::warn!(%error, "a read had no connection");
            Failure { message: format!("{PREFIX}{error}"), ..Failure::from(&error) }
        }
        ReadError::Database(error) => {
            tracing::warn!(%error, "a read lost its connection");
            Failure::new(ErrorCode::DatabaseUnavailable, format!("{PREFIX}{error}"))
        }
    }
}

fn not_read_only() -> Failure {
    Failure::new(
        ErrorCode::NotReadOnly,
        "Only read-only queries are allowed (SELECT, WITH, EXPLAIN, SHOW, VALUES, TABLE)",
    )
    .hint("Nothing was executed. To write, call one of the write tools of this server.")
}

/// What an agent is told when the ledger cannot be read.
fn ledger_failure(error: &ledger::read::Error) -> Failure {
    tracing::error!(%error, "the ledger cannot be read");
    match error {
        ledger::read::Error::Connect(error) => error.into(),
        ledger::read::Error::PoolTimeout { .. } => Failure::new(ErrorCode::DatabaseUnavailable, error.to_string()),
        ledger::read::Error::Deadline => Failure::new(ErrorCode::Timeout, "the ledger did not answer in time"),
        _ => Failure::new(ErrorCode::DbError, "the ledger cannot be read"),
    }
}
