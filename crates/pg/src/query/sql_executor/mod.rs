//! [`SqlExecutor`]: the interface to a database for front ends that run statements of their users.
//! [`DirectExecutor`] implements it with PostgreSQL; tests of a front end use a fake.
//!
//! ```text
//! query ──▶ SqlExecutor ──▶ Rows, Rows, ..         rows as they arrive; a slow receiver slows the statement down
//!                       ──▶ Completed or Failed    once, at the end
//! ```
//! A write is committed only after all of its rows have been taken ([`QueryEvent::AwaitAck`]), so neither a limit nor
//! a receiver that went away can make a committed write look like an error.

mod commit;
mod direct;
mod transaction;
mod user_statement;

use std::pin::Pin;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::client::connect_options::ConnectOptions;
use crate::client::error::{ConnectError, Error, ServerError};
use crate::query::read::ReadError;
use crate::query::{Query, QueryDescription, QueryEvent, QuerySummary};
pub use direct::DirectExecutor;
pub(crate) use user_statement::{StatementTimeouts, reject_session_commands, run_user_statement};

/// A database, and the name under which its connections are pooled.
#[derive(Debug, Clone)]
pub struct NamedSession {
    /// The name of the session. Each session has its own pool.
    pub session: String,
    /// The number of times that the session has moved to another server. Connections of an earlier generation are not
    /// used.
    pub generation: u64,
    /// The server and login.
    pub target: ConnectOptions,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransactionOptions {
    /// Whether the transaction cannot write.
    pub read_only: bool,
    /// The isolation level; `None` is the session's default.
    pub isolation: Option<IsolationLevel>,
    /// The time after which the transaction is rolled back.
    pub timeout: Duration,
}

types::text_enum! {
    /// The isolation level of a transaction.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum IsolationLevel {
        /// Each statement sees what was committed before it.
        ReadCommitted = "read committed",
        /// All statements see what was committed before the first one.
        RepeatableRead = "repeatable read",
        /// Like repeatable read, and as if transactions ran one after another.
        Serializable = "serializable",
    }
}

/// The reason why a statement failed. Nothing was written, except possibly for
/// [`ExecuteError::CommitOutcomeUnknown`].
#[derive(Debug, thiserror::Error)]
pub enum ExecuteError {
    /// PostgreSQL refused the statement.
    #[error("{0}")]
    Sql(Box<ServerError>),
    /// The parameters do not fit the statement.
    #[error("{0}")]
    Params(String),
    /// The result exceeds [`RowDelivery::Inline`](crate::RowDelivery::Inline), or a row is too large for any answer.
    #[error("{message}")]
    TooLarge {
        message: String,
        /// The number of rows up to the first one that exceeded the limit, and the bytes of their JSON; `None` if a
        /// single row is too large.
        taken: Option<(u64, u64)>,
    },
    /// An unsupported statement: COPY from or to the client, LISTEN, transaction control as a statement, or a read
    /// with a forbidden call.
    #[error("{message}")]
    Unsupported {
        /// A message that names the unsupported feature.
        message: String,
        hint: Option<String>,
    },
    #[error("the query was cancelled")]
    Cancelled,
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("the connection to the database was lost: {0}")]
    Lost(String),
    /// The answer to COMMIT did not arrive.
    #[error("{message}")]
    CommitOutcomeUnknown {
        /// What is known of the outcome.
        message: String,
        /// The correlation id, if the ledger will have a record.
        correlation_id: Option<String>,
    },
    /// The ledger cannot record the write.
    #[error("{message}")]
    Ledger {
        message: String,
        hint: Option<String>,
        /// Whether a later attempt may succeed.
        retryable: bool,
    },
    /// A defect of this program.
    #[error("{0}")]
    Internal(String),
}

impl ExecuteError {
    /// The error of a statement in a failed transaction: in_failed_sql_transaction, with PostgreSQL's message.
    #[must_use]
    pub fn in_failed_transaction() -> Self {
        Self::Sql(Box::new(ServerError {
            hint: Some("Nothing of it is kept: begin anew, after a rollback if it is still open.".to_owned()),
            ..ServerError::synthetic(
                "25P02",
                "current transaction is aborted, commands ignored until end of transaction block",
            )
        }))
    }

    /// The error of a statement that exceeded its timeout: query_canceled, with PostgreSQL's message.
    #[must_use]
    pub fn timed_out() -> Self {
        Self::Sql(Box::new(ServerError {
            hint: Some("Take its rows sooner, or give it a longer statement_timeout_ms.".to_owned()),
            ..ServerError::synthetic("57014", "canceling statement due to statement timeout")
        }))
    }

    pub(crate) fn copy() -> Self {
        Self::Unsupported {
            message: "COPY from or to the client is not supported here".to_owned(),
            hint: Some("Read with a query and stream_rows; write with INSERT and parameters.".to_owned()),
        }
    }
}

impl From<Error> for ExecuteError {
    fn from(error: Error) -> Self {
        match error {
            Error::Connect(error) => Self::Connect(error),
            Error::Server(error) => Self::Sql(error),
            Error::MessageTooLarge { .. } | Error::TooManyValues { .. } => {
                Self::TooLarge { message: error.to_string(), taken: None }
            }
            Error::ReceiverDropped => Self::Cancelled,
            Error::Lost(error) => Self::Lost(error.to_string()),
            Error::Deadline | Error::PoolTimeout { .. } => Self::Internal(error.to_string()),
        }
    }
}

impl From<ReadError> for ExecuteError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::WouldWrite(error) => Self::Sql(error),
            ReadError::Params(message) => Self::Params(message),
            ReadError::Copy => Self::copy(),
            // The plan exceeds the server's own limit.
            ReadError::TooLarge(Error::Server(error)) => Self::Unsupported { message: error.message, hint: error.hint },
            ReadError::TooLarge(error) | ReadError::Database(error) => error.into(),
            ReadError::ForbiddenFunction { .. } => Self::Unsupported {
                message: error.to_string(),
                hint: Some("Where it is wanted all the same, run it as a write (read_only false).".to_owned()),
            },
            ReadError::NoResultColumns
            | ReadError::PlannedWrite(_)
            | ReadError::RefusedRelation { .. }
            | ReadError::RefusedRole(_)
            | ReadError::Masked(_) => Self::Internal(error.to_string()),
        }
    }
}

/// The future that a function of an executor returns.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, ExecuteError>> + Send + 'a>>;

/// Runs statements of a front end's user. Dropping a future stops its statement and undoes it.
pub trait SqlExecutor: Send + Sync + 'static {
    /// Runs one statement in a transaction of its own. `cancel` stops it until COMMIT has been sent; from then on,
    /// the outcome of COMMIT is the answer.
    fn query<'a>(
        &'a self,
        place: &'a NamedSession,
        query: Query,
        out: mpsc::Sender<QueryEvent>,
        cancel: CancellationToken,
    ) -> BoxFuture<'a, QuerySummary>;

    /// Describes the parameters and result columns of a statement. The statement is not run.
    fn describe<'a>(
        &'a self,
        place: &'a NamedSession,
        sql: &'a str,
        cancel: CancellationToken,
    ) -> BoxFuture<'a, QueryDescription>;

    /// Opens a transaction on a connection of its own.
    fn begin<'a>(&'a self, place: &'a NamedSession, begin: TransactionOptions) -> BoxFuture<'a, Box<dyn Transaction>>;

    /// The session moves to another server: the current connections of this name are not used again.
    fn forget(&self, session: &str);

    /// Waits until PostgreSQL has received every pending cancel request. Called before the process ends.
    fn drain(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

/// An open transaction. Dropping it rolls it back. After a failed statement, every other one fails with 25P02
/// (`in_failed_sql_transaction`), as in PostgreSQL, until the transaction is rolled back.
pub trait Transaction: Send {
    /// Runs one statement in the transaction.
    fn query<'a>(
        &'a mut self,
        query: Query,
        out: mpsc::Sender<QueryEvent>,
        cancel: CancellationToken,
    ) -> BoxFuture<'a, QuerySummary>;

    /// The correlation id, if the ledger will have a record.
    fn correlation_id(&self) -> Option<String> {
        None
    }

    /// Commits the transaction. It is over whatever the outcome is.
    fn commit(self: Box<Self>) -> BoxFuture<'static, QuerySummary>;

    /// Rolls the transaction back.
    fn roll_back(self: Box<Self>) -> BoxFuture<'static, QuerySummary>;
}
