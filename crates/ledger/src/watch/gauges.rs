//! The numbers of records and proposals in the states that an operator watches: one query, cheap on a ledger of any
//! size, on its own session, so that it also answers while all writing sessions are busy.

use std::time::Duration;

use pg::{ConnectOptions, WriterPool};
use tokio::time::Instant;

use crate::people::proposals::ProposalStatus;

/// Counts in one ledger.
#[derive(Debug, Clone)]
pub struct LedgerGauges {
    writer: WriterPool,
}

/// The counts. An age is that of the oldest; zero if there is none.
#[derive(Debug, Clone, PartialEq)]
pub struct LedgerCounts {
    /// Writes that are recorded and have no outcome yet.
    pub pending_records: u64,
    /// Since that one was recorded.
    pub oldest_pending_record: Duration,
    /// Proposals that wait for an approval, without expired ones.
    pub pending_proposals: u64,
    /// Proposals that are approved and have not ended yet.
    pub confirmed_proposals: u64,
    /// The time since its approval.
    pub oldest_confirmed_proposal: Duration,
    /// Final records that no seal covers yet, counted up to 10,000.
    pub unsealed_records: u64,
    /// Since that one was final.
    pub oldest_unsealed_record: Duration,
    /// The number of proposals that reached each end within the last hour.
    pub ended_proposals: [(ProposalStatus, u64); 5],
}

/// The ends of a proposal, in the order of the statement.
const ENDS: [ProposalStatus; 5] = [
    ProposalStatus::Executed,
    ProposalStatus::Failed,
    ProposalStatus::Stale,
    ProposalStatus::Rejected,
    ProposalStatus::Expired,
];

const SQL: &str = include_str!("gauges.sql");
/// A monitoring request does not wait for long.
const DEADLINE: Duration = Duration::from_secs(2);

impl LedgerGauges {
    /// Opens no connection yet.
    pub(crate) fn new(target: ConnectOptions) -> Self {
        Self { writer: WriterPool::new(target, 1) }
    }

    /// The current counts, within 2 s.
    ///
    /// # Errors
    /// An error of the database, or a timeout.
    pub async fn count(&self) -> Result<LedgerCounts, pg::Error> {
        let deadline = Instant::now() + DEADLINE;
        let outcome = match self.writer.run_one(SQL, &[], deadline).await {
            Err(pg::Error::Lost(_)) => {
                self.writer.invalidate_idle();
                self.writer.run_one(SQL, &[], deadline).await?
            }
            outcome => outcome?,
        };
        let row = outcome.rows.into_iter().next().unwrap_or_default();
        counted(&row).ok_or_else(|| std::io::Error::other("the ledger's answer cannot be read").into())
    }

    /// Waits until PostgreSQL has received a pending cancel request. For the end of the process.
    pub async fn drain(&self) {
        self.writer.drain().await;
    }
}

/// The row of the statement.
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

/// NULL is no age. What was made while the statement began may be younger than it.
fn age(text: &Option<String>) -> Option<Duration> {
    let Some(text) = text else { return Some(Duration::ZERO) };
    Duration::try_from_secs_f64(text.parse::<f64>().ok()?.max(0.0)).ok()
}
