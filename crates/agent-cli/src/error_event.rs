//! Creates the event that ends a failed request, from an error of [`pg`].

use pg::{ConnectError, ConnectOptions, ExecuteError, ServerError};

use crate::error::{CliError, EventErrorCode};
use crate::events::{Event, Notice, Request, SqlError};

/// Returns the terminal event of a failed request. `target` is the database of the request.
pub(crate) fn event(failed: ExecuteError, target: Option<&ConnectOptions>, request: &Request) -> Event {
    let (taken, receipt) = match &failed {
        ExecuteError::TooLarge { taken, .. } => (*taken, None),
        ExecuteError::CommitOutcomeUnknown { correlation_id, .. } => (None, correlation_id.clone()),
        _ => (None, None),
    };
    let mut event = match failed {
        ExecuteError::Sql(error) => sql_error(*error, request),
        other => request.failed(problem(other, target)),
    };
    if let Event::Error(error) = &mut event {
        error.correlation_id = receipt;
        (error.trace.row_count, error.trace.payload_bytes) = taken.unzip();
    }
    event
}

/// Adds a hint to the error of a write that is not allowed; `is_in_transaction` says where.
pub(crate) fn write_hint(failed: ExecuteError, is_in_transaction: bool) -> ExecuteError {
    let hint = if is_in_transaction {
        "Reading is the default: a transaction that may write begins with \"options\": {\"read_only\": false}."
    } else {
        "Reading is the default: --write, or \"options\": {\"read_only\": false}, lets a statement write."
    };
    match failed {
        ExecuteError::Sql(error) if error.sqlstate == READ_ONLY && error.hint.is_none() => {
            ExecuteError::Sql(Box::new(ServerError { hint: Some(hint.to_owned()), ..*error }))
        }
        other => other,
    }
}

/// SQLSTATE `read_only_sql_transaction`.
const READ_ONLY: &str = "25006";

fn sql_error(error: ServerError, request: &Request) -> Event {
    Event::SqlError(Box::new(SqlError {
        id: request.id.clone(),
        session: request.session.clone(),
        sqlstate: error.sqlstate,
        message: error.message,
        detail: error.detail,
        hint: error.hint,
        position: error.position.map(|position| position.to_string()),
        trace: request.trace(),
    }))
}

pub(crate) fn notice(notice: ServerError, request: &Request) -> Event {
    Event::Notice(Box::new(Notice {
        id: Some(request.id.clone()),
        session: request.session.clone(),
        severity: notice.severity,
        sqlstate: notice.sqlstate,
        message: notice.message,
        detail: notice.detail,
        hint: notice.hint,
        trace: request.trace(),
    }))
}

fn problem(failed: ExecuteError, target: Option<&ConnectOptions>) -> CliError {
    let message = failed.to_string();
    let (code, hint, retryable) = match failed {
        ExecuteError::Params(_) => (EventErrorCode::InvalidParams, None, false),
        ExecuteError::TooLarge { taken, .. } => {
            let hint = match taken {
                Some(_) => {
                    "select less, raise inline_max_rows or inline_max_bytes, or take the rows as they come: stream_rows"
                }
                None => "one row is too large: select less of it",
            };
            (EventErrorCode::ResultTooLarge, Some(hint.to_owned()), false)
        }
        ExecuteError::Unsupported { hint, .. } => (EventErrorCode::Unsupported, hint, false),
        ExecuteError::Cancelled => (EventErrorCode::Cancelled, None, false),
        ExecuteError::Connect(error) => return connect(&error, target),
        ExecuteError::Lost(_) => (EventErrorCode::ConnectionLost, None, true),
        ExecuteError::Ledger { hint, retryable, .. } => (EventErrorCode::Unsupported, hint, retryable),
        ExecuteError::CommitOutcomeUnknown { correlation_id, .. } => {
            let hint = match correlation_id {
                Some(_) => "look the correlation_id up in the audit before you repeat it",
                None => "look whether it was written before you repeat it",
            };
            (EventErrorCode::CommitOutcomeUnknown, Some(hint.to_owned()), false)
        }
        // An error of PostgreSQL has an event of its own.
        ExecuteError::Internal(_) | ExecuteError::Sql(_) => (EventErrorCode::InternalError, None, false),
    };
    CliError { code, message, hint, retryable }
}

fn connect(error: &ConnectError, target: Option<&ConnectOptions>) -> CliError {
    let place = target.map(|target| format!(" at [{}]", target.address())).unwrap_or_default();
    let message = match error {
        ConnectError::Authentication(said) => format!("the database{place} did not let us in: {said}"),
        ConnectError::DatabaseMissing(said) => format!("the server{place} has no such database: {said}"),
        _ => error.to_string(),
    };
    let (code, hint, retryable) = match error {
        ConnectError::Unreachable { is_transient, .. } => {
            let hint = "check host and port, and that PostgreSQL runs there and listens";
            (EventErrorCode::ConnectFailed, Some(hint), *is_transient)
        }
        ConnectError::TimedOut { .. } => {
            let hint = "check host and port, and that nothing in between drops the packets";
            (EventErrorCode::ConnectTimeout, Some(hint), true)
        }
        ConnectError::Authentication(_) => {
            let hint = "check user and password (user, password_secret), and what pg_hba.conf asks of them";
            (EventErrorCode::AuthFailed, Some(hint), false)
        }
        ConnectError::DatabaseMissing(_) => (EventErrorCode::ConnectFailed, Some("check dbname"), false),
        ConnectError::PasswordCommand { .. } => (EventErrorCode::ConnectFailed, None, true),
        ConnectError::Pooled { .. } => (EventErrorCode::ConnectFailed, None, false),
        ConnectError::Refused { error: said, .. } => {
            (EventErrorCode::ConnectFailed, said.hint.as_deref(), said.is_retryable())
        }
    };
    let origins = target.map(|target| format!("; connecting to {}", target.described())).unwrap_or_default();
    CliError { code, message: format!("{message}{origins}"), hint: hint.map(str::to_owned), retryable }
}
