//! Logs go to standard error: standard output belongs to the protocol.

use anyhow::Context;
use tracing_subscriber::EnvFilter;

use crate::settings::LogFormat;

/// # Errors
/// If `level` is neither a level nor filters.
pub(crate) fn start(level: &str, format: LogFormat) -> anyhow::Result<()> {
    // Debug output of these holds whole messages, with whatever a query or a parameter says.
    const QUIET: &str = "rmcp=warn,refinery_core=warn,tokio_postgres=warn";
    let filter = EnvFilter::try_new(format!("{QUIET},{level}")).with_context(|| {
        format!("log (--log, COUNTERSIGN_LOG) is \"{level}\": it takes error, warn, info, debug or filters")
    })?;
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false);
    match format {
        LogFormat::Text => subscriber.init(),
        LogFormat::Json => subscriber.json().init(),
    }
    Ok(())
}
