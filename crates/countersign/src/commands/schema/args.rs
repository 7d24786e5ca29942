//! The arguments of `countersign schema`.

use std::time::Duration;

use clap::{Args, Subcommand};
use ledger::schema_changes::{ApplyOptions, ImpactOptions, MAX_REASON_CHARS, SchemaChangeStatus};
use types::IdPrefix;

use crate::commands::words;
use crate::settings::With;
use crate::terminal::short_id;

#[derive(Debug, Subcommand)]
pub(crate) enum SchemaCommand {
    /// List the newest schema changes of all accounts, newest first.
    List(With<ListArgs>),
    /// Show one schema change: its SQL and what a linter finds; with --try what it would do to this database.
    Show(With<ShowArgs>),
    /// Carry a schema change out in your login: one that was proposed, or a file of yours.
    ///
    /// Shows the SQL, asks whether to try it, shows what it would do, and asks again. Elsewhere than on a terminal
    /// it needs --digest or --yes. Needs a database login with the role countersign_approver and the privileges of
    /// the change. That login and the user of the operating system are recorded. It stops at the first error, and
    /// says where; the steps that had ended stay.
    #[command(after_help = "Exit codes:\n  \
        0  applied\n  \
        1  not applied, or in part: the message says which\n  \
        2  the arguments are wrong")]
    Apply(With<ApplyArgs>),
    /// Reject a schema change that waits, or give up one that was begun and whose end is not on record.
    Reject(With<RejectArgs>),
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Number of schema changes, 1 to 1000.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) limit: u32,
    /// Only schema changes in this state.
    #[arg(long, value_parser = words::one_of(SchemaChangeStatus::ALL.map(|status| (status.as_str(), "", status))))]
    pub(crate) status: Option<SchemaChangeStatus>,
    /// Print one JSON object per line.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// The id of the tool's answer, or its first characters.
    #[arg(value_name = "ID", value_parser = short_id::parse)]
    pub(crate) id: IdPrefix,
    /// Try a change that waits in your login, in a transaction that is rolled back. Its SQL runs: read it before. It
    /// needs the privileges of the change, and takes its locks meanwhile.
    #[arg(long = "try")]
    pub(crate) is_tried: bool,
    #[command(flatten)]
    pub(crate) trial: TrialArgs,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TrialArgs {
    /// Seconds that the trial may take, and with it hold its locks, 1 to 3600.
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=3600))]
    try_for: u32,
    /// Milliseconds that a statement waits for a lock. Others wait behind it meanwhile.
    #[arg(long, value_name = "MS", default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..=600_000))]
    lock_timeout_ms: u32,
}

impl TrialArgs {
    fn lock_timeout(&self) -> Duration {
        Duration::from_millis(self.lock_timeout_ms.into())
    }

    pub(crate) fn options(&self) -> ImpactOptions {
        ImpactOptions { lock_timeout: self.lock_timeout(), within: Duration::from_secs(self.try_for.into()) }
    }
}

#[derive(Debug, Args)]
pub(crate) struct ApplyArgs {
    /// The id of a schema change, or its first characters; with --reason a file with SQL.
    #[arg(value_name = "ID|FILE")]
    pub(crate) what: String,
    /// Carry the SQL of a file out, for this reason.
    #[arg(long, value_name = "TEXT", value_parser = reason)]
    pub(crate) reason: Option<String>,
    /// Carry it out without a trial.
    #[arg(long)]
    pub(crate) no_try: bool,
    #[command(flatten)]
    pub(crate) trial: TrialArgs,
    /// Carry it out only if it has this digest, as `schema show` prints it, without asking.
    #[arg(long, conflicts_with = "reason")]
    pub(crate) digest: Option<String>,
    /// Carry it out without asking.
    #[arg(long)]
    pub(crate) yes: bool,
    /// How often a step is tried while it does not get its locks, 1 to 1000.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    tries: u32,
}

impl ApplyArgs {
    pub(crate) fn options(&self) -> ApplyOptions {
        ApplyOptions { lock_timeout: self.trial.lock_timeout(), tries: self.tries }
    }
}

#[derive(Debug, Args)]
pub(crate) struct RejectArgs {
    /// The id of the tool's answer, or its first characters.
    #[arg(value_name = "ID", value_parser = short_id::parse)]
    pub(crate) id: IdPrefix,
    /// Reason, which the agent gets.
    #[arg(long, value_name = "TEXT", value_parser = reason)]
    pub(crate) reason: Option<String>,
}

fn reason(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("a reason needs a text".to_owned()),
        text if text.chars().count() > MAX_REASON_CHARS => {
            Err(format!("a reason takes {MAX_REASON_CHARS} characters at most"))
        }
        text => Ok(text.to_owned()),
    }
}
