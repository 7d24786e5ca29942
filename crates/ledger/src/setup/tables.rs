//! The tables of `track` and `untrack`, found by the names that a person gives.

use std::collections::BTreeMap;

use pg::value::identifier;

use super::Setup;
use crate::setup::schema::SchemaError;

/// Selects the tables of a command.
#[derive(Debug, Clone, Default)]
pub struct TableNames {
    /// The names as in SQL. An unqualified name belongs to `schema`, or to the only schema that has such a table.
    pub tables: Vec<String>,
    /// Without `tables`, selects all tables of this schema.
    pub schema: Option<String>,
    /// Without `tables`, selects the tracked tables (of the schema, if given) that have changed since they were
    /// tracked.
    pub changed: bool,
}

/// A table that exists, or that is tracked and was dropped.
pub(super) struct Table {
    pub(super) oid: String,
    pub(super) name: String,
    pub(super) exists: bool,
}

/// $1: a table. Finds a column whose name collides with the names that the undo statements use ("!t", "!before").
const RESERVED_SQL: &str = "\
select a.attname from pg_attribute a where a.attrelid = $1::oid and a.attnum > 0 and not a.attisdropped and a.attname like '!%' \
order by a.attnum limit 1";

/// $1: the name as in SQL; $2: the schema of unqualified names, or ''. A partition is found with its root.
const FIND_SQL: &str = "\
select c.oid::text, format('%I.%I', n.nspname, c.relname), c.relkind::text, (c.relpersistence = 't')::text, \
       case when c.relispartition then pg_partition_root(c.oid)::regclass::text else '' end, \
       pg_has_role(c.relowner, 'usage')::text, pg_get_userbyid(c.relowner) \
from (select parse_ident($1) as parts) i \
join pg_namespace n on n.nspname = case cardinality(i.parts) when 1 then coalesce(nullif($2, ''), n.nspname) else i.parts[1] end \
join pg_class c on c.relnamespace = n.oid and c.relname = i.parts[cardinality(i.parts)] \
where cardinality(i.parts) <= 2 and c.relkind not in ('i', 'I', 't', 'c', 'S') and left(n.nspname, 3) <> 'pg_' \
order by 2";

const IN_SCHEMA_SQL: &str = "\
select format('%I.%I', n.nspname, c.relname) from pg_class c join pg_namespace n on n.oid = c.relnamespace \
where n.nspname = $1 and c.relkind in ('r', 'p') and not c.relispartition order by 1";

/// Tracked tables of the schema $1 (of any if it is '') whose columns, name or key have changed, or that have a
/// partition without the triggers.
const CHANGED_SQL: &str = "\
select format('%I.%I', n.nspname, c.relname) from countersign.tracked t \
join pg_class c on c.oid = t.relation join pg_namespace n on n.oid = c.relnamespace \
where t.is_current and not c.relispartition and $1::text in ('', n.nspname::text) \
  and (not countersign.has_current_shape(t) or t.name <> format('%I.%I', n.nspname, c.relname) \
       or t.key_columns is distinct from countersign.key_columns(t.relation) \
       or exists (select from (select p.relid from pg_partition_tree(c.oid) p union select c.oid) p (relid) \
                  cross join (values (countersign.trigger_name(c.oid)), ('!countersign_truncate')) w (trigger) \
                  where not exists (select from pg_trigger g \
                                    where g.tgrelid = p.relid and g.tgname = w.trigger and g.tgenabled = 'A'))) \
order by 1";

/// Tracked tables that were dropped.
const GONE_SQL: &str = "\
select t.relation::text, t.name from countersign.tracked t, (select parse_ident($1) as parts) i \
where t.is_current and not exists (select from pg_class c where c.oid = t.relation) \
  and parse_ident(t.name) = case cardinality(i.parts) when 1 then array[$2] || i.parts else i.parts end";

impl Setup {
    /// Finds the tables, each once, in the order of their names, so that two concurrent commands lock them in the
    /// same order and do not deadlock.
    pub(super) async fn find_all(&mut self, names: &TableNames) -> Result<Vec<Table>, SchemaError> {
        let mut wanted = names.tables.clone();
        if names.changed && wanted.is_empty() {
            wanted = self.rows::<1>(CHANGED_SQL, &[Some(names.schema.clone().unwrap_or_default())]).await?.concat();
        } else if let (true, Some(schema)) = (wanted.is_empty(), &names.schema) {
            wanted = self.rows::<1>(IN_SCHEMA_SQL, &[Some(schema.clone())]).await?.concat();
            if wanted.is_empty() {
                return Err(SchemaError::Tracking(format!("the schema {schema} has no table")));
            }
        }
        let (mut tables, mut mistakes) = (BTreeMap::new(), Vec::new());
        for name in &wanted {
            match self.find(name, names.schema.as_deref().unwrap_or_default()).await {
                Ok(table) => drop(tables.insert(table.name.clone(), table)),
                Err(SchemaError::Tracking(mistake)) => mistakes.push(mistake),
                Err(error) => return Err(error),
            }
        }
        if mistakes.is_empty() {
            Ok(tables.into_values().collect())
        } else {
            Err(SchemaError::Tracking(mistakes.join("\n")))
        }
    }

    /// Finds one table. Refuses a relation that cannot be tracked.
    pub(super) async fn find(&mut self, name: &str, schema: &str) -> Result<Table, SchemaError> {
        let mistake = |text: String| Err(SchemaError::Tracking(text));
        let params = [Some(name.to_owned()), Some(schema.to_owned())];
        // parse_ident raises an error for an invalid name, and the savepoint lets the transaction continue.
        self.session.batch_execute("savepoint name").await?;
        let found: Vec<[String; 7]> = match self.rows(FIND_SQL, &params).await {
            Err(SchemaError::Database(error))
                if error.server_error().is_some_and(|error| error.sqlstate == "22023") =>
            {
                self.session.batch_execute("rollback to savepoint name").await?;
                return mistake(format!(
                    "{name} is not the name of a table: write it as SQL does, such as shop.orders"
                ));
            }
            found => found?,
        };
        let [one] = found.as_slice() else {
            if let Some([oid, name]) = self.rows(GONE_SQL, &params).await?.into_iter().next() {
                return Ok(Table { oid, name, exists: false });
            }
            return mistake(if found.is_empty() {
                format!("there is no table {}", qualified(schema, name))
            } else {
                let candidates: Vec<&str> = found.iter().map(|[_, name, ..]| name.as_str()).collect();
                format!("{name} is ambiguous: {}", candidates.join(", "))
            });
        };
        let [oid, found, kind, is_temporary, root, owns, owner] = one;
        if !root.is_empty() {
            return mistake(format!("{found} is a partition of {root}: track {root}, and its partitions are recorded"));
        }
        let refusal = match kind.as_str() {
            _ if found.starts_with("countersign.") => Some("belongs to the ledger"),
            "v" => Some("is a view: track the tables that it shows"),
            "m" => Some("is a materialized view: track the tables that it shows"),
            "f" => Some("is a foreign table, whose rows are in another database"),
            "r" | "p" if is_temporary == "true" => Some("is a temporary table"),
            _ => None,
        };
        match refusal {
            Some(why) => mistake(format!("{found} {why}")),
            None if owns != "true" => mistake(format!(
                "{found} belongs to the role {owner}, and {} is not a member of it: only its owner can have it tracked",
                self.user
            )),
            None => match self.rows::<1>(RESERVED_SQL, &[Some(oid.clone())]).await?.concat().first() {
                Some(column) => mistake(format!(
                    "{found} has the column {}: names that begin with \"!\" are for the statements that undo writes; rename it",
                    identifier(column)
                )),
                None => Ok(Table { oid: oid.clone(), name: found.clone(), exists: true }),
            },
        }
    }
}

fn qualified(schema: &str, name: &str) -> String {
    if schema.is_empty() || name.contains('.') { name.to_owned() } else { format!("{schema}.{name}") }
}
