//! The binary: parses arguments, connects the crates, and prints for people. [`run`] calls the
//! module of a command. Everything else is in the library crates; this one must not depend on `pg`, and reaches
//! databases through `ledger`.
//!
//! ```text
//! arguments    `commands::cli`: one variant for each command
//! settings     `settings`: flags, variables, the configuration file, defaults
//! log          `logging`, to standard error
//! database     `connection` chooses it
//! tools        `tool_catalog` compiles the manifests against it
//! command      `commands`; a service ends by `signals`, and `notify` posts its notices of proposals
//! output       `terminal`: the only module that writes to standard output and standard error
//! tests        `tests`: over the whole binary
//! ```
//!
//! To add a command: a variant in `cli::Command`, a module with its `run`, and a line in [`run`].

#![allow(rustdoc::bare_urls, reason = "the comments of arguments and keys are also help texts, which have no markup")]

mod commands;
mod connection;
mod logging;
mod notify;
mod settings;
mod signals;
mod terminal;
#[cfg(test)]
mod tests;
mod tool_catalog;

use std::process::ExitCode;

use manifest::Diagnostics;
use tokio::sync::Notify;

use crate::commands::cli::{Cli, Command};
use crate::commands::{
    audit, check, console, demo, doctor, freeze, front_ends, generated, init, install, keys, proposals, scaffold,
    schema, serve, token, track, try_tool, undo, uninstall,
};
use crate::settings::{ConfigSources, DatabaseSettings, OpenSecretFile, Settings};

/// The stack of the main thread on Linux. On Windows it is 1 MiB, which is too little for a debug build.
#[cfg(windows)]
const STACK_BYTES: usize = 8 << 20;

#[cfg(windows)]
fn main() -> ExitCode {
    match std::thread::Builder::new().stack_size(STACK_BYTES).spawn(run_command_line) {
        Ok(thread) => thread.join().unwrap_or(ExitCode::FAILURE),
        Err(error) => failed(&anyhow::Error::new(error).context("the program cannot start its thread")),
    }
}

#[cfg(unix)]
fn main() -> ExitCode {
    run_command_line()
}

fn run_command_line() -> ExitCode {
    if let Some(outcome) = ledger::guard_ssh(std::env::args_os().skip(1)) {
        return outcome.unwrap_or_else(|error| failed(&anyhow::Error::new(error).context("ssh cannot be run")));
    }
    malloc_tuning::keep_large_blocks_apart();
    if let Some((front_end, arguments)) = front_ends::front_end(std::env::args_os().skip(1)) {
        return front_ends::run(front_end, &arguments);
    }
    let (command, sources) = Cli::read();
    // Generated output needs no configuration.
    match &command {
        Command::Completions(arguments) => return generated::completions(arguments.shell),
        Command::Man(arguments) => {
            return generated::man(&arguments.dir).unwrap_or_else(|error| failed(&error));
        }
        _ => {}
    }
    let settings = match sources.load() {
        Ok(settings) => settings,
        Err(error) => return failed(&error),
    };
    // The demo prints its own progress.
    let is_quiet = matches!(command, Command::Demo(_)) && sources.given.server.log.log.is_none();
    if let Err(error) = logging::start(if is_quiet { "warn" } else { &settings.log }, settings.log_format) {
        return failed(&error);
    }
    for OpenSecretFile { path, key } in settings.open_secret_files() {
        let path = path.display();
        tracing::warn!("every user of this machine may read the secret in {path} ({key}): chmod 600 {path}");
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&error.into()),
    };
    let outcome = runtime.block_on(run(command, sources, settings.clone()));
    // A task that still runs (a blocked read of standard input) must not delay the end.
    runtime.shutdown_background();
    outcome.unwrap_or_else(|error| match settings.database() {
        Ok(database) => failed_with(&error, database),
        Err(_) => failed(&error),
    })
}

/// Prints an error. If the connection may be its cause, also prints the sources of host, user and database.
fn failed_with(error: &anyhow::Error, settings: &DatabaseSettings) -> ExitCode {
    match connection::origins(error, settings) {
        Some(origins) => failed(&anyhow::anyhow!("{error:#}; {origins}")),
        None => failed(error),
    }
}

async fn run(command: Command, sources: ConfigSources, settings: Settings) -> anyhow::Result<ExitCode> {
    match command {
        Command::Demo(arguments) => demo::run(arguments, &settings, doctor::health_check).await?,
        Command::Serve(arguments) => serve::run(&arguments.own, sources, settings).await?,
        Command::Init(arguments) => {
            let database = settings.database()?;
            let step = Notify::new();
            connection::answered_in_steps(database, &step, init::run(&arguments.own, database, &step)).await?;
        }
        Command::Track(arguments) => {
            let database = settings.database()?;
            let step = Notify::new();
            return connection::answered_in_steps(database, &step, track::track(arguments.own, database, &step)).await;
        }
        Command::Untrack(arguments) => {
            let database = settings.database()?;
            return connection::answered(database, track::untrack(arguments.own, database)).await;
        }
        Command::Undo(arguments) => return undo::run(*arguments, &settings).await,
        Command::Freeze(arguments) => return freeze::freeze(arguments.own, settings.database()?).await,
        Command::Unfreeze(arguments) => return freeze::unfreeze(arguments.own, settings.database()?).await,
        Command::Check(arguments) => return check::run(&arguments.own, &settings).await,
        Command::Scaffold(arguments) => {
            let database = settings.database()?;
            connection::answered(database, scaffold::run(&arguments.own, database)).await?;
        }
        Command::Try(arguments) => return try_tool::run(&arguments.own, &settings).await,
        Command::Audit(command) => return audit::run(command, &settings).await,
        Command::Proposals(command) => return proposals::run(command, &settings).await,
        Command::Schema(command) => return schema::run(command, &settings).await,
        Command::Keys(command) => keys::run(command, settings.database()?).await?,
        Command::Console(arguments) => return console::run(arguments, &settings, doctor::health_check).await,
        Command::Token(command) => token::run(command, &sources, &settings)?,
        Command::Install(arguments) => install::install(&arguments.own, &sources, &settings).await?,
        Command::Uninstall(arguments) if arguments.own.ledger => {
            let database = settings.database()?;
            connection::answered(database, uninstall::run(&arguments.own, database)).await?;
        }
        Command::Uninstall(arguments) => install::uninstall(&arguments.own)?,
        Command::Doctor(arguments) => return doctor::run(&arguments.own, &settings).await,
        Command::Completions(_) | Command::Man(_) => {}
        Command::Query(_) | Command::Pipe(_) | Command::Psql(_) => {
            anyhow::bail!("query, pipe and psql come first: put their options, --config as well, behind them")
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// One message that names the thing and the way out.
fn failed(error: &anyhow::Error) -> ExitCode {
    terminal::print_error(&match error.downcast_ref::<Diagnostics>() {
        Some(mistakes) => format!("countersign: {error}\n{mistakes}"),
        None => format!("countersign: {error:#}"),
    });
    ExitCode::FAILURE
}
