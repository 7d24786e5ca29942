//! Failures of the gate as errors of the command line.

use agent_cli::executor::{ExecuteError, ServerError};
use ledger::{ExecutorError, WriteError};
use types::{ErrorCode, Failure};

/// The error of a write that the gate did not execute.
pub(super) fn failed(stopped: &WriteError) -> ExecuteError {
    match stopped.failure.code {
        ErrorCode::CommitOutcomeUnknown => ExecuteError::CommitOutcomeUnknown {
            message: stopped.failure.message.clone(),
            correlation_id: stopped.correlation_id.map(|id| id.to_string()),
        },
        _ => of_failure(&stopped.failure),
    }
}

fn of_failure(failure: &Failure) -> ExecuteError {
    match (failure.code, &failure.sqlstate) {
        (ErrorCode::SqlError | ErrorCode::InvalidParams | ErrorCode::Timeout, Some(sqlstate)) => {
            let ExecuteError::Sql(mut error) = sql(sqlstate, &failure.message) else {
                return ExecuteError::Internal(failure.message.clone());
            };
            error.hint.clone_from(&failure.hint);
            ExecuteError::Sql(error)
        }
        (ErrorCode::Timeout, None) => sql("57014", &failure.message),
        (ErrorCode::InDoubtAborted, _) => ExecuteError::Lost(failure.message.clone()),
        _ => ExecuteError::Ledger {
            message: failure.message.clone(),
            hint: failure.hint.clone(),
            retryable: failure.retryable,
        },
    }
}

fn sql(sqlstate: &str, message: &str) -> ExecuteError {
    let (severity, sqlstate, message) = ("ERROR".to_owned(), sqlstate.to_owned(), message.to_owned());
    ExecuteError::Sql(Box::new(ServerError { severity, sqlstate, message, ..ServerError::default() }))
}

/// The error of a statement that failed for a reason other than its own.
pub(super) fn rejection(refusal: &ExecutorError) -> ExecuteError {
    match refusal {
        ExecutorError::Rejected(failure) => of_failure(failure),
        ExecutorError::ConnectionLost(error) => ExecuteError::Lost(error.to_string()),
    }
}
