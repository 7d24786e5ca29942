//! The ledger as evidence, for people who may see every account. `read` reads it. `seal` appends records and events
//! to the log as leaves, and `sign` and `witnesses` sign its checkpoints. `prove` and `export` make proofs and
//! bundles, `verify` compares the records with the log, `prune` removes old records, and `erase` takes values from
//! them. The log and its rules are in `migrations/baseline/70_log.sql`; `docs/topics/audit.md` says what it proves.
//! `reads` is the log of reads, which is separate from this log.

mod checkpoints;
mod erase;
mod export;
mod finding;
mod prove;
mod prune;
mod read;
mod record;
mod row;
mod row_for_agent;
mod seal;
mod sign;
mod sign_error;
mod signing;
mod tree;
mod unreadable;
mod verify;
mod witnesses;

use std::time::Duration;

use pg::{PipelineStatement, PooledSession, Session, WriterPool};
use tokio::time::Instant;

pub use checkpoints::{KeptCheckpoint, LogKey, SignatureState, TrustedKeys};
pub use erase::{ERASE_TOOL, Erased, ErasurePlan, ErasureScope, FoundValues, LookedFor, WaitingValues};
pub use export::{ExportError, Exported, Parts};
pub use finding::{Discrepancy, VerifyFinding};
pub use prove::ProveError;
pub use prune::{PrunePlan, Pruned};
pub use read::{LedgerNames, RecordFilter, RecordList, RecordName, SessionActivity, StoppedAt, ToolCounts};
pub use record::{PlannedWrite, Record, RecordApproval, RecordLine, RecordUndo};
pub use row::{RowError, TrackedRow};
pub use row_for_agent::{HistoryExtent, HistoryGap, RowForAgent, TableForAgent};
pub(crate) use seal::SealingPause;
pub use sign::Signed;
pub use sign_error::{Contradiction, SignError};
pub use signing::{Signing, read_key, write_key};
pub use verify::Verified;
pub use witnesses::{Uncosigned, Witness, WitnessError, WitnessState};

use types::{Moment, TimeRange};

use crate::evidence::records::Records;
use crate::evidence::time_range::TimeRangeError;

/// Reads, seals, verifies and prunes the records of one ledger.
#[derive(Debug, Clone)]
pub struct Audit {
    writer: WriterPool,
    records: Records,
}

/// The time limit of one query. The largest queries read the whole ledger.
const TIMEOUT: Duration = Duration::from_secs(300);

impl Audit {
    pub(crate) fn new(writer: WriterPool, records: Records) -> Self {
        Self { writer, records }
    }

    /// The range between two points in time, by the clock of the database.
    pub async fn time_range(&self, from: Option<Moment>, to: Option<Moment>) -> Result<TimeRange, TimeRangeError> {
        self.records.time_range(from, to).await
    }

    /// Runs one query in its own transaction.
    async fn ask(&self, sql: &str, params: &[Option<String>]) -> Result<Vec<Vec<Option<String>>>, pg::Error> {
        ask(self.acquire().await?.session(), sql, params).await
    }

    async fn acquire(&self) -> Result<PooledSession, pg::Error> {
        self.writer.acquire(Instant::now() + TIMEOUT).await
    }
}

async fn ask(
    session: &mut Session,
    sql: &str,
    params: &[Option<String>],
) -> Result<Vec<Vec<Option<String>>>, pg::Error> {
    let outcomes = tokio::time::timeout(TIMEOUT, session.run(&[PipelineStatement::new(sql, params)]))
        .await
        .map_err(|_| pg::Error::Deadline)?
        .map_err(|failed| failed.error)?;
    Ok(outcomes.into_iter().next().unwrap_or_default().rows)
}

/// Begins a read-only transaction with one snapshot. JIT is off: the expressions of an entry are long, and compiling
/// them takes ten times as long as evaluating them for a batch.
async fn begin_snapshot(session: &mut Session) -> Result<(), pg::Error> {
    let begun = session.begin(Some("isolation level repeatable read read only"), &[]).await;
    begun.map_err(|failed| failed.error)?;
    session.batch_execute("set local jit = off").await
}

/// The first row of an answer, which must have `N` columns.
fn one_row<const N: usize>(rows: Vec<Vec<Option<String>>>) -> Result<[Option<String>; N], pg::Error> {
    rows.into_iter().next().and_then(|row| <[Option<String>; N]>::try_from(row).ok()).ok_or_else(unreadable)
}

/// A number that PostgreSQL gave as text; NULL is 0.
fn number(text: Option<&String>) -> Result<i64, pg::Error> {
    text.map_or(Ok(0), |text| text.parse().map_err(|_| unreadable()))
}

/// Whether the error means that the login lacks the privilege to write, or that the database is a standby.
fn may_only_read(error: &pg::Error) -> bool {
    error.server_error().is_some_and(|error| matches!(error.sqlstate.as_str(), "42501" | "25006"))
}

fn unreadable() -> pg::Error {
    std::io::Error::other("the ledger's answer cannot be read").into()
}
