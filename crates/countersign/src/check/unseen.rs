//! What a write of a tier above `auto` changes beyond its statements, which a plan does not show, and so a proposal may not
//! show either: by foreign keys and triggers.

use std::collections::BTreeMap;

use contract::{Privilege, visible};
use manifest::{Catalog, Tier, ToolSpec};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Questions;

/// Of the tables $1.$2, into which rows are inserted ($3), or of which rows are updated ($4) or deleted ($5). The bits of
/// `pg_trigger.tgtype` are PostgreSQL's `TRIGGER_TYPE_INSERT`, `_UPDATE` and `_DELETE`.
const SQL: &str = "\
with written as ( \
    select w.schema_name || '.' || w.table_name as name, c.oid, w.inserts, w.updates, w.deletes \
    from unnest($1::text[], $2::text[], $3::boolean[], $4::boolean[], $5::boolean[]) \
        as w (schema_name, table_name, inserts, updates, deletes) \
    join pg_namespace n on n.nspname = w.schema_name join pg_class c on c.relnamespace = n.oid and c.relname = w.table_name) \
select w.name as table, true as certain, n.nspname || '.' || c.relname || ' by foreign key ' || f.conname as what \
from written w join pg_constraint f on f.confrelid = w.oid and f.contype = 'f' \
join pg_class c on c.oid = f.conrelid join pg_namespace n on n.oid = c.relnamespace \
where w.deletes and f.confdeltype in ('c', 'n', 'd') or w.updates and f.confupdtype in ('c', 'n', 'd') \
union all \
select w.name, false, 'trigger ' || t.tgname \
from written w join pg_trigger t on t.tgrelid = w.oid and not t.tgisinternal and t.tgenabled <> 'D' \
where w.inserts and t.tgtype & 4 > 0 or w.updates and t.tgtype & 16 > 0 or w.deletes and t.tgtype & 8 > 0 \
order by 1, 2, 3";

#[derive(Deserialize)]
struct Unseen {
    table: String,
    /// Whether rows of another table change; what a trigger does is not known.
    certain: bool,
    what: String,
}

/// A line for each tool of such a tier of which there is something to say.
///
/// # Errors
/// As [`Questions::ask`].
pub(super) async fn notes(questions: &Questions, catalog: &Catalog) -> anyhow::Result<Vec<String>> {
    let mut notes = Vec::new();
    for tool in catalog.tools.iter().filter(|tool| tool.tier > Tier::Auto) {
        let tables = written(tool);
        let column = |of: &dyn Fn(&(&str, &str), &[bool; 3]) -> Value| tables.iter().map(|(k, v)| of(k, v)).collect();
        let params: [Value; 5] = [
            column(&|name, _| json!(name.0)),
            column(&|name, _| json!(name.1)),
            column(&|_, does| json!(does[0])),
            column(&|_, does| json!(does[1])),
            column(&|_, does| json!(does[2])),
        ];
        let found: Vec<Unseen> = questions.ask(SQL, &params).await?;
        for (certain, level, words) in [
            (true, "warning", "it changes rows that no proposal shows"),
            (false, "note", "no plan shows what these do"),
        ] {
            let of_kind = found.iter().filter(|it| it.certain == certain);
            let listed: Vec<String> = of_kind.map(|it| format!("{} of {}", it.what, it.table)).collect();
            if !listed.is_empty() {
                let listed = visible(&listed.join(", "));
                notes.push(format!("{level}: {}: tool {}: {words}: {listed}", tool.declared_at, tool.name));
            }
        }
    }
    Ok(notes)
}

/// The tables that its statements write, with whether rows are inserted, updated or deleted.
fn written(tool: &ToolSpec) -> BTreeMap<(&str, &str), [bool; 3]> {
    let mut tables: BTreeMap<(&str, &str), [bool; 3]> = BTreeMap::new();
    for table in tool.written_tables() {
        let does = tables.entry((&table.schema, &table.table)).or_default();
        for (does, privilege) in does.iter_mut().zip([Privilege::Insert, Privilege::Update, Privilege::Delete]) {
            *does |= table.privileges.contains(&privilege);
        }
    }
    tables
}
