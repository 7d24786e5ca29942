//! `execute_sql`: runs one arbitrary statement, for administrators, if the operator has enabled it. The write goes
//! through the gate like every other one: it is recorded, executed once, and has a correlation id.

use std::sync::Arc;

use ledger::proposals::NewProposal;
use ledger::{ExecutorError, RowRetention, WriteExecutor, WriteFuture, WriteOutput, WriteRequest, WriteTx};
use manifest::Access;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use types::{
    ApprovalRule, ErrorCode, Failure, Redaction, ReferencedObjects, Rollback, TOOL_VERSION, TableAccess, Tier,
};

use super::Builtin;
use super::query_database::QueryData;
use crate::approval_flow::ApprovalFlow;
use crate::schema::{AnyParameter, builtin_info, parsed, to_json};
use crate::services::{ExecuteSqlSettings, Services};
use crate::tool::{Annotations, Call, Tool, ToolInfo, ToolResult};

pub(crate) use crate::tool::EXECUTE_SQL as NAME;

const DESCRIPTION: &str = "Execute any one SQL statement, and keep what it does. Use the other write tools where there \
    is one. meta.rollback says whether undo_mutation can take it back: changes of tracked tables can be. Use query_database to read. It runs in a transaction of \
    its own, so COMMIT, ROLLBACK, VACUUM and the like are refused. An identical call within 5 minutes is not executed \
    again but answered from the record: to run the same statement again, give a new idempotency_key. Use $1, $2, ... in \
    the statement and give the values in params.";

const IRREVERSIBLE: &str = "No command of this kind can be undone: only changes of rows are recorded.";

const TITLE: &str = "Execute SQL";

const UNTRIED: &str = "The statement was planned and not tried: read it. Who approves it approves whatever it does.";

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
    tier: Tier,
}

pub(super) fn tool(
    services: &Services,
    settings: &ExecuteSqlSettings,
    executor: Arc<dyn WriteExecutor>,
) -> Box<dyn Tool> {
    let tool = ExecuteSql { executor, flow: ApprovalFlow::new(services, TITLE), tier: settings.tier };
    Builtin::boxed(info(settings), tool, |tool, given, call| Box::pin(execute(tool, given, call)))
}

fn info(settings: &ExecuteSqlSettings) -> ToolInfo {
    let mut info = builtin_info::<Arguments, ExecuteData>(NAME, TITLE, DESCRIPTION, Access::Admin);
    if let Some(Value::Object(properties)) = Arc::make_mut(&mut info.input_schema).get_mut("properties") {
        properties.insert("idempotency_key".to_owned(), manifest::idempotency_key());
    }
    let hints = Annotations { read_only: false, destructive: true, idempotent: true };
    ToolInfo { tier: Some(settings.tier), hints, ..info }
}

async fn execute(tool: &ExecuteSql, given: Arguments, call: Call) -> ToolResult {
    let Arguments { sql, params, idempotency_key } = given;
    let recorded = [("sql".to_owned(), Value::from(sql)), ("params".to_owned(), params.into())];
    let request = WriteRequest { principal: call.principal.clone(), params: recorded.into_iter().collect() };
    let write = NewProposal {
        request,
        tool: NAME.to_owned(),
        tool_version: TOOL_VERSION.to_owned(),
        tier: tool.tier,
        rule: ApprovalRule::default(),
        idempotency_key,
        executor: Arc::clone(&tool.executor),
    };
    tool.flow.write(&call, write, Redaction::default(), vec![UNTRIED.to_owned()]).await
}

pub(super) struct AdhocSqlExecutor {
    keep: RowRetention,
    tier: Tier,
}

/// The parameters of the statement, as a record or a proposal stores them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestedSql {
    sql: String,
    params: Vec<Value>,
}

/// The expected effect of the statement, as far as PostgreSQL's plan shows it.
#[derive(Debug, Serialize)]
struct ForeseenData {
    /// The tables in the plan, and whether it writes to them; null for a command without a plan.
    tables: Option<Vec<TableData>>,
    /// PostgreSQL's estimate of the number of affected rows.
    estimated_rows: Option<u64>,
}

#[derive(Debug, Serialize)]
struct TableData {
    table: String,
    written: bool,
}

impl AdhocSqlExecutor {
    pub(super) fn new(settings: &ExecuteSqlSettings) -> Self {
        let limits = &settings.limits;
        Self { keep: RowRetention { rows: limits.default_rows as usize, bytes: limits.max_bytes }, tier: settings.tier }
    }
}

fn ordered(request: &WriteRequest) -> Result<RequestedSql, Failure> {
    parsed(NAME, request.params.clone())
}

/// Adds a hint to the error if the statement is in a fenced block of Markdown.
fn fenced(sql: &str, error: ExecutorError) -> ExecutorError {
    match error {
        ExecutorError::Rejected(failure) => match catalog::fence_hint(sql, &failure) {
            Some(hint) => failure.hint(hint).into(),
            None => failure.into(),
        },
        lost => lost,
    }
}

fn work(data: &impl Serialize, rows_affected: u64, rollback: Rollback) -> Result<WriteOutput, Failure> {
    Ok(WriteOutput { data: to_json(data)?, rows_affected, before: None, after: None, rollback })
}

impl WriteExecutor for AdhocSqlExecutor {
    fn check(&self, request: &WriteRequest) -> Result<(), Failure> {
        let sql = ordered(request)?.sql;
        if sql.contains('\0') || sql.len() > MAX_SQL_BYTES as usize {
            let message = format!("{NAME}: sql takes at most {MAX_SQL_BYTES} bytes without U+0000");
            return Err(Failure::new(ErrorCode::InvalidParams, message));
        }
        Ok(())
    }

    fn execute<'a>(&'a self, tx: &'a mut WriteTx<'_>, request: &'a WriteRequest) -> WriteFuture<'a> {
        Box::pin(async move {
            let RequestedSql { sql, params } = ordered(request)?;
            let answered = tx.run_adhoc(&sql, &params, self.keep).await.map_err(|error| fenced(&sql, error))?;
            let result = QueryData::new(answered.result, |_| REST);
            // The ledger determines whether the tables are tracked.
            let rollback = match answered.command_tag {
                Some(_) => Rollback { checked: None, ..Rollback::by_effects() },
                None => Rollback::irreversible(IRREVERSIBLE),
            };
            let data = ExecuteData { command_tag: answered.command_tag, result };
            Ok(work(&data, answered.rows_affected, rollback)?)
        })
    }

    /// The preview only plans the statement: it is not approved yet, and a rollback does not revert all effects.
    /// Also, the result could contain data that the agent must not read.
    fn preview<'a>(&'a self, tx: &'a mut WriteTx<'_>, request: &'a WriteRequest) -> WriteFuture<'a> {
        Box::pin(async move {
            let RequestedSql { sql, params } = ordered(request)?;
            let foreseen = tx.plan_adhoc(&sql, &params).await.map_err(|error| fenced(&sql, error))?;
            let tables = foreseen.referenced_objects.and_then(|referenced_objects| match referenced_objects {
                ReferencedObjects::Planned { tables, .. } => Some(tables),
                ReferencedObjects::Unplanned(_) | ReferencedObjects::Forbidden(_) => None,
            });
            let shown = |used: TableAccess| TableData {
                table: format!("{}.{}", used.schema, used.table),
                written: used.written,
            };
            let tables = tables.map(|tables| tables.into_iter().map(shown).collect());
            let rollback = Rollback { checked: None, ..Rollback::by_effects() };
            Ok(work(&ForeseenData { tables, estimated_rows: foreseen.estimated_rows }, 0, rollback)?)
        })
    }

    fn preview_is_binding(&self) -> bool {
        false
    }

    fn definition(&self) -> String {
        format!("{NAME} {TOOL_VERSION} {}", self.tier.as_str())
    }

    fn tier(&self) -> Tier {
        self.tier
    }
}
