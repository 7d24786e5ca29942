//! Rows of a tracked table as they were at a time (ADR 0109, `migrations/baseline/49_history.sql`).

use pg::value::text_array;
use serde::Deserialize;
use serde_json::Value;
use time::OffsetDateTime;
use types::{Cell, Columns, HistoryGap, PastRow, PastRows, TimeError, UnknownColumn, rfc3339, visible};

use super::row::{RowError, TrackedRow};
use super::{Audit, unreadable};
use crate::evidence::effects::fields;
use crate::evidence::time_range::TimeRangeError;

/// $1: the table. $2: the time. $3: the key. $4, $5: conditions. $6: the maximum number of rows.
const PAST_SQL: &str = "\
select coalesce(s.name, '') as name, \
    to_char(s.known_from at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"') as known_from, \
    $2::timestamptz > clock_timestamp() as is_future, s.known_from <= $2::timestamptz as is_known, s.unknown_because, coalesce(to_json(s.columns), '[]') as columns, \
    coalesce(to_json(s.gaps), '[]') as gaps, coalesce(s.unknown_columns, '[]') as unknown_columns, \
    (select coalesce(json_agg(json_build_object('key', b.key, 'image', case when b.bytes <= 16777216 then b.image end, \
         'state', case when b.bytes <= 16777216 then b.state else 'cut' end)), '[]') \
     from (select r.*, sum(coalesce(octet_length(r.image), 0)) over (rows unbounded preceding) as bytes \
           from countersign.rows_at(s, $2::timestamptz, $3, $4::text[], $5::text[], $6::integer) r) b) as rows \
from countersign.history_scope($1::oid, $2::timestamptz) s";

/// A condition on rows: a column has a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnValue {
    pub column: String,
    pub value: String,
}

impl ColumnValue {
    /// Parses `COLUMN=VALUE`.
    ///
    /// # Errors
    /// The text has no `=`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (column, value) = text.split_once('=').ok_or("a condition is COLUMN=VALUE, such as status=paid")?;
        Ok(Self { column: column.to_owned(), value: value.to_owned() })
    }
}

/// The reason why the rows of a time are not known at all.
#[derive(Debug, thiserror::Error)]
pub enum PastError {
    #[error(transparent)]
    Row(#[from] RowError),
    #[error(transparent)]
    Time(#[from] TimeRangeError),
    #[error(transparent)]
    NotATime(#[from] TimeError),
    #[error("the time is in the future: {0}")]
    Future(String),
    #[error("the rows of {} at {at} are not known: {reason}", visible(table))]
    NotKnown { table: String, at: String, reason: String },
    #[error("the rows of {} are derived from those of now, which this login may not read: it needs SELECT on the table", visible(.0))]
    NotReadable(String),
    #[error(
        "no row is found by {}, which is no column of {} or not known at that time",
        visible(column),
        visible(table)
    )]
    Column { table: String, column: String },
    /// The query failed.
    #[error(transparent)]
    Database(#[from] pg::Error),
}

#[derive(Deserialize)]
struct Answer {
    name: String,
    known_from: Option<String>,
    is_future: bool,
    is_known: Option<bool>,
    unknown_because: Option<FirstKnown>,
    columns: Vec<String>,
    gaps: Vec<HistoryGap>,
    unknown_columns: Vec<UnknownColumn>,
    rows: Vec<FoundRow>,
}

/// What there is at the earliest time of which something is known.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum FirstKnown {
    Tracked,
    Pruned,
    Truncated,
    KeyChanged,
}

#[derive(Deserialize)]
struct FoundRow {
    key: String,
    image: Option<String>,
    state: State,
}

#[derive(Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum State {
    Row,
    Absent,
    Unknown,
    Cut,
}

/// The maximum number of keys of rows that are not known.
const MAX_UNKNOWN: usize = 100;

impl Audit {
    /// The row, or the rows of the table that have these values, as they were at a time.
    pub async fn past(
        &self,
        row: &TrackedRow,
        at: OffsetDateTime,
        conditions: &[ColumnValue],
        limit: u32,
    ) -> Result<PastRows, PastError> {
        let (columns, values): (Vec<_>, Vec<_>) =
            conditions.iter().map(|it| (it.column.clone(), it.value.clone())).unzip();
        let params = [
            Some(row.relation.clone()),
            Some(rfc3339(at)),
            row.key.clone(),
            Some(text_array(&columns)),
            Some(text_array(&values)),
            Some(limit.to_string()),
        ];
        let answer: Vec<Answer> = self.records.read_only(PAST_SQL, &params).await?;
        let answer = answer.into_iter().next().ok_or_else(unreadable)?;
        answer.rows(rfc3339(at), row.key.is_some(), &columns, usize::try_from(limit).unwrap_or(usize::MAX))
    }
}

impl Answer {
    fn rows(self, at: String, is_one: bool, conditions: &[String], limit: usize) -> Result<PastRows, PastError> {
        if self.is_future {
            return Err(PastError::Future(at));
        }
        let Self { name: table, known_from, is_known, unknown_because, columns, gaps, unknown_columns, rows, .. } =
            self;
        let Some(known_from) = known_from.clone().filter(|_| is_known == Some(true)) else {
            return Err(PastError::NotKnown { table, at, reason: reason(unknown_because, known_from) });
        };
        if !is_one && gaps.contains(&HistoryGap::NotCompared) {
            return Err(PastError::NotReadable(table));
        }
        let is_unknown = |column: &String| unknown_columns.iter().any(|it| it.column == *column);
        if let Some(column) = conditions.iter().find(|it| !columns.contains(it) || is_unknown(it)) {
            return Err(PastError::Column { table, column: column.clone() });
        }
        let (mut found, mut unknown_rows, mut is_cut) = (Vec::new(), Vec::new(), false);
        for row in rows {
            let key: Columns = serde_json::from_str(&row.key).unwrap_or_default();
            match (row.state, row.image) {
                (State::Row, Some(image)) if found.len() < limit => {
                    let values = columns.iter().cloned().zip(fields(&image));
                    let known = values.filter(|(name, _)| !is_unknown(name));
                    let columns = known.map(|(name, value)| (name, Cell::from(Value::from(value)))).collect();
                    found.push(PastRow { key, columns });
                }
                (State::Unknown, _) if unknown_rows.len() < MAX_UNKNOWN => unknown_rows.push(key),
                (State::Absent, _) => {}
                _ => is_cut = true,
            }
        }
        let is_complete = gaps.is_empty() && unknown_columns.is_empty() && unknown_rows.is_empty() && !is_cut;
        Ok(PastRows { table, at, known_from, is_complete, gaps, unknown_columns, rows: found, unknown_rows, is_cut })
    }
}

fn reason(first: Option<FirstKnown>, from: Option<String>) -> String {
    let from = from.unwrap_or_default();
    match first {
        Some(FirstKnown::Tracked) => format!("its changes are recorded since {from}"),
        Some(FirstKnown::Pruned) => format!("recorded changes from before {from} were pruned"),
        Some(FirstKnown::Truncated) => format!("TRUNCATE removed its rows at {from}"),
        Some(FirstKnown::KeyChanged) => {
            format!("its key was changed, and rows are told apart by the new one since {from}")
        }
        None => "it has no key, or another one than when it was tracked: run `countersign track` again".to_owned(),
    }
}
