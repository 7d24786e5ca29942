//! What a change would do: it is tried in the login of a person, in a transaction that is rolled back. It takes the
//! locks of the change for as long as the trial lasts.

use std::collections::BTreeMap;
use std::time::Duration;

use pg::TransactionDescriber;
use schema_change::{SchemaChangeStep, SchemaChangeText};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::SchemaChanges;
use super::catalog_difference::{
    BEFORE_SQL, CatalogDifference, DIFFERENCE_SQL, Difference, MAX_CHANGES, ObjectChange, without_remade,
};
use super::inverse::Inverse;
use super::step::{StepError, TIMEOUT, WorkSession};
use super::tool_impact::{CompiledTools, ToolCompiler, ToolImpact};
use crate::SchemaError;
use crate::setup::schema;

#[derive(Debug, Clone)]
pub struct ImpactOptions {
    /// How long a statement waits for a lock.
    pub lock_timeout: Duration,
    /// How long the trial may take.
    pub within: Duration,
}

impl Default for ImpactOptions {
    fn default() -> Self {
        Self { lock_timeout: Duration::from_secs(2), within: Duration::from_secs(10) }
    }
}

types::text_enum! {
    /// What a lock keeps others from until the transaction ends.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum BlockedStatements {
        /// Other changes of definitions, and VACUUM.
        Definitions = "definitions",
        /// Writes, too.
        Writes = "writes",
        /// Reads and writes.
        ReadsAndWrites = "reads_and_writes",
    }
}

/// A lock on a table that existed before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LockTaken {
    pub relation: String,
    /// The strongest mode, as PostgreSQL's documentation has it: `ACCESS EXCLUSIVE`.
    pub mode: String,
    pub blocks: BlockedStatements,
}

/// A table or an index that is written anew.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RewrittenRelation {
    pub relation: String,
    /// The size before.
    pub bytes: u64,
}

/// A table of which every row is read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ScannedTable {
    pub table: String,
    /// How many rows were read.
    pub rows: u64,
    /// The size of the table.
    pub bytes: u64,
}

/// A statement that cannot run in a transaction, and so was not tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UntriedStatement {
    pub line: u32,
    pub sql: String,
}

/// The statement that failed, at which the trial ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FailedStatement {
    pub line: u32,
    /// PostgreSQL's code. Absent if PostgreSQL took the statement, and it does what no schema change may do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sqlstate: Option<String>,
    pub message: String,
}

/// Recorded writes that could not be undone any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LostUndo {
    pub table: String,
    /// `table`, `key`, or the names of the columns.
    pub because: String,
    pub writes: u64,
}

/// What a change would do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Impact {
    pub locks: Vec<LockTaken>,
    pub rewritten: Vec<RewrittenRelation>,
    pub scanned: Vec<ScannedTable>,
    pub objects: Vec<CatalogDifference>,
    /// Whether there are more objects than are listed.
    pub has_more_objects: bool,
    pub untried: Vec<UntriedStatement>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<FailedStatement>,
    pub lost_undo: Vec<LostUndo>,
    pub tools: ToolImpact,
    /// The statements that would take it back; absent if a part of it has none, or if it was not tried as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inverse: Option<Inverse>,
    /// How long the trial took.
    pub tried_ms: u64,
}

/// Why a change could not be tried.
#[derive(Debug, thiserror::Error)]
pub enum ImpactError {
    #[error(transparent)]
    Database(#[from] pg::Error),
    #[error(transparent)]
    Setup(#[from] SchemaError),
}

const LOCKS_SQL: &str = "\
select to_json(l)::text from (select b.kind || ' ' || b.name as relation, l.mode from pg_locks l \
    join pg_temp.\"!schema_before\" b on b.id = l.relation and b.sub = 0 and b.kind in ('table', 'materialized view', 'foreign table', 'view') \
    where l.pid = pg_backend_pid() and l.locktype = 'relation' and l.granted) l";

/// Without a join: the view has a row for each table of the database, and no statistics.
const SCANS_SQL: &str = "\
select to_json(s)::text from (select s.relid::bigint as id, format('%I.%I', s.schemaname, s.relname) as name, s.seq_scan as scans, \
    s.seq_tup_read as rows from pg_stat_xact_all_tables s \
    where s.seq_scan > 0 and s.schemaname !~ '^pg_' and s.schemaname not in ('information_schema', 'countersign')) s";

const SIZE_SQL: &str = "select coalesce(pg_table_size($1::oid), 0)";

/// The tracked tables, with the columns that their row images have.
const TRACKED_SQL: &str = "\
select to_json(t)::text from (select t.relation::bigint as id, t.name, t.columns, t.numbers \
    from countersign.tracked t where t.is_current) t";

const KEYS_SQL: &str =
    "select to_json(k)::text from (select t::bigint as id from countersign.tables_with_another_key() t) k";

const LOST_SQL: &str = "select countersign.undo_lost($1::oid, $2::int2[])";

#[derive(Deserialize)]
struct LockRow {
    relation: String,
    mode: String,
}

#[derive(Deserialize)]
struct ScanRow {
    id: u32,
    name: String,
    scans: u64,
    rows: u64,
}

#[derive(Deserialize)]
struct TrackedRow {
    id: u32,
    name: String,
    columns: Vec<String>,
    numbers: Vec<i16>,
}

#[derive(Deserialize)]
struct KeyRow {
    id: u32,
}

/// What was seen within the transaction.
#[derive(Default)]
struct Seen {
    locks: Vec<LockRow>,
    scans: Vec<ScanRow>,
    differences: Vec<Difference>,
    other_keys: Vec<KeyRow>,
    untried: Vec<UntriedStatement>,
    failed: Option<FailedStatement>,
    tools: ToolImpact,
}

impl SchemaChanges {
    /// Tries a change in this login, and rolls it back.
    ///
    /// # Errors
    /// [`ImpactError`]: it could not be tried. A statement that fails is no error but part of [`Impact`].
    pub async fn try_out(
        &self,
        text: &SchemaChangeText,
        options: &ImpactOptions,
        tools: &impl ToolCompiler,
    ) -> Result<Impact, ImpactError> {
        let target = self.writer.target();
        schema::refuse_pooler(target)?;
        let began = Instant::now();
        let mut never = std::pin::pin!(std::future::pending());
        let mut work = WorkSession::open(target, &self.writer, never.as_mut()).await?;
        work.begin(options.lock_timeout).await?;
        let seen = trial(&mut work, text, options, tools, began + options.within).await;
        work.rollback().await?;
        let seen = seen?;
        work.setup.session.batch_execute("set search_path = pg_catalog, pg_temp").await?;
        let tried_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let impact = explain(&mut work, seen, tried_ms).await;
        work.setup.session.close().await;
        Ok(impact?)
    }
}

async fn trial(
    work: &mut WorkSession<'_>,
    text: &SchemaChangeText,
    options: &ImpactOptions,
    tools: &impl ToolCompiler,
    until: Instant,
) -> Result<Seen, pg::Error> {
    let mut seen = Seen::default();
    // Definitions name what is outside of the search path with its schema: it is the same before and after.
    work.leave_text().await?;
    // Before the change has any lock.
    let tools_before = compile(work, tools, until).await;
    work.own(BEFORE_SQL, &[]).await?;
    let scans_before: Vec<ScanRow> = rows(work, SCANS_SQL).await?;
    work.enter_text().await?;
    'text: for step in text.steps() {
        for statement in &step.statements {
            if step.is_alone {
                seen.untried.push(UntriedStatement { line: statement.line, sql: statement.sql.clone() });
                continue;
            }
            // The locks and scans of what ran before are seen, too.
            let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
            let (left, lock) = (left.as_millis(), options.lock_timeout.as_millis());
            let limits =
                format!("savepoint \"!trial\"; set local statement_timeout = {left}; set local lock_timeout = {lock}");
            work.setup.session.batch_execute(&limits).await?;
            if let Err(error) = work.run_within(&statement.sql).await {
                seen.failed = Some(failed(error, statement.line)?);
                work.setup.session.batch_execute("rollback to savepoint \"!trial\"").await?;
                break 'text;
            }
        }
    }
    work.leave_text().await?;
    work.setup.session.batch_execute(&format!("set local statement_timeout = {}", TIMEOUT.as_millis())).await?;
    seen.locks = rows(work, LOCKS_SQL).await?;
    seen.scans = rows(work, SCANS_SQL).await?;
    for scan in &mut seen.scans {
        if let Some(before) = scans_before.iter().find(|before| before.id == scan.id) {
            scan.scans = scan.scans.saturating_sub(before.scans);
            scan.rows = scan.rows.saturating_sub(before.rows);
        }
    }
    seen.scans.retain(|scan| scan.scans > 0);
    seen.differences = without_remade(rows(work, DIFFERENCE_SQL).await?);
    let is_new = |id| seen.differences.iter().any(|one| one.id == id && one.change() == Some(ObjectChange::Added));
    seen.scans.retain(|scan| !is_new(scan.id));
    seen.other_keys = rows(work, KEYS_SQL).await?;
    seen.tools = match (&seen.failed, tools_before) {
        (Some(failed), _) => ToolImpact::unknown(format!("the trial ended in line {}", failed.line)),
        (None, Err(reason)) => ToolImpact::unknown(reason),
        (None, Ok(before)) => match compile(work, tools, until).await {
            Ok(after) => ToolImpact::new(before, after),
            Err(reason) => ToolImpact::unknown(reason),
        },
    };
    if seen.failed.is_none()
        && let Err(error) = work.check_ledger().await
    {
        let line = text.steps().first().map_or(1, SchemaChangeStep::line);
        seen.tools = ToolImpact::unknown(format!("the trial ended in line {line}"));
        seen.failed = Some(failed(error, line)?);
    }
    Ok(seen)
}

/// The statement that failed or went too far, unless the connection did.
fn failed(error: StepError, line: u32) -> Result<FailedStatement, pg::Error> {
    match error {
        StepError::Database(pg::Error::Server(error)) => {
            Ok(FailedStatement { line, sqlstate: Some(error.sqlstate.clone()), message: error.to_string() })
        }
        StepError::Database(error) => Err(error),
        StepError::Boundary(message) => Ok(FailedStatement { line, sqlstate: None, message }),
    }
}

/// Compiles the tools as the transaction sees the database.
async fn compile(
    work: &mut WorkSession<'_>,
    tools: &impl ToolCompiler,
    until: Instant,
) -> Result<CompiledTools, String> {
    tools.compile(&TransactionDescriber::new(&mut work.setup.session, until, tools.reader())).await
}

/// Says what was seen means, after the rollback.
async fn explain(work: &mut WorkSession<'_>, seen: Seen, tried_ms: u64) -> Result<Impact, pg::Error> {
    let mut impact =
        Impact { tried_ms, untried: seen.untried, failed: seen.failed, tools: seen.tools, ..Impact::default() };
    impact.locks = strongest(&seen.locks);
    impact.has_more_objects = seen.differences.len() > MAX_CHANGES;
    for one in seen.differences.iter().filter(|one| one.is_rewritten) {
        let relation = format!("{} {}", one.kind, one.label());
        let bytes = size(work, if one.kind == "constraint" { one.parent } else { one.id }).await?;
        impact.rewritten.push(RewrittenRelation { relation, bytes });
    }
    for ScanRow { id, name, rows, .. } in seen.scans {
        impact.scanned.push(ScannedTable { table: name, rows, bytes: size(work, id).await? });
    }
    impact.lost_undo = lost_undo(work, &seen.differences, &seen.other_keys).await?;
    let is_whole = impact.failed.is_none() && impact.untried.is_empty() && !impact.has_more_objects;
    impact.inverse = if is_whole { Inverse::of(&seen.differences) } else { None };
    impact.objects = seen.differences.iter().filter_map(Difference::shown).take(MAX_CHANGES).collect();
    Ok(impact)
}

/// The strongest lock on each relation that keeps somebody from something.
fn strongest(locks: &[LockRow]) -> Vec<LockTaken> {
    let mut strongest: BTreeMap<&str, (u8, LockTaken)> = BTreeMap::new();
    for LockRow { relation, mode } in locks {
        let (rank, words, blocks) = match mode.as_str() {
            "ShareUpdateExclusiveLock" => (1, "SHARE UPDATE EXCLUSIVE", BlockedStatements::Definitions),
            "ShareLock" => (2, "SHARE", BlockedStatements::Writes),
            "ShareRowExclusiveLock" => (3, "SHARE ROW EXCLUSIVE", BlockedStatements::Writes),
            "ExclusiveLock" => (4, "EXCLUSIVE", BlockedStatements::Writes),
            "AccessExclusiveLock" => (5, "ACCESS EXCLUSIVE", BlockedStatements::ReadsAndWrites),
            _ => continue,
        };
        if strongest.get(relation.as_str()).is_none_or(|(known, _)| *known < rank) {
            let taken = LockTaken { relation: relation.clone(), mode: words.to_owned(), blocks };
            strongest.insert(relation, (rank, taken));
        }
    }
    strongest.into_values().map(|(_, taken)| taken).collect()
}

async fn lost_undo(
    work: &mut WorkSession<'_>,
    differences: &[Difference],
    other_keys: &[KeyRow],
) -> Result<Vec<LostUndo>, pg::Error> {
    let mut lost = Vec::new();
    for TrackedRow { id, name, columns, numbers } in rows(work, TRACKED_SQL).await? {
        let dropped = |one: &&Difference| one.id == id && one.change() == Some(ObjectChange::Dropped);
        let gone: Vec<i16> =
            differences.iter().filter(dropped).filter(|one| one.kind == "column").map(|one| one.sub).collect();
        let is_dropped = differences.iter().filter(dropped).any(|one| one.sub == 0);
        let (because, numbers) = if is_dropped {
            ("table".to_owned(), None)
        } else if other_keys.iter().any(|key| key.id == id) {
            ("key".to_owned(), None)
        } else if gone.is_empty() {
            continue;
        } else {
            let named = numbers.iter().zip(&columns).filter(|(number, _)| gone.contains(number));
            let names: Vec<&str> = named.map(|(_, column)| column.as_str()).collect();
            let texts: Vec<String> = gone.iter().map(ToString::to_string).collect();
            (names.join(", "), Some(format!("{{{}}}", texts.join(","))))
        };
        let count = work.own(LOST_SQL, &[Some(id.to_string()), numbers]).await?.into_value();
        let writes = count.and_then(|count| count.parse().ok()).unwrap_or_default();
        if writes > 0 {
            lost.push(LostUndo { table: name, because, writes });
        }
    }
    Ok(lost)
}

async fn size(work: &mut WorkSession<'_>, relation: u32) -> Result<u64, pg::Error> {
    let bytes = work.own(SIZE_SQL, &[Some(relation.to_string())]).await?.into_value();
    Ok(bytes.and_then(|bytes| bytes.parse().ok()).unwrap_or_default())
}

/// The rows of a query that returns one JSON object in each.
async fn rows<T: serde::de::DeserializeOwned>(work: &mut WorkSession<'_>, sql: &str) -> Result<Vec<T>, pg::Error> {
    let answer = work.own(sql, &[]).await?;
    let texts = answer.rows.into_iter().flatten().flatten();
    let parsed = texts.map(|text| serde_json::from_str(&text));
    parsed.collect::<Result<_, _>>().map_err(|error| std::io::Error::other(error).into())
}
