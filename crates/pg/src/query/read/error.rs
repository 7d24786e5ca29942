//! Why a read failed.

use std::fmt;

use crate::client::error::{Error, ServerError};
use crate::query::value::EncodeError;

/// The reason why a read failed.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The statement returns no rows, so it is not a read.
    #[error("the statement returns no rows")]
    NoResultColumns,
    /// PostgreSQL would not let it write.
    #[error("{0}")]
    WouldWrite(Box<ServerError>),
    /// Its plan has a node that PostgreSQL would not run in a transaction that cannot write.
    #[error("the plan has a {0} node, which writes")]
    PlannedWrite(String),
    /// It calls a function that acts beyond the transaction.
    #[error("{function} may not be called in a read: {why}")]
    ForbiddenFunction {
        /// Its name.
        function: String,
        /// Its effect, or its owner: the end of a sentence.
        why: String,
    },
    /// It reads a relation of a schema that is not for reads.
    #[error("{schema}.{relation} is not for reads")]
    RefusedRelation {
        /// The schema.
        schema: String,
        /// The table or view.
        relation: String,
    },
    /// It uses a masked column in a way that may reveal its values.
    #[error(transparent)]
    Masked(#[from] MaskError),
    /// The parameters do not fit the statement.
    #[error("{0}")]
    Params(String),
    /// It copies from or to the client.
    #[error("COPY from or to the client is not supported here")]
    Copy,
    /// One row is larger than a whole answer may be.
    #[error("{0}")]
    TooLarge(Error),
    /// The rest: PostgreSQL's own errors, the connection, the deadline.
    #[error(transparent)]
    Database(#[from] Error),
}

impl From<EncodeError> for ReadError {
    fn from(error: EncodeError) -> Self {
        Self::Params(error.to_string())
    }
}

/// SQLSTATE 25006, `read_only_sql_transaction`: the statement would have written.
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

/// A read that masks do not allow, or masks that do not fit the database.
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
