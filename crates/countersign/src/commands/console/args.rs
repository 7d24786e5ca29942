//! The arguments of `countersign console`.

use std::net::SocketAddr;

use clap::builder::TypedValueParser;
use clap::{Args, Subcommand};
use ledger::console::ConsoleRole;

use crate::commands::words;
use crate::settings::{ConsoleServerKeys, With};

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ConsoleArgs {
    #[command(subcommand)]
    pub(crate) command: Option<ConsoleCommand>,
    #[command(flatten)]
    pub(crate) serve: With<ServeArgs, ConsoleServerKeys>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConsoleCommand {
    /// Print a link that logs a person in, once, within 5 minutes. Needs a login that is a member of
    /// countersign_owner.
    Login(With<LoginArgs>),
    /// Log a person out everywhere, and make their links useless. Needs a login that is a member of
    /// countersign_owner.
    Logout(With<LogoutArgs>),
}

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Address to listen on.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7788")]
    pub(crate) listen: SocketAddr,
}

#[derive(Debug, Args)]
pub(crate) struct LoginArgs {
    /// The name of the person, which decisions are recorded with.
    #[arg(long = "as", value_name = "NAME", value_parser = name)]
    pub(crate) name: String,
    /// What the person may do.
    #[arg(long, value_parser = role(), default_value = "reviewer")]
    pub(crate) role: ConsoleRole,
    /// A group of the person, which `approvers` of a tool can name. Can be given several times.
    #[arg(long, value_name = "GROUP")]
    pub(crate) group: Vec<String>,
    /// Address at which browsers reach the console. Default: url of [console], or the
    /// address of the console that was started last.
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct LogoutArgs {
    /// The name of the person.
    #[arg(long = "as", value_name = "NAME", value_parser = name)]
    pub(crate) name: String,
}

fn role() -> impl TypedValueParser<Value = ConsoleRole> {
    words::one_of([
        ("auditor", "Reads", ConsoleRole::Auditor),
        ("reviewer", "Also decides on proposals", ConsoleRole::Reviewer),
        ("operator", "Also undoes writes and freezes accounts", ConsoleRole::Operator),
    ])
}

fn name(text: &str) -> Result<String, String> {
    if auth::is_label(text) { Ok(text.to_owned()) } else { Err(format!("a name takes {}", auth::LABEL_RULE)) }
}
