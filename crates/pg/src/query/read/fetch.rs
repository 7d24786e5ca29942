//! The source of a statement in a pipeline, and the ways in which it may fail.

use super::inspection::Inspection;
use super::{ReadError, read_transaction, refusal};
use crate::client::error::{Error, ServerError};
use crate::client::wire::{Failure, StatementId};

/// The source of the statement in a pipeline.
#[derive(Debug, Clone, Copy)]
pub(super) enum StatementHandle<'a> {
    /// The statement was described and inspected in the open transaction.
    Inspected {
        /// The name of the prepared statement.
        name: &'a str,
        sql: &'a str,
        inspection: &'a Inspection,
    },
    /// The session has prepared the statement under this name.
    Prepared(&'a str),
}

/// The reason why a statement returned no rows.
pub(super) enum FetchError {
    /// Parse or Bind failed: the statement no longer fits its description.
    Outdated(ServerError),
    Read(ReadError),
}

impl FetchError {
    pub(super) fn into_error(self) -> ReadError {
        match self {
            Self::Outdated(error) => refusal(Error::Server(Box::new(error))),
            Self::Read(error) => error,
        }
    }
}

impl From<ReadError> for FetchError {
    fn from(error: ReadError) -> Self {
        Self::Read(error)
    }
}

impl From<Error> for FetchError {
    fn from(error: Error) -> Self {
        Self::Read(ReadError::Database(error))
    }
}

impl From<std::io::Error> for FetchError {
    fn from(error: std::io::Error) -> Self {
        Error::Lost(error).into()
    }
}

/// The error to report, if the statement or one of the server's own statements after it failed.
pub(super) fn statement_error(failure: Failure, statement: StatementId) -> ServerError {
    let error = *failure.error;
    if failure.statement > statement { read_transaction::statement_error(error) } else { error }
}
