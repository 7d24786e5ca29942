//! The state at the time of a scrape: the pools, and the open records and proposals of the ledger.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ledger::read::{PoolStatus, Reader};
use ledger::{Gate, LedgerCounts, LedgerGauges, ReadLogStatus};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::{Registry, Unit};

use super::PREFIX;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PoolLabel {
    pool: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SessionLabels {
    pool: &'static str,
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StatusLabel {
    status: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabel {
    state: &'static str,
}

/// Queries the ledger. The first failure is logged with its reason.
pub(super) async fn count(gauges: LedgerGauges, is_silent: &AtomicBool) -> Option<LedgerCounts> {
    let counted = gauges.count().await;
    let was_silent = is_silent.swap(counted.is_err(), Ordering::Relaxed);
    if let (Err(error), false) = (&counted, was_silent) {
        tracing::warn!(%error, "the ledger cannot be asked for its metrics");
    }
    counted.ok()
}

/// The current gauges; `counted` is the ledger's result.
pub(super) fn registry(
    reader: Option<&Reader>,
    gate: &Gate,
    reads: ReadLogStatus,
    counted: Option<&LedgerCounts>,
) -> Registry {
    let mut registry = Registry::with_prefix(PREFIX);
    let read = reader.map(|reader| ("read", reader.status()));
    let pools: Vec<(&'static str, PoolStatus)> = read.into_iter().chain([("write", gate.usage())]).collect();
    register_pools(&mut registry, &pools);
    register_read_log(&mut registry, reads);
    let up = ConstGauge::new(u64::from(counted.is_some()));
    registry.register(
        "database_up",
        "1 if the ledger answered within 2 seconds, else 0; the metrics of the ledger are absent then",
        up,
    );
    if let Some(counted) = counted {
        register_records(&mut registry, counted);
        register_proposals(&mut registry, counted);
    }
    registry
}

fn register_pools(registry: &mut Registry, pools: &[(&'static str, PoolStatus)]) {
    let (sessions, most, waiting) = (Family::default(), Family::default(), Family::default());
    for &(pool, usage) in pools {
        set(&sessions, &SessionLabels { pool, state: "idle" }, usage.idle);
        set(&sessions, &SessionLabels { pool, state: "in_use" }, usage.in_use);
        set(&most, &PoolLabel { pool }, usage.max);
        set(&waiting, &PoolLabel { pool }, usage.waiting);
    }
    let help = "Database connections. `pool` is `read` or `write`. `state` is `idle` or `in_use` (which includes those that are \
                being stopped)";
    registry.register("pool_sessions", help, sessions);
    registry.register("pool_sessions_max", "The limits `read_sessions` and `write_sessions`", most);
    registry.register(
        "pool_waiting",
        "Calls that wait for a connection or, to read, for memory for their answer",
        waiting,
    );
}

fn register_read_log(registry: &mut Registry, reads: ReadLogStatus) {
    let entries = Family::<StateLabel, Counter>::default();
    for (state, count) in [("written", reads.written), ("lost", reads.lost)] {
        entries.get_or_create_owned(&StateLabel { state }).inc_by(count);
    }
    let help = "Reads for the log of reads. `state` is `written`, or `lost`: the database did not keep up, and the log has a row that \
                says how many are missing";
    registry.register("read_log_entries", help, entries);
    let help = "Reads that wait to be written to the log of reads";
    registry.register("read_log_queued", help, ConstGauge::new(reads.queued));
}

fn register_records(registry: &mut Registry, counted: &LedgerCounts) {
    let number = |count: u64| ConstGauge::new(count);
    registry.register(
        "records_pending",
        "Writes that are recorded and have no outcome",
        number(counted.pending_records),
    );
    let help = "Age of the oldest write without an outcome; 0 if there is none";
    age(registry, "oldest_pending_record", help, counted.oldest_pending_record);
    let help = "Final records that no seal covers, counted over the next 10000";
    registry.register("unsealed_records", help, number(counted.unsealed_records));
    let help = "Time since the oldest record that no seal covers became final; 0 if there is none";
    age(registry, "oldest_unsealed_record", help, counted.oldest_unsealed_record);
}

fn register_proposals(registry: &mut Registry, counted: &LedgerCounts) {
    let open = Family::default();
    set(&open, &StatusLabel { status: "pending" }, counted.pending_proposals);
    set(&open, &StatusLabel { status: "confirmed" }, counted.confirmed_proposals);
    let help = "Open proposals: `pending` (waiting for agreement; expired ones are not counted) and `confirmed` (to be executed). \
                After an upgrade `confirmed` returns to 0 within seconds";
    registry.register("proposals", help, open);
    let help = "Time since the agreement to the oldest proposal that is `confirmed`; 0 if there is none";
    age(registry, "oldest_confirmed_proposal", help, counted.oldest_confirmed_proposal);
    let ended = Family::default();
    for (status, count) in counted.ended_proposals {
        set(&ended, &StatusLabel { status: status.as_str() }, count);
    }
    let help = "Proposals that ended within the last hour: `executed`, `failed`, `stale`, `rejected` or `expired`; includes those \
                that people approved, which no call executes";
    registry.register("proposals_ended_last_hour", help, ended);
}

fn set<L: Clone + Eq + std::hash::Hash>(family: &Family<L, Gauge>, labels: &L, value: impl TryInto<i64>) {
    family.get_or_create_owned(labels).set(value.try_into().unwrap_or(i64::MAX));
}

fn age(registry: &mut Registry, name: &str, help: &str, age: Duration) {
    registry.register_with_unit(name, help, Unit::Seconds, ConstGauge::new(age.as_secs_f64()));
}
