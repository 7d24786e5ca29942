//! Detection of schema drift. A tool of a manifest was compiled for the database as it was at start-up. Its result must
//! not differ from its declared columns. PostgreSQL reports a statement that no longer prepares; the server compares
//! the result columns of a statement that still does.

use std::time::Duration;

use ledger::outdated;
use ledger::read::{Error, ReadError};
use types::{Column, ErrorCode, Failure, StatementShape};

/// Checks that a statement still has the result columns of start-up: the same names and types in the same order.
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

/// Failure of a tool that is not served, since it does not fit the database; `why` says what does not.
pub(crate) fn not_served(why: &str) -> Failure {
    Failure::new(ErrorCode::ToolOutdated, format!("this tool does not fit the database as it is now, and is not served: {why}"))
        .hint(
            "Nothing was changed. Tell the operator, who repairs the manifest or the database: `countersign check` names every \
             mistake, and docs/topics/migrations.md says what to do. Other tools work.",
        )
}

/// Failure for the agent when a read tool of a manifest fails.
pub(crate) fn read_failure(error: ReadError, deadline: Duration) -> Failure {
    match error {
        ReadError::Database(Error::Server(error)) if error.is_schema_drift() => {
            Failure { sqlstate: Some(error.sqlstate.clone()), ..outdated(&error.message) }
        }
        // The position in the manifest's SQL is useless to a caller, who does not see the SQL.
        error => Failure { position: None, ..catalog::read_failure(error, deadline) },
    }
}
