//! The history of one row of a tracked table.

use serde::Deserialize;
use serde_json::Value;
use types::{RowHistoryEntry, nearest, visible};

use super::{Audit, unreadable};
use crate::evidence::row_history;

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
    #[error("the table {0} has no key, so its rows cannot be told apart")]
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

/// The tracked table with this name as SQL writes it. The login of a reviewer may not use the schema of the table, so
/// `to_regclass` cannot look the name up.
const TABLE_SQL: &str = "\
select t.relation, t.name, coalesce(to_json(t.key_columns), 'null') as key_columns, \
    (select json_agg(json_build_object('type', u.type, 'is_own', to_regtype(u.type)::oid >= 16384) order by k.n) \
     from unnest(t.key_columns) with ordinality k (name, n) join unnest(t.columns, t.types) u (name, type) on u.name = k.name) as types \
from countersign.tracked t where t.is_current and t.name in ($1, lower($1)) order by t.name = $1 desc limit 1";

/// The changes of the row with a key, or that gave it another key.
const CHANGES_SQL: &str = "\
select * from countersign.effect a where a.relation = $1::oid and a.key = $2 and hashtextextended(a.key, 0) = hashtextextended($2, 0) \
union select * from countersign.effect a where a.relation = $1::oid and a.key_before = $2 \
    and hashtextextended(a.key_before, 0) = hashtextextended($2, 0)";

impl Audit {
    /// Finds the tracked table with this name and, if `key` is not empty, its row with this key. A key of one column
    /// may be given without its name: `(None, "7")`. Otherwise each column is named: `(Some("id"), "7")`.
    pub async fn tracked_row(&self, table: &str, key: &[(Option<String>, String)]) -> Result<TrackedRow, RowError> {
        let found = self.records.objects(TABLE_SQL, &[Some(table.to_owned())]).await?.into_iter().next();
        let Some(found) = found else {
            let nearest = self.nearest_tracked(table).await?;
            return Err(RowError::NotTracked { table: table.to_owned(), nearest });
        };
        let relation = found.get("relation").map(ToString::to_string).unwrap_or_default().replace('"', "");
        if key.is_empty() {
            return Ok(TrackedRow { relation, key: None });
        }
        let name = found.get("name").and_then(Value::as_str).unwrap_or(table).to_owned();
        let columns: Option<Vec<String>> =
            found.get("key_columns").and_then(|names| serde_json::from_value(names.clone()).ok());
        let columns = columns.ok_or_else(|| RowError::NoKey(name.clone()))?;
        let types = found.get("types").and_then(Value::as_array).cloned().unwrap_or_default();
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
            return Err(RowError::Key { table: name, expected: columns.join(", "), example });
        };
        let parts = columns.iter().zip(&types).enumerate().map(|(index, (column, ty))| {
            let value = format!("${}::{}", index + 1, ty.get("type").and_then(Value::as_str).unwrap_or("text"));
            let is_own = ty.get("is_own") == Some(&Value::Bool(true));
            let value = if is_own { format!("pg_catalog.format('%s', {value})") } else { value };
            format!("{}, {value}", literal(column))
        });
        let sql =
            format!("select pg_catalog.jsonb_build_object({})::text as key", parts.collect::<Vec<_>>().join(", "));
        let key = self.records.objects(&sql, &values).await?.into_iter().next().and_then(|row| row.get("key").cloned());
        let key = key.as_ref().and_then(Value::as_str).map(str::to_owned).ok_or_else(unreadable)?;
        Ok(TrackedRow { relation, key: Some(key) })
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
        let params = [Some(row.relation.clone()), row.key.clone(), Some(limit.to_string())];
        row_history::newest(&self.records, CHANGES_SQL, &params).await
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
