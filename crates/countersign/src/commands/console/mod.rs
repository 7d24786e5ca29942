//! `countersign console`: the web page for reviewers, auditors and operators, and the links that log them in.

pub(crate) mod args;
mod oidc;

use ::console::{Console, ConsoleParts, HealthCheck, read_origin};
use anyhow::{Context, ensure};
use auth::generate_token;
use ledger::console::ConsolePerson;
use ledger::{ConnectOptions, Ledger};
use tokio::net::TcpListener;
use types::{MaskKey, Secret};

use self::args::{ConsoleArgs, ConsoleCommand, LoginArgs, LogoutArgs, ServeArgs};
use crate::connection;
use crate::settings::{ConsoleSettings, DatabaseSettings, SecretSource, Settings};
use crate::signals::stop_on_signals;
use crate::terminal::{print_error, print_line};

/// The address of a console that was started with the defaults.
const DEFAULT_URL: &str = "http://127.0.0.1:7788";

const NO_LINK: &str = "the link cannot be made; this takes a member of countersign_owner";

/// Makes the health check for the console, from a database and its settings.
pub(crate) type MakeHealthCheck = fn(&ConnectOptions, &DatabaseSettings, &Settings) -> HealthCheck;

pub(crate) async fn run(arguments: ConsoleArgs, settings: &Settings, health: MakeHealthCheck) -> anyhow::Result<()> {
    let database = settings.database()?;
    let target = connection::configured(database)?;
    let ledger = open(&target, database).await?;
    match arguments.command {
        Some(ConsoleCommand::Login(arguments)) => log_in(&ledger, arguments.own, settings).await,
        Some(ConsoleCommand::Logout(arguments)) => log_out(&ledger, &arguments.own).await,
        None => serve(&ledger, arguments.serve.own, health(&target, database, settings), settings).await,
    }
}

/// The ledger of a database, if it was made for this database: a decision in a copy would apply to a proposal of the
/// original.
async fn open(target: &ConnectOptions, settings: &DatabaseSettings) -> anyhow::Result<Ledger> {
    let ledger = Ledger::new(target.clone(), settings.ledger.clone());
    ledger.check().await?;
    ledger.check_identity().await?;
    Ok(ledger)
}

async fn serve(ledger: &Ledger, arguments: ServeArgs, health: HealthCheck, settings: &Settings) -> anyhow::Result<()> {
    let ServeArgs { listen, operator_url } = arguments;
    let ConsoleSettings { url, approve_within, oidc } = &settings.console;
    ensure!(
        url.is_some() || listen.ip().is_loopback(),
        "--listen {listen} can be reached from other machines: --url names the address of the proxy with TLS before it"
    );
    let listener = TcpListener::bind(listen).await.with_context(|| format!("cannot listen on {listen} (--listen)"))?;
    let url = url.clone().map_or_else(|| listener.local_addr().map(|address| format!("http://{address}")), Ok)?;
    let operator = match operator_url {
        Some(text) => Some(operator(Secret::new(text), ledger, settings.database()?).await?),
        None => None,
    };
    let console = console(ledger, operator.as_ref(), &url, health, settings.database()?)?;
    let oidc = oidc.as_ref().map(|oidc| oidc::provider(oidc, console.origin())).transpose()?;
    let console = console.with_oidc(oidc).with_approve_within(*approve_within);
    let console = console.with_trusted_proxies(&settings.trusted_proxies);
    ledger
        .console_sessions()
        .note_address(console.origin())
        .await
        .context("the address of the console is not noted")?;
    tracing::info!("the console is listening on {}", console.origin());
    let stop = stop_on_signals()?;
    tokio::spawn(oidc::ask_provider(console.clone()));
    ::console::serve(listener, None, console, stop).await;
    Ok(())
}

/// The console at this origin.
pub(crate) fn console(
    ledger: &Ledger,
    operator: Option<&Ledger>,
    url: &str,
    health: HealthCheck,
    settings: &DatabaseSettings,
) -> anyhow::Result<Console> {
    let columns = settings.masks.columns();
    let masks = if columns.is_empty() { None } else { Some((columns, MaskKey::new(settings.mask_key()?))) };
    let parts = ConsoleParts { ledger, operator, origin: url, masks, health };
    Console::new(parts).with_context(|| format!("--url {url} cannot be used"))
}

/// The same ledger over the login that undoes writes and freezes accounts.
async fn operator(text: Secret, console: &Ledger, settings: &DatabaseSettings) -> anyhow::Result<Ledger> {
    let source = SecretSource { text, origin: "--operator-url".to_owned() };
    let target = connection::parse(&source, settings)?;
    let ledger = open(&target, settings).await.context("--operator-url")?;
    let (own, shown) = (ledger.audit().ledger_id().await?, console.audit().ledger_id().await?);
    ensure!(own == shown, "--operator-url names another ledger than the one that the console shows");
    Ok(ledger)
}

async fn log_in(ledger: &Ledger, arguments: LoginArgs, settings: &Settings) -> anyhow::Result<()> {
    let LoginArgs { name, role, group, url } = arguments;
    let url = match url.or_else(|| settings.console.url.clone()) {
        Some(url) => url,
        None => {
            let noted = ledger.console_sessions().address().await.context(NO_LINK)?;
            noted.unwrap_or_else(|| {
                print_error(&format!(
                    "no console was started on this ledger yet: the link is for {DEFAULT_URL} (--url)"
                ));
                DEFAULT_URL.to_owned()
            })
        }
    };
    let (origin, _) = read_origin(&url).with_context(|| format!("--url {url} cannot be used"))?;
    let person = ConsolePerson { name, role, groups: group };
    print_line(&make_link(ledger, &origin, &person).await?);
    Ok(())
}

/// A link that logs a person in, once, within 5 minutes.
pub(crate) async fn make_link(ledger: &Ledger, origin: &str, person: &ConsolePerson) -> anyhow::Result<String> {
    let token = generate_token()?;
    let made = ledger.console_sessions().make_link(&token, person).await;
    made.context(NO_LINK)?;
    Ok(format!("{origin}/login/{}", token.expose()))
}

async fn log_out(ledger: &Ledger, LogoutArgs { name }: &LogoutArgs) -> anyhow::Result<()> {
    let ended = ledger.console_sessions().end_all(name).await;
    let ended = ended.context("nobody was logged out; this takes a member of countersign_owner")?;
    print_line(&format!("{ended} sessions of {name} have ended."));
    Ok(())
}
