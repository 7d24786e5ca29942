//! The history of a row for an agent. The caller proves first, over its own reader, that the agent may read the table:
//! the ledger's login sees every recorded value.

use serde::{Deserialize, Serialize};
use types::{AccountId, RowHistoryEntry};

use super::row::{FoundTable, RowError, TrackedRow};
use super::{Audit, unreadable};
use crate::evidence::row_history::{self, HistoryQuery, newest_of_row};

/// The maximum length of the row images of an answer in bytes.
const MAX_BYTES: usize = 1 << 20;

/// A tracked table as it is now.
#[derive(Debug, Clone)]
pub struct TableForAgent {
    found: FoundTable,
    now: TableNow,
}

#[derive(Debug, Clone, Deserialize)]
struct TableNow {
    name: String,
    columns: Vec<String>,
    /// A query for every column, without rows.
    no_rows: String,
}

/// The changes of a row, and since when none is missing.
#[derive(Debug)]
pub struct RowForAgent {
    /// The newest changes under the current shape of the table, newest first.
    pub changes: Vec<RowHistoryEntry>,
    pub extent: HistoryExtent,
}

/// What there is of the history of a row.
#[derive(Debug, Clone, Deserialize)]
pub struct HistoryExtent {
    /// The earliest time of which something is known; `None` if rows cannot be told apart.
    pub known_from: Option<String>,
    /// Since when no change is missing; `None` if changes may be missing at any time.
    pub complete_from: Option<String>,
    /// Why changes may be missing.
    pub gaps: Vec<HistoryGap>,
    /// The number of changes that were recorded while the table had other columns.
    pub other_shapes: u64,
}

/// Why changes of a row may be missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HistoryGap {
    /// Those from outside are not recorded.
    OutsideNotRecorded,
    /// Those of rows that came or went with a partition are not recorded.
    Partitions,
    /// A trigger is missing.
    NotRecording,
}

/// No column is named by what it was called once: the privileges and masks are those of the columns of now.
const NOW_SQL: &str = "\
select countersign.table_name(a.attrelid) as name, json_agg(a.attname order by a.attnum) as columns, \
    format('select %s from %s limit 0', string_agg(quote_ident(a.attname), ', ' order by a.attnum), countersign.table_name(a.attrelid)) as no_rows \
from pg_attribute a where a.attrelid = $1::oid and a.attnum > 0 and not a.attisdropped group by a.attrelid";

/// Whether a change `c` was recorded under the shape that the table has now.
macro_rules! has_shape {
    () => {
        "(c.is_misshapen is null and coalesce(c.shape = (select k.shape from countersign.tracked k \
         where k.relation = $1::oid and k.is_current and countersign.has_current_shape(k)), false))"
    };
}

const CHANGES_SQL: &str = newest_of_row!("c.op <> 'N' and ", has_shape!());

/// The changes of the row are only counted if there may be some under another shape.
const EXTENT_SQL: &str = concat!(
    "select to_char(s.known_from at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"') as known_from, \
        to_char(case when s.gaps = '{}' and countersign.has_current_shape(t) \
                then greatest(s.known_from, t.all_writers_since, case when o.count > 0 then greatest(t.since, o.last) end) end at time zone 'UTC', \
            'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"') as complete_from, \
        to_json(s.gaps) as gaps, o.count as other_shapes \
     from countersign.tracked t cross join lateral countersign.history_extent(t.relation) s \
     cross join lateral (select count(*) as count, max(c.changed_at) as last \
         from countersign.effects_of_row($1::oid, $2) c where c.op <> 'N' and not ",
    has_shape!(),
    " and ((select count(*) > 1 from countersign.tracked k where k.relation = $1::oid) \
           or not (select countersign.has_current_shape(k) from countersign.tracked k where k.relation = $1::oid and k.is_current) \
           or exists (select from countersign.effect e where e.correlation_id is null and e.changed_at is not null))) o \
     where t.relation = $1::oid and t.is_current"
);

impl TableForAgent {
    /// The name, qualified and quoted as in SQL.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.now.name
    }

    /// `pg_class.oid`, as text.
    #[must_use]
    pub fn relation(&self) -> &str {
        &self.found.relation
    }

    /// The columns, in the order of [`TableForAgent::no_rows`].
    #[must_use]
    pub fn columns(&self) -> &[String] {
        &self.now.columns
    }

    #[must_use]
    pub fn key_columns(&self) -> &[String] {
        self.found.key_columns.as_deref().unwrap_or_default()
    }

    /// A query for every column, without rows. It fails for a login that may not read one of them.
    #[must_use]
    pub fn no_rows(&self) -> &str {
        &self.now.no_rows
    }
}

impl Audit {
    /// The tracked table of this name; `None` if there is none, or if there are several.
    pub async fn table_for_agent(&self, table: &str) -> Result<Option<TableForAgent>, pg::Error> {
        let Ok([found]) = <[FoundTable; 1]>::try_from(self.find_tables(table).await?) else { return Ok(None) };
        let now: Vec<TableNow> = self.records.rows(NOW_SQL, &[Some(found.relation.clone())]).await?;
        Ok(now.into_iter().next().map(|now| TableForAgent { found, now }))
    }

    /// The row of this table with this key: a value for each column of the key.
    pub async fn row_of(
        &self,
        table: &TableForAgent,
        key: &[(Option<String>, String)],
    ) -> Result<TrackedRow, RowError> {
        let key = Some(self.key_text(&table.found, key).await?);
        Ok(TrackedRow { relation: table.found.relation.clone(), key })
    }

    /// The newest changes of a row. Who made one is only in those of the account.
    pub async fn row_for_agent(
        &self,
        row: &TrackedRow,
        account: &AccountId,
        limit: u32,
    ) -> Result<RowForAgent, pg::Error> {
        let params = [Some(row.relation.clone()), row.key.clone()];
        let extent: Vec<HistoryExtent> = self.records.read_only(EXTENT_SQL, &params).await?;
        let query = HistoryQuery {
            changes: CHANGES_SQL,
            params,
            limit,
            account: Some(account.as_str().to_owned()),
            max_bytes: MAX_BYTES,
        };
        let changes = row_history::newest(&self.records, query).await?;
        Ok(RowForAgent { changes, extent: extent.into_iter().next().ok_or_else(unreadable)? })
    }
}
