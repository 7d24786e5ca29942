//! What a front end that runs statements of its caller's asks of a database: [`SqlExecutor`]. [`DirectExecutor`] asks PostgreSQL;
//! a front end's tests ask a fake.
//!
//! ```text
//! query ──▶ DbExecutor ──▶ Chunk, Chunk, ..        what the statement gives, as it arrives; a reader that is slow slows it down
//!                      ──▶ Completed or Failed     once, at the end
//! ```
//! A write is committed only after everything it gives has been taken ([`QueryEvent::AwaitAck`]), so no limit and no reader that
//! went away can make an error of a write that stands.

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

/// Which database, under the name that its connections are kept by.
#[derive(Debug, Clone)]
pub struct NamedSession {
    /// The name of the session: each has a pool of its own.
    pub session: String,
    /// How often the session has been sent elsewhere: connections of an earlier generation are not for a later one.
    pub generation: u64,
    /// Where it connects to.
    pub target: ConnectOptions,
}

/// A transaction that several statements share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransactionOptions {
    /// Whether it cannot write.
    pub read_only: bool,
    /// What it sees of others; `None` is the session's default.
    pub isolation: Option<IsolationLevel>,
    /// After how long it is rolled back.
    pub timeout: Duration,
}

/// The isolation level of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IsolationLevel {
    /// What was committed before each statement.
    ReadCommitted,
    /// What was committed before its first statement.
    RepeatableRead,
    /// The same, as if transactions ran one after another.
    Serializable,
}

impl IsolationLevel {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::ReadCommitted, Self::RepeatableRead, Self::Serializable];

    /// In SQL's words.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ReadCommitted => "read committed",
            Self::RepeatableRead => "repeatable read",
            Self::Serializable => "serializable",
        }
    }
}

/// Why a statement came to nothing. Nothing was written, unless it is [`ExecuteError::CommitOutcomeUnknown`].
#[derive(Debug, thiserror::Error)]
pub enum ExecuteError {
    /// PostgreSQL refused it.
    #[error("{0}")]
    Sql(Box<ServerError>),
    /// The parameters do not fit the statement.
    #[error("{0}")]
    Params(String),
    /// It gives more than [`RowDelivery::Inline`](crate::RowDelivery::Inline) allows, or a row that is too large for any answer.
    #[error("{message}")]
    TooLarge {
        /// What the limit is.
        message: String,
        /// The rows up to the one that was too many, and the bytes of their JSON; `None` where a row is too large.
        taken: Option<(u64, u64)>,
    },
    /// Not here: COPY from or to the client, LISTEN, transaction control as a text, what a read may not call.
    #[error("{message}")]
    Unsupported {
        /// What.
        message: String,
        /// What to do instead.
        hint: Option<String>,
    },
    /// Somebody asked for it.
    #[error("the query was cancelled")]
    Cancelled,
    /// There is no connection.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The connection is gone.
    #[error("the connection to the database was lost: {0}")]
    Lost(String),
    /// The answer to COMMIT did not come.
    #[error("{message}")]
    CommitOutcomeUnknown {
        /// What is known.
        message: String,
        /// The receipt, if the ledger will know.
        correlation_id: Option<String>,
    },
    /// The ledger cannot take the write in.
    #[error("{message}")]
    Ledger {
        /// Why.
        message: String,
        /// What to do.
        hint: Option<String>,
        /// Whether it may go well the next time.
        retryable: bool,
    },
    /// A defect.
    #[error("{0}")]
    Internal(String),
}

impl ExecuteError {
    /// Of a statement in a transaction that has failed already: in_failed_sql_transaction, in PostgreSQL's words.
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

    /// Of a statement that took longer than it may: query_canceled, in PostgreSQL's words.
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
            // A limit of ours, on the plan.
            ReadError::TooLarge(Error::Server(error)) => Self::Unsupported { message: error.message, hint: error.hint },
            ReadError::TooLarge(error) | ReadError::Database(error) => error.into(),
            ReadError::ForbiddenFunction { .. } => Self::Unsupported {
                message: error.to_string(),
                hint: Some("Where it is wanted all the same, run it as a write (read_only false).".to_owned()),
            },
            ReadError::NoResultColumns | ReadError::PlannedWrite(_) | ReadError::RefusedRelation { .. } => {
                Self::Internal(error.to_string())
            }
        }
    }
}

/// What an executor is doing.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, ExecuteError>> + Send + 'a>>;

/// Runs statements of the caller's own. Dropping a future stops what it does, and undoes it.
pub trait SqlExecutor: Send + Sync + 'static {
    /// Runs one statement in a transaction of its own. `cancel` stops it, until it is being committed: then the outcome of the
    /// COMMIT is the answer.
    fn query<'a>(
        &'a self,
        place: &'a NamedSession,
        query: Query,
        out: mpsc::Sender<QueryEvent>,
        cancel: CancellationToken,
    ) -> BoxFuture<'a, QuerySummary>;

    /// Says what a statement takes and gives. Nothing of it runs.
    fn describe<'a>(
        &'a self,
        place: &'a NamedSession,
        sql: &'a str,
        cancel: CancellationToken,
    ) -> BoxFuture<'a, QueryDescription>;

    /// Opens a transaction on a connection of its own.
    fn begin<'a>(&'a self, place: &'a NamedSession, begin: TransactionOptions) -> BoxFuture<'a, Box<dyn Transaction>>;

    /// The session of this name goes elsewhere from now on: its connections are not used again.
    fn forget(&self, session: &str);

    /// Waits until PostgreSQL has been told of everything that is to stop: before the process ends.
    fn drain(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

/// An open transaction. Dropping it rolls it back. After a statement that failed, every other one fails with 25P02
/// (`in_failed_sql_transaction`), as in PostgreSQL, until it is rolled back.
pub trait Transaction: Send {
    /// Runs one statement in it.
    fn query<'a>(
        &'a mut self,
        query: Query,
        out: mpsc::Sender<QueryEvent>,
        cancel: CancellationToken,
    ) -> BoxFuture<'a, QuerySummary>;

    /// The receipt, if the ledger will know what became of it.
    fn correlation_id(&self) -> Option<String> {
        None
    }

    /// Commits it. The transaction is over, whatever the answer is.
    fn commit(self: Box<Self>) -> BoxFuture<'static, QuerySummary>;

    /// Rolls it back.
    fn roll_back(self: Box<Self>) -> BoxFuture<'static, QuerySummary>;
}
