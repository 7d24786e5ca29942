//! The arguments of `countersign audit`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use ledger::RecordStatus;
use types::IdPrefix;

use crate::cli::ConnectionKeys;
use crate::short_id;

#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// The newest records of all accounts, newest first.
    List(ListArgs),
    /// One record with everything: parameters, result, images, and the calls that it duplicates, reverses, or that reversed it.
    Show(ShowArgs),
    /// Every recorded change of one row of a tracked table, newest first.
    Row(RowArgs),
    /// How many records are in each state, by tool and overall.
    Counts(CountsArgs),
    /// Seal what is final now, and print the checkpoint: a JSON line to be kept outside the database.
    Seal(SealArgs),
    /// Compare every record with the seals, and the seals with checkpoints; exits with 1 if something does not agree.
    Verify(VerifyArgs),
    /// Remove final records of more than 90 days. The ledger keeps an entry that says which, when and by whom.
    Prune(PruneArgs),
    /// Let the ledger of a copied or restored database go on as one of its own: open proposals of the original end here.
    Fork(ForkArgs),
}

impl AuditCommand {
    /// Which database it is about.
    pub(crate) const fn connection(&self) -> &ConnectionKeys {
        match self {
            Self::List(arguments) => &arguments.connection,
            Self::Show(arguments) => &arguments.connection,
            Self::Row(arguments) => &arguments.connection,
            Self::Counts(arguments) => &arguments.connection,
            Self::Seal(arguments) => &arguments.connection,
            Self::Verify(arguments) => &arguments.connection,
            Self::Prune(arguments) => &arguments.connection,
            Self::Fork(arguments) => &arguments.connection,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct ForkArgs {
    /// Do not ask.
    #[arg(long)]
    pub(crate) yes: bool,
    #[command(flatten)]
    connection: ConnectionKeys,
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// At most so many records, 1 to 10000.
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
    /// Only records of the session whose id begins like this; --wide and show have the ids.
    #[arg(long, value_name = "ID")]
    pub(crate) session: Option<String>,
    /// Only records that are not older than this: 12h, 7d or 4w.
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
    /// Whole ids, times in UTC, and more columns; no line is cut.
    #[arg(long, conflicts_with = "json")]
    pub(crate) wide: bool,
    /// One JSON object a line, with nothing cut off.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    connection: ConnectionKeys,
}

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// The correlation id that the write was answered with, or its first characters.
    #[arg(value_parser = short_id::parse)]
    pub(crate) correlation_id: IdPrefix,
    /// All of it: without, long values are summed up.
    #[arg(long)]
    pub(crate) full: bool,
    /// As one JSON object.
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
    /// At most so many changes, 1 to 10000.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) limit: u32,
    /// No value is cut.
    #[arg(long)]
    pub(crate) full: bool,
    /// One JSON object a line.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    connection: ConnectionKeys,
}

#[derive(Debug, Args)]
pub(crate) struct CountsArgs {
    /// Only records that are not older than this: 12h, 7d or 4w.
    #[arg(long, value_name = "AGE", value_parser = age)]
    pub(crate) since: Option<u32>,
    /// One JSON object a line; the last one, for all tools, has no tool_name.
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
    /// A file with lines that `countersign audit seal` printed; every one of them is compared.
    #[arg(long, value_name = "FILE")]
    pub(crate) checkpoint: Option<PathBuf>,
    #[command(flatten)]
    connection: ConnectionKeys,
}

#[derive(Debug, Args)]
pub(crate) struct PruneArgs {
    /// Remove only records that were made longer ago than this: 36h, 90d or 52w, and 1d at least.
    #[arg(long, value_name = "AGE", value_parser = retention, default_value = "90d")]
    pub(crate) older_than: u32,
    /// Go on: prune now and then every so often, such as 1d, until a signal ends it. What it removes is logged; it survives a
    /// database that cannot be reached for a while.
    #[arg(long, value_name = "TIME", value_parser = age, conflicts_with = "dry_run")]
    pub(crate) every: Option<u32>,
    /// Only say what would be removed.
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

/// A hundred years: what is longer is a slip of the finger.
const MOST_HOURS: u32 = 100 * 365 * 24;

/// An age in hours.
pub(crate) fn age(text: &str) -> Result<u32, String> {
    let units = [('h', 1), ('d', 24), ('w', 7 * 24)];
    let read = units.into_iter().find_map(|(unit, hours)| Some((text.strip_suffix(unit)?, hours)));
    let (count, hours) = read
        .filter(|(count, _)| !count.is_empty() && count.bytes().all(|byte| byte.is_ascii_digit()))
        .ok_or("an age is a whole number and h (hours), d (days) or w (weeks), such as 12h, 90d or 4w")?;
    let hours = count.parse::<u32>().ok().and_then(|count| count.checked_mul(hours));
    match hours {
        Some(0) => Err("an age of zero covers nothing".to_owned()),
        Some(hours) if hours <= MOST_HOURS => Ok(hours),
        _ => Err("an age is 100 years at most".to_owned()),
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

/// An age from which records may be pruned.
fn retention(text: &str) -> Result<u32, String> {
    match age(text)? {
        hours if hours < 24 => Err("records of the last day are never pruned: give 1d (24h) or more".to_owned()),
        hours => Ok(hours),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_a_number_and_a_unit() {
        assert_eq!((age("12h"), age("7d"), age("4w")), (Ok(12), Ok(168), Ok(672)));
        for nonsense in
            ["", "d", "7", "-1d", "+1d", "1.5d", "7 d", "7m", "7days", "0d", "١d", "99999999999h", "5000000w"]
        {
            assert!(age(nonsense).is_err(), "{nonsense}");
        }
    }

    #[test]
    fn a_key_is_one_value_or_names_its_columns() {
        let named = |name: &str, value: &str| (Some(name.to_owned()), value.to_owned());
        assert_eq!(row_key("order_id=7,line=2"), Ok(RowKey(vec![named("order_id", "7"), named("line", "2")])));
        assert_eq!(row_key("a,b"), Ok(RowKey(vec![(None, "a,b".to_owned())])));
        assert!(row_key("").is_err());
    }

    #[test]
    fn the_last_day_is_never_pruned() {
        assert_eq!(retention("1d"), Ok(24));
        assert_eq!(retention("24h"), Ok(24));
        assert!(retention("23h").unwrap_err().contains("last day"));
    }
}
