//! Which database: flags, then `COUNTERSIGN_DATABASE_URL` (clap reads it), then `DATABASE_URL`, then `PGHOST` and the
//! like.

use anyhow::Context;
use ledger::Target;

use crate::cli::DatabaseArgs;

/// The configured database.
///
/// # Errors
/// A message that says how to configure one.
pub(crate) fn configured(arguments: &DatabaseArgs) -> anyhow::Result<Target> {
    if let Some(url) = &arguments.database_url {
        return Target::parse(url).context("--database-url (COUNTERSIGN_DATABASE_URL)");
    }
    if let Some(url) = variable("DATABASE_URL") {
        return Target::parse(&url).context("DATABASE_URL");
    }
    from_libpq_variables().context("PGHOST, PGPORT, PGUSER, PGDATABASE and PGPASSWORD")?.context(
        "no database is configured: set DATABASE_URL (postgresql://user@host:5432/dbname), or use --demo for a private one",
    )
}

/// `None` if none of the variables that name a place is set.
fn from_libpq_variables() -> anyhow::Result<Option<Target>> {
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
    Ok(Some(Target::parse(&keywords.join(" "))?))
}

fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('\'', "\\'")
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
