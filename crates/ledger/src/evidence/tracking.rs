//! Finds the tables that a statement changes, including those that its plan does not show, and whether all of their
//! changes are recorded. Only then can the recorded effects undo the write.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use types::{Privilege, TableAccess};

use crate::evidence::records::Records;

/// $1: the written tables. Foreign keys with actions lead to further tables, recursively; a partition stands for its
/// root. The bits of `pg_trigger.tgtype` are PostgreSQL's `TRIGGER_TYPE_INSERT`, `_DELETE` and `_UPDATE`.
const COVERAGE_SQL: &str = "\
with recursive changed (oid, inserts, updates, deletes, via) as ( \
    select coalesce(pg_partition_root(c.oid)::oid, c.oid), w.inserts, w.updates, w.deletes, '' \
    from json_to_recordset($1::json) \
        as w (schema_name text, table_name text, inserts boolean, updates boolean, deletes boolean) \
    join pg_namespace n on n.nspname = w.schema_name join pg_class c on c.relnamespace = n.oid and c.relname = w.table_name \
    union \
    select coalesce(pg_partition_root(f.conrelid)::oid, f.conrelid), false, \
           t.updates and f.confupdtype in ('c', 'n', 'd') or t.deletes and f.confdeltype in ('n', 'd'), \
           t.deletes and f.confdeltype = 'c', f.conname::text collate \"default\" \
    from changed t join pg_constraint f on f.confrelid = t.oid and f.contype = 'f' and f.conparentid = 0 \
    where t.updates and f.confupdtype in ('c', 'n', 'd') or t.deletes and f.confdeltype in ('c', 'n', 'd') \
), named as ( \
    select c.oid, format('%I.%I', n.nspname, c.relname) as name, min(t.via) as via, \
           bool_or(t.inserts) as inserts, bool_or(t.updates) as updates, bool_or(t.deletes) as deletes \
    from changed t join pg_class c on c.oid = t.oid join pg_namespace n on n.oid = c.relnamespace group by 1, 2 \
) \
select t.name, nullif(t.via, '') as via, \
       case when k.relation is null then 'untracked' \
            when not countersign.is_recording(t.oid) then 'disabled' \
            when not countersign.has_current_shape(k) then 'changed' \
            when k.key_columns is null and not k.is_log then 'keyless' end as gap, \
       coalesce(cardinality(k.sensitive) > 0, false) as hides, \
       t.inserts and countersign.set_by_clocks(t.oid, 'I') is null or t.updates and countersign.set_by_clocks(t.oid, 'U') is null \
           or t.deletes and countersign.set_by_clocks(t.oid, 'D') is null \
           or exists (select from pg_class c where c.oid = t.oid and c.relkind = 'r' and c.relhassubclass) as reaches_others, \
       (select json_agg(g.tgname::text order by g.tgname) from pg_trigger g \
        where g.tgrelid = t.oid and not g.tgisinternal and g.tgenabled <> 'D' \
          and g.tgname not like '!countersign%' \
          and (t.inserts and g.tgtype & 4 > 0 or t.deletes and g.tgtype & 8 > 0 or t.updates and g.tgtype & 16 > 0)) as triggers \
from named t left join countersign.tracked k on k.relation = t.oid and k.is_current order by t.via <> '', t.name";

/// Reads which tables are tracked, from the catalog and the ledger of one database.
#[derive(Debug, Clone)]
pub struct Tracking {
    records: Records,
}

/// The tables that a write changes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Coverage {
    /// The tables that the plan shows, then those that foreign keys lead to.
    pub tables: Vec<CoveredTable>,
    /// The triggers that fire, each as `trigger audit of shop.orders`. Their changes cannot be known in advance.
    /// Changes in tracked tables are recorded nevertheless.
    pub triggers: Vec<String>,
    /// Whether other tables may change: by triggers that do more than set the time, or through inheritance.
    pub reaches_others: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CoveredTable {
    /// The qualified and quoted name; for a partition, that of the partitioned table.
    pub name: String,
    /// The foreign key through which the table changes; `None` if the statement itself writes to it.
    pub via: Option<String>,
    /// The reason why the recorded changes of this table cannot undo the write; `None` if they can.
    pub gap: Option<Gap>,
    /// Whether some of its columns are recorded as hashes only (`track --sensitive`).
    pub hides: bool,
}

types::text_enum! {
    /// The reason why the recorded changes of a table cannot undo a write.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Gap {
        /// The table is not tracked.
        Untracked = "untracked",
        /// The trigger that records them is disabled.
        Disabled = "disabled",
        /// The columns of the table have changed since its shape was recorded. The next write renews the shape.
        Changed = "changed",
        /// The table has no key by which its rows can be found again.
        Keyless = "keyless",
    }
}

impl Gap {
    /// Whether the gap closes by itself: the ledger renews the shape of a changed table at its next write.
    #[must_use]
    pub const fn closes_itself(self) -> bool {
        matches!(self, Self::Changed)
    }

    /// The gap in words, to follow the name of the table.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Untracked => "not tracked",
            Self::Disabled => "its trigger is disabled",
            Self::Changed => "its columns have changed since it was tracked",
            Self::Keyless => "no key",
        }
    }
}

impl Coverage {
    /// Whether the write can be undone by its recorded effects, as far as this is known before the write.
    #[must_use]
    pub fn is_undoable(&self) -> bool {
        !self.tables.is_empty() && self.gaps().next().is_none()
    }

    /// The tables whose recorded changes cannot undo the write.
    pub fn gaps(&self) -> impl Iterator<Item = (&CoveredTable, Gap)> {
        let lasting = |table: &CoveredTable| table.gap.filter(|gap| !gap.closes_itself());
        self.tables.iter().filter_map(move |table| Some((table, lasting(table)?)))
    }
}

/// A problem that prevents changes of a tracked table from being recorded or undone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrackingProblem {
    pub name: String,
    pub problem: String,
    pub is_limit: bool,
}

impl Tracking {
    pub(crate) fn new(records: Records) -> Self {
        Self { records }
    }

    /// The tables that a write with these plans changes, and whether they are tracked. Tables that are only read are
    /// ignored.
    pub async fn coverage(&self, plans: impl IntoIterator<Item = &TableAccess>) -> Result<Coverage, pg::Error> {
        let written: Vec<Value> = plans.into_iter().filter(|table| table.written).map(written).collect();
        let rows = self.records.objects(COVERAGE_SQL, &[Some(Value::Array(written).to_string())]).await?;
        let mut coverage = Coverage::default();
        for row in rows {
            let name = text(&row, "name").unwrap_or_default();
            let triggers =
                row.get("triggers").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
            coverage.triggers.extend(triggers.map(|trigger| format!("trigger {trigger} of {name}")));
            let gap = text(&row, "gap").and_then(|word| Gap::parse(&word));
            let hides = row.get("hides") == Some(&Value::Bool(true));
            coverage.reaches_others |= row.get("reaches_others") == Some(&Value::Bool(true));
            coverage.tables.push(CoveredTable { via: text(&row, "via"), gap, hides, name });
        }
        Ok(coverage)
    }

    /// The problems that prevent changes of tracked tables from being recorded or undone.
    pub async fn problems(&self) -> Result<Vec<TrackingProblem>, pg::Error> {
        const SQL: &str = "select p.name, p.problem, p.is_limit from countersign.tracking_problems() p order by 1, 2";
        self.records.rows(SQL, &[]).await
    }

    /// The number of tracked tables.
    pub async fn count(&self) -> Result<u64, pg::Error> {
        let sql = "select count(*) as tables from countersign.tracked t where t.is_current";
        let rows = self.records.objects(sql, &[]).await?;
        Ok(rows.first().and_then(|row| row.get("tables")).and_then(Value::as_u64).unwrap_or_default())
    }
}

fn text(row: &Map<String, Value>, key: &str) -> Option<String> {
    row.get(key).and_then(Value::as_str).map(str::to_owned)
}

fn written(table: &TableAccess) -> Value {
    let needs = |privilege| table.privileges.contains(&privilege);
    json!({
        "schema_name": table.schema,
        "table_name": table.table,
        "inserts": needs(Privilege::Insert),
        "updates": needs(Privilege::Update),
        "deletes": needs(Privilege::Delete),
    })
}
