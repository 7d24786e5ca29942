//! The arguments of `countersign proposals`.

use clap::{Args, Subcommand};
use ledger::proposals::ProposalStatus;
use types::{AccountId, IdPrefix};

use crate::commands::words;
use crate::settings::With;
use crate::terminal::short_id;

#[derive(Debug, Subcommand)]
pub(crate) enum ProposalsCommand {
    /// List the newest proposals of all accounts, newest first.
    List(With<ListArgs>),
    /// Show one proposal completely: parameters, the rows before and after, warnings, digest, state.
    Show(With<ShowArgs>),
    /// Print the open proposals, and then each new or changed one, until interrupted.
    ///
    /// Prints one JSON object per line, or text on a terminal.
    Watch(With<WatchArgs>),
    /// Approve a pending proposal. A server that serves the tool then executes it; an erasure is executed here.
    ///
    /// Shows the proposal first. On a terminal it asks; elsewhere it needs --digest or --yes. Exactly what was
    /// shown is approved. Needs a database login with the role countersign_approver. That login and the user of
    /// the operating system are recorded.
    #[command(after_help = "Exit codes:\n  \
        0  approved, and executed or waiting for a server\n  \
        1  not approved; or approved and then not executed (failed, stale, expired)\n  \
        2  the arguments are wrong")]
    Approve(With<ApproveArgs>),
    /// Ask the agent about a pending proposal, which stays pending. get_proposal shows the agent the question.
    ///
    /// Needs a database login with the role countersign_approver. That login and the user of the operating
    /// system are recorded.
    Ask(With<AskArgs>),
    /// Reject a proposal that is pending, or approved and not executed yet. It is then never executed.
    ///
    /// Needs a database login with the role countersign_approver. That login and the user of the operating
    /// system are recorded.
    #[command(
        after_help = "Exit codes:\n  0  rejected, now or before\n  1  not rejected\n  2  the arguments are wrong"
    )]
    Reject(With<RejectArgs>),
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Number of proposals, 1 to 1000.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) limit: u32,
    /// Only proposals in this state.
    #[arg(long, value_parser = words::one_of(ProposalStatus::ALL.map(|status| (status.as_str(), "", status))))]
    pub(crate) status: Option<ProposalStatus>,
    /// Only proposals of this account.
    #[arg(long)]
    pub(crate) account: Option<AccountId>,
    /// Print whole ids, times in UTC, and more columns, and cut no line.
    #[arg(long, conflicts_with = "json")]
    pub(crate) wide: bool,
    /// Print one JSON object per line, without parameters and preview, which show prints.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// The proposal_id of the tool's answer, or its first characters.
    #[arg(value_name = "ID", value_parser = short_id::parse)]
    pub(crate) id: IdPrefix,
    /// Print everything. Default: the rows of a large write are summarised.
    #[arg(long)]
    pub(crate) full: bool,
    /// Let a server try the write once more and roll it back first, to see whether its rows have changed. Needs
    /// the role countersign_approver.
    #[arg(long)]
    pub(crate) check: bool,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct WatchArgs {
    /// Print JSON on a terminal as well.
    #[arg(long)]
    pub(crate) json: bool,
    /// Show each proposal that waits, and ask whether to approve it.
    #[arg(long, conflicts_with = "json")]
    pub(crate) ask: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ApproveArgs {
    /// The proposal_id of the tool's answer, or its first characters.
    #[arg(value_name = "ID", value_parser = short_id::parse)]
    pub(crate) id: IdPrefix,
    /// Show everything first. Default: the rows of a large write are summarised.
    #[arg(long)]
    pub(crate) full: bool,
    /// Approve only if the proposal has this digest, as `proposals show` prints it, without asking.
    #[arg(long, value_parser = digest)]
    pub(crate) digest: Option<String>,
    /// Approve without asking.
    #[arg(long)]
    pub(crate) yes: bool,
    /// Your name, if you approve an erasure. Default: the user of the operating system.
    #[arg(long = "as", value_name = "NAME", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(crate) name: Option<String>,
    /// Seconds to wait until a server has executed it, 0 to 3600.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(0..=3600))]
    pub(crate) wait: u32,
}

#[derive(Debug, Args)]
pub(crate) struct AskArgs {
    /// The proposal_id of the tool's answer, or its first characters.
    #[arg(value_name = "ID", value_parser = short_id::parse)]
    pub(crate) id: IdPrefix,
    /// The question, of at most 1000 characters.
    #[arg(value_name = "TEXT", value_parser = words::reason)]
    pub(crate) question: String,
}

#[derive(Debug, Args)]
pub(crate) struct RejectArgs {
    /// The proposal_id of the tool's answer, or its first characters.
    #[arg(value_name = "ID", value_parser = short_id::parse)]
    pub(crate) id: IdPrefix,
    /// Reason, which the agent gets.
    #[arg(long, value_name = "TEXT", value_parser = words::reason)]
    pub(crate) reason: Option<String>,
}

fn digest(text: &str) -> Result<String, String> {
    let is_digest = text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if is_digest { Ok(text.to_owned()) } else { Err("a digest takes 64 hexadecimal digits (0-9, a-f)".to_owned()) }
}
