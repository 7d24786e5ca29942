//! `execute_sql`: any one statement, for administrators, where the operator has switched it on. It writes through the
//! gate like every other write: recorded, once, with a receipt (promises A11-07, A11-17).

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use contract::{ErrorCode, Failure, Redaction, Rollback, TOOL_VERSION};
use ledger::read::ReadLimits;
use ledger::{Attempt, Executor, Gate, Keep, Refusal, Work, WriteTx};
use manifest::Access;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::Anything;
use super::query_database::QueryData;
use crate::manifest_write::answer;
use crate::tool::{Call, Hints, Outcome, Tool, ToolInfo};

pub(super) const NAME: &str = "execute_sql";

const DESCRIPTION: &str = "Execute any one SQL statement, and keep what it does. Use the other write tools where there \
    is one: they say how to undo what they did, this one cannot. Use query_database to read. It runs in a transaction of \
    its own, so COMMIT, ROLLBACK, VACUUM and the like are refused. An identical call within 5 minutes is not executed \
    again but answered from the record: to run the same statement again, give a new idempotency_key. Use $1, $2, ... in \
    the statement and give the values in params.";

const IRREVERSIBLE: &str = "A statement of your own: nothing here knows how to undo it.";

/// How long an identical call without a key counts as the same call: as for a manifest that does not say.
const DEDUP_WINDOW: Duration = Duration::from_secs(300);

const MAX_SQL_BYTES: u32 = 1 << 20;

/// What the agent sends.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// One SQL statement in PostgreSQL's dialect; qualify tables with their schema.
    #[schemars(length(min = 1, max = 1_048_576))]
    sql: String,
    /// The values of $1, $2, ..., in order. Any JSON value that the parameter's type can take; text of it works for every type.
    #[serde(default)]
    #[schemars(with = "Vec<Anything>", length(max = 65_535))]
    params: Vec<Value>,
    #[serde(default)]
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

/// The tool.
pub(super) struct ExecuteSql {
    info: ToolInfo,
    gate: Gate,
    keep: Keep,
}

impl ExecuteSql {
    pub(super) fn new(gate: Gate, limits: &ReadLimits) -> Self {
        let keep = Keep { rows: limits.default_rows as usize, bytes: limits.max_bytes };
        Self { info: info(), gate, keep }
    }
}

fn info() -> ToolInfo {
    let mut input_schema = super::schema_of::<Arguments>();
    if let Some(Value::Object(properties)) = input_schema.get_mut("properties") {
        properties.insert("idempotency_key".to_owned(), manifest::idempotency_key());
    }
    let mut data = super::schema_of::<ExecuteData>();
    // A duplicate has keys of its own instead.
    data.remove("required");
    if let (Some(Value::Object(properties)), Value::Object(more)) = (data.get_mut("properties"), manifest::duplicate())
    {
        properties.extend(more);
    }
    ToolInfo {
        name: NAME.to_owned(),
        title: Some("Execute SQL".to_owned()),
        description: DESCRIPTION.to_owned(),
        version: TOOL_VERSION.to_owned(),
        access: Access::Admin,
        input_schema,
        output_schema: manifest::envelope_schema(Value::Object(data), true),
        hints: Hints { read_only: false, destructive: true, idempotent: true },
        meta: Map::new(),
        sensitive: Vec::new(),
    }
}

impl Tool for ExecuteSql {
    fn info(&self) -> &ToolInfo {
        &self.info
    }

    fn call(&self, call: Call) -> Pin<Box<dyn Future<Output = Outcome> + Send + '_>> {
        Box::pin(async move {
            let arguments: Arguments = super::arguments(NAME, call.arguments)?;
            let Arguments { sql, params, idempotency_key } = arguments;
            if sql.contains('\0') || sql.len() > MAX_SQL_BYTES as usize {
                let message = format!("{NAME}: sql takes at most {MAX_SQL_BYTES} bytes without U+0000");
                return Err(Failure::new(ErrorCode::InvalidParams, message).into());
            }
            let recorded =
                [("sql".to_owned(), Value::from(sql.as_str())), ("params".to_owned(), params.clone().into())];
            let attempt = Attempt {
                principal: call.principal,
                tool: NAME.to_owned(),
                params: recorded.into_iter().collect(),
                redaction: Redaction::default(),
                idempotency_key,
                dedup_window: DEDUP_WINDOW,
                deadline: call.deadline,
                executor: Arc::new(SqlExecutor { sql, params, keep: self.keep }),
            };
            answer(NAME, self.gate.perform(attempt).await)
        })
    }
}

/// One statement of the caller's own.
struct SqlExecutor {
    sql: String,
    params: Vec<Value>,
    keep: Keep,
}

impl Executor for SqlExecutor {
    fn execute<'a>(
        &'a self,
        tx: &'a mut WriteTx<'_>,
        _: &'a Map<String, Value>,
    ) -> Pin<Box<dyn Future<Output = Result<Work, Refusal>> + Send + 'a>> {
        Box::pin(async move {
            let answered = tx.run_any(&self.sql, &self.params, self.keep).await?;
            let result = QueryData::new(answered.result);
            let data = serde_json::to_value(ExecuteData { command_tag: answered.command_tag, result })
                .map_err(|error| Failure::new(ErrorCode::InternalError, error.to_string()))?;
            let rollback = Rollback::irreversible(IRREVERSIBLE);
            Ok(Work {
                data,
                rows_affected: answered.rows_affected,
                before: None,
                after: None,
                rollback,
                reversals: Vec::new(),
            })
        })
    }
}
