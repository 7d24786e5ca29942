//! The ledger as evidence, for people who may see every account: reading it (`read`), sealing its final records in a chain
//! of hashes (`seal`), checking them against the chain (`verify`), and removing old ones (`prune`). The chain and its rules
//! are in `migrations/baseline/70_seals.sql`; `docs/topics/audit.md` says what it proves. `reads` is the log of reads, which
//! is no part of the chain.

mod prune;
mod read;
mod reads;
mod row;
mod seal;
mod unreadable;
mod verify;

use std::time::Duration;

use pg::{PipelineStatement, PooledSession, Session, WriterPool};
use tokio::time::Instant;

pub use prune::{PrunePlan, Pruned};
pub use read::RecordFilter;
pub use reads::{ReadCounts, ReadDay, ReadFilter, ReadGroup};
pub use row::{RowError, TrackedRow};
pub use seal::Checkpoint;
pub use verify::{Discrepancy, Verified, VerifyFinding};

use crate::records::Records;

/// Reads, seals, verifies and prunes the records of one ledger.
#[derive(Debug, Clone)]
pub struct Audit {
    writer: WriterPool,
    records: Records,
}

/// The time limit of one query: the largest ones read the whole ledger.
const DEADLINE: Duration = Duration::from_secs(300);

impl Audit {
    pub(crate) fn new(writer: WriterPool, records: Records) -> Self {
        Self { writer, records }
    }

    /// Runs one query in its own transaction.
    async fn ask(&self, sql: &str, params: &[Option<String>]) -> Result<Vec<Vec<Option<String>>>, pg::Error> {
        ask(self.acquire().await?.session(), sql, params).await
    }

    async fn acquire(&self) -> Result<PooledSession, pg::Error> {
        self.writer.acquire(Instant::now() + DEADLINE).await
    }
}

/// The rows of one statement.
async fn ask(
    session: &mut Session,
    sql: &str,
    params: &[Option<String>],
) -> Result<Vec<Vec<Option<String>>>, pg::Error> {
    let outcomes = tokio::time::timeout(DEADLINE, session.run(&[PipelineStatement { sql, params, param_types: &[] }]))
        .await
        .map_err(|_| pg::Error::Deadline)?
        .map_err(|failed| failed.error)?;
    Ok(outcomes.into_iter().next().unwrap_or_default().rows)
}

/// The first row of an answer that has exactly these columns.
fn one_row<const N: usize>(rows: Vec<Vec<Option<String>>>) -> Result<[Option<String>; N], pg::Error> {
    rows.into_iter().next().and_then(|row| <[Option<String>; N]>::try_from(row).ok()).ok_or_else(unreadable)
}

/// A number that PostgreSQL gave as text; NULL is 0.
fn number(text: Option<&String>) -> Result<i64, pg::Error> {
    text.map_or(Ok(0), |text| text.parse().map_err(|_| unreadable()))
}

fn unreadable() -> pg::Error {
    std::io::Error::other("the ledger's answer cannot be read").into()
}
