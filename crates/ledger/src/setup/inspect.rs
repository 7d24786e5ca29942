//! Checks that the ledger's schema is the one that this binary creates, and that only its owner can run code through
//! it.

use std::collections::BTreeSet;
use std::fmt;

use pg::value::text_array;
use pg::{ConnectOptions, Session, SessionSettings};

use super::{Setup, privileges, rows};
use crate::roles::OWNER;
use crate::setup::schema::SchemaError;

/// The schema that `init` creates, in the form of `inventory.sql`. `UPDATE_GOLDEN=1` rewrites the file
/// (`tests/acceptance/hardening/inventory.rs`).
const EXPECTED: &str = include_str!("expected.txt");
const INVENTORY_SQL: &str = include_str!("inventory.sql");
const FOREIGN_SQL: &str = include_str!("foreign.sql");

/// The tables that `init` writes to.
const WRITTEN_TABLES: [&str; 5] =
    ["schema_history", "writer_login", "reader_login", "reader_relation", "reader_schema"];

/// A difference between the ledger's schema and the one that this binary creates. Objects are lines of
/// `inventory.sql`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Deviation {
    /// An object exists but should not.
    Unexpected(String),
    /// An object is missing or differs.
    Missing(String),
    /// An object belongs to another user, or could run another user's code.
    Foreign(String),
    /// A privilege that `init` does not grant: `EXECUTE on function countersign.sweep(interval, integer) to anna`.
    UnexpectedPrivilege(String),
}

impl fmt::Display for Deviation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unexpected(object) => write!(out, "unexpected: {object}"),
            Self::Missing(object) => write!(out, "missing or altered: {object}"),
            Self::Foreign(problem) => out.write_str(problem),
            Self::UnexpectedPrivilege(privilege) => write!(out, "unexpected privilege: {privilege}"),
        }
    }
}

/// The differences between the schema in the database and the one that this binary creates.
pub async fn deviations(target: &ConnectOptions) -> Result<Vec<Deviation>, pg::Error> {
    let mut session = Session::connect(target, &SessionSettings::default()).await?;
    let mut found = compare(&mut session).await?;
    let owner = "select pg_get_userbyid(n.nspowner) from pg_namespace n where n.nspname = 'countersign'";
    let owner: Vec<String> = rows::<1>(&mut session, owner, &[]).await?.into_iter().flatten().collect();
    let foreign = foreign(&mut session, &owner).await?;
    found.extend(foreign.into_iter().map(Deviation::Foreign));
    found.extend(privileges::unexpected(&mut session).await?.into_iter().map(Deviation::UnexpectedPrivilege));
    session.close().await;
    Ok(found)
}

pub(super) async fn compare(session: &mut Session) -> Result<Vec<Deviation>, pg::Error> {
    let found: Vec<String> = rows::<1>(session, INVENTORY_SQL, &[]).await?.into_iter().flatten().collect();
    let found: BTreeSet<&str> = found.iter().map(String::as_str).collect();
    let expected: BTreeSet<&str> = EXPECTED.lines().collect();
    let unexpected = found.difference(&expected).map(|line| Deviation::Unexpected((*line).to_owned()));
    let missing = expected.difference(&found).map(|line| Deviation::Missing((*line).to_owned()));
    Ok(unexpected.chain(missing).collect())
}

async fn foreign(session: &mut Session, trusted: &[String]) -> Result<Vec<String>, pg::Error> {
    let params = [Some(text_array(trusted))];
    Ok(rows::<1>(session, FOREIGN_SQL, &params).await?.into_iter().flatten().collect())
}

impl Setup {
    /// Refuses a schema that another user may have prepared. Returns whether the schema exists. Until the transaction
    /// ends, no other session can attach a trigger or rule to the tables that `init` writes to.
    pub(super) async fn inspect_schema(&mut self) -> Result<bool, SchemaError> {
        let exists = "select n.nspname from pg_namespace n where n.nspname = 'countersign'";
        if self.rows::<1>(exists, &[]).await?.is_empty() {
            return Ok(false);
        }
        // The role may lack the privilege to lock the tables of a prepared schema, so their owners are checked first.
        let trusted = [self.user.clone(), OWNER.to_owned()];
        self.refuse_foreign(&trusted).await?;
        for table in WRITTEN_TABLES {
            let sql = "select c.relname from pg_class c where c.oid = to_regclass($1) and c.relkind = 'r'";
            let name = format!("countersign.{table}");
            if !self.rows::<1>(sql, &[Some(name.clone())]).await?.is_empty() {
                self.session.batch_execute(&format!("lock table {name} in share row exclusive mode")).await?;
            }
        }
        // Checks again, now that the locks prevent changes.
        self.refuse_foreign(&trusted).await?;
        Ok(true)
    }

    /// The privileges on the ledger that `init` does not grant, each as a phrase.
    pub(crate) async fn unexpected_privileges(&mut self) -> Result<Vec<String>, pg::Error> {
        privileges::unexpected(&mut self.session).await
    }

    /// Refuses a ledger that is not as `init` made it.
    pub(crate) async fn refuse_altered_ledger(&mut self) -> Result<(), SchemaError> {
        let deviations = compare(&mut self.session).await?;
        if deviations.is_empty() {
            return Ok(());
        }
        let problems = deviations.iter().map(ToString::to_string).collect();
        Err(SchemaError::Untrusted { database: self.dbname.clone(), problems })
    }

    async fn refuse_foreign(&mut self, trusted: &[String]) -> Result<(), SchemaError> {
        let problems = foreign(&mut self.session, trusted).await?;
        if problems.is_empty() {
            Ok(())
        } else {
            Err(SchemaError::Untrusted { database: self.dbname.clone(), problems })
        }
    }
}
