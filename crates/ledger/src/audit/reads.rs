//! The log of reads, for people (`migrations/baseline/75_reads.sql`).

use serde::{Deserialize, Serialize};
use types::{Age, ClientInfo, TimeRange, rfc3339};

use super::{Audit, number, one_row};

/// Selects the entries of a list.
#[derive(Debug, Clone, Default)]
pub struct ReadFilter {
    /// The maximum number of entries.
    pub limit: u32,
    /// The tool; `None` for any.
    pub tool_name: Option<String>,
    /// The account; `None` for any.
    pub account_id: Option<String>,
    /// The actor; `None` for any.
    pub actor: Option<String>,
    /// The beginning of the session's id; `None` for any.
    pub session: Option<String>,
    pub time: TimeRange,
    /// A table that the reads accessed, as `schema.table`; `None` for any.
    pub table: Option<String>,
    /// The outcome; `None` for any.
    pub outcome: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadGroup {
    /// By table; a read of two tables counts for both.
    Table,
    Account,
    Tool,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct ReadCounts {
    /// The groups, the one with most reads first.
    pub groups: Vec<ReadGroupCount>,
    /// The number of reads of that time that could not be logged.
    pub lost: i64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadGroupCount {
    /// The table, the account or the tool; `None` for reads without one.
    pub name: Option<String>,
    pub reads: u64,
    pub failed: u64,
    /// The number of rows that they returned.
    pub rows: u64,
    /// The size of these rows in bytes.
    pub bytes: u64,
    /// When the last read began.
    pub last_at: String,
}

/// An entry of the log of reads, or a line that says how many entries are missing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadLogLine {
    pub id: i64,
    pub read_at: String,
    /// The outcome: `ok`, `cancelled`, an error code, `lost` or `pruned`.
    pub outcome: String,
    /// The tool; `None` for a line about missing entries.
    pub tool_name: Option<String>,
    pub account_id: Option<String>,
    /// The actor; for pruned days, the person who removed them.
    pub actor: Option<String>,
    pub client: Option<ClientInfo>,
    pub tables: Option<Vec<String>>,
    pub row_count: Option<i64>,
    pub row_bytes: Option<i64>,
    pub duration_us: Option<u64>,
    pub is_truncated: Option<bool>,
    /// The fingerprint of the statement's text.
    pub fingerprint: Option<String>,
    /// The text of the statement, if texts are logged.
    pub query: Option<String>,
    pub login: Option<String>,
    /// The number of missing entries.
    pub entries: Option<i64>,
    /// The time of the first missing entry.
    pub first_at: Option<String>,
    pub last_at: Option<String>,
}

/// The log of one day (UTC).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadDay {
    /// The day: `2026-03-05`.
    pub day: String,
    pub rows: i64,
}

/// RFC 3339 with microseconds, by which entries are ordered.
macro_rules! micros {
    ($column:literal) => {
        concat!("to_char(", $column, " at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')")
    };
}

/// Rows without a tool say which entries are missing. They are listed with every filter, since a missing entry might
/// match it.
const LIST_SQL: &str = concat!(
    "select a.id, ",
    micros!("a.read_at"),
    " as read_at, a.outcome, a.tool_name, a.account_id, a.actor, \
     nullif(json_strip_nulls(json_build_object('name', a.client_name, 'version', a.client_version, \
         'session_id', a.session_id, 'trace_id', a.trace_id))::text, '{}')::json as client, \
     a.tables, a.row_count, a.row_bytes, a.duration_us, a.is_truncated, encode(a.fingerprint, 'hex') as fingerprint, a.query, \
     a.login, a.entries, ",
    micros!("a.first_at"),
    " as first_at, ",
    micros!("a.last_at"),
    " as last_at \
     from countersign.read_log a \
     where ($1::text is null or a.outcome = $1) \
       and ($2::timestamptz is null or a.read_at >= $2) \
       and ($3::timestamptz is null or a.read_at < $3) \
       and ($4::timestamptz is null or (a.read_at, a.id) < ($4, $5::bigint)) \
       and (a.tool_name is null or ($6::text is null or a.tool_name = $6) \
            and ($7::text is null or a.account_id = $7) and ($8::text is null or a.actor = $8) \
            and ($9::text is null or starts_with(a.session_id, $9)) \
            and ($10::text is null or $10 = any (a.tables))) \
     order by a.read_at desc, a.id desc limit $11::bigint"
);

/// The maximum number of entries in one query, because the size of its answer is bounded.
const PAGE: u32 = 200;

const LOST_SQL: &str = "select coalesce(sum(a.entries), 0)::text from countersign.read_log a \
     where a.outcome = 'lost' and ($1::timestamptz is null or a.read_at >= $1)";

const DAYS_SQL: &str = "select to_char(p.day, 'YYYY-MM-DD') from countersign.read_partitions() p \
     where not p.is_last_day and (p.day + 1)::timestamp at time zone 'UTC' <= now() - make_interval(secs => $1::double precision)";
const ROWS_SQL: &str = "select count(*)::text from countersign.read_log a where \
     a.read_at >= $1::date::timestamp at time zone 'UTC' and a.read_at < ($1::date + 1)::timestamp at time zone 'UTC'";
const DROP_SQL: &str = "select countersign.drop_reads($1::date, $2::text)::text";

impl ReadGroup {
    const fn sql(self) -> &'static str {
        macro_rules! counts {
            ($name:literal, $from:literal) => {
                concat!(
                    "select ",
                    $name,
                    " as name, count(*) as reads, count(*) filter (where a.outcome <> 'ok') as failed, \
                     coalesce(sum(a.row_count), 0)::bigint as rows, coalesce(sum(a.row_bytes), 0)::bigint as bytes, ",
                    micros!("max(a.read_at)"),
                    " as last_at from countersign.read_log a ",
                    $from,
                    " where a.tool_name is not null \
                       and ($1::timestamptz is null or a.read_at >= $1) \
                     group by 1 order by 2 desc, 1"
                )
            };
        }
        match self {
            Self::Table => {
                counts!(
                    "t.name",
                    "cross join lateral unnest(coalesce(nullif(a.tables, '{}'), array[null::text])) t (name)"
                )
            }
            Self::Account => counts!("a.account_id", ""),
            Self::Tool => counts!("a.tool_name", ""),
        }
    }
}

impl Audit {
    /// The entries that the filter selects, newest first.
    pub async fn list_reads(&self, filter: &ReadFilter) -> Result<Vec<ReadLogLine>, pg::Error> {
        let mut entries: Vec<ReadLogLine> = Vec::new();
        let mut left = filter.limit;
        while left > 0 {
            let page = left.min(PAGE);
            let last = entries.last();
            let params = [
                filter.outcome.clone(),
                filter.time.from.map(rfc3339),
                filter.time.to.map(rfc3339),
                last.map(|last| last.read_at.clone()),
                last.map(|last| last.id.to_string()),
                filter.tool_name.clone(),
                filter.account_id.clone(),
                filter.actor.clone(),
                filter.session.clone(),
                filter.table.clone(),
                Some(page.to_string()),
            ];
            let found: Vec<ReadLogLine> = self.records.rows(LIST_SQL, &params).await?;
            let is_last = found.len() < usize::try_from(page).unwrap_or(usize::MAX);
            entries.extend(found);
            left = if is_last { 0 } else { left - page };
        }
        Ok(entries)
    }

    /// Counts the reads since the beginning of `time`, or all reads if it has none.
    pub async fn count_reads(&self, by: ReadGroup, time: TimeRange) -> Result<ReadCounts, pg::Error> {
        let since = [time.from.map(rfc3339)];
        let groups = self.records.rows(by.sql(), &since).await?;
        let [lost] = one_row(self.ask(LOST_SQL, &since).await?)?;
        Ok(ReadCounts { groups, lost: number(lost.as_ref())? })
    }

    /// The days of the log that ended longer ago than `older_than`. The last day is never among them.
    pub async fn prunable_reads(&self, older_than: Age) -> Result<Vec<ReadDay>, pg::Error> {
        let mut days = Vec::new();
        for row in self.ask(DAYS_SQL, &[Some(older_than.as_secs().to_string())]).await? {
            let [day] = one_row(vec![row])?;
            let [rows] = one_row(self.ask(ROWS_SQL, std::slice::from_ref(&day)).await?)?;
            days.push(ReadDay { day: day.unwrap_or_default(), rows: number(rows.as_ref())? });
        }
        Ok(days)
    }

    /// Removes one day of the log, and returns the number of removed rows. The log gets a row about this, which names
    /// `who`.
    ///
    /// # Errors
    /// The query failed, for example because a lock was not available within half a second.
    pub async fn prune_reads(&self, day: &str, who: &str) -> Result<i64, pg::Error> {
        let params = [day, who].map(|text| Some(text.to_owned()));
        let [removed] = one_row(self.ask(DROP_SQL, &params).await?)?;
        number(removed.as_ref())
    }
}
