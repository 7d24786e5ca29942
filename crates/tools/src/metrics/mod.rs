//! Metrics for monitoring, as OpenMetrics text. `docs/reference/metrics.md` is generated from the help texts here.
//!
//! `calls` counts the calls of the registry, and `http` the requests of an HTTP server. `gauges` are read at each
//! scrape: the pools, the process (`process`), and the ledger, whose counts `cached` keeps for a few seconds.
//!
//! The values of labels are bounded. They are names of tools that are or were served, words of fixed lists, routes of
//! the program, and HTTP statuses. They are never accounts, actors, SQL or values of rows.

mod cached;
mod calls;
mod database_labels;
mod gauges;
mod http;
mod process;

use std::sync::Arc;
use std::time::SystemTime;

use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

pub use self::http::{GaugeGuard, HttpMetrics, RefusalReason};
use calls::CallMetrics;
pub(crate) use calls::ToolMetrics;
use database_labels::DatabaseLabels;
pub use gauges::{DatabaseGauges, LedgerScrape};
use types::DatabaseName;

/// Sorts the samples of each metric by their labels, since the library has no fixed order. The samples of a histogram
/// stay together in their own order.
fn sorted(text: &str) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    let is_comment = |line: &&str| line.starts_with('#');
    for metric in lines.chunk_by_mut(|one, next| is_comment(one) == is_comment(next)) {
        if !metric.first().is_some_and(is_comment) {
            metric.sort_by_cached_key(|line| labels(line));
        }
    }
    lines.into_iter().flat_map(|line| [line, "\n"]).collect()
}

/// The labels of a sample, without the bound of a histogram's bucket, which comes first.
fn labels(sample: &str) -> String {
    let (_, labels) = sample.split_once('{').unwrap_or_default();
    let labels = labels.rsplit_once('}').unwrap_or_default().0;
    let rest = labels.strip_prefix("le=\"").and_then(|bound| Some(bound.split_once('"')?.1));
    rest.map_or(labels, |rest| rest.trim_start_matches(',')).to_owned()
}

/// Media type of the metrics page.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Prefix of all names except those of the process.
const PREFIX: &str = "countersign";

/// All metrics of one process. Clones share them.
#[derive(Clone)]
pub struct Metrics {
    shared: Arc<Shared>,
    /// The database whose calls are counted.
    database: DatabaseLabels,
}

struct Shared {
    registry: Registry,
    calls: CallMetrics,
    http: HttpMetrics,
    /// Start time of the process, approximately.
    since: SystemTime,
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Metrics without any recorded values.
    #[must_use]
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix(PREFIX);
        registry.register(
            "build",
            "The version of this server; the value is 1",
            Info::new([("version", env!("CARGO_PKG_VERSION"))]),
        );
        let calls = CallMetrics::new(&mut registry);
        let http = HttpMetrics::new(&mut registry);
        Self {
            shared: Arc::new(Shared { registry, calls, http, since: SystemTime::now() }),
            database: DatabaseLabels::default(),
        }
    }

    /// The same metrics, for calls of the tools of this database.
    #[must_use]
    pub fn of_database(&self, name: &DatabaseName) -> Self {
        Self { shared: Arc::clone(&self.shared), database: DatabaseLabels::new(Some(name)) }
    }

    /// Metrics that an HTTP server reports.
    #[must_use]
    pub fn http(&self) -> &HttpMetrics {
        &self.shared.http
    }

    /// The counters of a tool. Only for served tools, because each name stays a label until the process ends.
    pub(crate) fn of_tool(&self, name: &str) -> ToolMetrics {
        self.shared.calls.of_tool(name, self.database.clone())
    }

    /// All metrics as text in the format [`CONTENT_TYPE`], with the state of these databases.
    #[must_use]
    pub fn render(&self, databases: &[DatabaseGauges]) -> String {
        let ours = gauges::registry(databases);
        let process = process::registry(self.shared.since);
        let mut text = String::new();
        let written = [&self.shared.registry, &ours, &process]
            .into_iter()
            .try_for_each(|registry| encode_registry(&mut text, registry))
            .and_then(|()| encode_eof(&mut text));
        // This would need a value that cannot be written as text, which does not occur.
        if written.is_err() {
            tracing::error!("the metrics cannot be written");
        }
        sorted(&text)
    }

    /// Metrics recorded in the process, without the values queried for a scrape.
    #[cfg(test)]
    pub(crate) fn counted(&self) -> String {
        let mut text = String::new();
        encode_registry(&mut text, &self.shared.registry).expect("it can be written");
        text
    }
}
