//! Reads of an account that take turns, where several accounts share a server: none has all sessions at work.

use types::{ErrorCode, Failure};

use crate::http::{AccountUsage, ReadLimitError, ReadPermit};

/// A place for a read of this account, if it needs one.
///
/// # Errors
/// What it is told if none came free in its time.
pub(crate) async fn acquire(account: Option<&AccountUsage>) -> Result<Option<ReadPermit>, Failure> {
    let Some(account) = account else { return Ok(None) };
    account.acquire_read().await.map_err(|ReadLimitError(most)| {
        let message = format!(
            "Database query failed: this account has {most} reads at work, as many as it may have at once, and none ended in time"
        );
        Failure::new(ErrorCode::DatabaseUnavailable, message).hint(
            "The query was not started: ask again when fewer run at once. The operator can raise http.reads, read_sessions or \
             query_timeout_ms.",
        )
    })
}

/// The outcome; `None` if it does not come in the time of a read that had to wait for its place: dropping it frees its backend.
pub(crate) async fn within_deadline<T>(permit: Option<&ReadPermit>, outcome: impl Future<Output = T>) -> Option<T> {
    match permit.and_then(|permit| permit.deadline) {
        Some(deadline) => tokio::time::timeout_at(deadline, outcome).await.ok(),
        None => Some(outcome.await),
    }
}

/// What it is told then.
pub(crate) fn timed_out() -> Failure {
    let message = "Database query failed: Query timed out: it had waited for other reads of this account";
    Failure::new(ErrorCode::Timeout, message).hint("Ask again when fewer run at once.")
}
