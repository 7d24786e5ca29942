//! The binary: arguments, wiring, and what a person sees. Everything else lives in the crates below it.
//!
//! To add a command: a variant in `cli::Command`, a module with its `run`, and a line in [`run`].

mod audit;
mod check;
mod cli;
mod connection;
mod demo;
mod demo_data;
mod init;
mod logging;
mod serve;
mod steps;
mod terminal;
mod wiring;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command};

fn main() -> ExitCode {
    let cli = Cli::parse();
    logging::start(&cli);
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&error.into()),
    };
    let outcome = runtime.block_on(run(cli));
    // Nothing that is still running (a blocked read of standard input) may hold up the end.
    runtime.shutdown_background();
    outcome.unwrap_or_else(|error| failed(&error))
}

async fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    match cli.command {
        Command::Demo(arguments) => demo::run(arguments).await?,
        Command::Serve(arguments) => serve::run(arguments).await?,
        Command::Init(arguments) => init::run(arguments).await?,
        Command::Check(arguments) => check::run(arguments).await?,
        Command::Audit(command) => return audit::run(command).await,
    }
    Ok(ExitCode::SUCCESS)
}

/// One message that names the thing and the way out.
fn failed(error: &anyhow::Error) -> ExitCode {
    terminal::complain(&format!("countersign: {error:#}"));
    ExitCode::FAILURE
}
