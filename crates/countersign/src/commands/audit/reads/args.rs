//! The arguments of `countersign audit reads`.

use clap::builder::TypedValueParser;
use clap::{Args, Subcommand};
use ledger::audit::ReadGroup;
use types::{Age, Moment};

use crate::commands::audit::age::retention;
use crate::commands::words;
use crate::settings::With;

#[derive(Debug, Subcommand)]
pub(crate) enum ReadsCommand {
    /// List the newest reads of all accounts, newest first, and what is missing among them.
    List(With<ReadsListArgs>),
    /// Count the reads by table, account or tool.
    Counts(With<ReadsCountsArgs>),
    /// Remove whole days of the log that are older than 90 days. The log keeps a row that says which, when and
    /// by whom.
    Prune(With<ReadsPruneArgs>),
}

#[derive(Debug, Clone, Args)]
pub(crate) struct ReadsListArgs {
    /// Number of rows, 1 to 10000.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) limit: u32,
    /// Only reads of this tool.
    #[arg(long)]
    pub(crate) tool: Option<String>,
    /// Only reads of this account.
    #[arg(long)]
    pub(crate) account: Option<String>,
    /// Only reads of this actor.
    #[arg(long)]
    pub(crate) actor: Option<String>,
    /// Only reads of the session whose id begins with this. --wide prints the ids.
    #[arg(long, value_name = "ID")]
    pub(crate) session: Option<String>,
    /// Only reads from this time on: 30m, 7d, yesterday, 14:00 or '2026-11-22 09:00' (UTC).
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<Moment>,
    /// Only reads before this time, in the same forms.
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<Moment>,
    /// Only reads of this table, such as shop.orders. A partition is logged as its partitioned table.
    #[arg(long, value_parser = table)]
    pub(crate) table: Option<String>,
    /// Only reads with this outcome: ok, cancelled, or the code of an error; or lost, or pruned.
    #[arg(long)]
    pub(crate) outcome: Option<String>,
    /// Print times in UTC, sessions, fingerprints and texts, and cut no line.
    #[arg(long, conflicts_with = "json")]
    pub(crate) wide: bool,
    /// Print one JSON object per line, with nothing cut.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct ReadsCountsArgs {
    /// What to count by.
    #[arg(long, value_parser = group(), default_value = "table")]
    pub(crate) by: ReadGroup,
    /// Only reads from this time on: 30m, 7d, yesterday, 14:00 or '2026-11-22 09:00' (UTC).
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<Moment>,
    /// Print one JSON object per line. The last one has the number of lost reads.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ReadsPruneArgs {
    /// Remove only days that ended longer ago than this: 36h, 90d or 52w, at least 1d.
    #[arg(long, value_name = "AGE", value_parser = retention, default_value = "90d")]
    pub(crate) older_than: Age,
    /// Print what would be removed, and remove nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
}

fn group() -> impl TypedValueParser<Value = ReadGroup> {
    words::one_of([
        ("table", "A read of several tables counts for each", ReadGroup::Table),
        ("account", "", ReadGroup::Account),
        ("tool", "", ReadGroup::Tool),
    ])
}

/// A table with its schema.
fn table(text: &str) -> Result<String, String> {
    if text.contains('.') {
        Ok(text.to_owned())
    } else {
        Err("a table is given with its schema, such as shop.orders".to_owned())
    }
}
