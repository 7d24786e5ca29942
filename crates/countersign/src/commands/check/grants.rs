//! The missing privileges of the servers' login for the manifests, as SQL.

use manifest::ToolCatalog;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::CatalogQueries;

/// For role $1 and the tables $2 (an array of [`Needed`]): the schemas without USAGE; the tables with the missing
/// privileges (for a partition, those on its root); the sequences that supply values for inserted rows; and, as
/// comments, the triggers of these tables that run with the role's privileges.
const SQL: &str = "\
with needed as ( \
    select coalesce(pg_partition_root(c.oid), c.oid) as oid, p.privilege \
    from json_to_recordset($2::json) as w (schema_name text, table_name text, privileges text[]) \
    join pg_namespace n on n.nspname = w.schema_name join pg_class c on c.relnamespace = n.oid and c.relname = w.table_name \
    left join unnest(w.privileges) as p (privilege) on true), \
lacking as ( \
    select distinct c.oid, n.oid as schema, n.nspname, c.relname, d.privilege \
    from needed d join pg_class c on c.oid = d.oid join pg_namespace n on n.oid = c.relnamespace \
    where not has_table_privilege($1, c.oid, d.privilege) \
      and not (d.privilege <> 'delete' and has_any_column_privilege($1, c.oid, d.privilege))) \
select 1 as place, format('grant usage on schema %I to %I;', n.nspname, $1::text) as statement \
from needed d join pg_class c on c.oid = d.oid join pg_namespace n on n.oid = c.relnamespace \
where not has_schema_privilege($1, n.oid, 'usage') group by n.nspname \
union all \
select 2, format('grant %s on %I.%I to %I;', \
    string_agg(privilege, ', ' order by array_position(array['select', 'insert', 'update', 'delete'], privilege)), \
    nspname, relname, $1::text) \
from lacking group by nspname, relname \
union all \
select distinct 3, format('grant usage on sequence %I.%I to %I;', n.nspname, s.relname, $1::text) \
from needed d join pg_attrdef a on a.adrelid = d.oid \
join pg_depend p on p.classid = 'pg_attrdef'::regclass and p.objid = a.oid and p.refclassid = 'pg_class'::regclass \
join pg_class s on s.oid = p.refobjid and s.relkind = 'S' join pg_namespace n on n.oid = s.relnamespace \
where d.privilege = 'insert' and case when s.relkind = 'S' then not has_sequence_privilege($1, s.oid, 'usage') end \
union all \
select distinct 4, format('-- trigger %I of %I.%I runs %s with the rights of %I, which needs grants for all that it does: \
countersign try', t.tgname, n.nspname, c.relname, p.oid::regprocedure, $1::text) \
from needed d join pg_class c on c.oid = d.oid join pg_namespace n on n.oid = c.relnamespace \
join pg_trigger t on t.tgrelid = c.oid and not t.tgisinternal and t.tgname not like '!countersign%' \
join pg_proc p on p.oid = t.tgfoid and not p.prosecdef \
where d.privilege in ('insert', 'update', 'delete') and t.tgtype & case d.privilege when 'insert' then 4 when 'delete' then 8 else 16 end <> 0 \
order by 1, 2";

/// From this position on, the answer contains comments.
const COMMENTS: i64 = 4;

#[derive(Serialize)]
struct Needed<'a> {
    schema_name: &'a str,
    table_name: &'a str,
    privileges: Vec<&'a str>,
}

#[derive(Deserialize)]
struct Grant {
    place: i64,
    statement: String,
}

/// The `GRANT` statements, or a comment that nothing is missing; then comments about triggers. The plans are made as
/// the owner of the tables: PostgreSQL plans nothing for a login without privileges, and its errors name neither
/// schema nor privilege.
///
/// # Errors
/// As [`CatalogQueries::ask`], and if the role does not exist.
pub(crate) async fn missing(
    questions: &CatalogQueries,
    catalog: &ToolCatalog,
    role: &str,
) -> anyhow::Result<Vec<String>> {
    let needed: Vec<Needed<'_>> = catalog
        .tools
        .iter()
        .flat_map(|tool| tool.tables().map(|table| (tool.access.writes(), table)))
        .map(|(writes, table)| Needed {
            schema_name: &table.schema,
            table_name: &table.table,
            // Reads use the reader's login. The servers' login only has to resolve the names.
            privileges: table.privileges.iter().filter(|_| writes).map(|privilege| privilege.as_str()).collect(),
        })
        .collect();
    let found: Vec<Grant> = questions.ask(SQL, &[json!(role), json!(needed)]).await?;
    let nothing = found.iter().all(|grant| grant.place >= COMMENTS);
    let nothing = nothing.then(|| format!("-- {role} lacks nothing that the plans of these tools show"));
    Ok(nothing.into_iter().chain(found.into_iter().map(|grant| grant.statement)).collect())
}
