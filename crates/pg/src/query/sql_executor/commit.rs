//! COMMIT, and how long a server is waited for.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::ExecuteError;
use crate::client::pool::PooledSession;

/// How much longer than its own timeout a statement's server may be silent before it counts as gone. BEGIN and ROLLBACK, which
/// wait for nobody, get this alone.
pub(crate) const READ_TIMEOUT_MARGIN: Duration = Duration::from_secs(4);

/// Waiting for a connection has no end of its own: whoever waits can cancel.
pub(super) const NO_DEADLINE: Duration = Duration::from_secs(365 * 24 * 3600);

/// How long the server of a statement with this timeout may be silent; zero is for as long as it likes.
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

/// Commits what the session has open. What was in it stands or does not: nothing else may be said than what the server says.
/// Deferred triggers may take as long as a statement; zero is for as long as they like.
pub(super) async fn commit(lease: &mut PooledSession, statement_timeout: Duration) -> Result<String, ExecuteError> {
    let session = lease.session();
    session.connection.read_timeout = read_timeout(statement_timeout);
    let within = session.connection.read_timeout.unwrap_or(NO_DEADLINE);
    let Ok(committed) = tokio::time::timeout(within, session.commit_block()).await else {
        // A cancel request would have to wait for it, too, and could only make a COMMIT worse.
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
