//! The ledger's own schema: made by `init`, checked before anything is served.

use std::io;

use pg::{Pooler, Session, Step, Target};
use refinery_core::Migration;
use refinery_core::traits::r#async::{AsyncMigrate, AsyncQuery, AsyncTransaction};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::{reader_role, roles};

#[allow(clippy::unwrap_used, unreachable_pub, missing_docs, reason = "what refinery's macro writes")]
mod embedded {
    refinery::embed_migrations!("../../migrations");
}

const HISTORY_TABLE: &str = "countersign.schema_history";

/// Any number will do, as long as nobody else's advisory lock has it: "countersign" in 31-bit disguise.
const LOCK_SQL: &str = "select pg_advisory_lock(1668641650)";
const UNLOCK_SQL: &str = "select pg_advisory_unlock(1668641650)";

/// Why the schema is not there.
#[derive(Debug, thiserror::Error)]
pub enum SchemaError {
    /// The database cannot be asked.
    #[error(transparent)]
    Database(#[from] pg::Error),
    /// `init` was never run here, or something was dropped since.
    #[error("the database \"{database}\" has no {missing}: run `countersign init` on it first")]
    Missing {
        /// The database.
        database: String,
        /// What was looked for.
        missing: &'static str,
    },
    /// `init` of another version was run here.
    #[error("the ledger in database \"{database}\" has version {found} and this binary needs {needed}: {advice}")]
    Version {
        /// The database.
        database: String,
        /// Its newest migration.
        found: i32,
        /// Ours.
        needed: i32,
        /// What to do.
        advice: &'static str,
    },
    /// A pooler is in between.
    #[error(
        "the ledger's schema cannot be made through a connection pooler (pooler = \"transaction\"): its lock is one of a \
         session. Run this once with a connection string of PostgreSQL itself, and without that setting"
    )]
    Pooled,
    /// A migration did not apply, or the history is not ours.
    #[error("the ledger's schema cannot be brought up to date: {0}")]
    Migration(String),
}

fn connect_error(error: pg::ConnectError) -> SchemaError {
    SchemaError::Database(error.into())
}

/// Makes the ledger's schema, or brings it up to date, its owner, the servers' login `writer` and the reader's login. May run
/// in many processes at once.
///
/// # Errors
/// [`SchemaError`]; every migration is applied whole or not at all.
pub async fn init(target: &Target, writer: &str) -> Result<(), SchemaError> {
    refuse_pooler(target)?;
    let mut session = Session::connect(target, &[]).await.map_err(connect_error)?;
    // refinery has no lock of its own.
    session.batch(LOCK_SQL).await?;
    let made = make(&mut session, writer).await;
    session.batch(UNLOCK_SQL).await?;
    session.close().await;
    made
}

/// Locks of a session, transactions of refinery's own.
fn refuse_pooler(target: &Target) -> Result<(), SchemaError> {
    if target.pooler == Pooler::None { Ok(()) } else { Err(SchemaError::Pooled) }
}

async fn make(session: &mut Session, writer: &str) -> Result<(), SchemaError> {
    session.batch("create schema if not exists countersign").await?;
    let mut runner = embedded::migrations::runner();
    runner.set_migration_table_name(HISTORY_TABLE);
    let mut connection = MigrationSession(session);
    runner.run_async(&mut connection).await.map_err(|error| SchemaError::Migration(with_causes(&error)))?;
    roles::ensure(session, writer).await?;
    reader_role::ensure(session).await?;
    Ok(())
}

fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// Runs SQL of our own (a demo's schema and data) in one transaction, unless `schema` is there already; whether it did.
/// Safe when several processes start at once.
///
/// # Errors
/// [`SchemaError`]; nothing of it stays then.
pub async fn load_once(target: &Target, schema: &str, own_texts: &[&str]) -> Result<bool, SchemaError> {
    refuse_pooler(target)?;
    let mut session = Session::connect(target, &[]).await.map_err(connect_error)?;
    session.batch(LOCK_SQL).await?;
    let loaded = load(&mut session, schema, own_texts).await;
    session.batch(UNLOCK_SQL).await?;
    session.close().await;
    loaded
}

async fn load(session: &mut Session, schema: &str, own_texts: &[&str]) -> Result<bool, SchemaError> {
    if single(session, "select to_regnamespace($1)::text", &[Some(schema.to_owned())]).await?.is_some() {
        return Ok(false);
    }
    MigrationSession(session).execute(own_texts.iter().copied()).await?;
    single(session, "select countersign.grant_writers($1)", &[Some(schema.to_owned())]).await?;
    reader_role::ensure(session).await?;
    Ok(true)
}

/// Whether there is a ledger in this database, of whatever version, and whether or not this login may use it.
///
/// # Errors
/// That the database cannot be asked.
pub async fn exists(target: &Target) -> Result<bool, pg::Error> {
    let mut session = Session::connect(target, &[]).await?;
    let sql = "select from pg_catalog.pg_namespace where nspname = 'countersign'";
    let found = session.run(&[Step::plain(sql)]).await.map_err(|failed| failed.error)?;
    session.close().await;
    Ok(found.first().is_some_and(|outcome| !outcome.rows.is_empty()))
}

/// Makes sure that the ledger is there and has this binary's version (promise A9-34), which is the answer.
///
/// # Errors
/// [`SchemaError`], which names what is missing and the way out.
pub async fn check(target: &Target) -> Result<i32, SchemaError> {
    let mut session = Session::connect(target, &[]).await.map_err(connect_error)?;
    let missing = |missing| SchemaError::Missing { database: target.dbname.clone(), missing };
    for (table, name) in [
        ("countersign.schema_history", "ledger (schema countersign)"),
        ("countersign.mutation_audit", "table countersign.mutation_audit"),
        ("countersign.idempotency_guard", "table countersign.idempotency_guard"),
        ("countersign.undo_call", "table countersign.undo_call"),
        ("countersign.seal", "table countersign.seal"),
        ("countersign.proposal", "table countersign.proposal"),
    ] {
        let found = single(&mut session, "select to_regclass($1)::text", &[Some(table.to_owned())]).await?;
        found.ok_or_else(|| missing(name))?;
    }
    let newest = single(&mut session, "select max(version) from countersign.schema_history", &[]).await?;
    let found: i32 = newest.and_then(|version| version.parse().ok()).unwrap_or_default();
    let needed =
        embedded::migrations::runner().get_migrations().iter().map(Migration::version).max().unwrap_or_default();
    session.close().await;
    let advice = match found.cmp(&needed) {
        std::cmp::Ordering::Equal => return Ok(found),
        std::cmp::Ordering::Less => "run `countersign init` to bring it up to date",
        std::cmp::Ordering::Greater => "use a newer countersign",
    };
    Err(SchemaError::Version { database: target.dbname.clone(), found, needed, advice })
}

async fn single(session: &mut Session, sql: &str, params: &[Option<String>]) -> Result<Option<String>, pg::Error> {
    let step = Step { sql, params, param_types: &[] };
    let outcomes = session.run(&[step]).await.map_err(|failed| failed.error)?;
    Ok(outcomes
        .into_iter()
        .next()
        .and_then(|outcome| outcome.rows.into_iter().next())
        .and_then(|row| row.into_iter().next().flatten()))
}

/// Lets refinery run on a session of ours.
struct MigrationSession<'a>(&'a mut Session);

impl AsyncTransaction for MigrationSession<'_> {
    type Error = pg::Error;

    async fn execute<'a, T: Iterator<Item = &'a str> + Send + 'a>(
        &'a mut self,
        queries: T,
    ) -> Result<usize, pg::Error> {
        let queries: Vec<&str> = queries.collect();
        self.0.batch("begin").await?;
        for query in &queries {
            if let Err(error) = self.0.batch(query).await {
                self.0.batch("rollback").await?;
                return Err(error);
            }
        }
        self.0.batch("commit").await?;
        Ok(queries.len())
    }
}

impl AsyncQuery<Vec<Migration>> for MigrationSession<'_> {
    async fn query<'a>(&'a mut self, query: &'a str) -> Result<Vec<Migration>, pg::Error> {
        let outcomes = self.0.run(&[Step::plain(query)]).await.map_err(|failed| failed.error)?;
        let rows = outcomes.into_iter().flat_map(|outcome| outcome.rows);
        rows.map(|row| applied(row).ok_or_else(|| io::Error::other(format!("{HISTORY_TABLE} cannot be read")).into()))
            .collect()
    }
}

impl AsyncMigrate for MigrationSession<'_> {}

fn applied(row: Vec<Option<String>>) -> Option<Migration> {
    let [version, name, applied_on, checksum] = <[Option<String>; 4]>::try_from(row).ok()?;
    let applied_on = OffsetDateTime::parse(&applied_on?, &Rfc3339).ok()?;
    Some(Migration::applied(version?.parse().ok()?, name?, applied_on, checksum?.parse().ok()?))
}
