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
use ledger::{Ledger, WriteCall, WriteExecutor, WriteRequest};
use manifest::Access;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::time::Instant;
use types::{ApprovalRule, ErrorCode, Failure};

use super::Builtin;
use super::query_database::QueryData;
use crate::approval_flow::ApprovalFlow;
use crate::schema::{AnyParameter, builtin_info, parsed};
use crate::services::{ExecuteSqlSettings, Services};
use crate::tool::{Annotations, Call, Prepared, Tool, ToolError, ToolInfo, ToolResult, WriteTool};

pub(crate) use crate::tool::EXECUTE_SQL as NAME;

const TITLE: &str = "Execute SQL";

const REST: &str = "The statement was executed in full; only its answer is cut. Read the rest with query_database.";

const MAX_SQL_BYTES: u32 = 1 << 20;

/// What the agent sends.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// One SQL statement in PostgreSQL's dialect.
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

pub(super) struct ExecuteSql {
    executor: Arc<dyn WriteExecutor>,
    flow: ApprovalFlow,
    /// The names that hints are made of; `None` if nothing is read.
    names: Option<CatalogNames>,
    settings: ExecuteSqlSettings,
    ledger: Ledger,
}

impl ExecuteSql {
    pub(super) fn new(
        services: &Services,
        settings: &ExecuteSqlSettings,
        executor: &Arc<dyn WriteExecutor>,
        names: Option<CatalogNames>,
    ) -> Self {
        let (executor, flow) = (Arc::clone(executor), ApprovalFlow::new(services));
        Self { executor, flow, names, settings: settings.clone(), ledger: services.ledger.clone() }
    }

    /// The statement with the schemas of tables that reads find without one. What people see and what runs is this text.
    async fn qualified(&self, sql: String, call: &Call) -> String {
        match &self.names {
            Some(names) if self.settings.modifications.is_some() => {
                let names = names.for_caller(&call.principal.context);
                catalog::qualified(&names, &self.ledger, sql, call.deadline).await
            }
            _ => sql,
        }
    }

    /// The tool itself. Its arguments stay unparsed, as in a preview.
    pub(super) fn boxed(self) -> Box<dyn Tool> {
        Builtin::boxed(info(&self.settings), self, |tool, given, call| Box::pin(execute(tool, given, call)))
    }
}

impl WriteTool for ExecuteSql {
    fn prepare<'a>(&'a self, arguments: Map<String, Value>, call: &'a Call) -> Prepared<'a> {
        Box::pin(async move {
            let Arguments { sql, params, idempotency_key } = parsed(NAME, arguments)?;
            telemetry::set_statement(&sql);
            let sql = self.qualified(sql, call).await;
            let params = Map::from_iter([("sql".to_owned(), Value::from(sql)), ("params".to_owned(), params.into())]);
            let write = WriteCall { idempotency_key, ..call.write(NAME, params, &self.executor) };
            let mut proposal = NewProposal::builtin(TITLE, self.settings.tier, ApprovalRule::default());
            proposal.warnings.extend(self.settings.modifications.is_none().then(|| any::UNTRIED.to_owned()));
            Ok((write, proposal))
        })
    }
}

/// The executor for the mode of these settings.
pub(super) fn executor(settings: &ExecuteSqlSettings) -> Arc<dyn WriteExecutor> {
    match &settings.modifications {
        Some(limits) => Arc::new(rows::ModifyingSqlExecutor::new(settings, limits.clone())),
        None => Arc::new(any::AdhocSqlExecutor::new(settings)),
    }
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

async fn execute(tool: &ExecuteSql, given: Map<String, Value>, call: Call) -> ToolResult {
    let (write, proposal) = tool.prepare(given, &call).await?;
    let request = write.request.clone();
    match tool.flow.write(&call, write, proposal).await {
        Err(ToolError { correlation_id, failure }) => {
            let failure = corrected(tool.names.as_ref(), &request, *failure, call.deadline).await;
            Err(ToolError { correlation_id, failure: Box::new(failure) })
        }
        written => written,
    }
}

/// The failure with the hints of reads.
pub(super) async fn corrected(
    names: Option<&CatalogNames>,
    request: &WriteRequest,
    failure: Failure,
    deadline: Instant,
) -> Failure {
    let sql = request.params.get("sql").and_then(Value::as_str).unwrap_or_default();
    match names {
        Some(names) => {
            let names = names.for_caller(&request.principal.context);
            catalog::corrected(&names, sql, failure, deadline).await
        }
        None => failure,
    }
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
