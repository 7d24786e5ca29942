//! The arguments of `countersign audit`.

use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand};
use http_client::HttpsUrl;
use ledger::RecordStatus;
use review::RowKey;
use tlog::VerifierKey;
use types::{Age, IdPrefix, Moment};

use super::age::retention;
use crate::commands::words;
use crate::settings::{SignedKeys, With};
use crate::terminal::short_id;

#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// List the newest records of all accounts, newest first.
    List(With<ListArgs>),
    /// Show one record completely: parameters, result, images, and the calls that it duplicates or reverses, or
    /// that reversed it.
    Show(With<ShowArgs>),
    /// Show every recorded change of one row of a tracked table, newest first.
    Row(With<RowArgs>),
    /// Count the records in each state, by tool and overall.
    Counts(With<CountsArgs>),
    /// Seal the final records in the ledger's log, sign a checkpoint, and print it: keep it outside the database.
    Seal(With<(), SignedKeys>),
    /// Compare every record with the log, and the log with its checkpoints. With a folder: verify an exported
    /// bundle, without a database.
    ///
    /// Exits with 0 if everything agrees, 1 if something does not, and 2 if it cannot be verified.
    Verify(With<VerifyArgs>),
    /// Write the log into a folder that anyone can verify, with this program, with verify.py, or with tools for
    /// C2SP logs.
    Export(With<ExportArgs, SignedKeys>),
    /// Print the proof that the log has a record (c2sp.org/tlog-proof).
    Prove(With<ProveArgs>),
    /// Print the proof that a checkpoint goes on from an older one.
    Consistency(With<ConsistencyArgs>),
    /// Make, list and retire the keys that sign the log.
    #[command(subcommand)]
    Keys(LogKeysCommand),
    /// Add, list and remove the witnesses, which cosign each checkpoint of the log elsewhere.
    #[command(subcommand)]
    Witness(WitnessesCommand),
    /// Remove final records that are older than 90 days. The log keeps their entries, and one that says which
    /// were removed, when and by whom.
    Prune(With<PruneArgs>),
    /// Erase the values of a row, a column or a person from the ledger. Proofs stay valid, and the log says what
    /// was erased. Two people agree to it.
    ///
    /// Prints what would be erased, and proposes it with --reason. Another person approves it with `countersign
    /// proposals approve`, which erases it.
    #[command(
        after_help = "Exit codes:\n  0  erased, or only planned\n  1  nothing was erased: it waits for another person, or it failed\n  \
        2  the arguments are wrong"
    )]
    Erase(With<EraseArgs>),
    /// Give the ledger of a copied or restored database a log of its own. Open proposals of the original end
    /// in it.
    Fork(With<ForkArgs, SignedKeys>),
}

#[derive(Debug, Args)]
pub(crate) struct ForkArgs {
    /// Do not ask for confirmation.
    #[arg(long)]
    pub(crate) yes: bool,
    /// Also if the database was restored from a backup in its own place, so that the log has fewer entries than
    /// were signed.
    #[arg(long)]
    pub(crate) restored: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct ListArgs {
    /// Number of records, 1 to 10000.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) limit: u32,
    /// Only records of this tool.
    #[arg(long)]
    pub(crate) tool: Option<String>,
    /// Only records in this state.
    #[arg(long, value_parser = words::one_of(RecordStatus::ALL.map(|status| (status.as_str(), "", status))))]
    pub(crate) status: Option<RecordStatus>,
    /// Only records of this account.
    #[arg(long)]
    pub(crate) account: Option<String>,
    /// Only records of this actor.
    #[arg(long)]
    pub(crate) actor: Option<String>,
    /// Only records of the session whose id begins with this. --wide and show print the ids.
    #[arg(long, value_name = "ID")]
    pub(crate) session: Option<String>,
    /// Only records from this time on: 30m, 7d, yesterday, 14:00 or '2026-11-22 09:00' (UTC).
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<Moment>,
    /// Only records before this time, in the same forms.
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<Moment>,
    /// Only records that changed a row of this tracked table, such as shop.orders.
    #[arg(long)]
    pub(crate) table: Option<String>,
    /// Only records that changed the row with this key: 7, or order_id=7,line=2.
    #[arg(long, requires = "table", value_parser = RowKey::parse)]
    pub(crate) key: Option<RowKey>,
    /// Print whole ids, times in UTC, and more columns, and cut no line.
    #[arg(long, conflicts_with = "json")]
    pub(crate) wide: bool,
    /// Print one JSON object per line, with nothing cut.
    #[arg(long)]
    pub(crate) json: bool,
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
}

#[derive(Debug, Args)]
pub(crate) struct RowArgs {
    /// The table: shop.orders, or orders if only one tracked table has this name.
    pub(crate) table: String,
    /// The key of the row: 7, or order_id=7,line=2.
    #[arg(value_parser = RowKey::parse)]
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
}

#[derive(Debug, Clone, Args)]
pub(crate) struct CountsArgs {
    /// Only records from this time on: 30m, 7d, yesterday, 14:00 or '2026-11-22 09:00' (UTC).
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<Moment>,
    /// Print one JSON object per line. The last one, for all tools, has no tool_name.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// Folder of an exported bundle. Default: the ledger in the configured database.
    #[arg(value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Public key that signs the log, as `init` printed it. Can be given several times. Without it, a ledger is
    /// verified by the keys that it names itself.
    #[arg(long, value_name = "VKEY")]
    pub(crate) vkey: Vec<VerifierKey>,
    /// File with a policy (c2sp.org/tlog-policy): the keys of logs and witnesses, and how many of which must
    /// have signed.
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
    /// File with an earlier checkpoint, which the log must go on from. Can be given several times.
    #[arg(long, value_name = "FILE")]
    pub(crate) checkpoint: Vec<PathBuf>,
    /// Verify the proof of one entry in this file instead.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["dir", "checkpoint"])]
    pub(crate) proof: Option<PathBuf>,
    /// Print one JSON object: verdict, origin, size, root, entries, parts, withheld, erased, findings. For bundles
    /// and proofs.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// A new folder, an empty one, or that of an export that was interrupted, which begins again.
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// Leave out the parts: parameters, results and changed rows. Their digests remain.
    #[arg(long)]
    pub(crate) without_parts: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ProveArgs {
    /// Correlation id of the write, or its first characters; for a pruned record all of it.
    #[arg(value_parser = short_id::parse)]
    pub(crate) correlation_id: IdPrefix,
}

#[derive(Debug, Args)]
pub(crate) struct ConsistencyArgs {
    /// File with the older checkpoint.
    pub(crate) old: PathBuf,
    /// File with the newer checkpoint.
    pub(crate) new: PathBuf,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LogKeysCommand {
    /// List the keys of the log, the oldest first.
    List(With<(), SignedKeys>),
    /// Make a key, and let it sign. The other keys go on signing until they are retired.
    ///
    /// With --signing-key FILE, the private key is written there, or read if the file exists.
    New(With<(), SignedKeys>),
    /// Let a public key sign without its private key, which a --signing-command has.
    Add(With<VkeyArgs, SignedKeys>),
    /// End the use of a key. Checkpoints that it has signed stay valid.
    Retire(With<VkeyArgs, SignedKeys>),
}

#[derive(Debug, Args)]
pub(crate) struct VkeyArgs {
    /// The public key: name+id+base64.
    pub(crate) vkey: VerifierKey,
}

#[derive(Debug, Subcommand)]
pub(crate) enum WitnessesCommand {
    /// List the witnesses, and what each has cosigned.
    List(With<()>),
    /// Let servers ask a witness to cosign each checkpoint from now on. Its operator has to add the public key
    /// of the log.
    Add(With<WitnessAddArgs>),
    /// End the use of a witness. Its cosignatures stay valid.
    Remove(With<WitnessRemoveArgs>),
}

#[derive(Debug, Args)]
pub(crate) struct WitnessAddArgs {
    /// The URL below which the witness has add-checkpoint, such as https://witness.example.com/.
    pub(crate) url: HttpsUrl,
    /// The public key of the witness: name+id+base64.
    pub(crate) vkey: VerifierKey,
}

#[derive(Debug, Args)]
pub(crate) struct WitnessRemoveArgs {
    /// The public key of the witness, as `audit witness list` prints it.
    pub(crate) vkey: VerifierKey,
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("what").required(true).args(["row", "column", "actor", "record", "request"]))]
pub(crate) struct EraseArgs {
    /// What is recorded of one row of a tracked table, and its values wherever they are: shop.customer:17.
    #[arg(long, value_name = "TABLE:KEY", value_parser = row)]
    pub(crate) row: Option<(String, String, RowKey)>,
    /// The values of one column of a tracked table: shop.customer.email.
    #[arg(long, value_name = "TABLE.COLUMN", value_parser = column)]
    pub(crate) column: Option<(String, String)>,
    /// The name of a person on whose behalf calls were made, wherever it is but in the entries of the log.
    #[arg(long, value_name = "NAME", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(crate) actor: Option<String>,
    /// All values of one record: its correlation id, or the first characters.
    #[arg(long, value_name = "ID", value_parser = short_id::parse)]
    pub(crate) record: Option<IdPrefix>,
    /// Go on with an erasure that was approved and interrupted: the id of its proposal.
    #[arg(long, value_name = "ID", value_parser = short_id::parse, conflicts_with_all = ["reason", "plan", "yes"])]
    pub(crate) request: Option<IdPrefix>,
    /// Reason, which the log keeps, such as the number of the request. It must not name the person.
    #[arg(long, value_name = "TEXT", required_unless_present_any = ["plan", "request"], value_parser = words::reason)]
    pub(crate) reason: Option<String>,
    /// Print what would be erased, and propose nothing.
    #[arg(long)]
    pub(crate) plan: bool,
    /// Propose it without asking.
    #[arg(long)]
    pub(crate) yes: bool,
}

fn row(text: &str) -> Result<(String, String, RowKey), String> {
    let (table, key) = text.split_once(':').ok_or("a row is a table and a key, such as shop.customer:17")?;
    Ok((text.to_owned(), table.to_owned(), RowKey::parse(key)?))
}

fn column(text: &str) -> Result<(String, String), String> {
    let (table, column) = text.rsplit_once('.').ok_or("a column is shop.customer.email: schema, table and column")?;
    Ok((table.to_owned(), column.to_owned()))
}

#[derive(Debug, Args)]
pub(crate) struct PruneArgs {
    /// Remove only records that are older than this: 36h, 90d or 52w, at least 1d.
    #[arg(long, value_name = "AGE", value_parser = retention, default_value = "90d")]
    pub(crate) older_than: Age,
    /// Prune now and then again after each such time, such as 1d, until a signal ends the process. Removals are
    /// logged. An unreachable database does not end it.
    #[arg(long, value_name = "AGE", conflicts_with = "dry_run")]
    pub(crate) every: Option<Age>,
    /// Print what would be removed, and remove nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
}
