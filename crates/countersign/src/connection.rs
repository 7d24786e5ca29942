//! Which database: what is configured, then `DATABASE_URL`, then `PGHOST` and the like.

use anyhow::Context;
use ledger::Target;

use crate::settings::{GivenSecret, Settings};

/// The configured database.
///
/// # Errors
/// A message that says how to configure one.
pub(crate) fn configured(settings: &Settings) -> anyhow::Result<Target> {
    if let Some(database) = &settings.database {
        return parse(database, settings);
    }
    if let Some(url) = variable("DATABASE_URL") {
        return Target::parse_with(&url, settings.connect_timeout).context("DATABASE_URL");
    }
    from_libpq_variables(settings).context("PGHOST, PGPORT, PGUSER, PGDATABASE and PGPASSWORD")?.context(
        "no database is configured: set DATABASE_URL (postgresql://user@host:5432/dbname), or use --demo for a private one",
    )
}

/// Reads a connection string.
///
/// # Errors
/// A message that says where it stands.
pub(crate) fn parse(string: &GivenSecret, settings: &Settings) -> anyhow::Result<Target> {
    Target::parse_with(string.text.expose(), settings.connect_timeout).with_context(|| string.origin.clone())
}

/// `None` if none of the variables that name a place is set.
fn from_libpq_variables(settings: &Settings) -> anyhow::Result<Option<Target>> {
    const NAMES: [(&str, &str); 5] = [
        ("PGHOST", "host"),
        ("PGPORT", "port"),
        ("PGUSER", "user"),
        ("PGDATABASE", "dbname"),
        ("PGPASSWORD", "password"),
    ];
    if variable("PGHOST").is_none() && variable("PGDATABASE").is_none() {
        return Ok(None);
    }
    let keywords: Vec<String> = NAMES
        .into_iter()
        .filter_map(|(name, keyword)| variable(name).map(|value| format!("{keyword}='{}'", escape(&value))))
        .collect();
    Ok(Some(Target::parse_with(&keywords.join(" "), settings.connect_timeout)?))
}

fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('\'', "\\'")
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
