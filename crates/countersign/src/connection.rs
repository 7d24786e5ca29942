//! Chooses the database: the configuration, then `DATABASE_URL`, then `PGHOST` and similar variables. The `PG*`
//! variables supply what a connection string leaves out, as in every program that uses libpq.

use std::pin::pin;
use std::time::Duration;

use anyhow::Context;
use ledger::read::{ConnectError, Error, SearchPath};
use ledger::{ConnectEnvironment, ConnectOptions, ConnectOptionsError, Conninfo, SchemaError};
use tokio::sync::Notify;
use types::Secret;

use crate::settings::{DatabaseSettings, SecretSource};

/// The variable that many programs use for the connection string.
const DATABASE_URL: &str = "DATABASE_URL";

/// The variables that name a database without a connection string.
const PLACES: [&str; 4] = ["PGHOST", "PGHOSTADDR", "PGDATABASE", "PGSERVICE"];

/// The configured database; if there is none, an error that says how to configure one.
pub(crate) fn configured(settings: &DatabaseSettings) -> anyhow::Result<ConnectOptions> {
    if let Some(database) = named(settings) {
        return parse(&database, settings);
    }
    anyhow::ensure!(
        PLACES.into_iter().any(|name| variable(name).is_some()),
        "no database is configured: set DATABASE_URL (postgresql://user@host:5432/dbname), or use --demo for a private one"
    );
    let nothing = Conninfo::parse("").map_err(anyhow::Error::from);
    nothing
        .and_then(|nothing| Ok(target(&nothing, settings)?))
        .context("the variables of libpq (PGHOST, PGDATABASE and so on)")
}

/// The connection string to use; `None` if there is none.
pub(crate) fn named(settings: &DatabaseSettings) -> Option<SecretSource> {
    let shared =
        || variable(DATABASE_URL).map(|url| SecretSource { text: Secret::new(url), origin: DATABASE_URL.to_owned() });
    settings.url.clone().or_else(shared)
}

pub(crate) fn parse(string: &SecretSource, settings: &DatabaseSettings) -> anyhow::Result<ConnectOptions> {
    let read = || {
        let conninfo = Conninfo::parse(string.text.expose())?.with_origin(&string.origin);
        anyhow::Ok(target(&conninfo, settings)?)
    };
    read().with_context(|| string.origin.clone())
}

fn target(conninfo: &Conninfo, settings: &DatabaseSettings) -> Result<ConnectOptions, ConnectOptionsError> {
    ConnectOptions::from_conninfo(conninfo, &environment(settings))?.with_pooler(settings.pooler)
}

pub(crate) fn environment(settings: &DatabaseSettings) -> ConnectEnvironment {
    ConnectEnvironment::from_process(settings.connect_timeout)
        .with_ssh_tunnel(settings.ssh_tunnel.clone())
        .with_password_command(settings.password_command.clone())
}

/// The connection string of the configured database for another login. It does not depend on this process's
/// environment.
pub(crate) fn text_for_login(settings: &DatabaseSettings, user: &str, password: &Secret) -> anyhow::Result<Secret> {
    let database = named(settings);
    let conninfo = Conninfo::parse(database.as_ref().map_or("", |database| database.text.expose()))?;
    Ok(ConnectOptions::text_for_login(&conninfo, &environment(settings), user, password)?)
}

/// The sources of host, user and database, if the error is a failed connection to the configured database: the end of
/// a message.
pub(crate) fn origins(error: &anyhow::Error, settings: &DatabaseSettings) -> Option<String> {
    let is_connect = error.chain().any(|cause| {
        let schema = cause.downcast_ref().map(|error| matches!(error, SchemaError::Database(Error::Connect(_))));
        let database = cause.downcast_ref().map(|error| matches!(error, Error::Connect(_)));
        schema.or(database).unwrap_or_else(|| cause.is::<ConnectError>())
    });
    let target = is_connect.then(|| configured(settings).ok()).flatten()?;
    Some(format!("connecting to {}", target.described()))
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Checks that the database has the schemas of `write_search_path`, and that nobody but their owners can put an object
/// there in front of what a write calls.
pub(crate) async fn check_search_path(target: &ConnectOptions, settings: &DatabaseSettings) -> anyhow::Result<()> {
    let schemas = &settings.ledger.search_path.schemas;
    let found = SearchPath::of(target, schemas).await?;
    if let Some(schema) = found.untrusted.first() {
        anyhow::bail!(
            "write_search_path has the schema {0}, in which {1} may create objects, and could put them in front of what a \
             write calls: revoke create on schema {0} from {1}",
            schema.name,
            schema.creators.join(", ")
        );
    }
    match schemas.iter().find(|schema| !found.schemas.contains(schema)) {
        Some(schema) => {
            Err(anyhow::anyhow!("write_search_path has the schema {schema}, which the database does not have"))
        }
        None => Ok(()),
    }
}

/// How long commands such as `init` and `track` wait for an unresponsive server.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(120);

/// Runs a command that uses the configured database, with a time limit.
pub(crate) async fn answered<T>(
    settings: &DatabaseSettings,
    work: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<T> {
    answered_in_steps(settings, &Notify::new(), work).await
}

/// As [`answered`], for a command of many steps. The limit is for the time without a step.
pub(crate) async fn answered_in_steps<T>(
    settings: &DatabaseSettings,
    step: &Notify,
    work: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<T> {
    let mut work = pin!(work);
    loop {
        tokio::select! {
            biased;
            outcome = &mut work => return outcome,
            () = step.notified() => {}
            () = tokio::time::sleep(COMMAND_TIMEOUT) => break,
        }
    }
    let dbname = configured(settings)?.dbname;
    anyhow::bail!(
        "the server of the database \"{dbname}\" did not answer within {} s; the command can be repeated",
        COMMAND_TIMEOUT.as_secs()
    )
}
