//! Counters of calls by tool and outcome.

use std::sync::{Arc, OnceLock};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use tokio::time::Instant;
use types::ErrorCode;

use super::database_labels::DatabaseLabels;
use crate::tool::{Disposition, ToolResult};

/// Bucket bounds in seconds.
const BUCKETS: [f64; 15] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

/// Outcome of a call that was dropped before its end: the client cancelled it or disconnected.
const CANCELLED: &str = "cancelled";

/// Outcomes that are exported as zero from the first call of a tool on. Alerts depend on them, and Prometheus does not
/// see an increase in a counter that begins with 1.
const FROM_THE_FIRST_CALL: [&str; 3] =
    [word(Disposition::Done), ErrorCode::CommitOutcomeUnknown.as_str(), ErrorCode::InternalError.as_str()];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ToolLabels {
    #[prometheus(flatten)]
    database: DatabaseLabels,
    tool: Arc<str>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    #[prometheus(flatten)]
    tool: ToolLabels,
    outcome: &'static str,
}

pub(super) struct CallMetrics {
    total: Family<CallLabels, Counter>,
    duration: Durations,
    in_flight: Gauge,
}

type Durations = Family<ToolLabels, Histogram, fn() -> Histogram>;

impl CallMetrics {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let this = Self {
            total: Family::default(),
            duration: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            in_flight: Gauge::default(),
        };
        let help = "Calls that have ended. `outcome` is `success`, `duplicate` (answered from the record of an identical call), \
                    `proposed` (nothing was written; agreement is required), `cancelled` (the caller did not wait for the end; \
                    a write continues to its own end, see the ledger), or the code of the error";
        registry.register("tool_calls", help, this.total.clone());
        let help = "Time from the call to the answer, whatever the outcome";
        registry.register_with_unit("tool_call_duration", help, Unit::Seconds, this.duration.clone());
        registry.register("calls_in_flight", "Calls that are running", this.in_flight.clone());
        this
    }

    /// Metrics of the calls of one tool. They are not rendered before its first call.
    pub(super) fn of_tool(&self, name: &str, database: DatabaseLabels) -> ToolMetrics {
        ToolMetrics {
            labels: ToolLabels { database, tool: name.into() },
            total: self.total.clone(),
            durations: self.duration.clone(),
            duration: OnceLock::new(),
            in_flight: self.in_flight.clone(),
        }
    }
}

pub(crate) struct ToolMetrics {
    labels: ToolLabels,
    total: Family<CallLabels, Counter>,
    durations: Durations,
    /// Metrics of this tool, from its first call on.
    duration: OnceLock<Histogram>,
    in_flight: Gauge,
}

impl ToolMetrics {
    /// Starts the measurement of a call that began at this time. The returned guard records the call when it is
    /// dropped.
    pub(crate) fn begin(&self, started: Instant) -> CallTimer<'_> {
        self.in_flight.inc();
        let duration = self.duration.get_or_init(|| {
            for outcome in FROM_THE_FIRST_CALL {
                self.total_of(outcome);
            }
            self.durations.get_or_create_owned(&self.labels)
        });
        CallTimer { metrics: self, duration, started, outcome: CANCELLED }
    }

    fn total_of(&self, outcome: &'static str) -> Counter {
        self.total.get_or_create_owned(&CallLabels { tool: self.labels.clone(), outcome })
    }
}

pub(crate) struct CallTimer<'a> {
    metrics: &'a ToolMetrics,
    duration: &'a Histogram,
    started: Instant,
    outcome: &'static str,
}

impl CallTimer<'_> {
    pub(crate) fn ended(mut self, outcome: &ToolResult) {
        self.outcome = match outcome {
            Ok(answer) => word(answer.success),
            Err(refused) => refused.failure.code.as_str(),
        };
    }
}

impl Drop for CallTimer<'_> {
    fn drop(&mut self) {
        self.metrics.in_flight.dec();
        self.duration.observe(self.started.elapsed().as_secs_f64());
        self.metrics.total_of(self.outcome).inc();
    }
}

const fn word(success: Disposition) -> &'static str {
    match success {
        Disposition::Done => "success",
        Disposition::Duplicate => "duplicate",
        Disposition::Proposed => "proposed",
    }
}
