//! Services that tools work with.

use std::time::Duration;

use ledger::plans::Plans;
use ledger::proposals::Proposals;
use ledger::read::{ReadLimits, Reader};
use ledger::{Gate, LedgerGauges, Records};
use types::Tier;

use crate::metrics::Metrics;

/// What tools work on.
#[derive(Debug, Clone)]
pub struct Services {
    /// The read path; `None` if there is no login that may be used for it.
    pub reader: Option<Reader>,
    /// The way to write.
    pub gate: Gate,
    /// The ledger's records.
    pub records: Records,
    /// The undo of many writes.
    pub plans: Plans,
    /// How long any call may take.
    pub call_deadline: Duration,
    /// The writes that wait for somebody to agree.
    pub proposals: Proposals,
    /// Gauges of the ledger for the metrics page.
    pub states: LedgerGauges,
    /// Where calls are counted: for as long as the process lives, whatever tools it serves.
    pub metrics: Metrics,
    /// `None` if execute_sql is not served.
    pub execute_sql: Option<ExecuteSqlSettings>,
}

/// How execute_sql is served.
#[derive(Debug, Clone)]
pub struct ExecuteSqlSettings {
    /// The bounds of what it returns.
    pub limits: ReadLimits,
    /// Who must agree before a statement runs.
    pub tier: Tier,
}

impl Services {
    /// The metrics page, with the state of pools and ledger at this moment.
    pub async fn render_metrics(&self) -> String {
        self.metrics.render(self.reader.as_ref(), &self.gate, &self.states).await
    }
}
