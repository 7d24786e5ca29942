//! Services that tools use.

use std::time::Duration;

use ledger::read::{ReadLimits, Reader};
use ledger::{Ledger, ModificationLimits, RowRetention};
use types::{DatabaseName, ReasonRule, Tier};

use crate::activity::Activity;
use crate::mask_policy::MaskPolicy;
use crate::metrics::{DatabaseGauges, LedgerScrape, Metrics};

#[derive(Debug, Clone)]
pub struct Services {
    /// The name of the database; `None` if the server has one without a name.
    pub name: Option<DatabaseName>,
    /// The read path; `None` if there is no login for it.
    pub reader: Option<Reader>,
    pub ledger: Ledger,
    /// Whether the database has a ledger. Without one, only reads are served.
    pub has_ledger: bool,
    pub scrape: LedgerScrape,
    pub call_deadline: Duration,
    pub activity: Activity,
    /// The counters of calls. They exist until the process ends, even if tools are removed.
    pub metrics: Metrics,
    pub masks: MaskPolicy,
    /// The settings of `execute_sql`; `None` if the tool is not served.
    pub execute_sql: Option<ExecuteSqlSettings>,
    /// Whether an agent may confirm a proposal of tier `confirm` where its client cannot ask the user.
    pub agent_confirms: bool,
    /// The URLs of the console's pages; `None` if no console is configured.
    pub console: Option<ConsoleLinks>,
}

/// The URLs of the console's pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsoleLinks(String);

impl ConsoleLinks {
    /// The pages of the console at this origin, such as `https://console.example.com`.
    #[must_use]
    pub fn new(origin: &str) -> Self {
        Self(origin.trim_end_matches('/').to_owned())
    }

    /// The URL of a proposal's page.
    #[must_use]
    pub fn proposal(&self, id: &impl std::fmt::Display) -> String {
        format!("{}/proposals/{id}", self.0)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecuteSqlSettings {
    /// The limits of the returned rows.
    pub limits: ReadLimits,
    pub tier: Tier,
    /// Whether every call needs a reason.
    pub reason: ReasonRule,
    /// What a statement may change; `None` if any statement may be executed.
    pub modifications: Option<ModificationLimits>,
}

impl ExecuteSqlSettings {
    /// How much of the returned rows an answer has.
    pub(crate) const fn retention(&self) -> RowRetention {
        RowRetention { rows: self.limits.default_rows as usize, bytes: self.limits.max_bytes }
    }
}

impl Services {
    /// The state of the database now, for metrics.
    pub async fn gauges(&self) -> DatabaseGauges {
        let counts = self.scrape.counts().await;
        let read = self.reader.as_ref().map(Reader::status);
        let write = self.ledger.gate().usage();
        DatabaseGauges::new(self.name.as_ref(), read, write, self.ledger.read_log().status(), counts)
    }
}
