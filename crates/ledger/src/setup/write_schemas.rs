//! The schemas of `init --schema`: the privileges by which the servers' login writes their tables, and the tracking of
//! these tables. A later `init` adds what is new.

use std::collections::{BTreeMap, BTreeSet};

use pg::ConnectOptions;
use pg::value::identifier;
use types::nearest_names;

use super::tables::Table;
use super::track::{Progress, TABLE_LOCK_TIMEOUT, TrackedTable};
use super::{InitReport, Setup, literal};
use crate::setup::schema::SchemaError;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SchemaReport {
    pub schema: String,
    pub granted: Vec<GrantedObjects>,
    /// The tables that were not tracked before.
    pub tracked: Vec<TrackedTable>,
    /// The number of tables that were tracked before.
    pub tracked_before: usize,
    /// The reasons why other tables are not tracked. Each contains the name of its table.
    pub untracked: Vec<String>,
    /// The number of functions of its triggers that look names up in the search path of whoever writes.
    pub unpinned_functions: usize,
}

/// Privileges on objects of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantedObjects {
    pub privileges: String,
    pub kind: String,
    /// The objects, quoted as in SQL.
    pub objects: Vec<String>,
}

/// Statements that only the owner of their objects, or a superuser, may run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnerStatements {
    /// The privileges of the servers' login.
    pub grants: Vec<String>,
    /// The calls that track tables. They also need membership in the ledger's owner.
    pub tracking: Vec<String>,
}

const UNPINNED_SQL: &str = "\
select distinct p.oid::text from pg_trigger g join pg_class c on c.oid = g.tgrelid join pg_namespace n on n.oid = c.relnamespace \
join pg_proc p on p.oid = g.tgfoid join pg_language l on l.oid = p.prolang \
where n.nspname = $1 and not g.tgisinternal and g.tgname not like '!countersign%' and l.lanname in ('sql', 'plpgsql') \
  and not exists (select from unnest(p.proconfig) s where starts_with(s, 'search_path='))";

const EXISTS_SQL: &str = "\
select n.oid::text from pg_namespace n \
where n.nspname = $1 and n.nspname not in ('countersign', 'information_schema') and left(n.nspname, 3) <> 'pg_'";

/// The privileges that the role $1 lacks to write the tables of the schema $2: their place in the order of the
/// statements, the privileges, the kind and the name of the object, its owner, and whether this login may grant them.
/// A write of a partitioned table needs no privilege on its partitions, and one of an identity column none on its
/// sequence.
const LACKING_SQL: &str = "\
with written as ( \
    select c.oid, n.nspname, c.relname, c.relowner from pg_class c join pg_namespace n on n.oid = c.relnamespace \
    where n.nspname = $2 and c.relkind in ('r', 'p') and not c.relispartition \
      and not exists (select from pg_depend e where e.classid = 'pg_class'::regclass and e.objid = c.oid and e.deptype = 'e')), \
used as ( \
    select d.refobjid as oid from written w join pg_attrdef a on a.adrelid = w.oid \
    join pg_depend d on d.classid = 'pg_attrdef'::regclass and d.objid = a.oid and d.refclassid = 'pg_class'::regclass \
    union \
    select d.objid from written w \
    join pg_depend d on d.refclassid = 'pg_class'::regclass and d.refobjid = w.oid and d.classid = 'pg_class'::regclass and d.deptype = 'a') \
select '1', 'USAGE', 'schema', format('%I', n.nspname), pg_get_userbyid(n.nspowner), \
       has_schema_privilege(n.oid, 'usage with grant option')::text \
from pg_namespace n where n.nspname = $2 and not has_schema_privilege($1, n.oid, 'usage') \
union all \
select '2', string_agg(p.privilege, ', ' order by p.place), 'table', format('%I.%I', w.nspname, w.relname), pg_get_userbyid(w.relowner), \
       bool_and(has_table_privilege(w.oid, p.privilege || ' with grant option'))::text \
from written w cross join (values (1, 'SELECT'), (2, 'INSERT'), (3, 'UPDATE'), (4, 'DELETE')) p (place, privilege) \
where not has_table_privilege($1, w.oid, p.privilege) group by w.nspname, w.relname, w.relowner \
union all \
select '3', 'USAGE', 'sequence', format('%I.%I', n.nspname, s.relname), pg_get_userbyid(s.relowner), \
       has_sequence_privilege(s.oid, 'usage with grant option')::text \
from used u join pg_class s on s.oid = u.oid and s.relkind = 'S' join pg_namespace n on n.oid = s.relnamespace \
where case when s.relkind = 'S' then not has_sequence_privilege($1, s.oid, 'usage') end \
order by 1, 4";

/// How many tables are tracked in one transaction. What one has tracked is kept.
const PORTION: usize = 100;

/// The tables of the schema $1 except partitions: name, owner, whether only a member of the owner can have the table
/// tracked and this login is none, whether it is tracked (`false`: it was), and the extension that it belongs to, or ''.
const TABLES_SQL: &str = "\
select format('%I.%I', n.nspname, c.relname), pg_get_userbyid(c.relowner), \
       (c.relkind <> 'f' and not pg_has_role(c.relowner, 'usage'))::text, \
       coalesce(k.is_current::text, ''), \
       coalesce((select x.extname from pg_depend e join pg_extension x on x.oid = e.refobjid \
                 where e.classid = 'pg_class'::regclass and e.objid = c.oid and e.deptype = 'e'), '')::text \
from pg_class c join pg_namespace n on n.oid = c.relnamespace \
left join (select t.relation, bool_or(t.is_current) as is_current from countersign.tracked t group by t.relation) k on k.relation = c.oid \
where n.nspname = $1 and c.relkind in ('r', 'p', 'f') and not c.relispartition order by 1";

impl Setup {
    /// Lets the servers' login write the tables of a schema. Steps that this role may not do are reported, with their
    /// SQL.
    pub(super) async fn open_schema(&mut self, schema: &str, writer: &str) -> Result<(), SchemaError> {
        if self.rows::<1>(EXISTS_SQL, &[Some(schema.to_owned())]).await?.is_empty() {
            return Err(self.no_schema(schema, &[]));
        }
        let mut report = SchemaReport { schema: schema.to_owned(), ..SchemaReport::default() };
        // Without the login, `init` has warned already.
        if self.role_exists(writer).await? {
            report.granted = self.grant_writes(schema, writer).await?;
        }
        report.unpinned_functions = self.rows::<1>(UNPINNED_SQL, &[Some(schema.to_owned())]).await?.len();
        self.report.schemas.push(report);
        Ok(())
    }

    /// The error for a schema that does not exist, with those of these names that are like it.
    pub(super) fn no_schema(&self, schema: &str, existing: &[String]) -> SchemaError {
        let near: Vec<String> = nearest_names(schema, existing).iter().map(|name| identifier(name)).collect();
        let end = if near.is_empty() { ".".to_owned() } else { format!("; did you mean {}?", near.join(", ")) };
        SchemaError::Tracking(format!(
            "there is no schema {} with tables of applications in the database \"{}\"{end} Nothing was changed",
            identifier(schema),
            self.dbname,
        ))
    }

    async fn grant_writes(&mut self, schema: &str, writer: &str) -> Result<Vec<GrantedObjects>, SchemaError> {
        let params = [Some(writer.to_owned()), Some(schema.to_owned())];
        let mut lacking: BTreeMap<(String, Option<String>, String), GrantedObjects> = BTreeMap::new();
        for [place, privileges, kind, object, owner, may_grant] in self.rows(LACKING_SQL, &params).await? {
            let owner = (may_grant != "true").then_some(owner);
            let of_kind = lacking.entry((place, owner, privileges.clone()));
            of_kind.or_insert_with(|| GrantedObjects { privileges, kind, objects: Vec::new() }).objects.push(object);
        }
        let mut granted = Vec::new();
        for ((_, owner, _), objects) in lacking {
            let sql = objects.sql(writer);
            match owner {
                Some(owner) => self.of_owner(owner).grants.push(sql),
                None => {
                    self.execute(sql).await?;
                    granted.push(objects);
                }
            }
        }
        Ok(granted)
    }

    /// Tracks tables of a schema that are not tracked yet, at most `most`. A failure of one does not prevent the others.
    /// `seen` are those that were looked at. Returns whether all were.
    pub(super) async fn track_new(
        &mut self,
        report: &mut SchemaReport,
        seen: &mut BTreeSet<String>,
        most: usize,
        progress: Progress<'_>,
    ) -> Result<bool, SchemaError> {
        self.session.batch_execute(&format!("set local lock_timeout = '{TABLE_LOCK_TIMEOUT}'")).await?;
        let tables: Vec<[String; 5]> = self.rows(TABLES_SQL, &[Some(report.schema.clone())]).await?;
        let all = tables.len();
        for [name, owner, needs_owner, is_tracked, extension] in tables {
            if seen.contains(&name) {
                continue;
            }
            if report.tracked.len() + report.untracked.len() >= most {
                return Ok(false);
            }
            if is_tracked == "true" {
                report.tracked_before += 1;
            } else if is_tracked == "false" {
                report.untracked.push(format!("{name} was untracked: `countersign track {name}` tracks it again"));
            } else if !extension.is_empty() {
                report.untracked.push(format!("{name} belongs to the extension {extension}"));
            } else {
                match self.find(&name, "").await {
                    Ok(table) => self.track_or_report(&table, report).await?,
                    Err(SchemaError::Tracking(reason)) => {
                        report.untracked.push(reason);
                        if needs_owner == "true" {
                            let sql = format!("select countersign.track({})", literal(&name));
                            self.of_owner(owner).tracking.push(sql);
                        }
                    }
                    Err(error) => return Err(error),
                }
            }
            seen.insert(name);
            progress(seen.len(), all);
        }
        Ok(true)
    }

    async fn track_or_report(&mut self, table: &Table, report: &mut SchemaReport) -> Result<(), SchemaError> {
        self.session.batch_execute("savepoint tracked").await?;
        let reason = match self.track_as_is(table).await {
            Ok(tracked) => {
                report.tracked.push(tracked);
                return Ok(self.session.batch_execute("release savepoint tracked").await?);
            }
            Err(SchemaError::Tracking(reason)) => reason,
            Err(SchemaError::Database(error)) if error.server_error().is_some() => format!("{}: {error}", table.name),
            Err(error) => return Err(error),
        };
        self.session.batch_execute("rollback to savepoint tracked").await?;
        report.untracked.push(reason);
        Ok(())
    }

    fn of_owner(&mut self, owner: String) -> &mut OwnerStatements {
        self.report.for_owners.entry(owner).or_default()
    }
}

/// Tracks the new tables of the schemas that `init` has opened, in portions. What a portion has tracked is kept, also if
/// a later one fails.
pub async fn track_new(
    target: &ConnectOptions,
    report: &mut InitReport,
    progress: &(dyn Fn(&str, usize, usize) + Sync),
) -> Result<(), SchemaError> {
    let mut schemas = std::mem::take(&mut report.schemas);
    let mut outcome = Ok(());
    for schema in &mut schemas {
        let (mut seen, mut is_done) = (BTreeSet::new(), false);
        while outcome.is_ok() && !is_done {
            match track_portion(target, report, schema, &mut seen, progress).await {
                Ok(is_last) => is_done = is_last,
                Err(error) => outcome = Err(error),
            }
        }
    }
    report.schemas = schemas;
    outcome
}

async fn track_portion(
    target: &ConnectOptions,
    report: &mut InitReport,
    of_schema: &mut SchemaReport,
    seen: &mut BTreeSet<String>,
    progress: &(dyn Fn(&str, usize, usize) + Sync),
) -> Result<bool, SchemaError> {
    let mut setup = Setup::begin(target).await?;
    setup.report = std::mem::take(report);
    let mut portion = SchemaReport { schema: of_schema.schema.clone(), ..SchemaReport::default() };
    let name = portion.schema.clone();
    let worked = async {
        setup.inspect_schema().await?;
        setup.refuse_altered_ledger().await?;
        let is_last = setup.track_new(&mut portion, seen, PORTION, &|done, of| progress(&name, done, of)).await?;
        if is_last {
            let tracked = of_schema.tracked.iter_mut().chain(&mut portion.tracked);
            setup.add_problems(tracked).await?;
        }
        Ok(is_last)
    };
    let worked = worked.await;
    *report = std::mem::take(&mut setup.report);
    let is_last = setup.end(worked, false).await?;
    of_schema.tracked.append(&mut portion.tracked);
    of_schema.untracked.append(&mut portion.untracked);
    of_schema.tracked_before += portion.tracked_before;
    Ok(is_last)
}

impl GrantedObjects {
    fn sql(&self, role: &str) -> String {
        let Self { privileges, kind, objects } = self;
        format!("grant {privileges} on {kind} {} to {}", objects.join(", "), identifier(role))
    }
}
