//! COMMIT, and how long a server may be silent.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::ExecuteError;
use crate::client::pool::PooledSession;

/// How much longer than the statement timeout a server may be silent before the connection counts as lost. For BEGIN
/// and ROLLBACK this is the whole limit.
pub(crate) const READ_TIMEOUT_MARGIN: Duration = Duration::from_secs(4);

/// The wait for a connection has no time limit: its caller can cancel.
pub(super) const NO_DEADLINE: Duration = Duration::from_secs(365 * 24 * 3600);

/// How long the server of a statement with this timeout may be silent; zero means no limit.
pub(crate) fn read_timeout(statement_timeout: Duration) -> Option<Duration> {
    Some(statement_timeout).filter(|it| !it.is_zero()).map(|it| it + READ_TIMEOUT_MARGIN)
}

pub(super) async fn unless_cancelled<T>(
    cancel: &CancellationToken,
    work: impl Future<Output = Result<T, ExecuteError>>,
) -> Result<T, ExecuteError> {
    tokio::select! {
        biased;
        () = cancel.cancelled() => Err(ExecuteError::Cancelled),
        outcome = work => outcome,
    }
}

/// Commits the open transaction, and returns only an outcome that the server has reported. Deferred triggers may take
/// as long as a statement. A `statement_timeout` of zero means no limit.
pub(super) async fn commit(lease: &mut PooledSession, statement_timeout: Duration) -> Result<String, ExecuteError> {
    let session = lease.session();
    session.connection.read_timeout = read_timeout(statement_timeout);
    let within = session.connection.read_timeout.unwrap_or(NO_DEADLINE);
    let Ok(committed) = tokio::time::timeout(within, session.commit_block()).await else {
        // A cancel request would have to wait as well, and could only make the outcome worse.
        session.connection.poison(&crate::Error::Deadline);
        return Err(unknown("the server did not answer to COMMIT"));
    };
    let outcome = committed.map_err(|error| match error {
        crate::Error::Server(error) => ExecuteError::Sql(error),
        error => unknown(&format!("the connection was lost while it committed ({error})")),
    });
    session.leave_block("").await;
    outcome
}

fn unknown(why: &str) -> ExecuteError {
    ExecuteError::CommitOutcomeUnknown {
        message: format!("{why}: the write may or may not have happened"),
        correlation_id: None,
    }
}
