//! `track` and `untrack` start and stop recording the changes of tables. They run with the privileges of the tables'
//! owner, who is a member of the ledger's owner. So they inspect the ledger first, like `init`.

use std::collections::HashMap;

use pg::ConnectOptions;
use pg::value::text_array;

use super::tables::{Table, TableNames};
use super::{Setup, literal};
use crate::setup::schema::{self, SchemaError};
use crate::{Ledger, LedgerOptions};

/// How long `track` waits for transactions that use a table. New transactions on the table wait behind it meanwhile.
pub(super) const TABLE_LOCK_TIMEOUT: &str = "5s";

/// Called after each table with how many are done, and of how many.
pub type Progress<'a> = &'a (dyn Fn(usize, usize) + Sync);

/// The options of `track`. `None` keeps the setting of a table that is tracked already.
#[derive(Debug, Clone, Default)]
pub struct TrackOptions {
    /// The columns that triggers set, and that an undo need not restore. Applies to the tables that have them.
    pub maintained: Option<Vec<String>>,
    /// The columns of which only a keyed hash is recorded. Applies to the tables that have them.
    pub sensitive: Option<Vec<String>>,
    /// Whether the tables are logs, to which an undo may add rows. False takes the declaration back.
    pub is_log: Option<bool>,
    /// Declares the tables to be no logs: an undo that would leave rows there is refused.
    pub not_log: bool,
    /// Whether changes from outside countersign are recorded, too.
    pub all_writers: Option<bool>,
    /// Whether the transaction is rolled back at the end.
    pub dry_run: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrackedTable {
    /// The name, qualified and quoted.
    pub name: String,
    /// The columns of the key. Empty for a table whose changes cannot be undone.
    pub key: Vec<String>,
    /// The number of the shape of its rows.
    pub shape: String,
    /// See [`TrackOptions`].
    pub maintained: Vec<String>,
    /// See [`TrackOptions`].
    pub sensitive: Vec<String>,
    /// Whether it is declared to be a log; `None` if nobody has said.
    pub is_log: Option<bool>,
    /// See [`TrackOptions`].
    pub all_writers: bool,
    /// The problems that prevent its changes from being recorded or undone.
    pub problems: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrackReport {
    /// The tables, in the order of their names.
    pub tables: Vec<TrackedTable>,
    /// The executed statements, with the definitions that each of them created as SQL comments.
    pub statements: Vec<String>,
}

/// Starts recording the changes of tables, or renews the recording. Either all tables are tracked or none.
pub async fn track(
    target: &ConnectOptions,
    names: &TableNames,
    options: &TrackOptions,
    progress: Progress<'_>,
) -> Result<TrackReport, SchemaError> {
    let mut setup = begin(target).await?;
    let report = setup.track(names, options, progress).await;
    setup.end(report, options.dry_run).await
}

/// Stops recording the changes of tables. Returns their names, and whether they were tracked.
pub async fn untrack(target: &ConnectOptions, names: &TableNames) -> Result<Vec<(String, bool)>, SchemaError> {
    let mut setup = begin(target).await?;
    let report = setup.untrack(names).await;
    setup.end(report, false).await
}

async fn begin(target: &ConnectOptions) -> Result<Setup, SchemaError> {
    schema::refuse_pooler(target)?;
    Ledger::new(target.clone(), LedgerOptions::default()).check().await.map_err(|error| match error {
        SchemaError::Database(error) if is_refused(&error) => not_a_member(&target.user),
        error => error,
    })?;
    Setup::begin(target).await
}

fn is_refused(error: &pg::Error) -> bool {
    error.server_error().is_some_and(|error| error.sqlstate == "42501")
}

fn not_a_member(user: &str) -> SchemaError {
    SchemaError::Tracking(format!(
        "the role {user} may not say which tables are tracked, since it is not a member of the ledger's owner: use a login that \
         owns the tables and has been granted countersign_owner"
    ))
}

/// The columns of a table, its key, and the settings with which it is tracked.
const COLUMNS_SQL: &str = "\
select to_json(array(select a.attname from pg_attribute a where a.attrelid = $1::oid and a.attnum > 0 and not a.attisdropped \
                     order by a.attnum))::text, \
       coalesce(to_json(countersign.key_columns($1::oid)), '[]')::text, \
       coalesce(to_json(t.maintained), '[]')::text, coalesce(to_json(t.sensitive), '[]')::text, \
       case when t.is_log then 'true' when t.not_log then 'false' else '' end, coalesce(t.all_writers, false)::text \
from (select) one left join countersign.tracked t on t.relation = $1::oid and t.is_current";

const TRACK_SQL: &str = "\
select countersign.track($1::regclass, maintained => $2::text[], sensitive => $3::text[], is_log => $4::boolean, \
                         all_writers => $5::boolean)::text";

const PROBLEMS_SQL: &str = "select p.name, p.problem from countersign.tracking_problems() p";

/// Tables into which only triggers of other tables add rows, as far as the text of their functions says. Each function is
/// searched once for each table, however many triggers call it.
const LIKELY_LOGS_SQL: &str = "\
with own as materialized ( \
    select g.tgfoid, array_agg(distinct g.tgrelid) as relations from pg_trigger g \
    where not g.tgisinternal and g.tgname not like '!countersign%' group by g.tgfoid), \
called as materialized (select o.relations, p.prosrc, lower(p.prosrc) as text from own o join pg_proc p on p.oid = o.tgfoid) \
select t.name, format('triggers of %s add rows to it, and an undo leaves them: if it is a log, declare it with --is-log, or else with --not-log', \
                      string_agg(distinct g.relation::regclass::text, ', ')) \
from countersign.tracked t join pg_class r on r.oid = t.relation \
join called p on position(lower(r.relname) in p.text) > 0 \
cross join lateral (select regexp_replace(r.relname, '(\\W)', '\\\\\\1', 'g') as name) n \
cross join lateral unnest(p.relations) g (relation) \
where t.is_current and not t.is_log and not t.not_log and g.relation <> t.relation \
  and p.prosrc ~* concat('insert\\s+into\\s+([\\w\"]+\\.)?\"?', n.name, '\\M') \
  and p.prosrc !~* concat('(update|from)\\s+([\\w\"]+\\.)?\"?', n.name, '\\M') \
group by t.relation, t.name";

/// The definitions that `track` has created for a table.
const MADE_SQL: &str = "\
select d.text from ( \
    select 0, p.proname, pg_get_functiondef(p.oid) from pg_proc p \
    where p.pronamespace = 'countersign'::regnamespace and p.proname in ('assigned_of_' || $1, 'effect_of_' || $1, 'restore_of_' || $1) \
    union all \
    select 1, g.tgrelid::regclass || g.tgname, pg_get_triggerdef(g.oid) || ';' || chr(10) \
           || format('ALTER TABLE %s ENABLE ALWAYS TRIGGER %I;', g.tgrelid::regclass, g.tgname) \
    from (select $1::oid as oid union select p.relid from pg_partition_tree($1::oid::regclass) p) r \
    cross join lateral (select t.* from pg_trigger t where t.tgrelid = r.oid offset 0) g where g.tgname like '!countersign%' and g.tgparentid = 0 \
) d (part, name, text) order by d.part, d.name";

/// Tracked tables that have other columns than when they were tracked, for a login that may only read the ledger.
const OTHER_COLUMNS_SQL: &str = "\
select t.name from countersign.tracked t \
where t.is_current and exists (select from pg_class c where c.oid = t.relation) and t.columns <> array( \
    select a.attname::text from pg_attribute a where a.attrelid = t.relation and a.attnum > 0 and not a.attisdropped order by a.attnum) \
order by 1";

/// Tracked tables whose triggers do not know all logins of servers.
const OUTDATED_SQL: &str = "\
select t.name from countersign.tracked t \
where t.is_current and exists (select from pg_class c where c.oid = t.relation and not c.relispartition) \
  and t.writers <> array(select w.role_name from countersign.writer_login w order by 1) order by 1";

impl Setup {
    /// Updates the logins of servers that the triggers of tracked tables know. If the role lacks the privileges of
    /// the tables' owners, or a table is in use, the report gets a warning.
    pub(super) async fn renew_tracking(&mut self) -> Result<(), SchemaError> {
        let outdated = self.rows::<1>(OUTDATED_SQL, &[]).await?.concat();
        if outdated.is_empty() {
            return Ok(());
        }
        self.session
            .batch_execute(&format!("savepoint tracking; set local lock_timeout = '{TABLE_LOCK_TIMEOUT}'"))
            .await?;
        match self.execute("select countersign.renew_tracking()".to_owned()).await {
            Err(SchemaError::Database(error)) if error.server_error().is_some() => {
                self.session.batch_execute("rollback to savepoint tracking").await?;
                self.report.warnings.push(format!(
                    "the triggers of tracked tables do not know the new login of servers ({error}): run \
                     `countersign track {}` as the tables' owner",
                    outdated.join(" ")
                ));
                Ok(())
            }
            renewed => {
                self.report.changes.push(format!("tracks {} for the new login as well", outdated.join(", ")));
                renewed
            }
        }
    }

    /// Renews the tracking of changed tables in the caller's transaction, in which a person has changed definitions.
    /// Returns the renewed tables, and why others were not renewed: their next write renews them.
    ///
    /// # Errors
    /// The ledger itself is not as `init` made it, or the transaction has failed.
    pub(crate) async fn renew_changed(&mut self) -> Result<(Vec<String>, Option<String>), SchemaError> {
        if !self.is_member().await? {
            let changed = self.rows::<1>(OTHER_COLUMNS_SQL, &[]).await?.concat();
            let reason = || format!("{}: {}", changed.join(", "), not_a_member(&self.user));
            return Ok((Vec::new(), (!changed.is_empty()).then(reason)));
        }
        self.session.batch_execute("savepoint \"!tracking\"").await?;
        let names = TableNames { changed: true, ..TableNames::default() };
        if self.find_all(&names).await.is_ok_and(|tables| tables.is_empty()) {
            return Ok((Vec::new(), None));
        }
        self.session.batch_execute("rollback to savepoint \"!tracking\"").await?;
        match self.track(&names, &TrackOptions::default(), &|_, _| ()).await {
            Ok(report) => Ok((report.tables.into_iter().map(|table| table.name).collect(), None)),
            Err(error @ (SchemaError::Database(pg::Error::Server(_)) | SchemaError::Tracking(_))) => {
                self.session.batch_execute("rollback to savepoint \"!tracking\"").await?;
                Ok((Vec::new(), Some(error.to_string())))
            }
            Err(error) => Err(error),
        }
    }

    async fn track(
        &mut self,
        names: &TableNames,
        options: &TrackOptions,
        progress: Progress<'_>,
    ) -> Result<TrackReport, SchemaError> {
        self.trust_ledger().await?;
        let tables = self.find_all(names).await?;
        if let Some(gone) = tables.iter().find(|table| !table.exists) {
            let name = &gone.name;
            let text = format!("there is no table {name} any more: `countersign untrack {name}` forgets it");
            return Err(SchemaError::Tracking(text));
        }
        let mut calls = Vec::new();
        for table in tables {
            self.refuse_sharded(&table).await?;
            calls.push((self.columns(&table).await?.chosen(&table, options)?, table));
        }
        unknown_columns(options, &calls)?;
        let (mut tables, all) = (Vec::new(), calls.len());
        for (call, table) in calls {
            tables.push(self.track_one(&table, call).await?);
            progress(tables.len(), all);
        }
        self.add_problems(&mut tables).await?;
        Ok(TrackReport { tables, statements: std::mem::take(&mut self.report.statements) })
    }

    async fn untrack(&mut self, names: &TableNames) -> Result<Vec<(String, bool)>, SchemaError> {
        self.trust_ledger().await?;
        let mut done = Vec::new();
        for table in self.find_all(names).await? {
            let sql = "select countersign.untrack($1::regclass)::text";
            let was_tracked =
                self.rows::<1>(sql, &[Some(table.oid.clone())]).await.map_err(|error| in_use(&table, error))?;
            done.push((table.name, was_tracked.concat() == ["true"]));
        }
        Ok(done)
    }

    /// Refuses a login that may not call the ledger's own functions, and a ledger whose functions may belong to
    /// another user.
    async fn trust_ledger(&mut self) -> Result<(), SchemaError> {
        if !self.is_member().await? {
            return Err(not_a_member(&self.user));
        }
        self.inspect_schema().await?;
        self.refuse_altered_ledger().await?;
        self.session.batch_execute(&format!("set local lock_timeout = '{TABLE_LOCK_TIMEOUT}'")).await?;
        Ok(())
    }

    /// Whether this login is a member of the ledger's owner.
    async fn is_member(&mut self) -> Result<bool, SchemaError> {
        let may = "select pg_has_role(n.nspowner, 'usage')::text from pg_namespace n where n.nspname = 'countersign'";
        Ok(self.rows::<1>(may, &[]).await?.concat() == ["true"])
    }

    async fn columns(&mut self, table: &Table) -> Result<ColumnLists, SchemaError> {
        let rows: Vec<[String; 6]> = self.rows(COLUMNS_SQL, &[Some(table.oid.clone())]).await?;
        let [all, key, maintained, sensitive, is_log, all_writers] = rows.into_iter().next().unwrap_or_default();
        let list = |json: &str| serde_json::from_str(json).unwrap_or_default();
        let call = TrackCall {
            key: list(&key),
            maintained: list(&maintained),
            sensitive: list(&sensitive),
            is_log: is_log.parse().ok(),
            all_writers: all_writers == "true",
        };
        Ok(ColumnLists { all: list(&all), call })
    }

    /// Tracks one table, for the first time or as before.
    pub(super) async fn track_as_is(&mut self, table: &Table) -> Result<TrackedTable, SchemaError> {
        let call = self.columns(table).await?.chosen(table, &TrackOptions::default())?;
        self.track_one(table, call).await
    }

    async fn track_one(&mut self, table: &Table, call: TrackCall) -> Result<TrackedTable, SchemaError> {
        let TrackCall { key, maintained, sensitive, is_log, all_writers } = call;
        let lists = [text_array(&maintained), text_array(&sensitive)];
        let is_log_text = is_log.map(|is_log| is_log.to_string());
        let [oid, maintained_text, sensitive_text, all_writers_text] =
            [&table.oid, &lists[0], &lists[1], &all_writers.to_string()].map(|it| Some(it.clone()));
        let params = [oid, maintained_text, sensitive_text, is_log_text.clone(), all_writers_text];
        let shape = self.rows::<1>(TRACK_SQL, &params).await.map_err(|error| in_use(table, error))?.concat().concat();
        self.report.statements.push(format!(
            "select countersign.track({}, maintained => {}, sensitive => {}, is_log => {}, all_writers => {all_writers})",
            literal(&table.name),
            literal(&lists[0]),
            literal(&lists[1]),
            is_log_text.as_deref().unwrap_or("null"),
        ));
        for [text] in self.rows(MADE_SQL, &[Some(table.oid.clone())]).await? {
            self.report.statements.extend(text.lines().map(|line| format!("-- {line}")));
        }
        let (name, problems) = (table.name.clone(), Vec::new());
        Ok(TrackedTable { name, key, shape, maintained, sensitive, is_log, all_writers, problems })
    }

    pub(super) async fn add_problems(
        &mut self,
        tables: impl IntoIterator<Item = &mut TrackedTable>,
    ) -> Result<(), SchemaError> {
        let mut tables: HashMap<String, &mut TrackedTable> =
            tables.into_iter().map(|table| (table.name.clone(), table)).collect();
        let problems = self.rows(PROBLEMS_SQL, &[]).await?;
        for [name, problem] in problems.into_iter().chain(self.rows(LIKELY_LOGS_SQL, &[]).await?) {
            if let Some(table) = tables.get_mut(&name) {
                table.problems.push(problem);
            }
        }
        Ok(())
    }
}

/// The arguments of the SQL function that tracks a table.
struct TrackCall {
    key: Vec<String>,
    maintained: Vec<String>,
    sensitive: Vec<String>,
    is_log: Option<bool>,
    all_writers: bool,
}

/// The columns of a table, and the settings with which it is tracked.
struct ColumnLists {
    all: Vec<String>,
    call: TrackCall,
}

impl ColumnLists {
    fn chosen(self, table: &Table, options: &TrackOptions) -> Result<TrackCall, SchemaError> {
        let Self { all, call } = self;
        let choose = |given: &Option<Vec<String>>, kept: &[String], option: &str| match given {
            Some(given) => Ok(given.iter().filter(|column| all.contains(column)).cloned().collect()),
            None => match kept.iter().find(|column| !all.contains(column)) {
                Some(gone) => Err(SchemaError::Tracking(format!(
                    "the column \"{gone}\" of {} was named with --{option} and does not exist any more: give --{option} again",
                    table.name
                ))),
                None => Ok(kept.to_vec()),
            },
        };
        let maintained: Vec<String> = choose(&options.maintained, &call.maintained, "maintained")?;
        let sensitive: Vec<String> = choose(&options.sensitive, &call.sensitive, "sensitive")?;
        if let Some(column) = maintained.iter().chain(&sensitive).find(|column| call.key.contains(column)) {
            return Err(SchemaError::Tracking(format!(
                "the column \"{column}\" is in the key of {}, by which its rows are found again: it can be neither maintained nor sensitive",
                table.name
            )));
        }
        let is_log = match options.is_log {
            _ if options.not_log => Some(false),
            Some(is_log) => is_log.then_some(true),
            None => call.is_log,
        };
        Ok(TrackCall {
            maintained,
            sensitive,
            is_log,
            all_writers: options.all_writers.unwrap_or(call.all_writers),
            ..call
        })
    }
}

/// Refuses a column that none of the tables has.
fn unknown_columns(options: &TrackOptions, calls: &[(TrackCall, Table)]) -> Result<(), SchemaError> {
    for (given, taken) in [
        (&options.maintained, (|call| &call.maintained) as fn(&TrackCall) -> &Vec<String>),
        (&options.sensitive, |call| &call.sensitive),
    ] {
        let unknown = given.iter().flatten().find(|column| !calls.iter().any(|(call, _)| taken(call).contains(column)));
        if let Some(column) = unknown {
            let names: Vec<&str> = calls.iter().map(|(_, table)| table.name.as_str()).collect();
            return Err(SchemaError::Tracking(format!("there is no column \"{column}\" in {}", names.join(", "))));
        }
    }
    Ok(())
}

fn in_use(table: &Table, error: SchemaError) -> SchemaError {
    match error {
        SchemaError::Database(error) if error.server_error().is_some_and(|error| error.sqlstate == "55P03") => {
            SchemaError::Tracking(format!(
                "{} is in use by transactions that have lasted longer than {TABLE_LOCK_TIMEOUT}: run the command again when they have ended",
                table.name
            ))
        }
        error => error,
    }
}
