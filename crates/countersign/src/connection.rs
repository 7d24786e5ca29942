//! Which database: what is configured, then `DATABASE_URL`, then `PGHOST` and the like. What a connection string leaves out
//! the `PG*` variables say, as for every program that uses libpq.

use anyhow::Context;
use ledger::{Surroundings, Target};

use crate::settings::{GivenSecret, Settings};

/// The variables that name a database by themselves.
const PLACES: [&str; 4] = ["PGHOST", "PGHOSTADDR", "PGDATABASE", "PGSERVICE"];

/// The configured database.
///
/// # Errors
/// A message that says how to configure one.
pub(crate) fn configured(settings: &Settings) -> anyhow::Result<Target> {
    if let Some(database) = &settings.database {
        return parse(database, settings);
    }
    if let Some(url) = variable("DATABASE_URL") {
        return read(&url, settings).context("DATABASE_URL");
    }
    anyhow::ensure!(
        PLACES.into_iter().any(|name| variable(name).is_some()),
        "no database is configured: set DATABASE_URL (postgresql://user@host:5432/dbname), or use --demo for a private one"
    );
    read("", settings).context("the variables of libpq (PGHOST, PGDATABASE and so on)")
}

/// Reads a connection string.
///
/// # Errors
/// A message that says where it stands.
pub(crate) fn parse(string: &GivenSecret, settings: &Settings) -> anyhow::Result<Target> {
    read(string.text.expose(), settings).with_context(|| string.origin.clone())
}

fn read(text: &str, settings: &Settings) -> anyhow::Result<Target> {
    let target = Target::parse_in(text, &Surroundings::of_process(settings.connect_timeout))?;
    Ok(target.through(settings.pooler)?)
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
