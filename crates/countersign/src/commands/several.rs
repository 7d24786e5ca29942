//! Commands on the databases of a configuration: on each, or on the one that has what an id names.

use std::process::ExitCode;

use futures_util::future::join_all;
use types::IdPrefix;

use crate::connection;
use crate::settings::{DatabaseSettings, Settings};
use crate::terminal::{about, print_error, print_heading};

/// Runs a command on each database. What it prints begins with the name of the database, unless that has none. An
/// error of one database does not keep the command from the others.
///
/// # Errors
/// The error of the only database.
pub(crate) async fn on_each<'a>(
    settings: &'a Settings,
    is_json: bool,
    run: impl AsyncFn(&'a DatabaseSettings) -> anyhow::Result<ExitCode>,
) -> anyhow::Result<ExitCode> {
    if let [only] = settings.databases.as_slice() {
        return named(only, is_json, run(only)).await;
    }
    let mut worst = ExitCode::SUCCESS;
    for database in &settings.databases {
        let ended = named(database, is_json, run(database)).await.unwrap_or_else(|error| {
            print_error(&format!("countersign: {}", explained(database, &error)));
            ExitCode::FAILURE
        });
        if worst == ExitCode::SUCCESS {
            worst = ended;
        }
    }
    Ok(worst)
}

/// Runs a command on the only database that has what begins with this id. `has` looks for it.
///
/// # Errors
/// None has it, or several have; or the error of the command.
pub(crate) async fn on_owner<'a>(
    settings: &'a Settings,
    id: &IdPrefix,
    is_json: bool,
    has: impl AsyncFn(&'a DatabaseSettings) -> anyhow::Result<bool>,
    run: impl AsyncFnOnce(&'a DatabaseSettings) -> anyhow::Result<ExitCode>,
) -> anyhow::Result<ExitCode> {
    let owner = match settings.databases.as_slice() {
        [only] => only,
        several => owner(several, id, has).await?,
    };
    named(owner, is_json, run(owner)).await
}

/// The exit code of a command that ends with an error or well.
pub(crate) fn done(outcome: anyhow::Result<()>) -> anyhow::Result<ExitCode> {
    outcome.map(|()| ExitCode::SUCCESS)
}

async fn owner<'a>(
    databases: &'a [DatabaseSettings],
    id: &IdPrefix,
    has: impl AsyncFn(&'a DatabaseSettings) -> anyhow::Result<bool>,
) -> anyhow::Result<&'a DatabaseSettings> {
    let found = join_all(databases.iter().map(async |database| (database, has(database).await))).await;
    let (mut owners, mut asked, mut errors) = (Vec::new(), Vec::new(), Vec::new());
    for (database, found) in found {
        match found {
            Ok(true) => owners.push(database),
            Ok(false) => asked.push(name(database)),
            Err(error) => errors.push(explained(database, &error)),
        }
    }
    match owners.as_slice() {
        [one] => Ok(one),
        [] => {
            let asked = if asked.is_empty() { String::new() } else { format!("; asked: {}", asked.join(", ")) };
            let errors: String = errors.iter().map(|error| format!("\n{error}")).collect();
            anyhow::bail!("no database has the id {}{asked}{errors}", id.as_str())
        }
        several => {
            let names: Vec<&str> = several.iter().map(|database| name(database)).collect();
            anyhow::bail!("{} is in several databases: choose one with --database ({})", id.as_str(), names.join(", "))
        }
    }
}

fn name(database: &DatabaseSettings) -> &str {
    database.name().map_or("", |name| name.as_str())
}

/// An error of a database, after its name.
pub(crate) fn explained(database: &DatabaseSettings, error: &anyhow::Error) -> String {
    let origins = connection::origins(error, database).map(|origins| format!("; {origins}")).unwrap_or_default();
    format!("{}: {error:#}{origins}", name(database))
}

/// Names the database in what the command prints.
async fn named(
    database: &DatabaseSettings,
    is_json: bool,
    command: impl Future<Output = anyhow::Result<ExitCode>>,
) -> anyhow::Result<ExitCode> {
    let Some(label) = &database.label else { return command.await };
    if !is_json {
        print_heading(label);
    }
    about(label, command).await
}
