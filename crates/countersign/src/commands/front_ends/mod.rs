//! `countersign query`, `pipe` and `psql`. The front ends are the crate `agent-cli`; this module supplies their
//! executor and the part of the configuration that applies to them.
//!
//! They have a separate command line: a mistake in it is an event on standard output. Standard error has at most one
//! line, about committed writes whose results could not be delivered.

mod audit_router;
mod cli_write;
mod error_hints;
mod ledger_executor;
mod write_errors;

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;

use agent_cli::connection::ConnectionString;
use agent_cli::{FrontEnd, Invocation, ParseExit, StopSignals};
use ledger::ConnectEnvironment;
use types::{ClientInfo, Principal};

use self::audit_router::{AuditMode, AuditRouter};
use crate::commands::cli;
use crate::settings::{DatabaseSettings, SecretSource};
use crate::signals::{EndSignals, HangupSignals};
use crate::terminal::os_user;
use crate::{connection, terminal};

/// Returns the front end at the start of a command line, and the remaining arguments.
pub(crate) fn front_end(mut arguments: impl Iterator<Item = OsString>) -> Option<(FrontEnd, Vec<OsString>)> {
    let front_end = FrontEnd::parse(arguments.next()?.to_str()?)?;
    Some((front_end, arguments.collect()))
}

pub(crate) fn run(front_end: FrontEnd, arguments: &[OsString]) -> ExitCode {
    // A panic in a query is an event (`internal_error`), not a text on standard error.
    std::panic::set_hook(Box::new(|_| {}));
    match prepare(front_end, arguments) {
        Ok((invocation, executor, environment)) => serve(invocation, executor, environment),
        Err(exit) => {
            terminal::write_bytes(&exit.stdout);
            ExitCode::from(exit.code)
        }
    }
}

fn prepare(
    front_end: FrontEnd,
    arguments: &[OsString],
) -> Result<(Invocation, AuditRouter, ConnectEnvironment), ParseExit> {
    let argv: Vec<String> = arguments.iter().map(|argument| argument.to_string_lossy().into_owned()).collect();
    let (env, other): (Vec<_>, Vec<_>) = std::env::vars_os().partition(|(_, value)| value.to_str().is_some());
    let texts = env.into_iter().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let invocation = agent_cli::parse(front_end, &argv, texts.collect())?;
    let wrong = |message: String| agent_cli::error_exit(&message, &invocation);
    // PostgreSQL would receive a different text than intended, or the connection would have a different address.
    if let Some(place) = arguments.iter().position(|argument| argument.to_str().is_none()) {
        return Err(wrong(format!("argument {} behind the name of the front end is not UTF-8", place + 1)));
    }
    let has_a_say = |name: &&str| name.starts_with("COUNTERSIGN_") || name.starts_with("PG");
    if let Some(name) = other.iter().filter_map(|(name, _)| name.to_str()).find(has_a_say) {
        return Err(wrong(format!("the variable {name} is not UTF-8")));
    }
    let sources = cli::sources_around(invocation.config.clone(), invocation.configured_database.clone())
        .map_err(|error| wrong(format!("a variable: {}", agent_cli::args::without_values(&error, &[]))))?;
    let settings = sources.load().map_err(|error| wrong(format!("{error:#}")))?;
    let database = settings.database().map_err(|error| wrong(error.to_string()))?;
    let audit = audit(&invocation, database).map_err(wrong)?;
    let shared = connection::named(database).map(|SecretSource { text, origin }| ConnectionString { text, origin });
    let actor = os_user::name();
    let command = format!("countersign {}", front_end.as_str());
    let client = ClientInfo::new(&command, env!("CARGO_PKG_VERSION")).in_session();
    let principal =
        Principal { account_id: settings.account.clone(), actor: Some(actor), client, ..Principal::default() };
    let executor = AuditRouter::new(audit, principal, database.ledger.clone());
    let invocation = Invocation { database: shared, ..invocation };
    Ok((invocation, executor, connection::environment(database)))
}

fn audit(invocation: &Invocation, settings: &DatabaseSettings) -> Result<AuditMode, String> {
    match (invocation.audit, settings.require_audit) {
        (Some(false), true) => Err("--no-audit is not allowed: the configuration says require_audit".to_owned()),
        (Some(false), false) => Ok(AuditMode::Never),
        (Some(true), _) | (None, true) => Ok(AuditMode::Always),
        (None, false) => Ok(AuditMode::WhereThereIsOne),
    }
}

fn serve(invocation: Invocation, executor: AuditRouter, environment: ConnectEnvironment) -> ExitCode {
    let refused = |error: std::io::Error, invocation: &Invocation| {
        terminal::write_bytes(
            &agent_cli::error_exit(&format!("the process cannot start its work: {error}"), invocation).stdout,
        );
        ExitCode::FAILURE
    };
    // One thread: the cost of a query here is forwarding, which costs several times as much between threads.
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return refused(error, &invocation),
    };
    let exit = runtime.block_on(async {
        let stop = StopSignals::default();
        tokio::spawn(stop_at_signals(stop.clone()));
        let (input, output) = mcp::standard_pipes();
        agent_cli::run(invocation, Arc::new(executor), environment, input, output, reader_gone(), stop).await
    });
    // A pending read of standard input must not delay the end.
    runtime.shutdown_background();
    if let Some(complaint) = exit.complaint {
        terminal::print_error(&format!("countersign: {complaint}"));
    }
    ExitCode::from(exit.code)
}

/// Completes when standard output is a pipe without a reader. For other kinds of output, the next write fails.
#[cfg(unix)]
async fn reader_gone() {
    use tokio::io::Interest;
    use tokio::net::unix::pipe;
    // Opened by name, for a file description of its own: its flags must not change those of standard output.
    let Ok(watched) = pipe::OpenOptions::new().open_sender("/proc/self/fd/1") else {
        return std::future::pending().await;
    };
    if watched.ready(Interest::ERROR).await.is_err() {
        std::future::pending().await
    }
}

/// Never completes: the next write fails.
#[cfg(windows)]
async fn reader_gone() {
    std::future::pending().await
}

/// The first signal ends the run in order; a second one cancels requests in flight. Their terminal events are still
/// sent.
async fn stop_at_signals(stop: StopSignals) {
    let (Ok(mut end), Ok(mut hangup)) = (EndSignals::listen(), HangupSignals::listen_unless_ignored()) else { return };
    loop {
        tokio::select! {
            _ = end.recv() => {}
            () = hangup.recv() => {}
        }
        if stop.asked.is_cancelled() {
            stop.urged.cancel();
        }
        stop.asked.cancel();
    }
}
