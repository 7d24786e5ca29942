//! What helps a model to correct its query: the line that PostgreSQL points to, and what a word was most likely meant to
//! be.

use std::time::Duration;

use contract::{ErrorCode, Failure};
use ledger::read::Reader;
use tokio::time::Instant;

use super::form;
use super::place::line_at;
use super::suggestion::suggestion;

/// How long looking for names may take beyond the failed query itself.
const PATIENCE: Duration = Duration::from_secs(2);

/// The failure of `query` with all the help that can be had before `deadline`. Whatever goes wrong while looking for
/// it, the failure stays what it was.
pub(crate) async fn corrected(reader: &Reader, query: &str, failure: Failure, deadline: Instant) -> Failure {
    let mut failure = failure;
    if failure.detail.is_none() {
        failure.detail = failure.position.and_then(|position| line_at(query, position));
    }
    if let Some(hint) = form::hint(query, &failure) {
        return failure.hint(hint);
    }
    if !matches!(failure.code, ErrorCode::SqlError | ErrorCode::NotPermitted | ErrorCode::InvalidParams) {
        return failure;
    }
    let until = deadline.min(Instant::now() + PATIENCE);
    match tokio::time::timeout_at(until, suggestion(reader, query, &failure)).await {
        Ok(Ok(Some(suggestion))) => {
            failure.hint = Some(match failure.hint.take() {
                Some(hint) => format!("{hint} {suggestion}"),
                None => suggestion,
            });
        }
        Ok(Ok(None)) => {}
        Ok(Err(error)) => tracing::debug!(%error, "no names could be looked up for a hint"),
        Err(_) => tracing::debug!("looking up names for a hint took too long"),
    }
    failure
}
