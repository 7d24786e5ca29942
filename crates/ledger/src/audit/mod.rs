//! The ledger as evidence, for people who may see every account: reading it (`read`), sealing its final records in a chain
//! of hashes (`seal`), checking them against the chain (`verify`), and removing old ones (`prune`). The chain and its rules
//! are in `migrations/V6__seal.sql`; `docs/auditors.md` says what it proves.

mod prune;
mod read;
mod seal;
mod verify;

use std::time::Duration;

use pg::{Lease, Outcome, Session, Step, Writer};
use tokio::time::Instant;

pub use prune::{Pruned, Survey};
pub use read::RecordQuery;
pub use seal::Checkpoint;
pub use verify::{Finding, Verified, Wrong};

use crate::records::Records;

/// Reads, seals, verifies and prunes the records of one ledger.
#[derive(Debug, Clone)]
pub struct Audit {
    writer: Writer,
    records: Records,
}

/// For one statement: the largest reads a whole ledger.
const DEADLINE: Duration = Duration::from_secs(300);

impl Audit {
    pub(crate) fn new(writer: Writer, records: Records) -> Self {
        Self { writer, records }
    }

    /// One statement in a READ COMMITTED transaction of its own, whatever the role's default: sealing needs to see what was
    /// committed a moment ago.
    async fn transact(&self, sql: &str, params: &[Option<String>]) -> Result<Vec<Vec<Option<String>>>, pg::Error> {
        let mut lease = self.lease().await?;
        let steps = [
            Step::plain("begin isolation level read committed"),
            Step { sql, params, param_types: &[] },
            Step::plain("commit"),
        ];
        let outcomes = run(lease.session(), &steps).await?;
        Ok(outcomes.into_iter().nth(1).unwrap_or_default().rows)
    }

    async fn lease(&self) -> Result<Lease, pg::Error> {
        self.writer.lease(Instant::now() + DEADLINE).await
    }
}

async fn run(session: &mut Session, steps: &[Step<'_>]) -> Result<Vec<Outcome>, pg::Error> {
    tokio::time::timeout(DEADLINE, session.run(steps))
        .await
        .map_err(|_| pg::Error::Deadline)?
        .map_err(|failed| failed.error)
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
