//! Creates the event that ends a failed request, from an error of [`pg`].

use pg::{ConnectError, ConnectOptions, ExecuteError, ServerError};

use crate::error::{CliError, EventErrorCode};
use crate::events::{Event, Notice, SqlError, Trace};

#[derive(Debug, Clone)]
pub(crate) struct RequestEnd {
    pub(crate) id: String,
    pub(crate) session: String,
    pub(crate) trace: Trace,
}

/// Returns the terminal event of a failed request. `target` is the database of the request.
pub(crate) fn event(failed: ExecuteError, target: Option<&ConnectOptions>, ended: RequestEnd) -> Event {
    match failed {
        ExecuteError::Sql(error) => sql_error(*error, ended),
        ExecuteError::CommitOutcomeUnknown { message, correlation_id } => {
            let hint = if correlation_id.is_some() {
                "look the correlation_id up in the audit before you repeat it"
            } else {
                "look whether it was written before you repeat it"
            };
            let problem = CliError::new(EventErrorCode::CommitOutcomeUnknown, message).hint(hint);
            with_receipt(Event::error(Some(ended.id), problem, ended.trace.duration_ms), correlation_id)
        }
        other => {
            let taken = match &other {
                ExecuteError::TooLarge { taken, .. } => *taken,
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

fn sql_error(error: ServerError, ended: RequestEnd) -> Event {
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

pub(crate) fn notice(notice: ServerError, ended: RequestEnd) -> Event {
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

fn problem(failed: ExecuteError, target: Option<&ConnectOptions>) -> CliError {
    let message = failed.to_string();
    match failed {
        ExecuteError::Params(_) => CliError::new(EventErrorCode::InvalidParams, message),
        ExecuteError::TooLarge { taken: Some(_), .. } => CliError::new(EventErrorCode::ResultTooLarge, message)
            .hint("select less, raise inline_max_rows or inline_max_bytes, or take the rows as they come: stream_rows"),
        ExecuteError::TooLarge { taken: None, .. } => {
            CliError::new(EventErrorCode::ResultTooLarge, message).hint("one row is too large: select less of it")
        }
        ExecuteError::Unsupported { hint, .. } => {
            CliError { hint, ..CliError::new(EventErrorCode::Unsupported, message) }
        }
        ExecuteError::Cancelled => CliError::new(EventErrorCode::Cancelled, message),
        ExecuteError::Connect(error) => connect(&error, target),
        ExecuteError::Lost(_) => CliError::new(EventErrorCode::ConnectionLost, message).retryable(true),
        ExecuteError::Ledger { hint, retryable, .. } => {
            CliError { hint, ..CliError::new(EventErrorCode::Unsupported, message) }.retryable(retryable)
        }
        ExecuteError::Internal(_) => CliError::new(EventErrorCode::InternalError, message),
        // These errors have events of their own.
        ExecuteError::Sql(_) | ExecuteError::CommitOutcomeUnknown { .. } => {
            CliError::new(EventErrorCode::InternalError, message)
        }
    }
}

fn connect(error: &ConnectError, target: Option<&ConnectOptions>) -> CliError {
    let place = target.map(|target| format!(" at [{}]", target.address())).unwrap_or_default();
    let problem = match error {
        ConnectError::Unreachable { is_transient, .. } => {
            CliError::new(EventErrorCode::ConnectFailed, error.to_string())
                .hint("check host and port, and that PostgreSQL runs there and listens")
                .retryable(*is_transient)
        }
        ConnectError::TimedOut { .. } => CliError::new(EventErrorCode::ConnectTimeout, error.to_string())
            .hint("check host and port, and that nothing in between drops the packets")
            .retryable(true),
        ConnectError::Authentication(said) => {
            CliError::new(EventErrorCode::AuthFailed, format!("the database{place} did not let us in: {said}"))
                .hint("check user and password (user, password_secret), and what pg_hba.conf asks of them")
        }
        ConnectError::DatabaseMissing(said) => {
            CliError::new(EventErrorCode::ConnectFailed, format!("the server{place} has no such database: {said}"))
                .hint("check dbname")
        }
        ConnectError::Pooled { .. } => CliError::new(EventErrorCode::ConnectFailed, error.to_string()),
        ConnectError::Refused { error: said, .. } => {
            let problem =
                CliError::new(EventErrorCode::ConnectFailed, error.to_string()).retryable(said.is_retryable());
            CliError { hint: said.hint.clone(), ..problem }
        }
    };
    let origins = target.map(|target| format!("; connecting to {}", target.described())).unwrap_or_default();
    CliError { message: format!("{}{origins}", problem.message), ..problem }
}
