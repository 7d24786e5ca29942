//! The numbers of records and proposals that an operator monitors. They come from one query, which is cheap in a
//! ledger of any size. It has its own session, so that it works while all writing sessions are busy.

use std::time::Duration;

use pg::{ConnectOptions, SearchPath, WriterPool};
use tokio::time::Instant;

use crate::people::proposals::ProposalStatus;

/// Counts the states in one ledger.
#[derive(Debug, Clone)]
pub struct LedgerGauges {
    writer: WriterPool,
}

/// The counts. Each age is that of the oldest one, or zero if there is none.
#[derive(Debug, Clone, PartialEq)]
pub struct LedgerCounts {
    /// Attempts without an outcome.
    pub pending_records: u64,
    /// The age of the oldest attempt.
    pub oldest_pending_record: Duration,
    /// Proposals that wait for an approval and have not expired.
    pub pending_proposals: u64,
    /// Approved proposals that have not ended.
    pub confirmed_proposals: u64,
    /// The time since the oldest approval.
    pub oldest_confirmed_proposal: Duration,
    /// Final records that are not sealed, counted up to 10,000.
    pub unsealed_records: u64,
    /// The time since the oldest of them ended.
    pub oldest_unsealed_record: Duration,
    /// The number of proposals that reached each end within the last hour.
    pub ended_proposals: [(ProposalStatus, u64); 5],
}

/// The final states of a proposal, in the order of the query's result.
const ENDS: [ProposalStatus; 5] = [
    ProposalStatus::Executed,
    ProposalStatus::Failed,
    ProposalStatus::Stale,
    ProposalStatus::Rejected,
    ProposalStatus::Expired,
];

const SQL: &str = include_str!("gauges.sql");
/// The time limit, since a monitoring system does not wait long.
const TIMEOUT: Duration = Duration::from_secs(2);

impl LedgerGauges {
    /// Creates the pool without opening a connection.
    pub(crate) fn new(target: ConnectOptions) -> Self {
        Self { writer: WriterPool::new(target, &SearchPath::default(), 1) }
    }

    /// The current counts, within 2 seconds.
    pub async fn count(&self) -> Result<LedgerCounts, pg::Error> {
        let deadline = Instant::now() + TIMEOUT;
        let outcome = match self.writer.run_one(SQL, &[], deadline).await {
            Err(pg::Error::Lost(_)) => {
                self.writer.retire_all();
                self.writer.run_one(SQL, &[], deadline).await?
            }
            outcome => outcome?,
        };
        let row = outcome.rows.into_iter().next().unwrap_or_default();
        counted(&row).ok_or_else(|| std::io::Error::other("the ledger's answer cannot be read").into())
    }

    pub(crate) async fn close_unused(&self, time: Duration) {
        self.writer.close_unused(time).await;
    }

    /// Waits until PostgreSQL has received a pending cancel request. Called before the process exits.
    pub async fn drain(&self) {
        self.writer.drain().await;
    }
}

fn counted(row: &[Option<String>]) -> Option<LedgerCounts> {
    let [pending, oldest_pending, waiting, confirmed, oldest_confirmed, unsealed, oldest_unsealed, ended] = row else {
        return None;
    };
    let mut ended = ended.as_ref()?.split(' ').map(|number| number.parse().ok());
    let mut ended_proposals = ENDS.map(|end| (end, 0));
    for (_, count) in &mut ended_proposals {
        *count = ended.next()??;
    }
    Some(LedgerCounts {
        pending_records: number(pending)?,
        oldest_pending_record: age(oldest_pending)?,
        pending_proposals: number(waiting)?,
        confirmed_proposals: number(confirmed)?,
        oldest_confirmed_proposal: age(oldest_confirmed)?,
        unsealed_records: number(unsealed)?,
        oldest_unsealed_record: age(oldest_unsealed)?,
        ended_proposals,
    })
}

fn number(text: &Option<String>) -> Option<u64> {
    text.as_ref()?.parse().ok()
}

/// Parses an age; NULL is zero. A row that was made after the query began has a negative age.
fn age(text: &Option<String>) -> Option<Duration> {
    let Some(text) = text else { return Some(Duration::ZERO) };
    Duration::try_from_secs_f64(text.parse::<f64>().ok()?.max(0.0)).ok()
}
