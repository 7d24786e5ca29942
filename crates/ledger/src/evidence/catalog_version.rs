//! A version of all definitions on which a server's tools depend: a hash over the row versions (xmin) of the catalog
//! rows for the tables in use. It takes one query, so a server can check often whether it must compile its tools
//! again.
//!
//! [`crate::write::definitions`] serves another purpose: the definitions on which a waiting proposal depends, read
//! within its transaction.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::evidence::records::Records;

/// $1: the tables in use; $2: whether every table counts. Plans do not show views, so they are found by the tables
/// that they read. VACUUM, ANALYZE and CREATE INDEX do not change these row versions.
const SQL: &str = "\
with recursive used (oid) as ( \
    select c.oid from json_to_recordset($1::json) as w (schema_name text, table_name text) \
    join pg_namespace n on n.nspname = w.schema_name join pg_class c on c.relnamespace = n.oid and c.relname = w.table_name \
    union \
    select r.ev_class from used u join pg_depend d on d.refclassid = 'pg_class'::regclass and d.refobjid = u.oid \
                                                  and d.classid = 'pg_rewrite'::regclass \
    join pg_rewrite r on r.oid = d.objid \
), counted (oid) as ( \
    select u.oid from used u \
    union \
    select c.oid from pg_class c \
    where $2::boolean and c.oid >= 16384 and c.relkind in ('r', 'p', 'v', 'm', 'f') and c.relpersistence <> 't' \
      and c.relnamespace <> 'countersign'::regnamespace \
), versions (line) as ( \
    select concat_ws(' ', 'schema', n.oid, n.xmin) from pg_namespace n where n.nspname !~ '^pg_(toast_)?temp_' \
    union all \
    select concat_ws(' ', 'table', c.oid, c.xmin) from counted join pg_class c using (oid) \
    union all \
    select concat_ws(' ', 'column', a.attrelid, a.attnum, a.xmin) \
    from counted u join pg_attribute a on a.attrelid = u.oid and a.attnum > 0 \
    union all \
    select concat_ws(' ', 'constraint', o.oid, o.xmin) from counted u join pg_constraint o on o.conrelid = u.oid \
    union all \
    select concat_ws(' ', 'reference', o.oid, o.xmin) from counted u join pg_constraint o on o.confrelid = u.oid \
    union all \
    select concat_ws(' ', 'trigger', t.oid, t.xmin) from counted u join pg_trigger t on t.tgrelid = u.oid and not t.tgisinternal \
    union all \
    select concat_ws(' ', 'rule', r.oid, r.xmin) from counted u join pg_rewrite r on r.ev_class = u.oid \
    union all \
    select concat_ws(' ', 'tracked', k.relation, k.xmin) from counted u join countersign.tracked k on k.relation = u.oid \
    union all \
    select concat_ws(' ', 'function', p.oid, p.xmin) from pg_proc p \
    where p.oid >= 16384 and p.pronamespace <> 'countersign'::regnamespace \
    union all \
    select concat_ws(' ', 'label', e.oid, e.xmin) from pg_enum e \
    union all \
    select concat_ws(' ', 'domain', t.oid, t.xmin) from pg_type t where t.oid >= 16384 and t.typtype = 'd' \
    union all \
    select concat_ws(' ', 'check', o.oid, o.xmin) from pg_constraint o where o.contypid <> 0 \
    union all \
    select concat_ws(' ', 'member', m.roleid, m.member, m.xmin) from pg_auth_members m where m.member = to_regrole(quote_ident(session_user)) \
) \
select coalesce(sum(hashtextextended(v.line collate \"C\", 0)), 0)::text as version, count(*)::text as objects from versions v";

/// The tables that the statements of a server use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WatchedTables {
    /// The schema and name of each table.
    pub tables: BTreeSet<(String, String)>,
    /// Whether every other table counts as well, because a statement does not compile and so its tables are unknown.
    pub all: bool,
}

/// A version of the definitions. A different value means that a definition has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CatalogVersion(String);

pub(crate) async fn load(records: &Records, watched: &WatchedTables) -> Result<CatalogVersion, pg::Error> {
    let named = |(schema, table): &(String, String)| json!({"schema_name": schema, "table_name": table});
    let tables = Value::Array(watched.tables.iter().map(named).collect());
    let rows = records.objects(SQL, &[Some(tables.to_string()), Some(watched.all.to_string())]).await?;
    let row = rows.into_iter().next().unwrap_or_default();
    Ok(CatalogVersion(Value::Object(row).to_string()))
}
