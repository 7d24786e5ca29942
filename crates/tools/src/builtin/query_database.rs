//! `query_database`: the only tool that runs SQL written by the agent.

use std::pin::Pin;

use ledger::read::{ReadLimits, ReadRequest, Reader, ResultSet, RowFormat, TruncatedBy};
use manifest::{Access, QueryDefaults};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::schema::arguments;
use crate::schema::{AnyJson, builtin_info};
use crate::tool::{Call, Tool, ToolInfo, ToolOutput, ToolResult};
use catalog::corrected;
use catalog::{Truncation, read_failure};

pub(super) const NAME: &str = "query_database";

const DESCRIPTION: &str = "Execute a read-only SQL query. One statement: SELECT, WITH, \
    EXPLAIN, SHOW, VALUES or TABLE. At most {rows} rows unless row_limit or the query's own \
    LIMIT says otherwise; `truncated` tells whether there were more. Use $1, $2, ... in the query and give the values in params.";

/// What the agent sends.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// One SQL statement in PostgreSQL's dialect.
    query: String,
    /// The values of $1, $2, ... in order: JSON of their types, or text.
    #[serde(default)]
    #[schemars(with = "Vec<AnyJson>")]
    params: Vec<Value>,
    /// The most rows to return.
    #[serde(default)]
    #[schemars(with = "u32", range(min = 1))]
    row_limit: Option<u32>,
    /// Rows as objects by column name, or as arrays in column order, which take fewer tokens.
    #[serde(default)]
    #[schemars(with = "RowFormat")]
    row_format: Option<RowFormat>,
}

/// `data` of the answer.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct QueryData {
    /// The result columns, in order.
    columns: Vec<ColumnData>,
    /// The rows: objects by column name, or arrays in column order.
    #[schemars(with = "Vec<AnyJson>")]
    rows: Vec<Box<RawValue>>,
    /// How many rows there are in `rows`.
    row_count: usize,
    #[serde(flatten)]
    truncation: Truncation,
}

#[derive(Debug, Serialize, JsonSchema)]
struct ColumnData {
    /// Its name; a repeated one has a suffix: a, a_2.
    name: String,
    /// Its PostgreSQL type.
    #[serde(rename = "type")]
    type_name: String,
}

impl QueryData {
    pub(super) fn new(result: ResultSet, hint: impl FnOnce(TruncatedBy) -> &'static str) -> Self {
        Self {
            columns: result
                .columns
                .iter()
                .map(|column| ColumnData { name: column.name.clone(), type_name: column.ty.name.clone() })
                .collect(),
            row_count: result.rows.len(),
            rows: result.rows,
            truncation: Truncation::new(result.truncated_by, hint),
        }
    }
}

/// Hint on how to get the omitted rows.
fn next_rows(by: TruncatedBy) -> &'static str {
    match by {
        TruncatedBy::RowLimit => {
            "For the next rows, order by a unique column and select those behind the last one (where id > ...), or give a \
             larger row_limit."
        }
        TruncatedBy::MaxBytes => {
            "A larger row_limit does not help. Select fewer or shorter columns, for example left(column, 200), or order by a \
             unique column and select the rows behind the last one (where id > ...)."
        }
    }
}

/// The tool.
pub(super) struct QueryDatabase {
    info: ToolInfo,
    reader: Reader,
    /// The form of the rows of a call without one.
    row_format: RowFormat,
}

impl QueryDatabase {
    pub(super) fn new(reader: Reader, defaults: QueryDefaults) -> Self {
        let max_bytes = defaults.max_bytes.and_then(|bytes| bytes.try_into().ok());
        let reader = reader.with_defaults(defaults.row_limit, max_bytes);
        Self { info: info(reader.limits(), defaults), reader, row_format: defaults.row_format.unwrap_or_default() }
    }
}

/// The description for clients. It names the number of rows by default, and the other defaults if a manifest has set them.
pub(super) fn info(limits: &ReadLimits, defaults: QueryDefaults) -> ToolInfo {
    let rows = defaults.row_limit.unwrap_or(limits.default_rows).min(limits.max_rows);
    let mut description = DESCRIPTION.replace("{rows}", &rows.to_string());
    if let Some(bytes) = defaults.max_bytes {
        description.push_str(&format!(" An answer has at most {bytes} bytes of rows."));
    }
    if let Some(format) = defaults.row_format {
        description.push_str(&format!(" Rows are {}s unless row_format says otherwise.", format.as_str()));
    }
    let mut info = builtin_info::<Arguments, QueryData>(NAME, "Query the database", &description, Access::Read);
    super::limit_rows(&mut info, "row_limit", limits);
    info
}

impl Tool for QueryDatabase {
    fn info(&self) -> &ToolInfo {
        &self.info
    }

    fn call(&self, call: Call) -> Pin<Box<dyn Future<Output = ToolResult> + Send + '_>> {
        Box::pin(async move {
            let arguments: Arguments = arguments(NAME, call.arguments)?;
            let request = ReadRequest {
                sql: &arguments.query,
                params: &arguments.params,
                row_limit: arguments.row_limit,
                format: arguments.row_format.unwrap_or(self.row_format),
                account: Some(call.principal.account_id.as_str()),
                trace: call.trace.as_deref(),
            };
            let deadline = self.reader.limits().deadline;
            match self.reader.query(&request).await {
                Ok(mut result) => {
                    let permit = result.permit.take();
                    ToolOutput::of_rows(&QueryData::new(result, next_rows), permit)
                }
                Err(error) => {
                    let failure = read_failure(error, deadline);
                    Err(corrected(&self.reader, &arguments.query, failure, call.deadline).await.into())
                }
            }
        })
    }
}
