//! What a change would do: it is tried in the login of a person, in a transaction that is rolled back. It takes the
//! locks of the change for as long as the trial lasts.

use std::time::Duration;

use schema_change::{SchemaChangeStep, SchemaChangeText};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::SchemaChanges;
use super::step::{StepError, TIMEOUT, WorkSession};
use crate::SchemaError;
use crate::setup::schema;

#[derive(Debug, Clone)]
pub struct ImpactOptions {
    /// How long a statement waits for a lock.
    pub lock_timeout: Duration,
    /// How long the trial may take.
    pub within: Duration,
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

/// What PostgreSQL says while a statement runs, such as what its CASCADE drops.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StatementNotice {
    pub line: u32,
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// The maximum number of notices.
const MAX_NOTICES: usize = 100;

/// What a change would do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Impact {
    pub locks: Vec<LockTaken>,
    pub rewritten: Vec<RewrittenRelation>,
    pub scanned: Vec<ScannedTable>,
    /// The tables, views and sequences that are dropped.
    pub dropped: Vec<String>,
    /// The first 20 of each statement, 100 in all.
    pub notices: Vec<StatementNotice>,
    pub untried: Vec<UntriedStatement>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<FailedStatement>,
    /// How long the trial took.
    pub tried_ms: u64,
}

/// The relations that the transaction has locked: the strongest lock, the file, and the scans. A relation without a file
/// is dropped.
const LOCKED_SQL: &str = "\
select json_agg(r)::text from (select l.relation as id, max(array_position(array['ShareUpdateExclusiveLock', 'ShareLock', \
        'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock'], l.mode)) as lock, \
    (select c.relfilenode from pg_class c where c.oid = l.relation) as file, \
    pg_stat_get_xact_numscans(l.relation) as scans, pg_stat_get_xact_tuples_returned(l.relation) as rows \
    from pg_locks l where l.pid = pg_backend_pid() and l.locktype = 'relation' and l.granted group by l.relation) r";

/// What that means, after the rollback: those of [`LOCKED_SQL`] that existed before, with their names.
const EXPLAIN_SQL: &str = "\
select to_json(r)::text from (select concat(case c.relkind when 'v' then 'view' when 'm' then 'materialized view' when 'S' then 'sequence' \
        when 'f' then 'foreign table' when 'i' then 'index' when 'I' then 'index' else 'table' end, ' ') as kind, \
    format('%I.%I', n.nspname, c.relname) as name, case when c.relkind not in ('i', 'I', 'S') then s.lock end as lock, \
    s.file is null and c.relkind not in ('i', 'I') as is_dropped, coalesce(s.file <> c.relfilenode, false) as is_rewritten, \
    case when s.scans > 0 and c.relkind in ('r', 'm') then s.rows end as rows, \
    case when s.scans > 0 or s.file <> c.relfilenode then pg_table_size(c.oid) end as bytes \
    from json_to_recordset($1::json) as s (id oid, lock int, file oid, scans bigint, rows bigint) \
    join pg_class c on c.oid = s.id join pg_namespace n on n.oid = c.relnamespace \
    where n.nspname !~ '^pg_' and n.nspname not in ('information_schema', 'countersign') order by n.nspname, c.relname) r";

/// A row of [`EXPLAIN_SQL`].
#[derive(Deserialize)]
struct Relation {
    kind: String,
    name: String,
    lock: Option<usize>,
    is_dropped: bool,
    is_rewritten: bool,
    rows: Option<u64>,
    bytes: Option<u64>,
}

/// The modes of locks that keep others from something, as [`LOCKED_SQL`] numbers them.
const LOCKS: [(&str, BlockedStatements); 5] = [
    ("SHARE UPDATE EXCLUSIVE", BlockedStatements::Definitions),
    ("SHARE", BlockedStatements::Writes),
    ("SHARE ROW EXCLUSIVE", BlockedStatements::Writes),
    ("EXCLUSIVE", BlockedStatements::Writes),
    ("ACCESS EXCLUSIVE", BlockedStatements::ReadsAndWrites),
];

impl SchemaChanges {
    /// Tries a change in this login, and rolls it back.
    ///
    /// # Errors
    /// It could not be tried. A statement that fails is no error but part of [`Impact`].
    pub async fn try_out(&self, text: &SchemaChangeText, options: &ImpactOptions) -> Result<Impact, SchemaError> {
        let target = self.writer.target();
        schema::refuse_pooler(target)?;
        let began = Instant::now();
        let mut never = std::pin::pin!(std::future::pending());
        let mut work = WorkSession::open(target, &self.writer, never.as_mut()).await?;
        work.begin(options.lock_timeout).await?;
        let mut impact = Impact::default();
        let locked = trial(&mut work, text, options, began + options.within, &mut impact).await;
        work.rollback().await?;
        let locked = locked?;
        work.setup.session.batch_execute("set search_path = pg_catalog, pg_temp").await?;
        impact.tried_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let explained = explain(&mut work, locked, &mut impact).await;
        work.setup.session.close().await;
        explained?;
        Ok(impact)
    }
}

/// Runs the text, and returns what it has locked.
async fn trial(
    work: &mut WorkSession<'_>,
    text: &SchemaChangeText,
    options: &ImpactOptions,
    until: Instant,
    impact: &mut Impact,
) -> Result<Option<String>, pg::Error> {
    work.enter_text().await?;
    'text: for step in text.steps() {
        for statement in &step.statements {
            if step.is_alone {
                impact.untried.push(UntriedStatement { line: statement.line, sql: statement.sql.clone() });
                continue;
            }
            // The locks of what ran before are seen, too.
            let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
            let (left, lock) = (left.as_millis(), options.lock_timeout.as_millis());
            let limits = format!(
                "savepoint \"!trial\"; set local statement_timeout = {left}; set local lock_timeout = {lock}; \
                 set local client_min_messages = notice"
            );
            work.setup.session.batch_execute(&limits).await?;
            match work.run_within(&statement.sql).await {
                Ok(notices) => impact.notices.extend(notices.into_iter().map(|notice| StatementNotice {
                    line: statement.line,
                    message: notice.message,
                    detail: notice.detail,
                })),
                Err(error) => {
                    impact.failed = Some(failed(error, statement.line)?);
                    work.setup.session.batch_execute("rollback to savepoint \"!trial\"").await?;
                    break 'text;
                }
            }
            impact.notices.truncate(MAX_NOTICES);
        }
    }
    work.leave_text().await?;
    work.setup.session.batch_execute(&format!("set local statement_timeout = {}", TIMEOUT.as_millis())).await?;
    let locked = work.own(LOCKED_SQL, &[]).await?.into_value();
    if impact.failed.is_none()
        && let Err(error) = work.check_ledger().await
    {
        impact.failed = Some(failed(error, text.steps().first().map_or(1, SchemaChangeStep::line))?);
    }
    Ok(locked)
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

/// Says what the locks mean, after the rollback.
async fn explain(work: &mut WorkSession<'_>, locked: Option<String>, impact: &mut Impact) -> Result<(), pg::Error> {
    for text in work.own(EXPLAIN_SQL, &[locked]).await?.rows.into_iter().flatten().flatten() {
        let found: Relation = serde_json::from_str(&text).map_err(std::io::Error::other)?;
        let (relation, bytes) = (format!("{}{}", found.kind, found.name), found.bytes.unwrap_or_default());
        if found.is_dropped {
            impact.dropped.push(relation.clone());
        }
        if let Some(rows) = found.rows {
            impact.scanned.push(ScannedTable { table: found.name, rows, bytes });
        }
        if found.is_rewritten {
            impact.rewritten.push(RewrittenRelation { relation: relation.clone(), bytes });
        }
        if let Some((mode, blocks)) = found.lock.and_then(|number| LOCKS.get(number - 1)).copied() {
            impact.locks.push(LockTaken { relation, mode: mode.to_owned(), blocks });
        }
    }
    Ok(())
}
