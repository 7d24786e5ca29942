//! The links that log people in to the console, and logging people out.

use std::process::ExitCode;

use ::console::read_origin;
use anyhow::Context;
use auth::generate_token;
use ledger::Ledger;
use ledger::console::ConsolePerson;
use types::Secret;

use super::args::{LoginArgs, LogoutArgs};
use crate::commands::several::explained;
use crate::connection;
use crate::settings::{DatabaseSettings, Settings};
use crate::terminal::{print_error, print_line};

/// The address of a console that was started with the defaults.
const DEFAULT_URL: &str = "http://127.0.0.1:7788";

const NO_LINK: &str = "the link cannot be made; this takes a member of countersign_owner";

/// Prints one link, for all databases that answer.
pub(super) async fn log_in(arguments: LoginArgs, settings: &Settings) -> anyhow::Result<ExitCode> {
    let LoginArgs { name, role, group, url } = arguments;
    let (token, person) = (generate_token()?, ConsolePerson { name, role, groups: group });
    let url = url.or_else(|| settings.console.url.clone());
    let in_database = async |database| {
        let ledger = open(database).await?;
        let origin = origin(&ledger, url.clone()).await?;
        store(&ledger, &token, &person).await?;
        anyhow::Ok(origin)
    };
    let (mut first_origin, mut ended) = (None, ExitCode::SUCCESS);
    for database in &settings.databases {
        match in_database(database).await {
            Ok(origin) => first_origin = first_origin.or(Some(origin)),
            Err(error) if settings.databases.len() == 1 => return Err(error),
            Err(error) => {
                print_error(&format!("countersign: {}", explained(database, &error)));
                ended = ExitCode::FAILURE;
            }
        }
    }
    if let Some(origin) = first_origin {
        print_line(&link(&origin, &token));
    }
    Ok(ended)
}

/// A link that logs a person in, once, within 5 minutes.
pub(crate) async fn make_link(ledger: &Ledger, origin: &str, person: &ConsolePerson) -> anyhow::Result<String> {
    let token = generate_token()?;
    store(ledger, &token, person).await?;
    Ok(link(origin, &token))
}

pub(super) async fn log_out(database: &DatabaseSettings, LogoutArgs { name }: &LogoutArgs) -> anyhow::Result<()> {
    let ended = open(database).await?.console_sessions().end_all(name).await;
    let ended = ended.context("nobody was logged out; this takes a member of countersign_owner")?;
    print_line(&format!("{ended} sessions of {name} have ended."));
    Ok(())
}

/// The ledger of a database, if it was made for this database.
async fn open(database: &DatabaseSettings) -> anyhow::Result<Ledger> {
    let ledger = Ledger::new(connection::configured(database)?, database.ledger.clone());
    ledger.check().await?;
    ledger.check_identity().await?;
    Ok(ledger)
}

/// The address of the console: this one, or that of the console which was started last.
async fn origin(ledger: &Ledger, url: Option<String>) -> anyhow::Result<String> {
    let url = match url {
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
    Ok(origin)
}

async fn store(ledger: &Ledger, token: &Secret, person: &ConsolePerson) -> anyhow::Result<()> {
    ledger.console_sessions().make_link(token, person).await.context(NO_LINK)
}

fn link(origin: &str, token: &Secret) -> String {
    format!("{origin}/login/{}", token.expose())
}
