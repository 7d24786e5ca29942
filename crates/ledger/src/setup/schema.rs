//! The ledger's own schema: its migrations, and the check before a server starts.

use std::io;

use pg::value::text_array;
use pg::{ConnectOptions, OtherEngine, PipelineStatement, Pooler, Session};
use refinery_core::traits::r#async::{AsyncMigrate, AsyncQuery, AsyncTransaction};
use refinery_core::{Migration, Runner};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::time::Instant;

use crate::baseline::BASELINE;
use crate::setup::rows;
use crate::write::obstacle::LedgerObstacle;
use crate::{Ledger, SETUP_TIMEOUT};

const HISTORY_TABLE: &str = "countersign.schema_history";

/// The version of the schema that this binary needs: that of its last migration.
const VERSION: i32 = 1;

/// The versions of the schema. Each is one migration.
fn migrations() -> Result<Vec<Migration>, SchemaError> {
    let baseline: String = BASELINE.iter().map(|(_, sql)| *sql).collect();
    let baseline = Migration::unapplied(&format!("V{VERSION}__baseline"), &baseline);
    Ok(vec![baseline.map_err(|error| SchemaError::Migration(with_causes(&error)))?])
}

/// The reason why the schema cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SchemaError {
    /// The connection or the query failed.
    #[error(transparent)]
    Database(#[from] pg::Error),
    /// `init` was never run in this database, or an object was dropped later.
    #[error(
        "the database \"{database}\" has no {missing}: run `countersign init` on it first, or \
         `countersign init --schema SCHEMA --config FILE`, which also lets servers write the tables of a schema"
    )]
    Missing { database: String, missing: String },
    #[error("the ledger in database \"{database}\" has version {found} and this binary needs {needed}: {advice}")]
    Version { database: String, found: i32, needed: i32, advice: &'static str },
    #[error(
        "the ledger in database \"{database}\" has the format of an earlier version, which is not supported: export its records with \
         the countersign that made it (`countersign audit list --json --limit 10000`), then remove it (`drop schema countersign cascade`) and run \
         `countersign init` again. Nothing was changed"
    )]
    OldFormat { database: String },
    #[error(transparent)]
    Obstacle(Box<LedgerObstacle>),
    /// The feature that is not supported (0A000) is the ledger.
    #[error(
        "the database \"{database}\" is on {engine}, which cannot hold a ledger (0A000): {}. Nothing was changed. \
         Keep the ledger and the tables that tools write on PostgreSQL (docs/setup/databases.md)",
        lacks(*engine)
    )]
    OtherEngine { database: String, engine: OtherEngine },
    #[error(
        "this cannot be done through a connection pooler (pooler = \"transaction\"), since it takes a lock of a session: run it \
         once with a connection string of PostgreSQL itself, and without that setting"
    )]
    Pooled,
    #[error(
        "the role {user} may not make itself a member of countersign_owner, which another role has created: \
         run `grant countersign_owner to {user}` as an administrator first. Nothing was changed"
    )]
    NotAMember { user: String },
    #[error(
        "the role {user} may not set up the ledger in database \"{database}\" ({reason}): run init as the owner of the database \
         with CREATEROLE, or as a superuser, and not as the login of servers. Nothing was changed"
    )]
    NotAllowed { user: String, database: String, reason: String },
    /// Another user may have prepared the schema or the roles of the ledger, and could use them against the user that
    /// runs `init`.
    #[error(
        "database \"{database}\" has a schema countersign, or roles of this name, that cannot be trusted:\n  {}\n\
         Nothing was changed. If these objects are yours, give them to countersign_owner or to this login first; if not, drop them",
        problems.join("\n  ")
    )]
    Untrusted { database: String, problems: Vec<String> },
    /// The servers' login cannot get a password.
    #[error("{problem}. Nothing was changed")]
    WriterLogin { problem: String },
    /// The tables cannot be tracked as requested.
    #[error("{0}")]
    Tracking(String),
    #[error("the ledger's schema cannot be brought up to date: {0}")]
    Migration(String),
}

/// What the ledger needs and the engine lacks.
const fn lacks(engine: OtherEngine) -> &'static str {
    match engine {
        OtherEngine::CockroachDb => {
            "it has no system columns (xmin, ctid), no relation locks in pg_locks, and its advisory locks do not lock"
        }
        OtherEngine::YugabyteDb => {
            "it has no system columns (xmin, ctid), and no relation locks of all nodes in pg_locks"
        }
    }
}

/// Refuses an engine that speaks the protocol of PostgreSQL and cannot hold a ledger.
pub(crate) fn refuse_engine(session: &Session, database: &str) -> Result<(), SchemaError> {
    match session.other_engine() {
        Some(engine) => Err(SchemaError::OtherEngine { database: database.to_owned(), engine }),
        None => Ok(()),
    }
}

/// Refuses a pooler, because a migration needs one transaction on one session.
pub(crate) fn refuse_pooler(target: &ConnectOptions) -> Result<(), SchemaError> {
    if target.pooler == Pooler::None { Ok(()) } else { Err(SchemaError::Pooled) }
}

/// Applies the missing migrations in the open transaction, and returns the new version of the schema. Adds the
/// executed SQL to `statements`.
pub(crate) async fn migrate(session: &mut Session, statements: &mut Vec<String>) -> Result<i32, SchemaError> {
    let mut runner = Runner::new(&migrations()?);
    runner.set_migration_table_name(HISTORY_TABLE);
    let mut connection = MigrationSession { session, statements };
    runner.run_async(&mut connection).await.map_err(|error| SchemaError::Migration(with_causes(&error)))?;
    Ok(VERSION)
}

/// Refuses a ledger of the format before version 1: its tables differ, and its records cannot be migrated.
pub(crate) async fn refuse_old_format(session: &mut Session) -> Result<(), SchemaError> {
    let sql = "select pg_catalog.current_database()::text where pg_catalog.to_regclass('countersign.mutation_audit') is not null";
    let found = rows::<1>(session, sql, &[]).await?.into_iter().flatten().next();
    found.map_or(Ok(()), |database| Err(SchemaError::OldFormat { database }))
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

/// Whether the ledger has the format before version 1, and the first of these tables that is missing.
const TABLES_SQL: &str = "\
select pg_catalog.to_regclass('countersign.mutation_audit') is not null, \
    (select t.name from unnest($1::text[]) with ordinality t (name, no) \
     where pg_catalog.to_regclass('countersign.' || t.name) is null order by t.no limit 1)";

/// The table of the migrations comes first: without it there is no ledger.
const TABLES: [&str; 8] = ["schema_history", "attempt", "record", "effect", "reversal", "tracked", "leaf", "proposal"];

impl Ledger {
    /// Whether this database has a ledger of any version, even if this login may not use it.
    pub async fn exists(&self) -> Result<bool, pg::Error> {
        let sql = "select from pg_catalog.pg_namespace where nspname = 'countersign'";
        Ok(!self.rows(sql, &[]).await?.is_empty())
    }

    /// Whether this database has a ledger that this login may use. One that may only read tables is not served less where
    /// somebody has made a ledger.
    pub async fn is_open(&self) -> Result<bool, pg::Error> {
        let sql = "select from pg_catalog.pg_namespace n where n.nspname = 'countersign' \
                       and pg_catalog.has_schema_privilege(n.oid, 'usage')";
        Ok(!self.rows(sql, &[]).await?.is_empty())
    }

    /// Checks that the ledger exists and has this binary's version, and returns the version.
    ///
    /// # Errors
    /// [`SchemaError`]: what is missing or does not fit, or the query failed.
    pub async fn check(&self) -> Result<i32, SchemaError> {
        let database = self.database();
        let mut lease = self.writer.acquire(Instant::now() + SETUP_TIMEOUT).await?;
        refuse_engine(lease.session(), &database)?;
        drop(lease);
        let names = text_array(&TABLES.map(str::to_owned));
        let tables = self.rows(TABLES_SQL, &[Some(names)]).await?.into_iter().next().unwrap_or_default();
        let mut tables = tables.into_iter();
        if tables.next().flatten().as_deref() == Some("t") {
            return Err(SchemaError::OldFormat { database });
        }
        if let Some(table) = tables.next().flatten() {
            let missing = match table == TABLES[0] {
                true => "ledger (schema countersign)".to_owned(),
                false => format!("table countersign.{table}"),
            };
            return Err(SchemaError::Missing { database, missing });
        }
        let newest = self.rows("select max(version) from countersign.schema_history", &[]).await?;
        let newest = newest.into_iter().flatten().flatten().next();
        let found: i32 = newest.and_then(|version| version.parse().ok()).unwrap_or_default();
        let advice = match found.cmp(&VERSION) {
            std::cmp::Ordering::Equal => return Ok(found),
            std::cmp::Ordering::Less => "run `countersign init` to bring it up to date",
            std::cmp::Ordering::Greater => "use a newer countersign",
        };
        Err(SchemaError::Version { database, found, needed: VERSION, advice })
    }
}

/// Lets refinery run its migrations in the caller's transaction.
struct MigrationSession<'a> {
    session: &'a mut Session,
    statements: &'a mut Vec<String>,
}

impl AsyncTransaction for MigrationSession<'_> {
    type Error = pg::Error;

    async fn execute<'a, T: Iterator<Item = &'a str> + Send + 'a>(
        &'a mut self,
        queries: T,
    ) -> Result<usize, pg::Error> {
        let mut count = 0;
        for query in queries {
            self.session.batch_execute(query).await?;
            self.statements.push(query.trim_end().trim_end_matches(';').to_owned());
            count += 1;
        }
        Ok(count)
    }
}

impl AsyncQuery<Vec<Migration>> for MigrationSession<'_> {
    async fn query<'a>(&'a mut self, query: &'a str) -> Result<Vec<Migration>, pg::Error> {
        let outcomes =
            self.session.run(&[PipelineStatement::without_params(query)]).await.map_err(|failed| failed.error)?;
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
