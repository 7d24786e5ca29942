//! `row_history`: the recorded changes of one row of a tracked table.
//!
//! The ledger's login sees every recorded value, so the caller's own reader proves first that the caller may read all
//! of the table. No policy can decide about a row that is not there any more: callers and tables with one are refused.

use std::collections::BTreeMap;
use std::iter::repeat;

use catalog::{Truncation, ledger_failure, read_failure};
use ledger::audit::{Audit, HistoryExtent, HistoryGap, RowError, RowForAgent, TableForAgent, TrackedRow};
use ledger::read::{ReadError, ReadRequest, RowFormat, TruncatedBy};
use manifest::Access;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use types::{
    CellMasks, ChangeKind, ColumnEffect, Columns, CorrelationId, ErrorCode, Failure, Redaction, RowEffect,
    RowHistoryEntry, quoted, visible,
};

use super::{Builtin, QueryReader};
use crate::bounded::{MAX_PAGE_BYTES, cut_texts, size};
use crate::row_masking::answer;
use crate::schema::{AnyJson, AnyScalar, builtin_info, default_list_limit};
use crate::tool::{Call, Tool, ToolError, ToolResult};

pub(super) const NAME: &str = "row_history";

const DESCRIPTION: &str =
    "Show how one row of a tracked table came to be as it is: its recorded changes, newest first.";

const OLDER: &str = "For older changes give a larger limit.";

/// What the agent sends.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// schema.name.
    #[schemars(length(min = 1))]
    table: String,
    /// The value of each column of the key.
    #[schemars(with = "BTreeMap<String, AnyScalar>")]
    key: Map<String, Value>,
    /// The most changes to list.
    #[serde(default = "default_list_limit")]
    #[schemars(range(min = 1, max = 100))]
    limit: u32,
}

/// `data` of the answer.
#[derive(Debug, Serialize, JsonSchema)]
struct RowHistoryData {
    /// The earliest time of which something is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    known_from: Option<String>,
    /// Since when no change is missing; absent if changes may be missing at any time.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    complete_from: Option<String>,
    /// Why changes may be missing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<String>")]
    gaps: Vec<HistoryGap>,
    /// The changes, newest first.
    #[schemars(with = "Vec<AnyJson>")]
    changes: Vec<RowChange>,
    /// How many changes are left out because the table had other columns.
    #[serde(skip_serializing_if = "is_zero")]
    other_shapes: u64,
    #[serde(flatten)]
    truncation: Truncation,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// A change of the row.
#[derive(Debug, Serialize)]
struct RowChange {
    changed_at: Option<String>,
    change: ChangeKind,
    columns: Columns<ColumnEffect<Value>>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    is_cut: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    has_sensitive_changes: bool,
    /// The write, if the account of the caller made it.
    #[serde(flatten)]
    write: Option<OwnWrite>,
}

#[derive(Debug, Serialize)]
struct OwnWrite {
    correlation_id: CorrelationId,
    tool_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    actor: Option<String>,
}

struct RowHistory {
    audit: Audit,
    queries: QueryReader,
}

pub(super) fn tool(audit: Audit, queries: QueryReader) -> Box<dyn Tool> {
    let info = builtin_info::<Arguments, RowHistoryData>(NAME, "Show the history of a row", DESCRIPTION, Access::Write);
    Builtin::boxed(info, RowHistory { audit, queries }, |tool, given, call| Box::pin(tool.answer(given, call)))
}

impl RowHistory {
    async fn answer(&self, given: Arguments, call: Call) -> ToolResult {
        if !call.principal.context.is_empty() {
            return Err(refused(
                "a caller with a role or claims, whom policies of row level security may show fewer rows",
            )
            .into());
        }
        let key = key_values(&given.key)?;
        let found = self.audit.table_for_agent(&given.table).await.map_err(|error| ledger_failure(&error))?;
        let table = found.ok_or_else(|| not_tracked(&given.table))?;
        self.prove_readable(&table, &call).await?;
        let row = self.audit.row_of(&table, &key).await.map_err(row_failure)?;
        let cells = CellMasks::new(call.masks.as_deref());
        self.changes(&row, given.limit, cells, &call).await
    }

    /// Reads no row of the table, but all of its columns, with the rights and masks of the caller.
    async fn prove_readable(&self, table: &TableForAgent, call: &Call) -> Result<(), ToolError> {
        const FACTS_SQL: &str = "select pg_catalog.row_security_active($1::text::oid) as has_policy, \
            $2::text::regclass::oid = $1::text::oid as is_same";
        let reader = self.queries.of(call);
        let request = ReadRequest {
            account: Some(call.principal.account_id.as_str()),
            trace: call.trace.as_deref(),
            ..ReadRequest::new(table.no_rows(), &[], RowFormat::Array)
        };
        let failure = |error: ReadError| ToolError::from(read_failure(error, reader.limits().deadline));
        let columns = reader.read(&request).await.map_err(failure)?;
        let masks = columns.masks.iter().copied().chain(repeat(None));
        let masked = table.columns().iter().zip(masks).filter_map(|(column, mask)| mask.map(|_| column));
        if let Some(column) = masked.into_iter().find(|column| table.key_columns().contains(column)) {
            return Err(refused(&format!("a table whose key is masked for the caller: {}", visible(column))).into());
        }
        let params = [table.relation().into(), table.name().into()];
        let trusted = reader.for_trusted_sql();
        let facts = trusted.read(&ReadRequest::new(FACTS_SQL, &params, RowFormat::Object)).await.map_err(failure)?;
        let facts: Vec<TableFacts> = facts.rows.deserialize().map_err(|_| no_facts())?;
        match facts.as_slice() {
            [TableFacts { has_policy: false, is_same: true }] => Ok(()),
            [TableFacts { has_policy: true, .. }] => {
                Err(refused("a table with row level security that applies to the caller").into())
            }
            _ => Err(no_facts().into()),
        }
    }

    async fn changes(&self, row: &TrackedRow, limit: u32, mut cells: CellMasks<'_>, call: &Call) -> ToolResult {
        // One more, to know whether there are more.
        let found = self.audit.row_for_agent(row, &call.principal.account_id, limit.saturating_add(1)).await;
        let RowForAgent { changes, extent } = found.map_err(|error| ledger_failure(&error))?;
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let mut truncated_by = (changes.len() > limit).then_some(TruncatedBy::RowLimit);
        let changes: Vec<RowChange> =
            changes.into_iter().take(limit).map(|it| RowChange::new(it, &mut cells)).collect();
        // The masks know all values to hide only now, and what is cut would not be found.
        let redaction = cells.redaction();
        let mut shown = Vec::new();
        let mut bytes = 0_usize;
        for change in changes {
            let change = change.redacted(&redaction).fitting();
            bytes = bytes.saturating_add(size(&change));
            if bytes > MAX_PAGE_BYTES && !shown.is_empty() {
                truncated_by = Some(TruncatedBy::MaxBytes);
                break;
            }
            shown.push(change);
        }
        if let Some(trace) = &call.trace {
            trace.set_rows(shown.len(), bytes);
        }
        let HistoryExtent { known_from, complete_from, gaps, other_shapes } = extent;
        let truncation = Truncation::new(truncated_by, |_| OLDER);
        let data = RowHistoryData { known_from, complete_from, gaps, changes: shown, other_shapes, truncation };
        answer(&data, &redaction)
    }
}

/// What the caller's reader knows of a table.
#[derive(Deserialize)]
struct TableFacts {
    has_policy: bool,
    /// Whether the name is that of the table whose changes are recorded.
    is_same: bool,
}

impl RowChange {
    fn new(entry: RowHistoryEntry, cells: &mut CellMasks<'_>) -> Self {
        let RowHistoryEntry { correlation_id, tool_name, actor, changed_at, effect, .. } = entry;
        let RowEffect { change, columns, is_cut, has_sensitive_changes, .. } =
            effect.map(|column, cell| cells.cell(column, cell));
        let write = correlation_id.map(|correlation_id| OwnWrite { correlation_id, tool_name, actor });
        Self { changed_at, change, columns, is_cut, has_sensitive_changes, write }
    }

    fn redacted(mut self, redaction: &Redaction) -> Self {
        self.values().for_each(|value| *value = redaction.value(value));
        self
    }

    /// The change with its long texts cut, or without its columns, if it takes a whole answer.
    fn fitting(mut self) -> Self {
        if size(&self) > MAX_PAGE_BYTES {
            self.values().for_each(cut_texts);
        }
        if size(&self) > MAX_PAGE_BYTES {
            self.columns.clear();
            self.is_cut = true;
        }
        self
    }

    fn values(&mut self) -> impl Iterator<Item = &mut Value> {
        self.columns.values_mut().flat_map(|column| match column {
            ColumnEffect::Changed { before, after } => vec![before, after],
            ColumnEffect::Whole(whole) => vec![whole],
        })
    }
}

/// The values of a key by column, as text.
fn key_values(key: &Map<String, Value>) -> Result<Vec<(Option<String>, String)>, Failure> {
    let text = |(column, value): (&String, &Value)| {
        let text = match value {
            Value::String(text) if !text.contains('\0') => text.clone(),
            Value::Number(number) => number.to_string(),
            Value::Bool(is_true) => is_true.to_string(),
            _ => return Err(invalid(&format!("the value of {} in key is no text, number or boolean", quoted(column)))),
        };
        Ok((Some(column.clone()), text))
    };
    key.iter().map(text).collect()
}

fn refused(what: &str) -> Failure {
    let message = format!("{NAME} is refused for {what}: the changes of a row are recorded whole");
    Failure::new(ErrorCode::NotPermitted, message).hint("query_database reads the rows of now.")
}

fn invalid(error: &impl std::fmt::Display) -> Failure {
    Failure::new(ErrorCode::InvalidParams, format!("{NAME}: {error}"))
}

fn not_tracked(table: &str) -> Failure {
    let message = format!("the table {} is not tracked, so no change of its rows is recorded", quoted(table));
    Failure::new(ErrorCode::NotFound, message).hint("Name it as describe_database does: schema.name.")
}

fn no_facts() -> Failure {
    Failure::new(ErrorCode::DbError, format!("{NAME}: the table was changed during the call")).hint("Call again.")
}

fn row_failure(error: RowError) -> Failure {
    match error {
        RowError::NotTracked { table, .. } | RowError::Ambiguous(table, _) => not_tracked(&table),
        RowError::NoKey(_) => Failure::new(ErrorCode::NotPermitted, format!("{NAME}: {error}")),
        RowError::Key { expected, .. } => invalid(&format!("the key is {expected}: give a value for each column")),
        RowError::Database(error) => match error.server_error() {
            // The value is not of the type of the column.
            Some(of_value) if of_value.sqlstate.starts_with("22") || of_value.sqlstate.starts_with("23") => {
                invalid(&format!("key: {}", of_value.message))
            }
            _ => ledger_failure(&error),
        },
    }
}
