//! The changes of a write of a tier above `auto` beyond its statements, by foreign keys and triggers. A plan does
//! not show them, so a proposal may not show them either.

use manifest::{ToolCatalog, ToolSpec};
use serde::{Deserialize, Serialize};
use serde_json::json;
use types::{Privilege, TableAccess, Tier, visible};

use super::CatalogQueries;

/// For the tables $1 (an array of [`Written`]). The bits of `pg_trigger.tgtype` are PostgreSQL's
/// `TRIGGER_TYPE_INSERT`, `_UPDATE` and `_DELETE`.
const SQL: &str = "\
with written as ( \
    select w.schema_name || '.' || w.table_name as name, c.oid, w.inserts, w.updates, w.deletes \
    from json_to_recordset($1::json) \
        as w (schema_name text, table_name text, inserts boolean, updates boolean, deletes boolean) \
    join pg_namespace n on n.nspname = w.schema_name join pg_class c on c.relnamespace = n.oid and c.relname = w.table_name) \
select distinct w.name as table, n.nspname || '.' || c.relname as changes, 'foreign key ' || f.conname as what \
from written w join pg_constraint f on f.confrelid = w.oid and f.contype = 'f' \
join pg_class c on c.oid = f.conrelid join pg_namespace n on n.oid = c.relnamespace \
where w.deletes and f.confdeltype in ('c', 'n', 'd') or w.updates and f.confupdtype in ('c', 'n', 'd') \
union \
select w.name, null, 'trigger ' || t.tgname \
from written w join pg_trigger t on t.tgrelid = w.oid and not t.tgisinternal and t.tgenabled <> 'D' \
     and t.tgname not in ('!countersign', '!countersign_truncate') \
where w.inserts and t.tgtype & 4 > 0 or w.updates and t.tgtype & 16 > 0 or w.deletes and t.tgtype & 8 > 0 \
order by 1, 2, 3";

#[derive(Deserialize)]
struct UnseenEffects {
    table: String,
    /// The table whose rows change as well; what a trigger does is not known.
    changes: Option<String>,
    what: String,
}

/// A line for each tool of such a tier of which there is something to say.
///
/// # Errors
/// As [`CatalogQueries::ask`].
pub(super) async fn notes(questions: &CatalogQueries, catalog: &ToolCatalog) -> anyhow::Result<Vec<String>> {
    let mut notes = Vec::new();
    for tool in catalog.tools.iter().filter(|tool| tool.strictest_tier() > Tier::Auto) {
        let found: Vec<UnseenEffects> = questions.ask(SQL, &[json!(written(tool))]).await?;
        let captured = tool.before.iter().chain(&tool.after).flat_map(|statement| statement.tables());
        let shown: Vec<String> = captured.map(|table| format!("{}.{}", table.schema, table.table)).collect();
        let (mut changed, mut unknown) = (Vec::new(), Vec::new());
        for UnseenEffects { table, changes, what } in found {
            match changes {
                Some(other) if shown.contains(&other) => {}
                Some(other) => changed.push(format!("{other}, by {what} to {table}")),
                None => unknown.push(format!("{what} of {table}")),
            }
        }
        for (level, words, listed) in [
            ("warning", "it changes rows of tables that neither before nor after reads", changed),
            ("note", "no plan shows what these do", unknown),
        ] {
            if !listed.is_empty() {
                let listed = visible(&listed.join("; "));
                notes.push(format!("{level}: {}: tool {}: {words}: {listed}", tool.declared_at, tool.name));
            }
        }
    }
    Ok(notes)
}

/// A table that a tool writes, and what it does there.
#[derive(Serialize)]
struct Written<'a> {
    schema_name: &'a str,
    table_name: &'a str,
    inserts: bool,
    updates: bool,
    deletes: bool,
}

/// Once for each statement that writes the table.
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
