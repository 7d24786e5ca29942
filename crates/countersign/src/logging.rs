//! Logs go to standard error: standard output belongs to the protocol.

use tracing_subscriber::EnvFilter;

use crate::settings::LogFormat;

pub(crate) fn start(level: &str, format: LogFormat) {
    // Debug output of these holds whole messages, with whatever a query or a parameter says.
    const QUIET: &str = "rmcp=warn,refinery_core=warn,tokio_postgres=warn";
    let filter = EnvFilter::try_new(format!("{QUIET},{level}")).unwrap_or_else(|_| EnvFilter::new(QUIET));
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false);
    match format {
        LogFormat::Text => subscriber.init(),
        LogFormat::Json => subscriber.json().init(),
    }
}
