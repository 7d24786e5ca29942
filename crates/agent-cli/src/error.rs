//! What an `error` event says: a code for programs, a sentence, and what to do.

use std::fmt;

use serde::Serialize;

/// The `error_code` of an `error` event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// A command, an option or a flag that is wrong.
    InvalidRequest,
    /// Parameters that do not fit the statement.
    InvalidParams,
    /// There is no connection.
    ConnectFailed,
    /// Nothing answered in time.
    ConnectTimeout,
    /// User or password are wrong.
    AuthFailed,
    /// More rows or bytes than an answer in one piece may have.
    ResultTooLarge,
    /// Somebody asked for it, or the session ended.
    Cancelled,
    /// The connection broke. Nothing was written.
    ConnectionLost,
    /// The answer to COMMIT did not come.
    CommitOutcomeUnknown,
    /// PostgreSQL can do it, but not through this front end.
    Unsupported,
    /// A defect.
    InternalError,
}

impl ErrorCode {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::InvalidRequest,
        Self::InvalidParams,
        Self::ConnectFailed,
        Self::ConnectTimeout,
        Self::AuthFailed,
        Self::ResultTooLarge,
        Self::Cancelled,
        Self::ConnectionLost,
        Self::CommitOutcomeUnknown,
        Self::Unsupported,
        Self::InternalError,
    ];
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// Why something was not done. Never holds a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CliError {
    /// For programs.
    pub code: ErrorCode,
    /// What is wrong: a sentence.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// Whether the same may go well the next time.
    pub retryable: bool,
}

impl CliError {
    /// One that will be the same the next time.
    #[must_use]
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: None, retryable: false }
    }

    /// [`ErrorCode::InvalidRequest`].
    #[must_use]
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::InvalidRequest, message)
    }

    /// With what to do about it.
    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// The same, which may go well the next time.
    #[must_use]
    pub fn retryable(self, retryable: bool) -> Self {
        Self { retryable, ..self }
    }
}
