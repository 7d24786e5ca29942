//! The arguments of `countersign audit`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use ledger::RecordStatus;
use types::IdPrefix;

use super::age::{age, retention};
use super::reads::args::ReadsCommand;
use crate::settings::ConnectionKeys;
use crate::short_id;

#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// List the newest records of all accounts, newest first.
    List(ListArgs),
    /// Show one record completely: parameters, result, images, and the calls that it duplicates or reverses, or
    /// that reversed it.
    Show(ShowArgs),
    /// Show every recorded change of one row of a tracked table, newest first.
    Row(RowArgs),
    /// Count the records in each state, by tool and overall.
    Counts(CountsArgs),
    /// List, count and prune the log of reads.
    #[command(subcommand)]
    Reads(ReadsCommand),
    /// Seal the final records, and print the checkpoint: a JSON line to keep outside the database.
    Seal(SealArgs),
    /// Compare every record with the seals, and the seals with checkpoints. Exits with 1 if something does not
    /// agree.
    Verify(VerifyArgs),
    /// Remove final records that are older than 90 days. The ledger keeps an entry that says which, when and by
    /// whom.
    Prune(PruneArgs),
    /// Make the ledger of a copied or restored database a ledger of its own. Open proposals of the original end
    /// in it.
    Fork(ForkArgs),
}

impl AuditCommand {
    /// The database.
    pub(crate) const fn connection(&self) -> &ConnectionKeys {
        match self {
            Self::List(arguments) => &arguments.connection,
            Self::Show(arguments) => &arguments.connection,
            Self::Row(arguments) => &arguments.connection,
            Self::Counts(arguments) => &arguments.connection,
            Self::Reads(command) => command.connection(),
            Self::Seal(arguments) => &arguments.connection,
            Self::Verify(arguments) => &arguments.connection,
            Self::Prune(arguments) => &arguments.connection,
            Self::Fork(arguments) => &arguments.connection,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct ForkArgs {
    /// Do not ask for confirmation.
    #[arg(long)]
    pub(crate) yes: bool,
    #[command(flatten)]
    connection: ConnectionKeys,
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Number of records, 1 to 10000.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) limit: u32,
    /// Only records of this tool.
    #[arg(long)]
    pub(crate) tool: Option<String>,
    /// Only records in this state.
    #[arg(long)]
    pub(crate) status: Option<StatusArg>,
    /// Only records of this account.
    #[arg(long)]
    pub(crate) account: Option<String>,
    /// Only records of this actor.
    #[arg(long)]
    pub(crate) actor: Option<String>,
    /// Only records of the session whose id begins with this. --wide and show print the ids.
    #[arg(long, value_name = "ID")]
    pub(crate) session: Option<String>,
    /// Only records that are at most this old: 12h, 7d or 4w.
    #[arg(long, value_name = "AGE", value_parser = age)]
    pub(crate) since: Option<u32>,
    /// Only records that are older than this: 12h, 7d or 4w.
    #[arg(long, value_name = "AGE", value_parser = age)]
    pub(crate) until: Option<u32>,
    /// Only records that changed a row of this tracked table, such as shop.orders.
    #[arg(long)]
    pub(crate) table: Option<String>,
    /// Only records that changed the row with this key: 7, or order_id=7,line=2.
    #[arg(long, requires = "table", value_parser = row_key)]
    pub(crate) key: Option<RowKey>,
    /// Print whole ids, times in UTC, and more columns, and cut no line.
    #[arg(long, conflicts_with = "json")]
    pub(crate) wide: bool,
    /// Print one JSON object per line, with nothing cut.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    connection: ConnectionKeys,
}

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// Correlation id of the write, or its first characters.
    #[arg(value_parser = short_id::parse)]
    pub(crate) correlation_id: IdPrefix,
    /// Print everything. Default: long values are summarised.
    #[arg(long)]
    pub(crate) full: bool,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    connection: ConnectionKeys,
}

#[derive(Debug, Args)]
pub(crate) struct RowArgs {
    /// The table, such as shop.orders.
    pub(crate) table: String,
    /// The key of the row: 7, or order_id=7,line=2.
    #[arg(value_parser = row_key)]
    pub(crate) key: RowKey,
    /// Number of changes, 1 to 10000.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) limit: u32,
    /// Cut no value.
    #[arg(long)]
    pub(crate) full: bool,
    /// One JSON object per line.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    connection: ConnectionKeys,
}

#[derive(Debug, Args)]
pub(crate) struct CountsArgs {
    /// Only records that are at most this old: 12h, 7d or 4w.
    #[arg(long, value_name = "AGE", value_parser = age)]
    pub(crate) since: Option<u32>,
    /// Print one JSON object per line. The last one, for all tools, has no tool_name.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    connection: ConnectionKeys,
}

#[derive(Debug, Args)]
pub(crate) struct SealArgs {
    #[command(flatten)]
    connection: ConnectionKeys,
}

#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// File with lines that `countersign audit seal` printed; every line is compared.
    #[arg(long, value_name = "FILE")]
    pub(crate) checkpoint: Option<PathBuf>,
    #[command(flatten)]
    connection: ConnectionKeys,
}

#[derive(Debug, Args)]
pub(crate) struct PruneArgs {
    /// Remove only records that are older than this: 36h, 90d or 52w, at least 1d.
    #[arg(long, value_name = "AGE", value_parser = retention, default_value = "90d")]
    pub(crate) older_than: u32,
    /// Prune now and then again after each such time, such as 1d, until a signal ends the process. Removals are
    /// logged. An unreachable database does not end it.
    #[arg(long, value_name = "TIME", value_parser = age, conflicts_with = "dry_run")]
    pub(crate) every: Option<u32>,
    /// Print what would be removed, and remove nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    connection: ConnectionKeys,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum StatusArg {
    Pending,
    Success,
    Failure,
    Duplicate,
}

impl From<StatusArg> for RecordStatus {
    fn from(status: StatusArg) -> Self {
        match status {
            StatusArg::Pending => Self::Pending,
            StatusArg::Success => Self::Success,
            StatusArg::Failure => Self::Failure,
            StatusArg::Duplicate => Self::Duplicate,
        }
    }
}

/// A key by its columns; a single value has no name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RowKey(pub(crate) Vec<(Option<String>, String)>);

fn row_key(text: &str) -> Result<RowKey, String> {
    let named = |part: &str| part.split_once('=').map(|(name, value)| (Some(name.trim().to_owned()), value.to_owned()));
    let parts: Option<Vec<_>> = text.split(',').map(named).collect();
    match parts {
        Some(parts) => Ok(RowKey(parts)),
        None if text.is_empty() => {
            Err("a key is a value such as 7, or column=value for each column: order_id=7,line=2".to_owned())
        }
        None => Ok(RowKey(vec![(None, text.to_owned())])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_one_value_or_names_its_columns() {
        let named = |name: &str, value: &str| (Some(name.to_owned()), value.to_owned());
        assert_eq!(row_key("order_id=7,line=2"), Ok(RowKey(vec![named("order_id", "7"), named("line", "2")])));
        assert_eq!(row_key("a,b"), Ok(RowKey(vec![(None, "a,b".to_owned())])));
        assert!(row_key("").is_err());
    }
}
