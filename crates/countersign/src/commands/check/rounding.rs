//! Finds numeric parameters without `scale` that have the name of a column which keeps fewer digits. PostgreSQL
//! rounds a value with more digits without a notice.

use manifest::{Param, ToolCatalog};
use serde::Deserialize;
use serde_json::json;
use types::visible;

use super::{CatalogQueries, TableName};

/// The columns of the tables $1 (an array of [`TableName`]) that are `numeric(p, s)`, or of a domain over it. The
/// scale is in the lower 11 bits of the type modifier, signed since PostgreSQL 15; a negative one is no number of
/// digits.
const SQL: &str = "\
with declared as ( \
    select n.nspname || '.' || c.relname as table, a.attname as column, \
        case t.typtype when 'd' then t.typtypmod else a.atttypmod end as modifier \
    from json_to_recordset($1::json) as w (schema_name text, table_name text) \
    join pg_namespace n on n.nspname = w.schema_name \
    join pg_class c on c.relnamespace = n.oid and c.relname = w.table_name \
    join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped \
    join pg_type t on t.oid = a.atttypid \
    where case t.typtype when 'd' then t.typbasetype else t.oid end = 'numeric'::regtype) \
select distinct d.table, d.column, (d.modifier - 4) & 2047 as scale \
from declared d where d.modifier >= 4 and (d.modifier - 4) & 2047 < 1024 order by 1, 2";

const NUMERIC: u32 = 1700;

#[derive(Deserialize)]
struct NumericColumn {
    table: String,
    column: String,
    scale: u32,
}

/// A line for each such parameter.
pub(super) async fn notes(questions: &CatalogQueries, catalog: &ToolCatalog) -> anyhow::Result<Vec<String>> {
    let mut notes = Vec::new();
    let lacks_scale = |param: &&Param| param.ty.base().oid == NUMERIC && param.limits.scale.is_none();
    for tool in catalog.tools.iter().filter(|tool| tool.access.writes()) {
        let unscaled: Vec<&Param> = tool.params.iter().filter(lacks_scale).collect();
        if unscaled.is_empty() {
            continue;
        }
        let tables: Vec<TableName<'_>> = tool.written_tables().map(TableName::from).collect();
        let columns: Vec<NumericColumn> = questions.ask(SQL, &[json!(tables)]).await?;
        for param in unscaled {
            for NumericColumn { table, column, scale } in columns.iter().filter(|one| one.column == param.name) {
                let column = visible(&format!("{table}.{column}"));
                notes.push(format!(
                    "note: {}: tool {}: {column} keeps {scale} digits after the decimal point, and PostgreSQL rounds a value that has \
                     more: scale = {scale} for the parameter {} refuses it",
                    tool.declared_at, tool.name, param.name
                ));
            }
        }
    }
    Ok(notes)
}
