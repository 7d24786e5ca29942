//! Hints that help a model to correct its query: the line to which PostgreSQL points, and the names or keywords that
//! were probably meant.

use std::time::Duration;

use tokio::time::Instant;
use types::{DescribeError, ErrorCode, Failure};

use crate::error_position::{line_at, name_at};
use crate::form;
use crate::names::CatalogNames;
use crate::suggestion::suggestion;

/// The time limit of the search for hints, in addition to that of the failed query.
pub const HINT_TIMEOUT: Duration = Duration::from_secs(2);

/// A hint that helps an operator to correct a statement of a manifest, in addition to PostgreSQL's own hint.
pub async fn statement_hint(names: &CatalogNames, sql: &str, error: &DescribeError) -> Option<String> {
    let DescribeError::Refused { message, sqlstate, hint, position } = error else { return None };
    let failure = Failure {
        sqlstate: Some(sqlstate.clone()),
        hint: hint.clone(),
        position: *position,
        ..Failure::new(ErrorCode::SqlError, message.clone())
    };
    let unqualified = sqlstate == UNDEFINED_TABLE && position.is_some_and(|at| name_at(sql, at).parts.len() == 1);
    let rule = unqualified.then(|| QUALIFY.to_owned());
    let hints = [rule, with_suggestion(names, sql, failure, Instant::now() + HINT_TIMEOUT).await.hint];
    Some(hints.into_iter().flatten().collect::<Vec<_>>().join(" ")).filter(|hint| !hint.is_empty())
}

/// The SQLSTATE of a table that does not exist.
pub(crate) const UNDEFINED_TABLE: &str = "42P01";

const QUALIFY: &str =
    "A manifest writes tables with their schema: its statements run with pg_catalog alone as search_path.";

/// Adds all hints to the failure of `query` that are found before `deadline`. If the search fails, the failure stays
/// unchanged.
pub async fn corrected(names: &CatalogNames, query: &str, failure: Failure, deadline: Instant) -> Failure {
    let mut failure = failure;
    if failure.detail.is_none() {
        failure.detail = failure.position.and_then(|position| line_at(query, position));
    }
    match form::hint(query, &failure) {
        Some(hint) => failure.hint(hint),
        None => with_suggestion(names, query, failure, deadline).await,
    }
}

async fn with_suggestion(names: &CatalogNames, query: &str, mut failure: Failure, deadline: Instant) -> Failure {
    if !matches!(failure.code, ErrorCode::SqlError | ErrorCode::NotPermitted | ErrorCode::InvalidParams) {
        return failure;
    }
    let until = deadline.min(Instant::now() + HINT_TIMEOUT);
    match tokio::time::timeout_at(until, suggestion(names, query, &failure)).await {
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
