//! `query_database`: the only tool that runs SQL written by the agent.

use std::borrow::Cow;
use std::sync::Arc;

use ledger::read::{NextPage, Paging, ReadLimits, ReadRequest, ResultSet, RowFormat, TruncatedBy};
use manifest::{Access, QueryDefaults};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use types::{JsonText, Mask, NumberFields, with_digits_as_text};

use super::{Builtin, QueryReader};
use crate::schema::{AnyJson, AnyParameter, AnyScalar, builtin_info};
use crate::tool::{Call, Tool, ToolInfo, ToolOutput, ToolResult};
use catalog::Truncation;

pub(super) const NAME: &str = "query_database";

const DESCRIPTION: &str = "Execute a read-only SQL query. One statement: SELECT, WITH, \
    EXPLAIN, SHOW, VALUES or TABLE. At most {rows} rows unless row_limit or the query's own \
    LIMIT says otherwise, and without row_limit about 80 kB.";

/// The most bytes of rows in an answer to a call without `row_limit`, but for a single row: about 20,000 tokens. Some
/// clients stop at 25,000.
const DEFAULT_ANSWER_BYTES: usize = 80_000;

/// What the agent sends.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// One SQL statement in PostgreSQL's dialect.
    query: String,
    /// The values of $1, $2, ... in order: JSON of their types, or text.
    #[serde(default)]
    #[schemars(with = "Vec<AnyParameter>")]
    params: Vec<Value>,
    /// The most rows to return.
    #[schemars(with = "u32", range(min = 1), default)]
    row_limit: Option<u32>,
    /// Rows as objects, or as arrays in column order, which take fewer tokens.
    #[schemars(with = "RowFormat", default)]
    row_format: Option<RowFormat>,
    /// `next.after` of a cut answer to the same call.
    #[schemars(with = "Vec<AnyScalar>", default)]
    after: Option<Vec<Value>>,
}

/// `data` of the answer.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct QueryData {
    /// The result columns, in order.
    columns: Vec<ColumnData>,
    /// The rows: objects by column name, or arrays in column order.
    #[schemars(with = "Vec<AnyJson>")]
    rows: JsonText,
    /// How many rows there are in `rows`.
    row_count: usize,
    #[serde(flatten)]
    truncation: Truncation,
    /// How to have the next rows, if rows were left out of a query that orders by a unique key.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "NextRows")]
    next: Option<NextRows>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct NextRows {
    /// The argument `after` of the next call.
    #[schemars(with = "Vec<AnyJson>")]
    after: Vec<Value>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct ColumnData {
    /// Its name; a repeated one has a suffix: a, a_2.
    name: String,
    /// Its PostgreSQL type.
    #[serde(rename = "type")]
    type_name: String,
    /// If its values are masked for the caller, the mask: partial, hash or null.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    mask: Option<&'static str>,
}

impl QueryData {
    pub(super) fn new<H: Into<Cow<'static, str>>>(result: ResultSet, hint: impl FnOnce(TruncatedBy) -> H) -> Self {
        Self {
            columns: result
                .columns
                .iter()
                .zip(result.masks.iter().copied().chain(std::iter::repeat(None)))
                .map(|(column, mask)| ColumnData {
                    name: column.name.clone(),
                    type_name: column.ty.name.clone(),
                    mask: mask.map(Mask::as_str),
                })
                .collect(),
            row_count: result.rows.len(),
            rows: result.rows.into_array(),
            truncation: Truncation::new(result.truncated_by, hint),
            next: None,
        }
    }
}

/// A hint on how to get the omitted rows.
fn next_rows(by: TruncatedBy, next: Option<&NextPage>, enough_bytes: Option<usize>) -> Cow<'static, str> {
    let how =
        "order by a unique key of the table whose columns are all in the result, and repeat the call with `after`";
    match (by, next) {
        (TruncatedBy::RowLimit, Some(NextPage::After(_))) => "For the next rows, repeat the call with the same query and \
            params and `after` set to next.after, or give a larger row_limit."
            .into(),
        (TruncatedBy::MaxBytes, next) if enough_bytes.is_some() => {
            let after = "For the next rows, repeat the call with the same query and params and `after` set to next.after. ";
            let after = if matches!(next, Some(NextPage::After(_))) { after } else { "" };
            format!(
                "{after}Without row_limit an answer has at most {DEFAULT_ANSWER_BYTES} bytes. Select fewer or shorter columns, \
                 for example left(column, 200), ask for row_format \"array\", or give a row_limit for a larger answer."
            )
            .into()
        }
        (TruncatedBy::MaxBytes, Some(NextPage::After(_))) => "For the next rows, repeat the call with the same query and \
            params and `after` set to next.after. A larger row_limit does not help; shorter columns do, for example \
            left(column, 200)."
            .into(),
        (TruncatedBy::RowLimit, problem) => {
            format!("For the next rows, {how}, or give a larger row_limit.{}", reason(problem)).into()
        }
        (TruncatedBy::MaxBytes, problem) => format!(
            "A larger row_limit does not help. Select fewer or shorter columns, for example left(column, 200), or {how}.{}",
            reason(problem)
        )
        .into(),
    }
}

/// The reason why the answer has no `after`, as a sentence of the hint.
fn reason(next: Option<&NextPage>) -> String {
    match next {
        Some(NextPage::Unavailable(problem)) => format!(" This query cannot be continued so: {problem}."),
        Some(NextPage::After(_)) | None => String::new(),
    }
}

pub(super) fn tool(queries: QueryReader, defaults: QueryDefaults) -> Box<dyn Tool> {
    let max_bytes = defaults.max_bytes.and_then(|bytes| bytes.try_into().ok());
    let reader = queries.reader.with_defaults(defaults.row_limit, max_bytes);
    // The operator's own number of bytes is for every call.
    let enough_bytes = max_bytes.is_none().then_some(DEFAULT_ANSWER_BYTES);
    let state = (QueryReader { reader, ..queries }, defaults.row_format.unwrap_or_default(), enough_bytes);
    Builtin::boxed(
        info(state.0.reader.limits(), defaults),
        state,
        |(queries, row_format, enough_bytes), given: Arguments, call| {
            let enough_bytes = enough_bytes.filter(|_| given.row_limit.is_none());
            Box::pin(query(queries, *row_format, enough_bytes, given, call))
        },
    )
}

/// `row_format` is the default form of rows.
async fn query(
    queries: &QueryReader,
    row_format: RowFormat,
    enough_bytes: Option<usize>,
    given: Arguments,
    call: Call,
) -> ToolResult {
    telemetry::set_statement(&given.query);
    let request = ReadRequest {
        row_limit: given.row_limit,
        enough_bytes,
        account: Some(call.principal.account_id.as_str()),
        trace: call.trace.as_deref(),
        paging: given.after.as_deref().map_or(Paging::First, Paging::After),
        ..ReadRequest::new(&given.query, &given.params, given.row_format.unwrap_or(row_format))
    };
    match queries.of(&call).read(&request).await {
        Ok(mut result) => {
            let (permit, standby, next) = (result.permit.take(), result.standby, result.next.take());
            let number_fields = NumberFields::of_columns(&result.columns, request.format);
            let mut data = QueryData::new(result, |by| next_rows(by, next.as_ref(), enough_bytes));
            if let Some(NextPage::After(after)) = next {
                // A client sends the values back, and may change large numbers.
                let values = after.iter().map(|value| serde_json::from_str(value.get()).unwrap_or_default());
                data.next = Some(NextRows { after: values.map(with_digits_as_text).collect() });
            }
            let number_fields = Some(Arc::new(number_fields));
            ToolOutput::of_rows(&data, (permit, standby)).map(|output| ToolOutput { number_fields, ..output })
        }
        Err(error) => Err(queries.failure(error, &given.query, &call).await),
    }
}

/// The description for clients. It states the default number of rows, and other defaults if a manifest has set them.
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
