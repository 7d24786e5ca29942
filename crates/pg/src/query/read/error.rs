//! Why a read failed.

use std::fmt;

use types::RoleName;

use crate::client::error::{Error, ServerError};
use crate::query::value::EncodeError;

/// The reason why a read failed.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The statement returns no rows, so it is not a read.
    #[error("the statement returns no rows")]
    NoResultColumns,
    /// PostgreSQL refused a write.
    #[error("{0}")]
    WouldWrite(Box<ServerError>),
    /// The plan has a node that PostgreSQL would refuse to run in a read-only transaction.
    #[error("the plan has a {0} node, which writes")]
    PlannedWrite(String),
    /// The statement calls a function with effects beyond the transaction.
    #[error("{function} may not be called in a read: {why}")]
    ForbiddenFunction {
        /// The function's name.
        function: String,
        /// The function's effect or its owner: the end of a sentence.
        why: String,
    },
    /// The statement reads a relation of a schema that reads may not use.
    #[error("{schema}.{relation} is not for reads")]
    RefusedRelation {
        /// The schema.
        schema: String,
        /// The table or view.
        relation: String,
    },
    /// Statements of callers may not run as the role of this caller.
    #[error("the role {0} may not be used")]
    RefusedRole(RoleName),
    /// The statement uses a masked column in a way that may reveal its values.
    #[error(transparent)]
    Masked(#[from] MaskError),
    /// The parameters do not fit the statement.
    #[error("{0}")]
    Params(String),
    /// The statement copies from or to the client.
    #[error("COPY from or to the client is not supported here")]
    Copy,
    /// One row exceeds the limit of an answer.
    #[error("{0}")]
    TooLarge(Error),
    /// Any other error: of PostgreSQL, of the connection, or the deadline.
    #[error(transparent)]
    Database(#[from] Error),
}

impl From<EncodeError> for ReadError {
    fn from(error: EncodeError) -> Self {
        Self::Params(error.to_string())
    }
}

/// Turns SQLSTATE 25006 (`read_only_sql_transaction`) into [`ReadError::WouldWrite`].
pub(super) fn refusal(error: Error) -> ReadError {
    match error {
        Error::Server(error) if error.sqlstate == "25006" => ReadError::WouldWrite(error),
        error => ReadError::Database(error),
    }
}

pub(super) fn too_large(error: Error) -> ReadError {
    match error {
        error @ (Error::MessageTooLarge { .. } | Error::TooManyValues { .. }) => ReadError::TooLarge(error),
        error => ReadError::Database(error),
    }
}

/// A read that the masks do not allow, or masks that do not fit the database.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct MaskError {
    message: String,
}

impl MaskError {
    pub(super) fn new(message: impl fmt::Display) -> Self {
        Self { message: message.to_string() }
    }
}
