//! `countersign console`: the web page of reviewers and auditors, and the links that log them in.

pub(crate) mod args;

use ::console::Console;
use anyhow::{Context, ensure};
use auth::generate_token;
use ledger::Ledger;
use ledger::console::ConsolePerson;
use tokio::net::TcpListener;

use self::args::{ConsoleArgs, ConsoleCommand, LoginArgs, LogoutArgs, ServeArgs};
use crate::connection;
use crate::settings::Settings;
use crate::signals::stop_on_signals;
use crate::terminal::print_line;

pub(crate) async fn run(arguments: ConsoleArgs, settings: &Settings) -> anyhow::Result<()> {
    let target = connection::configured(settings)?;
    ledger::check(&target).await?;
    // A decision on a copy would be one on the original's proposals.
    ledger::check_identity(&target).await?;
    let ledger = Ledger::new(target, settings.ledger.clone());
    match arguments.command {
        Some(ConsoleCommand::Login(arguments)) => log_in(&ledger, arguments).await,
        Some(ConsoleCommand::Logout(arguments)) => log_out(&ledger, &arguments).await,
        None => serve(&ledger, arguments.serve).await,
    }
}

async fn serve(ledger: &Ledger, ServeArgs { listen, url, .. }: ServeArgs) -> anyhow::Result<()> {
    ensure!(
        url.is_some() || listen.ip().is_loopback(),
        "--listen {listen} can be reached from other machines: --url names the address of the proxy with TLS before it"
    );
    let listener = TcpListener::bind(listen).await.with_context(|| format!("cannot listen on {listen} (--listen)"))?;
    let url = url.map_or_else(|| listener.local_addr().map(|address| format!("http://{address}")), Ok)?;
    let console = Console::new(ledger, &url).with_context(|| format!("--url {url} cannot be used"))?;
    tracing::info!("the console is listening on {}", console.origin());
    ::console::serve(listener, None, console, stop_on_signals()?).await;
    Ok(())
}

async fn log_in(ledger: &Ledger, LoginArgs { name, role, group, url, .. }: LoginArgs) -> anyhow::Result<()> {
    let console = Console::new(ledger, &url).with_context(|| format!("--url {url} cannot be used"))?;
    let (token, person) = (generate_token()?, ConsolePerson { name, role: role.into(), groups: group });
    let made = ledger.console_sessions().make_link(&token, &person).await;
    made.context("the link cannot be made; this takes a member of countersign_owner")?;
    print_line(&format!("{}/login/{}", console.origin(), token.expose()));
    Ok(())
}

async fn log_out(ledger: &Ledger, LogoutArgs { name, .. }: &LogoutArgs) -> anyhow::Result<()> {
    let ended = ledger.console_sessions().end_all(name).await;
    let ended = ended.context("nobody was logged out; this takes a member of countersign_owner")?;
    print_line(&format!("{ended} sessions of {name} have ended."));
    Ok(())
}
