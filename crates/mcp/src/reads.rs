//! Reads of an account that take turns, where several accounts share a server: none has all sessions at work.

use types::{ErrorCode, Failure};

use crate::http::{Account, ReadPlace, TooManyReads};

/// A place for a read of this account, if it needs one.
///
/// # Errors
/// What it is told if none came free in its time.
pub(crate) async fn place(account: Option<&Account>) -> Result<Option<ReadPlace>, Failure> {
    let Some(account) = account else { return Ok(None) };
    account.read().await.map_err(|TooManyReads(most)| {
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
pub(crate) async fn in_time<T>(place: Option<&ReadPlace>, outcome: impl Future<Output = T>) -> Option<T> {
    match place.and_then(|place| place.until) {
        Some(until) => tokio::time::timeout_at(until, outcome).await.ok(),
        None => Some(outcome.await),
    }
}

/// What it is told then.
pub(crate) fn waited_too_long() -> Failure {
    let message = "Database query failed: Query timed out: it had waited for other reads of this account";
    Failure::new(ErrorCode::Timeout, message).hint("Ask again when fewer run at once.")
}
