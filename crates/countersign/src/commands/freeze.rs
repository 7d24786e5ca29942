//! `countersign freeze` and `unfreeze`: an operator stops writes, or allows them again. The ledger records the
//! operator.

use std::process::ExitCode;

use anyhow::anyhow;
use clap::Args;
use ledger::{Freeze, FreezeScope, Freezes, Ledger, SchemaError};
use types::visible;

use crate::connection;
use crate::settings::DatabaseSettings;
use crate::terminal::os_user;
use crate::terminal::{print_json, print_line};

#[derive(Debug, Args)]
pub(crate) struct FreezeArgs {
    #[command(flatten)]
    scope: ScopeArgs,
    /// Reason, which is recorded and shown by --list and doctor.
    #[arg(long, value_name = "TEXT", conflicts_with = "list")]
    reason: Option<String>,
    /// Print what is frozen, and change nothing.
    #[arg(long, group = "what")]
    list: bool,
    /// With --list: print one JSON object per line.
    #[arg(long, requires = "list")]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct UnfreezeArgs {
    #[command(flatten)]
    scope: ScopeArgs,
}

#[derive(Debug, Args)]
#[group(id = "what", required = true, multiple = false)]
struct ScopeArgs {
    /// The writes of this account.
    #[arg(long, value_name = "ACCOUNT", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    account: Option<String>,
    /// The writes on behalf of this person.
    #[arg(long, value_name = "ACTOR", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    actor: Option<String>,
    /// All writes.
    #[arg(long)]
    all: bool,
}

impl ScopeArgs {
    fn scope(self) -> FreezeScope {
        match (self.account, self.actor) {
            (Some(account), _) => FreezeScope::Account(account),
            (None, Some(actor)) => FreezeScope::Actor(actor),
            (None, None) => FreezeScope::All,
        }
    }
}

pub(crate) async fn freeze(arguments: FreezeArgs, settings: &DatabaseSettings) -> anyhow::Result<ExitCode> {
    let freezes = open(settings, !arguments.list).await?;
    if arguments.list {
        list(&freezes, arguments.json).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let scope = arguments.scope.scope();
    let earlier = current(&freezes, &scope).await?;
    let in_flight = freezes.freeze(&scope, &os_user::name(), arguments.reason.as_deref()).await.map_err(refused)?;
    print_line(&match &earlier {
        Some(freeze) => format!("{} were frozen already: {}; that stays as it is.", subject(&scope), since(freeze)),
        None => format!("{} are refused from now on (account_frozen); reads go on.", subject(&scope)),
    });
    print_line(&match in_flight {
        0 => "No write of these is known to be in flight. One that has just begun is refused when it ends.".to_owned(),
        1 => "1 write of these is in flight: it is refused when it ends, unless it has just committed.".to_owned(),
        more => {
            format!(
                "{more} writes of these are in flight: they are refused when they end, unless they have just committed."
            )
        }
    });
    // The freeze is in force. An error of this check does not change that.
    if let Ok(false) = freezes.is_known(&scope).await {
        print_line(&format!("warning: {} is in none of the newest 100,000 records: is the name right?", name(&scope)));
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn unfreeze(arguments: UnfreezeArgs, settings: &DatabaseSettings) -> anyhow::Result<ExitCode> {
    let freezes = open(settings, true).await?;
    let scope = arguments.scope.scope();
    if !freezes.unfreeze(&scope, &os_user::name()).await.map_err(refused)? {
        anyhow::bail!("{} were not frozen: `countersign freeze --list` shows what is", subject(&scope));
    }
    print_line(&format!("{} are not frozen any more.", subject(&scope)));
    let others = freezes.current().await?;
    for other in &others {
        print_line(&format!("Still frozen: {}.", line(other)));
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(freezes: &Freezes, json: bool) -> anyhow::Result<()> {
    let current = freezes.current().await?;
    if json {
        current.iter().for_each(print_json);
    } else if current.is_empty() {
        print_line("Nothing is frozen.");
    } else {
        current.iter().for_each(|freeze| print_line(&line(freeze)));
    }
    Ok(())
}

async fn current(freezes: &Freezes, scope: &FreezeScope) -> anyhow::Result<Option<Freeze>> {
    let (kind, name) = match scope {
        FreezeScope::Account(name) => ("account", name.as_str()),
        FreezeScope::Actor(name) => ("actor", name.as_str()),
        FreezeScope::All => ("all", ""),
    };
    let is_this = |freeze: &Freeze| freeze.kind == kind && freeze.name == name;
    Ok(freezes.current().await.map_err(refused)?.into_iter().find(is_this))
}

/// Returns the line of a freeze in force: frozen writes, start, operator and reason.
fn line(freeze: &Freeze) -> String {
    format!("{}, {}", whose(freeze), since(freeze))
}

/// `writes of the account robot`.
pub(crate) fn whose(freeze: &Freeze) -> String {
    match freeze.kind.as_str() {
        "all" => "all writes".to_owned(),
        kind => format!("writes of the {kind} {}", visible(&freeze.name)),
    }
}

/// `since 2026-11-23T03:00:00Z by olga (OS user olga): it posts nonsense`.
pub(crate) fn since(freeze: &Freeze) -> String {
    let [by, login, at] = [&freeze.frozen_by, &freeze.frozen_login, &freeze.frozen_at].map(|text| visible(text));
    let reason = freeze.reason.as_deref().map(visible).unwrap_or_default();
    let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
    format!("since {at} by {login} (OS user {by}){reason}")
}

fn name(scope: &FreezeScope) -> String {
    match scope {
        FreezeScope::Account(name) => format!("the account {}", visible(name)),
        FreezeScope::Actor(name) => format!("the actor {}", visible(name)),
        FreezeScope::All => "everybody".to_owned(),
    }
}

fn subject(scope: &FreezeScope) -> String {
    if *scope == FreezeScope::All { "All writes".to_owned() } else { format!("Writes of {}", name(scope)) }
}

/// Opens the freezes of the configured database. With `changes`, the ledger must have been made for this database: an
/// operator who freezes a copy would believe that the original is frozen.
async fn open(settings: &DatabaseSettings, changes: bool) -> anyhow::Result<Freezes> {
    let ledger = Ledger::new(connection::configured(settings)?, settings.ledger.clone());
    ledger.check().await.map_err(|error| match error {
        SchemaError::Database(error) => refused(error),
        error => error.into(),
    })?;
    if changes {
        ledger.check_identity().await?;
    }
    Ok(ledger.freezes())
}

fn refused(error: ledger::read::Error) -> anyhow::Error {
    if error.server_error().is_some_and(|error| error.sqlstate == "42501") {
        return anyhow!(
            "this database login is not an operator, so nothing was changed: use one that has the role \
             (grant countersign_operator to <login>). Servers log in without it"
        );
    }
    error.into()
}
