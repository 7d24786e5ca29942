//! Errors of writes, and the failures that agents get for them.

use pg::{ServerError, outage};
use serde_json::Value;
use types::{CorrelationId, ErrorCode, Failure};

use crate::evidence::conflicts;

/// The SQLSTATE if another server has ended the attempt, or its claim was refused (see the migrations).
pub(crate) const FENCED: &str = "CS001";

/// A failed write. `correlation_id` is present if the call has a record.
#[derive(Debug, Clone, PartialEq)]
pub struct WriteError {
    pub correlation_id: Option<CorrelationId>,
    pub failure: Box<Failure>,
}

impl From<Failure> for WriteError {
    fn from(failure: Failure) -> Self {
        Self { correlation_id: None, failure: failure.into() }
    }
}

/// The reason why an executor failed.
#[derive(Debug)]
pub enum ExecutorError {
    /// The executor refuses the write, with the failure for the agent.
    Rejected(Failure),
    /// The transaction cannot continue. The gate resolves the outcome.
    ConnectionLost(pg::Error),
}

impl From<Failure> for ExecutorError {
    fn from(failure: Failure) -> Self {
        Self::Rejected(failure)
    }
}

pub(crate) fn transaction_ended() -> ExecutorError {
    ExecutorError::ConnectionLost(pg::Error::Lost(std::io::Error::other("a statement ended the write's transaction")))
}

/// The failure of a tool that no longer fits the database; `why` says what has changed.
#[must_use]
pub fn outdated(why: &str) -> Failure {
    Failure::new(
        ErrorCode::ToolOutdated,
        format!("the database has changed since the server started, and this tool cannot be used until it is reloaded: {why}"),
    )
    .hint(
        "Nothing was changed. The server looks for changes of the database every minute and will reload its tools by itself. If this \
         lasts, tell the operator: `countersign check` says what does not fit.",
    )
}

pub(crate) fn too_large() -> Failure {
    Failure::new(
        ErrorCode::ResultTooLarge,
        "the statements of the write, with what its tool's before and after queries capture, return more than a call \
         may hold (1 MiB in one row, 8 MiB in all); nothing was written",
    )
}

/// The failure for an error in a statement of a manifest, which was valid when the server compiled it.
pub(crate) fn statement_failure(error: &ServerError) -> Failure {
    if error.is_schema_drift() {
        let why = format!("its statement no longer fits ({})", error.message);
        return Failure { sqlstate: Some(error.sqlstate.clone()), ..outdated(&why) };
    }
    sql_failure(error)
}

/// The failure for an error of PostgreSQL in a write.
///
/// DETAIL is omitted: it quotes values of rows that the caller may not be allowed to read.
pub(crate) fn sql_failure(error: &ServerError) -> Failure {
    let code = match error.sqlstate.as_str() {
        "57014" => ErrorCode::Timeout,
        // Class 22 (data exception): a value is not valid for its type.
        state if state.starts_with("22") => ErrorCode::InvalidParams,
        _ => ErrorCode::SqlError,
    };
    Failure {
        retryable: code.retryable() || error.is_retryable(),
        sqlstate: Some(error.sqlstate.clone()),
        hint: error.hint.clone(),
        ..Failure::new(code, error.message.clone())
    }
}

pub(crate) fn internal_error() -> Failure {
    Failure::new(ErrorCode::InternalError, "internal server error; see the server log for the correlation id")
}

pub(crate) fn aborted() -> Failure {
    Failure::new(
        ErrorCode::InDoubtAborted,
        "the connection was lost before the write committed; nothing was written, and the call can be repeated",
    )
}

/// The failure of a duplicate whose original is no longer in force. `detail` comes from `countersign.superseded_by`
/// or `countersign.changed_since`.
pub(crate) fn superseded(original: CorrelationId, detail: &Value) -> Failure {
    let by = detail.get("by").or_else(|| detail.pointer("/changed_by/correlation_id")).and_then(Value::as_str);
    let by = by.map_or_else(|| "something outside countersign".to_owned(), |by| format!("the write {by}"));
    let what = if is_reversed(detail) { "was undone by" } else { "has rows that were changed since by" };
    Failure::new(
        ErrorCode::Superseded,
        format!("an identical call has written ({original}), and that write {what} {by}; this call wrote nothing"),
    )
    .hint("To write again, repeat the call with a new idempotency_key.")
}

/// The failure of an undo whose write another call has undone before; `detail` says what happened after that.
pub(crate) fn undone_before(by: Option<CorrelationId>, detail: &Value) -> Failure {
    let failure = conflicts::already_reversed(by);
    match detail.get("by").and_then(Value::as_str).filter(|_| is_reversed(detail)) {
        Some(redo) => failure.hint(format!("That undo was undone by {redo}: to undo the write again, undo {redo}.")),
        None => failure,
    }
}

fn is_reversed(detail: &Value) -> bool {
    detail.get("reason").is_some_and(|reason| reason == "reversed")
}

pub(crate) fn frozen() -> Failure {
    Failure::new(ErrorCode::AccountFrozen, "writes of this account or actor are stopped; nothing was written")
        .hint("The operator can let them go on: countersign unfreeze.")
}

pub(crate) fn key_reused() -> Failure {
    Failure::new(
        ErrorCode::IdempotencyKeyReused,
        "this idempotency_key was used with other arguments within the last 24 hours; nothing was written",
    )
    .hint("Repeat the call with the very same arguments, or choose a new idempotency_key for a new write.")
}

/// The failure when the ledger is unavailable. The error itself only goes to the server's log, because it may name
/// tables and hosts.
pub(crate) fn ledger_failure(error: &pg::Error) -> Failure {
    outage::log(error, "the ledger cannot be used");
    match error {
        pg::Error::Connect(error) => {
            Failure { message: format!("{error}; nothing was written"), ..Failure::from(error) }
        }
        pg::Error::PoolTimeout { .. } => {
            Failure::new(ErrorCode::DatabaseUnavailable, format!("{error}; nothing was written"))
                .hint("Call again when fewer writes run. The operator can raise write_sessions or call_deadline_ms.")
        }
        pg::Error::Deadline => Failure::new(
            ErrorCode::DatabaseUnavailable,
            "the ledger did not answer before the deadline; nothing was written",
        ),
        // A character of the call that the encoding of the database lacks.
        pg::Error::Server(error) if error.sqlstate == "22P05" => Failure {
            sqlstate: Some(error.sqlstate.clone()),
            ..Failure::new(ErrorCode::InvalidParams, format!("{}; nothing was written", error.message))
                .hint("The database has another encoding than UTF-8. Leave the character out, also in `reason`.")
        },
        pg::Error::Server(error) => Failure {
            sqlstate: Some(error.sqlstate.clone()),
            ..Failure::new(ErrorCode::DbError, "the ledger cannot be written, so nothing was written")
        },
        _ => Failure::new(ErrorCode::DbError, "the connection to the ledger was lost; nothing was written"),
    }
}

pub(crate) fn unanswered(correlation_id: Option<CorrelationId>, error: &pg::Error) -> WriteError {
    WriteError { correlation_id, failure: ledger_failure(error).into() }
}
