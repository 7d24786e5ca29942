//! Detects schema drift. A manifest tool was compiled for the database as it was then, and its result must keep the
//! declared columns. PostgreSQL reports a statement that can no longer be prepared; for other statements, the server
//! compares the result columns.

use std::time::Duration;

use ledger::outdated;
use ledger::read::{Error, ReadError};
use types::{Column, ErrorCode, Failure, StatementShape};

/// Checks that a statement returns the columns that it had when it was compiled: the same names and types in the same
/// order.
///
/// # Errors
/// [`types::ErrorCode::ToolOutdated`], with the first difference, if the columns differ.
pub(crate) fn check(promised: &StatementShape, found: &[Column]) -> Result<(), Failure> {
    let promised = promised.columns.as_deref().unwrap_or_default();
    let shown = |column: Option<&Column>| {
        column.map_or_else(|| "nothing".to_owned(), |column| format!("{} ({})", column.name, column.ty.name))
    };
    let columns = promised.len().max(found.len());
    let differing = (0..columns).map(|index| (promised.get(index), found.get(index))).find(|(promised, found)| {
        let key = |column: &Column| (column.name.clone(), column.ty.base().oid);
        promised.map(key) != found.map(key)
    });
    match differing {
        None => Ok(()),
        Some((promised, found)) => {
            let why = format!("a result column was {} and is {} now", shown(promised), shown(found));
            Err(outdated(&why))
        }
    }
}

/// The failure of a tool that is not served because it does not fit the database; `why` is the reason.
pub(crate) fn not_served(why: &str) -> Failure {
    Failure::new(ErrorCode::ToolOutdated, format!("this tool does not fit the database as it is now, and is not served: {why}"))
        .hint(
            "Nothing was changed. Tell the operator, who repairs the manifest or the database: `countersign check` names every \
             mistake, and docs/topics/migrations.md says what to do. Other tools work.",
        )
}

/// The failure for the agent if a read tool of a manifest fails.
pub(crate) fn read_failure(error: ReadError, timeout: Duration) -> Failure {
    match error {
        ReadError::Database(Error::Server(error)) if error.is_schema_drift() => {
            Failure { sqlstate: Some(error.sqlstate.clone()), ..outdated(&error.message) }
        }
        // The caller does not see the manifest's SQL, so a position in it is useless.
        error => Failure { position: None, ..catalog::read_failure(error, timeout) },
    }
}
