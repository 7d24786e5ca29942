//! `countersign console`: the web page for reviewers, auditors and operators, and the links that log them in.

pub(crate) mod args;
mod login;
mod oidc;

use std::process::ExitCode;

use ::console::{Console, DatabaseError, DatabaseParts, HealthCheck};
use anyhow::{Context, bail, ensure};
use futures_util::future::join_all;
use ledger::{ConnectOptions, Ledger};
use tokio::net::TcpListener;
use types::MaskKey;

use self::args::{ConsoleArgs, ConsoleCommand, ServeArgs};
pub(crate) use self::login::make_link;
use crate::commands::several::{done, on_each};
use crate::connection;
use crate::settings::{ConsoleSettings, DatabaseSettings, Settings};
use crate::signals::stop_on_signals;

/// Makes the health check for the console, from a database and its settings.
pub(crate) type MakeHealthCheck = fn(&ConnectOptions, &DatabaseSettings, &Settings) -> HealthCheck;

pub(crate) async fn run(
    arguments: ConsoleArgs,
    settings: &Settings,
    health: MakeHealthCheck,
) -> anyhow::Result<ExitCode> {
    match arguments.command {
        Some(ConsoleCommand::Login(arguments)) => login::log_in(arguments.own, settings).await,
        Some(ConsoleCommand::Logout(arguments)) => {
            on_each(settings, false, async |database| done(login::log_out(database, &arguments.own).await)).await
        }
        None => done(serve(arguments.serve.own, settings, health).await),
    }
}

/// The logins of the console for one database, which are not connected yet.
pub(crate) struct DatabaseLogins {
    pub(crate) console: Ledger,
    /// Undoes writes and freezes accounts.
    pub(crate) operator: Option<Ledger>,
    pub(crate) health: HealthCheck,
}

impl DatabaseLogins {
    fn new(database: &DatabaseSettings, settings: &Settings, health: MakeHealthCheck) -> anyhow::Result<Self> {
        let target = connection::configured(database)?;
        let ledger = |target: ConnectOptions| Ledger::new(target, database.ledger.clone());
        let operator = database.operator.as_ref().map(|source| connection::parse(source, database)).transpose()?;
        let health = health(&target, database, settings);
        Ok(Self { console: ledger(target), operator: operator.map(ledger), health })
    }

    /// What the console takes of a database with these settings.
    pub(crate) fn parts(&self, settings: &DatabaseSettings) -> anyhow::Result<DatabaseParts<'_>> {
        let columns = settings.masks.columns();
        let masks = if columns.is_empty() { None } else { Some((columns, MaskKey::new(settings.mask_key()?))) };
        Ok(DatabaseParts {
            label: settings.label.clone(),
            ledger: &self.console,
            operator: self.operator.as_ref(),
            masks,
            health: self.health.clone(),
        })
    }
}

async fn serve(ServeArgs { listen }: ServeArgs, settings: &Settings, health: MakeHealthCheck) -> anyhow::Result<()> {
    let ConsoleSettings { url, approve_within, oidc } = &settings.console;
    ensure!(
        url.is_some() || listen.ip().is_loopback(),
        "--listen {listen} can be reached from other machines: --url names the address of the proxy with TLS before it"
    );
    let logins = settings.databases.iter().map(|database| DatabaseLogins::new(database, settings, health));
    let logins = logins.collect::<anyhow::Result<Vec<_>>>()?;
    let listener = TcpListener::bind(listen).await.with_context(|| format!("cannot listen on {listen} (--listen)"))?;
    let url = url.clone().map_or_else(|| listener.local_addr().map(|address| format!("http://{address}")), Ok)?;
    let parts = logins.iter().zip(&settings.databases).map(|(logins, database)| logins.parts(database));
    let console = console(&url, parts.collect::<anyhow::Result<Vec<_>>>()?)?;
    let oidc = oidc.as_ref().map(|oidc| oidc::provider(oidc, console.origin())).transpose()?;
    let console = console.with_oidc(oidc).with_approve_within(*approve_within);
    let console = console.with_trusted_proxies(&settings.trusted_proxies);
    open(&console).await?;
    tracing::info!("the console is listening on {}", console.origin());
    let stop = stop_on_signals()?;
    tokio::spawn(oidc::ask_provider(console.clone()));
    ::console::serve(listener, None, console, stop).await;
    Ok(())
}

/// The console at this origin.
pub(crate) fn console(url: &str, databases: Vec<DatabaseParts<'_>>) -> anyhow::Result<Console> {
    Console::new(url, databases).with_context(|| format!("--url {url} cannot be used"))
}

/// Opens the databases. One of several that cannot be used does not keep the others from being served.
async fn open(console: &Console) -> anyhow::Result<()> {
    let opened = join_all(console.databases().map(async |database| (database, database.open().await))).await;
    let (count, mut refused) = (opened.len(), Vec::new());
    for (database, outcome) in opened {
        let Err(error) = outcome else { continue };
        let Some(label) = database.label().filter(|_| count > 1) else { return Err(explained(error)) };
        tracing::warn!(database = %label.name, %error, "the console cannot use a database now");
        refused.push(format!("{label}: {error}"));
    }
    if refused.len() == count {
        bail!("the console can use none of its databases:\n{}", refused.join("\n"));
    }
    Ok(())
}

fn explained(error: DatabaseError) -> anyhow::Error {
    match error {
        DatabaseError::Ledger(error) => error.into(),
        DatabaseError::Operator(error) => anyhow::Error::from(error).context("operator_url (--operator-url)"),
        error => error.into(),
    }
}
