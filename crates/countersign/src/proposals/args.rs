//! The arguments of `countersign proposals`.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use ledger::proposals::ProposalStatus;
use types::{AccountId, IdPrefix};

use crate::settings::ConnectionKeys;
use crate::short_id;

#[derive(Debug, Subcommand)]
pub(crate) enum ProposalsCommand {
    /// The newest proposals of all accounts, newest first.
    List(ListArgs),
    /// One proposal with everything: parameters, the rows before and after, warnings, digest, what has become of it.
    Show(ShowArgs),
    /// Approve what somebody else has proposed (tier approve); a server that serves the tool then carries it out.
    ///
    /// Shows the proposal first. On a terminal it asks; elsewhere it needs --digest or --yes. What is approved is what was shown.
    /// Needs a database login with the role countersign_approver. Recorded are that login and the user of the operating system.
    #[command(after_help = "Exit codes:\n  \
        0  approved, and carried out or waiting for a server\n  \
        1  not approved; or approved and then not carried out (failed, stale, expired)\n  \
        2  the arguments are wrong")]
    Approve(ApproveArgs),
    /// Reject a proposal that nobody has decided on, of any tier: nothing of it is ever written.
    ///
    /// Needs a database login with the role countersign_approver. Recorded are that login and the user of the operating system.
    #[command(
        after_help = "Exit codes:\n  0  rejected, now or before\n  1  not rejected\n  2  the arguments are wrong"
    )]
    Reject(RejectArgs),
}

impl ProposalsCommand {
    /// Which database it is about.
    pub(crate) const fn connection(&self) -> &ConnectionKeys {
        match self {
            Self::List(arguments) => &arguments.connection,
            Self::Show(arguments) => &arguments.connection,
            Self::Approve(arguments) => &arguments.connection,
            Self::Reject(arguments) => &arguments.connection,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// At most so many proposals, 1 to 1000.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) limit: u32,
    /// Only proposals in this state.
    #[arg(long, value_parser = status())]
    pub(crate) status: Option<ProposalStatus>,
    /// Only proposals of this account.
    #[arg(long)]
    pub(crate) account: Option<AccountId>,
    /// Whole ids, times in UTC, and more columns; no line is cut.
    #[arg(long, conflicts_with = "json")]
    pub(crate) wide: bool,
    /// One JSON object a line, without parameters and preview: show has these.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    connection: ConnectionKeys,
}

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// The proposal_id that the tool was answered with, or its first characters.
    #[arg(value_name = "ID", value_parser = short_id::parse)]
    pub(crate) id: IdPrefix,
    /// All of it: without, the rows of a large write are summed up.
    #[arg(long)]
    pub(crate) full: bool,
    /// As one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    connection: ConnectionKeys,
}

#[derive(Debug, Args)]
pub(crate) struct ApproveArgs {
    /// The proposal_id that the tool was answered with, or its first characters.
    #[arg(value_name = "ID", value_parser = short_id::parse)]
    pub(crate) id: IdPrefix,
    /// Show all of it first: without, the rows of a large write are summed up.
    #[arg(long)]
    pub(crate) full: bool,
    /// Approve only if the proposal has this digest, as `proposals show` has it; nothing is asked then.
    #[arg(long, value_parser = digest)]
    pub(crate) digest: Option<String>,
    /// Approve without being asked.
    #[arg(long)]
    pub(crate) yes: bool,
    /// For how many seconds to wait until a server has carried it out, 0 to 3600.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(0..=3600))]
    pub(crate) wait: u32,
    #[command(flatten)]
    connection: ConnectionKeys,
}

#[derive(Debug, Args)]
pub(crate) struct RejectArgs {
    /// The proposal_id that the tool was answered with, or its first characters.
    #[arg(value_name = "ID", value_parser = short_id::parse)]
    pub(crate) id: IdPrefix,
    /// Why: the agent is told.
    #[arg(long, value_name = "TEXT", value_parser = reason)]
    pub(crate) reason: Option<String>,
    #[command(flatten)]
    connection: ConnectionKeys,
}

fn status() -> impl TypedValueParser<Value = ProposalStatus> {
    PossibleValuesParser::new(ProposalStatus::ALL.map(ProposalStatus::as_str))
        .try_map(|word| ProposalStatus::parse(&word).ok_or("there is no such state"))
}

fn digest(text: &str) -> Result<String, String> {
    let is_digest = text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if is_digest { Ok(text.to_owned()) } else { Err("a digest takes 64 hexadecimal digits (0-9, a-f)".to_owned()) }
}

/// The longest reason, in characters.
const REASON: usize = 1000;

fn reason(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("a reason says something; leave --reason out if there is none".to_owned()),
        text if text.chars().count() > REASON => Err(format!("a reason takes {REASON} characters at most")),
        text => Ok(text.to_owned()),
    }
}
