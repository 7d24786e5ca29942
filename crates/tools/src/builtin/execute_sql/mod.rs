//! `execute_sql`: runs a statement of the agent that writes, if the operator has enabled it. The write goes through the
//! gate like every other one: it is recorded, executed once, and has a correlation id.
//!
//! - `rows`: one INSERT, UPDATE, DELETE or MERGE of tracked tables, which is tried before it is approved
//! - `any`: one arbitrary statement, for administrators; it is planned and not tried

mod any;
mod rows;

use std::sync::Arc;

use catalog::CatalogNames;
use ledger::proposals::NewProposal;
use ledger::{WriteCall, WriteExecutor, WriteRequest};
use manifest::Access;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::time::Instant;
use types::{ApprovalRule, ErrorCode, Failure, Principal, Redaction, TOOL_VERSION, Tier};

use super::Builtin;
use super::query_database::QueryData;
use crate::approval_flow::ApprovalFlow;
use crate::schema::{AnyParameter, builtin_info, parsed};
use crate::services::{ExecuteSqlSettings, Services};
use crate::tool::{Annotations, Call, Tool, ToolError, ToolInfo, ToolResult};

pub(crate) use crate::tool::EXECUTE_SQL as NAME;

const TITLE: &str = "Execute SQL";

const REST: &str = "The statement was executed in full; only its answer is cut. Read the rest with query_database.";

const MAX_SQL_BYTES: u32 = 1 << 20;

/// What the agent sends.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// One SQL statement in PostgreSQL's dialect; qualify tables with their schema.
    #[schemars(length(min = 1, max = 1_048_576))]
    sql: String,
    /// The values of $1, $2, ... in order: JSON of their types, or text.
    #[serde(default)]
    #[schemars(with = "Vec<AnyParameter>", length(max = 65_535))]
    params: Vec<Value>,
    #[schemars(skip)]
    idempotency_key: Option<String>,
}

/// `data` of the answer.
#[derive(Debug, Serialize, JsonSchema)]
struct ExecuteData {
    /// PostgreSQL's command tag, such as UPDATE 3; absent for commands without a plan, such as CREATE TABLE.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    command_tag: Option<String>,
    #[serde(flatten)]
    result: QueryData,
}

struct ExecuteSql {
    executor: Arc<dyn WriteExecutor>,
    flow: ApprovalFlow,
    /// The names that hints are made of; `None` if nothing is read.
    names: Option<CatalogNames>,
    tier: Tier,
    warnings: Vec<String>,
}

/// The executor for the mode of these settings.
pub(super) fn executor(settings: &ExecuteSqlSettings) -> Arc<dyn WriteExecutor> {
    match &settings.modifications {
        Some(limits) => Arc::new(rows::ModifyingSqlExecutor::new(settings, limits.clone())),
        None => Arc::new(any::AdhocSqlExecutor::new(settings)),
    }
}

pub(super) fn tool(
    services: &Services,
    settings: &ExecuteSqlSettings,
    executor: Arc<dyn WriteExecutor>,
    names: Option<CatalogNames>,
) -> Box<dyn Tool> {
    let warnings = if settings.modifications.is_none() { vec![any::UNTRIED.to_owned()] } else { Vec::new() };
    let tool = ExecuteSql { executor, flow: ApprovalFlow::new(services), names, tier: settings.tier, warnings };
    Builtin::boxed(info(settings), tool, |tool, given, call| Box::pin(execute(tool, given, call)))
}

fn info(settings: &ExecuteSqlSettings) -> ToolInfo {
    let (description, access) = match &settings.modifications {
        Some(limits) => (rows::description(limits), Access::Write),
        None => (any::DESCRIPTION.to_owned(), Access::Admin),
    };
    let mut info = builtin_info::<Arguments, ExecuteData>(NAME, TITLE, &description, access);
    if let Some(Value::Object(properties)) = Arc::make_mut(&mut info.input_schema).get_mut("properties") {
        properties.insert("idempotency_key".to_owned(), manifest::idempotency_key());
    }
    let hints = Annotations { read_only: false, destructive: true, idempotent: true };
    ToolInfo { tier: Some(settings.tier), reason: Some(settings.reason), hints, ..info }
}

async fn execute(tool: &ExecuteSql, given: Arguments, call: Call) -> ToolResult {
    let Arguments { sql, params, idempotency_key } = given;
    let request = write_request(sql.clone(), params, &call.principal);
    let write = WriteCall {
        request,
        tool: NAME.to_owned(),
        reason: call.reason.clone(),
        redaction: Redaction::default(),
        idempotency_key,
        deadline: call.deadline,
        executor: Arc::clone(&tool.executor),
    };
    let proposal = NewProposal {
        title: TITLE.to_owned(),
        in_title: Vec::new(),
        tool_version: TOOL_VERSION.to_owned(),
        tier: tool.tier,
        rule: ApprovalRule::default(),
        warnings: tool.warnings.clone(),
    };
    match tool.flow.write(&call, write, proposal).await {
        Err(ToolError { correlation_id, failure }) => {
            let failure = corrected(tool.names.as_ref(), &sql, *failure, call.deadline).await;
            Err(ToolError { correlation_id, failure: Box::new(failure) })
        }
        written => written,
    }
}

/// The failure with the hints of reads.
pub(super) async fn corrected(names: Option<&CatalogNames>, sql: &str, failure: Failure, deadline: Instant) -> Failure {
    match names {
        Some(names) => catalog::corrected(names, sql, failure, deadline).await,
        None => failure,
    }
}

/// The request for the arguments of a preview, which were checked against the schema.
pub(super) fn previewed(arguments: Map<String, Value>, principal: &Principal) -> Result<WriteRequest, Failure> {
    let Arguments { sql, params, .. } = parsed(NAME, arguments)?;
    Ok(write_request(sql, params, principal))
}

fn write_request(sql: String, params: Vec<Value>, principal: &Principal) -> WriteRequest {
    let recorded = [("sql".to_owned(), Value::from(sql)), ("params".to_owned(), params.into())];
    WriteRequest { principal: principal.clone(), params: recorded.into_iter().collect() }
}

/// The parameters of the statement, as a record or a proposal stores them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestedSql {
    sql: String,
    params: Vec<Value>,
}

fn requested(request: &WriteRequest) -> Result<RequestedSql, Failure> {
    let requested: RequestedSql = parsed(NAME, request.params.clone())?;
    if requested.sql.contains('\0') || requested.sql.len() > MAX_SQL_BYTES as usize {
        let message = format!("{NAME}: sql takes at most {MAX_SQL_BYTES} bytes without U+0000");
        return Err(Failure::new(ErrorCode::InvalidParams, message));
    }
    Ok(requested)
}
