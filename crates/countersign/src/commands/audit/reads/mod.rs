//! `countersign audit reads`: the log of reads.

pub(crate) mod args;
mod counts;
mod list;
mod prune;

use std::process::ExitCode;

use anyhow::Context;
use ledger::read::Error;

use self::args::ReadsCommand;
use crate::commands::several::{done, on_each};
use crate::settings::Settings;

pub(super) async fn run(command: ReadsCommand, settings: &Settings) -> anyhow::Result<ExitCode> {
    match command {
        ReadsCommand::List(arguments) => {
            let is_json = arguments.own.json;
            on_each(settings, is_json, async |own| done(list::run(arguments.own.clone(), own).await)).await
        }
        ReadsCommand::Counts(arguments) => {
            let is_json = arguments.own.json;
            on_each(settings, is_json, async |own| done(counts::run(arguments.own.clone(), own).await)).await
        }
        ReadsCommand::Prune(arguments) => done(prune::run(arguments.own, settings.database()?).await),
    }
}

/// Adds the remedy to the error of a login that lacks the privilege.
fn permitted<T>(answer: Result<T, Error>) -> anyhow::Result<T> {
    let lacks_privilege = |error: &Error| error.server_error().is_some_and(|error| error.sqlstate == "42501");
    match answer {
        Err(error) if lacks_privilege(&error) => Err(error).context(
            "this login may not read the log of reads: use a member of countersign_operator, or of countersign_owner. \
             Servers can only add to it",
        ),
        answer => Ok(answer?),
    }
}
