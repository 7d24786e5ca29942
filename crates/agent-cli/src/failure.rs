//! What [`pg`] says went wrong, as the event that ends a request.

use pg::{ConnectError, Failed, ServerError, Target};

use crate::events::{Event, Notice, SqlError, Trace};
use crate::problem::{ErrorCode, Problem};

/// Of which request, and how long it took.
#[derive(Debug, Clone)]
pub(crate) struct Ended {
    pub(crate) id: String,
    pub(crate) session: String,
    pub(crate) trace: Trace,
}

/// The terminal event of a request that failed. `target` is where it was to run.
pub(crate) fn event(failed: Failed, target: Option<&Target>, ended: Ended) -> Event {
    match failed {
        Failed::Sql(error) => sql_error(*error, ended),
        Failed::CommitOutcomeUnknown { message, correlation_id } => {
            let hint = if correlation_id.is_some() {
                "look the correlation_id up in the audit before you repeat it"
            } else {
                "look whether it was written before you repeat it"
            };
            let problem = Problem::new(ErrorCode::CommitOutcomeUnknown, message).hint(hint);
            with_receipt(Event::error(Some(ended.id), problem, ended.trace.duration_ms), correlation_id)
        }
        other => {
            let taken = match &other {
                Failed::TooLarge { taken, .. } => *taken,
                _ => None,
            };
            let mut event = Event::error(Some(ended.id), problem(other, target), ended.trace.duration_ms);
            if let (Event::Error(error), Some((rows, bytes))) = (&mut event, taken) {
                (error.trace.row_count, error.trace.payload_bytes) = (Some(rows), Some(bytes));
            }
            event
        }
    }
}

fn with_receipt(mut event: Event, receipt: Option<String>) -> Event {
    if let Event::Error(error) = &mut event {
        error.correlation_id = receipt;
    }
    event
}

/// What a write is told that is not allowed to be one; `is_in_transaction` says where.
pub(crate) fn write_hint(failed: Failed, is_in_transaction: bool) -> Failed {
    let hint = if is_in_transaction {
        "Reading is the default: a transaction that may write begins with \"options\": {\"read_only\": false}."
    } else {
        "Reading is the default: --write, or \"options\": {\"read_only\": false}, lets a statement write."
    };
    match failed {
        Failed::Sql(error) if error.sqlstate == READ_ONLY && error.hint.is_none() => {
            Failed::Sql(Box::new(ServerError { hint: Some(hint.to_owned()), ..*error }))
        }
        other => other,
    }
}

/// `read_only_sql_transaction`.
const READ_ONLY: &str = "25006";

fn sql_error(error: ServerError, ended: Ended) -> Event {
    Event::SqlError(Box::new(SqlError {
        id: Some(ended.id),
        session: Some(ended.session),
        sqlstate: error.sqlstate,
        message: error.message,
        detail: error.detail,
        hint: error.hint,
        position: error.position.map(|position| position.to_string()),
        trace: ended.trace,
    }))
}

/// A notice that PostgreSQL raised on the way.
pub(crate) fn notice(notice: ServerError, ended: Ended) -> Event {
    Event::Notice(Box::new(Notice {
        id: Some(ended.id),
        session: Some(ended.session),
        severity: notice.severity,
        sqlstate: notice.sqlstate,
        message: notice.message,
        detail: notice.detail,
        hint: notice.hint,
        trace: ended.trace,
    }))
}

fn problem(failed: Failed, target: Option<&Target>) -> Problem {
    let message = failed.to_string();
    match failed {
        Failed::Params(_) => Problem::new(ErrorCode::InvalidParams, message),
        Failed::TooLarge { taken: Some(_), .. } => Problem::new(ErrorCode::ResultTooLarge, message)
            .hint("select less, raise inline_max_rows or inline_max_bytes, or take the rows as they come: stream_rows"),
        Failed::TooLarge { taken: None, .. } => {
            Problem::new(ErrorCode::ResultTooLarge, message).hint("one row is too large: select less of it")
        }
        Failed::Unsupported { hint, .. } => Problem { hint, ..Problem::new(ErrorCode::Unsupported, message) },
        Failed::Cancelled => Problem::new(ErrorCode::Cancelled, message),
        Failed::Connect(error) => connect(&error, target),
        Failed::Lost(_) => Problem::new(ErrorCode::ConnectionLost, message).retryable(true),
        Failed::Ledger { hint, retryable, .. } => {
            Problem { hint, ..Problem::new(ErrorCode::Unsupported, message) }.retryable(retryable)
        }
        Failed::Internal(_) => Problem::new(ErrorCode::InternalError, message),
        // Both are made into events of their own.
        Failed::Sql(_) | Failed::CommitOutcomeUnknown { .. } => Problem::new(ErrorCode::InternalError, message),
    }
}

fn connect(error: &ConnectError, target: Option<&Target>) -> Problem {
    let place = target.map(|target| format!(" at [{}]", target.place())).unwrap_or_default();
    let problem = match error {
        ConnectError::Unreachable { is_passing, .. } => Problem::new(ErrorCode::ConnectFailed, error.to_string())
            .hint("check host and port, and that PostgreSQL runs there and listens")
            .retryable(*is_passing),
        ConnectError::TimedOut { .. } => Problem::new(ErrorCode::ConnectTimeout, error.to_string())
            .hint("check host and port, and that nothing in between drops the packets")
            .retryable(true),
        ConnectError::Authentication(said) => {
            Problem::new(ErrorCode::AuthFailed, format!("the database{place} did not let us in: {said}"))
                .hint("check user and password (user, password_secret), and what pg_hba.conf asks of them")
        }
        ConnectError::DatabaseMissing(said) => {
            Problem::new(ErrorCode::ConnectFailed, format!("the server{place} has no such database: {said}"))
                .hint("check dbname")
        }
        ConnectError::Pooled { .. } => Problem::new(ErrorCode::ConnectFailed, error.to_string()),
        ConnectError::Refused { error: said, .. } => {
            let problem = Problem::new(ErrorCode::ConnectFailed, error.to_string()).retryable(said.retryable());
            Problem { hint: said.hint.clone(), ..problem }
        }
    };
    let origins = target.map(|target| format!("; connecting to {}", target.described())).unwrap_or_default();
    Problem { message: format!("{}{origins}", problem.message), ..problem }
}
