//! Finds changes of a write above tier `auto` that its proposal may not show: rows that neither `before` nor `after`
//! reads, and effects of foreign keys and triggers.

use manifest::{ToolCatalog, ToolSpec};
use serde::{Deserialize, Serialize};
use serde_json::json;
use types::{Privilege, TableAccess, Tier, visible};

use super::{CatalogQueries, TableName};

/// For the tables $1 (an array of [`Written`]); $2 are those that `before` and `after` read. A partition counts as
/// its partitioned table: a plan that writes names both, but a plan that reads names only the partitions. The bits of
/// `pg_trigger.tgtype` are PostgreSQL's `TRIGGER_TYPE_INSERT`, `_UPDATE` and `_DELETE`.
const SQL: &str = "\
with relation as ( \
    select c.oid, n.nspname as schema_name, c.relname as table_name, coalesce(pg_partition_root(c.oid)::oid, c.oid) as root \
    from pg_namespace n join pg_class c on c.relnamespace = n.oid \
), written as ( \
    select r.root as oid, bool_or(w.inserts) as inserts, bool_or(w.updates) as updates, bool_or(w.deletes) as deletes \
    from json_to_recordset($1::json) \
        as w (schema_name text, table_name text, inserts boolean, updates boolean, deletes boolean) \
    join relation r using (schema_name, table_name) group by r.root \
), shown as ( \
    select r.root as oid from json_to_recordset($2::json) as s (schema_name text, table_name text) \
    join relation r using (schema_name, table_name) \
), found as ( \
    select w.oid, w.oid as changed, null as what from written w \
    union \
    select w.oid, f.conrelid, 'foreign key ' || f.conname \
    from written w join pg_constraint f on f.confrelid = w.oid and f.contype = 'f' and f.conparentid = 0 \
    where w.deletes and f.confdeltype in ('c', 'n', 'd') or w.updates and f.confupdtype in ('c', 'n', 'd') \
    union \
    select w.oid, null, 'trigger ' || t.tgname \
    from written w join pg_trigger t on t.tgrelid = w.oid or t.tgrelid in (select p.relid from pg_partition_tree(w.oid) p) \
    where not t.tgisinternal and t.tgenabled <> 'D' and t.tgparentid = 0 and t.tgname not like '!countersign%' \
      and (w.inserts and t.tgtype & 4 > 0 or w.updates and t.tgtype & 16 > 0 or w.deletes and t.tgtype & 8 > 0) \
) \
select w.schema_name || '.' || w.table_name as table, c.schema_name || '.' || c.table_name as changes, f.what \
from found f join relation w on w.oid = f.oid \
left join (relation r join relation c on c.oid = r.root) on r.oid = f.changed \
where f.changed is null or r.root not in (select s.oid from shown s) order by 1, 2, 3";

#[derive(Deserialize)]
struct UnseenEffects {
    table: String,
    /// The other table whose rows change. The effects of a trigger are unknown.
    changes: Option<String>,
    /// The foreign key or trigger; `None` for the statement itself.
    what: Option<String>,
}

/// The notes on all tools above tier `auto`.
pub(super) async fn notes(questions: &CatalogQueries, catalog: &ToolCatalog) -> anyhow::Result<Vec<String>> {
    let mut notes = Vec::new();
    for tool in catalog.tools.iter().filter(|tool| tool.strictest_tier() > Tier::Auto) {
        let captured = tool.before.iter().chain(&tool.after).flat_map(|statement| statement.tables());
        let shown: Vec<TableName<'_>> = captured.map(TableName::from).collect();
        let found: Vec<UnseenEffects> = questions.ask(SQL, &[json!(written(tool)), json!(shown)]).await?;
        let (mut direct, mut changed, mut unknown) = (Vec::new(), Vec::new(), Vec::new());
        for UnseenEffects { table, changes, what } in found {
            match (changes, what) {
                (_, None) => direct.push(table),
                (Some(other), Some(what)) => changed.push(format!("{other}, by {what} to {table}")),
                (None, Some(what)) => unknown.push(format!("{what} of {table}")),
            }
        }
        let mut tell = |level: &str, words: &str| {
            notes.push(format!("{level}: {}: tool {}: {}", tool.declared_at, tool.name, visible(words)));
        };
        if !direct.is_empty() {
            tell(
                "warning",
                &format!(
                    "it writes {}, which neither before nor after reads: a reviewer does not see those rows",
                    direct.join(", ")
                ),
            );
        }
        if !changed.is_empty() {
            let words = "it changes rows of tables that neither before nor after reads";
            tell("warning", &format!("{words}: {}", changed.join("; ")));
        }
        if !unknown.is_empty() {
            tell("note", &format!("no plan shows what these do: {}", unknown.join("; ")));
        }
    }
    Ok(notes)
}

/// A table that a tool writes to, and the kind of the change.
#[derive(Serialize)]
struct Written<'a> {
    schema_name: &'a str,
    table_name: &'a str,
    inserts: bool,
    updates: bool,
    deletes: bool,
}

/// The tables that a tool writes to, once for each statement.
fn written(tool: &ToolSpec) -> Vec<Written<'_>> {
    let needs = |table: &TableAccess, privilege| table.privileges.contains(&privilege);
    tool.written_tables()
        .map(|table| Written {
            schema_name: &table.schema,
            table_name: &table.table,
            inserts: needs(table, Privilege::Insert),
            updates: needs(table, Privilege::Update),
            deletes: needs(table, Privilege::Delete),
        })
        .collect()
}
