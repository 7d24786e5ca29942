//! Hints of the command line: those that an agent's query gets.

use agent_cli::executor::{ExecuteError, NamedSession};
use ledger::read::{ReadLimits, Reader, SearchPath};
use tokio::time::Instant;
use types::{ErrorCode, Failure};

use catalog::{CatalogNames, PATIENCE};

/// The error; if PostgreSQL refuses the statement, with the hint that the catalog has for it. Names are read over a connection of
/// their own, which ends with the error.
pub(super) async fn hinted(place: &NamedSession, sql: &str, error: ExecuteError) -> ExecuteError {
    let ExecuteError::Sql(mut error) = error else { return error };
    let failure = Failure {
        sqlstate: Some(error.sqlstate.clone()),
        hint: error.hint.clone(),
        position: error.position,
        ..Failure::new(ErrorCode::SqlError, error.message.clone())
    };
    let limits = ReadLimits { sessions: 1, ..ReadLimits::default() };
    let names = CatalogNames::new(Reader::new(place.target.clone(), &SearchPath::default(), limits));
    error.hint = catalog::corrected(&names, sql, failure, Instant::now() + PATIENCE).await.hint;
    ExecuteError::Sql(error)
}
