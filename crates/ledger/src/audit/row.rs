//! The history of one row of a tracked table.

use serde::Deserialize;
use types::{RowHistoryEntry, nearest, visible};

use super::{Audit, unreadable};
use crate::evidence::row_history::{self, HistoryQuery, newest_of_row};

/// A tracked table, or one row of it.
#[derive(Debug, Clone)]
pub struct TrackedRow {
    /// `pg_class.oid`, as text.
    pub(crate) relation: String,
    /// The key of the row, in the form in which effects store it; `None` for all rows.
    pub(crate) key: Option<String>,
}

/// The reason why a row of a tracked table is not found.
#[derive(Debug, thiserror::Error)]
pub enum RowError {
    #[error(
        "the table {} is not tracked, so no change of its rows is recorded: `countersign track` starts that{}",
        visible(table),
        hint(nearest)
    )]
    NotTracked {
        table: String,
        /// The tracked tables with similar names, quoted as in SQL.
        nearest: Vec<String>,
    },
    /// Several tracked tables have this short name.
    #[error("several tracked tables have the name {}: {}", visible(.0), .1.join(", "))]
    Ambiguous(String, Vec<String>),
    #[error("the table {0} has no key, so its rows cannot be distinguished")]
    NoKey(String),
    #[error("the key of {table} is {expected}: give a value for each, such as {example}")]
    Key { table: String, expected: String, example: String },
    /// The query failed.
    #[error(transparent)]
    Database(#[from] pg::Error),
}

/// The end of a message about a table that is not tracked.
fn hint(nearest: &[String]) -> String {
    if nearest.is_empty() { String::new() } else { format!("; the nearest tracked tables are: {}", nearest.join(", ")) }
}

/// The tracked tables: the qualified name quoted as in SQL, and the bare name.
const TRACKED_SQL: &str = "\
select t.name, coalesce(c.relname::text, t.name) as bare \
from countersign.tracked t left join pg_catalog.pg_class c on c.oid = t.relation where t.is_current order by t.name";

/// The tracked tables whose names are nearest to this one: as SQL writes it, or else without quotes, or without the
/// schema. The login of a reviewer may not use the schema of the table, so `to_regclass` cannot look the name up.
const TABLE_SQL: &str = "\
select t.relation::text as relation, t.name, to_json(t.key_columns) as key_columns, \
    (select coalesce(json_agg(json_build_object('name', u.type, 'is_own', coalesce(to_regtype(u.type)::oid >= 16384, true)) order by k.n), '[]') \
     from unnest(t.key_columns) with ordinality k (name, n) join unnest(t.columns, t.types) u (name, type) on u.name = k.name) as key_types \
from (select t.*, rank() over (order by m.way) as nearness \
    from countersign.tracked t left join pg_catalog.pg_class c on c.oid = t.relation, \
        replace($1, '\"', '') bare, \
        lateral (select min(n) as way from unnest(array[t.name = $1, t.name = lower($1), replace(t.name, '\"', '') = bare, \
            c.relname::text = bare, c.relname::text = lower(bare)]) with ordinality o (is_it, n) where is_it) m \
    where t.is_current and m.way is not null) t \
where t.nearness = 1 order by t.name";

/// A tracked table, and how its rows are told apart.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct FoundTable {
    pub(super) relation: String,
    pub(super) name: String,
    /// `None` for a table without a key.
    pub(super) key_columns: Option<Vec<String>>,
    key_types: Vec<KeyType>,
}

#[derive(Debug, Clone, Deserialize)]
struct KeyType {
    name: String,
    /// Whether it is no type of PostgreSQL itself.
    is_own: bool,
}

#[derive(Deserialize)]
struct KeyText {
    key: String,
}

const CHANGES_SQL: &str = newest_of_row!("true");

impl Audit {
    /// Finds the tracked table with this name and, if `key` is not empty, its row with this key. A key of one column
    /// may be given without its name: `(None, "7")`. Otherwise each column is named: `(Some("id"), "7")`.
    pub async fn tracked_row(&self, table: &str, key: &[(Option<String>, String)]) -> Result<TrackedRow, RowError> {
        let found = match self.find_tables(table).await?.as_slice() {
            [only] => only.clone(),
            [] => {
                let nearest = self.nearest_tracked(table).await?;
                return Err(RowError::NotTracked { table: table.to_owned(), nearest });
            }
            several => {
                let names = several.iter().map(|found| found.name.clone()).collect();
                return Err(RowError::Ambiguous(table.to_owned(), names));
            }
        };
        let key = if key.is_empty() { None } else { Some(self.key_text(&found, key).await?) };
        Ok(TrackedRow { relation: found.relation, key })
    }

    /// The tracked table with this name; several, if the name is short for all of them.
    pub(super) async fn find_tables(&self, table: &str) -> Result<Vec<FoundTable>, pg::Error> {
        self.records.rows(TABLE_SQL, &[Some(table.to_owned())]).await
    }

    /// The key in the form in which effects store it.
    pub(super) async fn key_text(
        &self,
        table: &FoundTable,
        key: &[(Option<String>, String)],
    ) -> Result<String, RowError> {
        let columns = table.key_columns.as_deref().ok_or_else(|| RowError::NoKey(table.name.clone()))?;
        let value_of = |column: &String| match key {
            [(None, value)] if columns.len() == 1 => Some(value.clone()),
            named if named.len() == columns.len() => {
                named.iter().find(|(name, _)| name.as_ref() == Some(column)).map(|(_, value)| value.clone())
            }
            _ => None,
        };
        let values: Option<Vec<Option<String>>> = columns.iter().map(|column| value_of(column).map(Some)).collect();
        let Some(values) = values else {
            let example = columns.iter().map(|column| format!("{column}=7")).collect::<Vec<_>>().join(",");
            return Err(RowError::Key { table: table.name.clone(), expected: columns.join(", "), example });
        };
        let parts = columns.iter().zip(&table.key_types).enumerate().map(|(index, (column, ty))| {
            let value = format!("${}::{}", index + 1, ty.name);
            let value = if ty.is_own { format!("pg_catalog.format('%s', {value})") } else { value };
            format!("{}, {value}", literal(column))
        });
        let sql =
            format!("select pg_catalog.jsonb_build_object({})::text as key", parts.collect::<Vec<_>>().join(", "));
        // The type may have code of its own.
        let key: Vec<KeyText> = self.records.read_only(&sql, &values).await?;
        Ok(key.into_iter().next().ok_or_else(unreadable)?.key)
    }

    /// The tracked tables with names similar to this one, which may lack the schema and the quotes.
    async fn nearest_tracked(&self, table: &str) -> Result<Vec<String>, pg::Error> {
        let tracked: Vec<TrackedName> = self.records.rows(TRACKED_SQL, &[]).await?;
        let wanted = table.replace('"', "");
        let is_qualified = wanted.contains('.');
        let compared = |it: TrackedName| (if is_qualified { it.name.replace('"', "") } else { it.bare }, it.name);
        let tracked: Vec<(String, String)> = tracked.into_iter().map(compared).collect();
        Ok(nearest(&wanted, &tracked, |(compared, _)| compared).into_iter().map(|(_, name)| name.clone()).collect())
    }

    /// The newest changes of a row, newest first.
    pub async fn row(&self, row: &TrackedRow, limit: u32) -> Result<Vec<RowHistoryEntry>, pg::Error> {
        let query = HistoryQuery {
            changes: CHANGES_SQL,
            params: [Some(row.relation.clone()), row.key.clone()],
            limit,
            account: None,
            max_bytes: row_history::MAX_BYTES,
        };
        row_history::newest(&self.records, query).await
    }
}

#[derive(Deserialize)]
struct TrackedName {
    name: String,
    bare: String,
}

fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
