//! The state at the time of a scrape: the pools, and the open records and proposals of the ledger.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ledger::read::PoolStatus;
use ledger::{LedgerCounts, LedgerGauges, ReadLogStatus};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::{Registry, Unit};
use types::DatabaseName;

use super::PREFIX;
use super::cached::Cached;
use super::database_labels::DatabaseLabels;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PoolLabels {
    #[prometheus(flatten)]
    database: DatabaseLabels,
    pool: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SessionLabels {
    #[prometheus(flatten)]
    pool: PoolLabels,
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StatusLabels {
    #[prometheus(flatten)]
    database: DatabaseLabels,
    status: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabels {
    #[prometheus(flatten)]
    database: DatabaseLabels,
    state: &'static str,
}

/// The open records and proposals of a ledger, counted at most every few seconds.
#[derive(Clone)]
pub struct LedgerScrape {
    /// `None` if there is no ledger.
    gauges: Option<LedgerGauges>,
    cached: Arc<Cached<LedgerCounts>>,
    /// Whether the ledger did not answer the last query.
    is_silent: Arc<AtomicBool>,
}

impl std::fmt::Debug for LedgerScrape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LedgerScrape").finish_non_exhaustive()
    }
}

impl LedgerScrape {
    #[must_use]
    pub fn new(gauges: Option<LedgerGauges>) -> Self {
        Self { gauges, cached: Arc::default(), is_silent: Arc::default() }
    }

    /// Closes the connection of the scrapes.
    pub async fn drain(&self) {
        if let Some(gauges) = &self.gauges {
            gauges.drain().await;
        }
    }

    /// The counts; `None` if there is no ledger, or it does not answer within about 2 s. The ledger is queried at most
    /// every 5 s, however many scrapers there are.
    pub(crate) async fn counts(&self) -> Option<LedgerCounts> {
        let this = self.clone();
        // The query runs in a task of its own: if a scraper disconnects, the next one gets its result.
        let asked = tokio::spawn(async move {
            let gauges = this.gauges?;
            this.cached.get(|| count(gauges, &this.is_silent)).await
        });
        asked.await.ok().flatten()
    }
}

/// Queries the ledger. The first failure is logged with its reason.
async fn count(gauges: LedgerGauges, is_silent: &AtomicBool) -> Option<LedgerCounts> {
    let counted = gauges.count().await;
    let was_silent = is_silent.swap(counted.is_err(), Ordering::Relaxed);
    if let (Err(error), false) = (&counted, was_silent) {
        tracing::warn!(%error, "the ledger cannot be asked for its metrics");
    }
    counted.ok()
}

/// The state of one database at the time of a scrape.
#[derive(Debug)]
pub struct DatabaseGauges {
    database: DatabaseLabels,
    pools: Vec<(&'static str, PoolStatus)>,
    reads: ReadLogStatus,
    /// `None` if the ledger has not answered.
    counts: Option<LedgerCounts>,
}

impl DatabaseGauges {
    /// The state of the database `name`: of its pools for reads and writes, of its log of reads, and what its ledger has
    /// counted, which is `None` if there is none, or it has not answered.
    pub(crate) fn new(
        name: Option<&DatabaseName>,
        read: Option<PoolStatus>,
        write: PoolStatus,
        reads: ReadLogStatus,
        counts: Option<LedgerCounts>,
    ) -> Self {
        let read = read.map(|read| ("read", read));
        let pools = read.into_iter().chain([("write", write)]).collect();
        Self { database: DatabaseLabels::new(name), pools, reads, counts }
    }

    fn labels(&self) -> DatabaseLabels {
        self.database.clone()
    }
}

/// The current gauges of all databases.
pub(super) fn registry(databases: &[DatabaseGauges]) -> Registry {
    let mut registry = Registry::with_prefix(PREFIX);
    register_pools(&mut registry, databases);
    register_read_log(&mut registry, databases);
    let up = databases.iter().map(|own| (own.labels(), u64::from(own.counts.is_some())));
    let help = "1 if the ledger answered within 2 seconds, else 0; the metrics of the ledger are absent then";
    number(&mut registry, "database_up", help, up);
    let counted: Vec<_> = databases.iter().filter_map(|own| Some((own.labels(), own.counts.as_ref()?))).collect();
    if !counted.is_empty() {
        register_records(&mut registry, &counted);
        register_proposals(&mut registry, &counted);
    }
    registry
}

fn register_pools(registry: &mut Registry, databases: &[DatabaseGauges]) {
    let (sessions, most, waiting) = (Family::default(), Family::default(), Family::default());
    for own in databases {
        for &(pool, usage) in &own.pools {
            let pool = PoolLabels { database: own.labels(), pool };
            set(&sessions, &SessionLabels { pool: pool.clone(), state: "idle" }, usage.idle);
            set(&sessions, &SessionLabels { pool: pool.clone(), state: "in_use" }, usage.in_use);
            set(&most, &pool, usage.max);
            set(&waiting, &pool, usage.waiting);
        }
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

fn register_read_log(registry: &mut Registry, databases: &[DatabaseGauges]) {
    let entries = Family::<StateLabels, Counter>::default();
    for own in databases {
        for (state, count) in [("written", own.reads.written), ("lost", own.reads.lost)] {
            entries.get_or_create_owned(&StateLabels { database: own.labels(), state }).inc_by(count);
        }
    }
    let help = "Reads for the log of reads. `state` is `written`, or `lost`: the database did not keep up, and the log has a row that \
                says how many are missing";
    registry.register("read_log_entries", help, entries);
    let help = "Reads that wait to be written to the log of reads";
    number(registry, "read_log_queued", help, databases.iter().map(|own| (own.labels(), own.reads.queued)));
}

type Counted<'a> = (DatabaseLabels, &'a LedgerCounts);

fn register_records(registry: &mut Registry, counted: &[Counted<'_>]) {
    let numbers = |of: fn(&LedgerCounts) -> u64| counted.iter().map(move |(labels, own)| (labels.clone(), of(own)));
    let ages = |of: fn(&LedgerCounts) -> Duration| counted.iter().map(move |(labels, own)| (labels.clone(), of(own)));
    let help = "Writes that are recorded and have no outcome";
    number(registry, "records_pending", help, numbers(|own| own.pending_records));
    let help = "Age of the oldest write without an outcome; 0 if there is none";
    age(registry, "oldest_pending_record", help, ages(|own| own.oldest_pending_record));
    let help = "Final records that no seal covers, counted over the next 10000";
    number(registry, "unsealed_records", help, numbers(|own| own.unsealed_records));
    let help = "Time since the oldest record that no seal covers became final; 0 if there is none";
    age(registry, "oldest_unsealed_record", help, ages(|own| own.oldest_unsealed_record));
}

fn register_proposals(registry: &mut Registry, counted: &[Counted<'_>]) {
    let (open, ended) = (Family::default(), Family::default());
    let labels = |database: &DatabaseLabels, status| StatusLabels { database: database.clone(), status };
    for (database, own) in counted {
        set(&open, &labels(database, "pending"), own.pending_proposals);
        set(&open, &labels(database, "confirmed"), own.confirmed_proposals);
        for (status, count) in own.ended_proposals {
            set(&ended, &labels(database, status.as_str()), count);
        }
    }
    let help = "Open proposals: `pending` (waiting for agreement; expired ones are not counted) and `confirmed` (to be executed). \
                After an upgrade `confirmed` returns to 0 within seconds";
    registry.register("proposals", help, open);
    let help = "Time since the agreement to the oldest proposal that is `confirmed`; 0 if there is none";
    let ages = counted.iter().map(|(labels, own)| (labels.clone(), own.oldest_confirmed_proposal));
    age(registry, "oldest_confirmed_proposal", help, ages);
    let help = "Proposals that ended within the last hour: `executed`, `failed`, `stale`, `rejected` or `expired`; includes those \
                that people approved, which no call executes";
    registry.register("proposals_ended_last_hour", help, ended);
}

fn set<L: Clone + Eq + std::hash::Hash>(family: &Family<L, Gauge>, labels: &L, value: impl TryInto<i64>) {
    family.get_or_create_owned(labels).set(value.try_into().unwrap_or(i64::MAX));
}

/// A number of each database. A single one without a name has no labels.
fn number(registry: &mut Registry, name: &str, help: &str, values: impl IntoIterator<Item = (DatabaseLabels, u64)>) {
    let family = Family::<DatabaseLabels, Gauge>::default();
    for (labels, value) in values {
        if labels.is_empty() {
            return registry.register(name, help, ConstGauge::new(value));
        }
        set(&family, &labels, value);
    }
    registry.register(name, help, family);
}

/// A time of each database, like [`number`].
fn age(registry: &mut Registry, name: &str, help: &str, values: impl IntoIterator<Item = (DatabaseLabels, Duration)>) {
    let family = Family::<DatabaseLabels, Gauge<f64, AtomicU64>>::default();
    for (labels, age) in values {
        if labels.is_empty() {
            return registry.register_with_unit(name, help, Unit::Seconds, ConstGauge::new(age.as_secs_f64()));
        }
        family.get_or_create_owned(&labels).set(age.as_secs_f64());
    }
    registry.register_with_unit(name, help, Unit::Seconds, family);
}
