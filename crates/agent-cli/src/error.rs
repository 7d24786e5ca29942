//! Content of an `error` event: a code for programs, a message and a hint.

use std::fmt;

use serde::Serialize;

types::text_enum! {
    /// The `error_code` of an `error` event.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum EventErrorCode {
        /// A command, an option or a flag is invalid.
        InvalidRequest = "invalid_request",
        /// The parameters do not match the statement.
        InvalidParams = "invalid_params",
        /// The server cannot be reached or refuses the connection.
        ConnectFailed = "connect_failed",
        /// The server did not respond in time.
        ConnectTimeout = "connect_timeout",
        /// User or password is wrong.
        AuthFailed = "auth_failed",
        /// An inline result exceeds its limit of rows or bytes.
        ResultTooLarge = "result_too_large",
        /// The agent cancelled the request, or the session ended.
        Cancelled = "cancelled",
        /// The connection was lost. Nothing was committed.
        ConnectionLost = "connection_lost",
        /// The connection was lost before the response to COMMIT arrived.
        CommitOutcomeUnknown = "commit_outcome_unknown",
        /// This front end does not support the statement.
        Unsupported = "unsupported",
        /// A defect of this program.
        InternalError = "internal_error",
    }
}

impl fmt::Display for EventErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// Error that is reported in an `error` event. It never contains a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CliError {
    pub code: EventErrorCode,
    pub message: String,
    /// Advice on what to do.
    pub hint: Option<String>,
    /// Whether a retry may succeed.
    pub retryable: bool,
}

impl CliError {
    /// Creates an error that is not retryable and has no hint.
    #[must_use]
    pub fn new(code: EventErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: None, retryable: false }
    }

    /// Creates an error of [`EventErrorCode::InvalidRequest`].
    #[must_use]
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(EventErrorCode::InvalidRequest, message)
    }

    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// Sets whether a retry may succeed.
    #[must_use]
    pub fn retryable(self, retryable: bool) -> Self {
        Self { retryable, ..self }
    }
}
