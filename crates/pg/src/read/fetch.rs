//! What is fetched, and why it may fail.

use super::{ReadError, read_transaction, refusal};
use crate::error::{Error, ServerError};
use crate::wire::{Failure, StatementId};

/// Where the statement of a pipeline comes from.
#[derive(Debug, Clone, Copy)]
pub(super) enum StatementHandle<'a> {
    /// It has been described in this transaction, under this name.
    Described(&'a str),
    /// It is prepared in this session, under this name.
    Prepared(&'a str),
}

/// Why a statement gave no rows.
pub(super) enum FetchError {
    /// It was not parsed, or not bound, as it was described.
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

/// The error of the statement that this one means: an error of what comes behind the statement is not its own.
pub(super) fn statement_error(failure: Failure, statement: StatementId) -> ServerError {
    if failure.statement > statement { read_transaction::statement_error(failure.error) } else { failure.error }
}
