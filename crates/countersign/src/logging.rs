//! Logs go to standard error: standard output belongs to the protocol.

use anyhow::Context;
use tracing::{Level, Metadata};
use tracing_subscriber::filter::{EnvFilter, FilterExt, filter_fn};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

use crate::settings::LogFormat;

/// Below this level these log whole messages, with whatever a query or a parameter says. rmcp warns of every request that its
/// client cancels or that is wrong, which the client has been told, and could write a log full with.
const TALKATIVE: [(&str, Level); 3] =
    [("rmcp", Level::ERROR), ("refinery_core", Level::WARN), ("tokio_postgres", Level::WARN)];

/// # Errors
/// If `level` is neither a level nor filters.
pub(crate) fn start(level: &str, format: LogFormat) -> anyhow::Result<()> {
    let asked = EnvFilter::try_new(level).with_context(|| {
        format!("log (--log, COUNTERSIGN_LOG) is \"{level}\": it takes error, warn, info, debug or filters")
    })?;
    // Whatever was asked for: no filter may bring a parameter into the log.
    let filter = asked.and(filter_fn(is_free_of_messages));
    let layer = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(false);
    let layer = match format {
        LogFormat::Text => layer.boxed(),
        LogFormat::Json => layer.json().boxed(),
    };
    tracing_subscriber::registry().with(layer.with_filter(filter)).init();
    Ok(())
}

fn is_free_of_messages(event: &Metadata<'_>) -> bool {
    let crate_name = event.target().split("::").next().unwrap_or_default();
    TALKATIVE.iter().all(|(name, least)| *name != crate_name || event.level() <= least)
}
