//! The command line. Every option has an environment variable, for clients that start the server with nothing else.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use tools::Profile;

use crate::audit::args::AuditCommand;

/// Lets AI agents work on PostgreSQL, and lets people answer for what they did.
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = true)]
pub(crate) struct Cli {
    /// How much is logged to standard error: error, warn, info, debug, or filters such as countersign_ledger=debug.
    #[arg(long, env = "COUNTERSIGN_LOG", default_value = "info", global = true)]
    pub(crate) log: String,
    /// How it is logged.
    #[arg(long, env = "COUNTERSIGN_LOG_FORMAT", default_value = "text", global = true)]
    pub(crate) log_format: LogFormat,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start a private PostgreSQL with demo data, and show a real MCP session step by step.
    Demo(DemoArgs),
    /// Serve MCP on standard input and output.
    Serve(ServeArgs),
    /// Make the ledger's schema and the reader's login in the configured database, or bring them up to date.
    Init(InitArgs),
    /// Compile the manifests against the configured database and report every mistake, without serving.
    Check(CheckArgs),
    /// Read, seal, verify and prune the records of what agents did.
    #[command(subcommand)]
    Audit(AuditCommand),
}

/// Which database.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct DatabaseArgs {
    /// postgresql://user@host:5432/dbname, or host=... dbname=... Without it: DATABASE_URL, then PGHOST and the like.
    #[arg(long, env = "COUNTERSIGN_DATABASE_URL", hide_env_values = true)]
    pub(crate) database_url: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Delete what earlier demos have left, and start anew.
    #[arg(long)]
    pub(crate) fresh: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) database: DatabaseArgs,
    /// A manifest whose tools are served; may be given several times.
    #[arg(long, env = "COUNTERSIGN_MANIFEST", value_delimiter = ',')]
    pub(crate) manifest: Vec<PathBuf>,
    /// Which tools are served: readonly, write or admin.
    #[arg(long, env = "COUNTERSIGN_PROFILE", default_value_t)]
    pub(crate) profile: Profile,
    /// On whose behalf the client calls: scope of the records, of duplicates and of idempotency keys.
    #[arg(long, env = "COUNTERSIGN_ACCOUNT", default_value = "default")]
    pub(crate) account: String,
    /// A label for the records: which agent or which person this client is.
    #[arg(long, env = "COUNTERSIGN_ACTOR")]
    pub(crate) actor: Option<String>,
    /// Log in with this to read, instead of the login that `countersign init` made. May be a standby.
    #[arg(long, env = "COUNTERSIGN_READ_URL", hide_env_values = true)]
    pub(crate) read_url: Option<String>,
    /// Serve query_database also over a login that is a superuser or may read files, run programs or signal others.
    #[arg(long, env = "COUNTERSIGN_ALLOW_PRIVILEGED_READER")]
    pub(crate) allow_privileged_reader: bool,
    /// Where the answer stands in a tool result.
    #[arg(long, env = "COUNTERSIGN_CONTENT", default_value = "both")]
    pub(crate) content: ContentArg,
    /// Serve the demo: its manifest, on a private PostgreSQL with its data.
    #[arg(long)]
    pub(crate) demo: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ContentArg {
    Text,
    Structured,
    Both,
}

impl From<ContentArg> for mcp::Content {
    fn from(content: ContentArg) -> Self {
        match content {
            ContentArg::Text => Self::Text,
            ContentArg::Structured => Self::Structured,
            ContentArg::Both => Self::Both,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    #[command(flatten)]
    pub(crate) database: DatabaseArgs,
    /// The demo's schema and data as well, in a schema named social.
    #[arg(long)]
    pub(crate) demo: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    pub(crate) database: DatabaseArgs,
    /// A manifest to check; may be given several times.
    #[arg(long, env = "COUNTERSIGN_MANIFEST", value_delimiter = ',', required = true)]
    pub(crate) manifest: Vec<PathBuf>,
}
