//! Services that tools use.

use std::time::Duration;

use ledger::plans::Plans;
use ledger::proposals::Proposals;
use ledger::read::{ReadLimits, Reader};
use ledger::{Gate, LedgerGauges, ReadLog, Records};
use types::Tier;

use crate::mask_policy::MaskPolicy;
use crate::metrics::Metrics;

/// Services that tools use.
#[derive(Debug, Clone)]
pub struct Services {
    /// Read path; `None` if no login may be used for it.
    pub reader: Option<Reader>,
    /// Write path.
    pub gate: Gate,
    /// Records of the ledger.
    pub records: Records,
    /// Plans for the undo of many writes.
    pub plans: Plans,
    /// Time limit of every call.
    pub call_deadline: Duration,
    /// Proposals, the writes that need approval.
    pub proposals: Proposals,
    /// Log of reads.
    pub read_log: ReadLog,
    /// Gauges of the ledger for the metrics page.
    pub states: LedgerGauges,
    /// Counters of calls. They live as long as the process, whatever tools it serves.
    pub metrics: Metrics,
    /// The masks of callers.
    pub masks: MaskPolicy,
    /// `None` if execute_sql is not served.
    pub execute_sql: Option<ExecuteSqlSettings>,
    /// The pages of the console; `None` if no address of a console is configured.
    pub console: Option<ConsoleLinks>,
}

/// The addresses of the pages of the console.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsoleLinks(String);

impl ConsoleLinks {
    /// The pages of the console at this origin, such as `https://console.example.com`.
    #[must_use]
    pub fn new(origin: &str) -> Self {
        Self(origin.trim_end_matches('/').to_owned())
    }

    /// The page of a proposal.
    #[must_use]
    pub fn proposal(&self, id: &impl std::fmt::Display) -> String {
        format!("{}/proposals/{id}", self.0)
    }
}

/// Settings of execute_sql.
#[derive(Debug, Clone)]
pub struct ExecuteSqlSettings {
    /// Limits of the returned rows.
    pub limits: ReadLimits,
    /// Approval that a statement needs before it runs.
    pub tier: Tier,
}

impl Services {
    /// The metrics page, with the current state of pools and ledger.
    pub async fn render_metrics(&self) -> String {
        self.metrics.render(self.reader.as_ref(), &self.gate, self.read_log.status(), &self.states).await
    }
}
