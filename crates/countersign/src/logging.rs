//! Logs go to standard error: standard output belongs to the protocol.

use tracing_subscriber::EnvFilter;

use crate::cli::{Cli, Command, LogFormat};

pub(crate) fn start(cli: &Cli) {
    // Debug output of these holds whole messages, with whatever a query or a parameter says.
    const QUIET: &str = "rmcp=warn,refinery_core=warn,tokio_postgres=warn";
    // A person watches the demo: it tells its own progress.
    let level = if matches!(cli.command, Command::Demo(_)) && cli.log == "info" { "warn" } else { &cli.log };
    let filter = EnvFilter::try_new(format!("{QUIET},{level}")).unwrap_or_else(|_| EnvFilter::new(QUIET));
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false);
    match cli.log_format {
        LogFormat::Text => subscriber.init(),
        LogFormat::Json => subscriber.json().init(),
    }
}
