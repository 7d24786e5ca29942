//! The read path: one statement, in a transaction that cannot write, within bounds (design.md section 4).
//!
//! `run` is the pipeline itself; `shapes` remembers how a text was described, so that a text seen before costs one round
//! trip instead of two; `explain` shows the plan of a read without running it.

mod explain;
mod rendered;
mod room;
mod run;
mod shapes;

use std::sync::Arc;
use std::time::Duration;

use contract::Column;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::time::Instant;
use tokio::time::error::Elapsed;

use crate::error::{Error, ServerError};
use crate::pool::{Lease, Pool};
use crate::target::Target;
use crate::types::TypeCatalog;
pub use rendered::RowForm;
pub use room::Room;
use room::Rooms;
use shapes::Shapes;

/// The bounds of a read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadLimits {
    /// Rows when the caller says nothing (promise D5-07).
    pub default_rows: u32,
    /// The most rows that a caller can ask for.
    pub max_rows: u32,
    /// Bytes of the rows, as PostgreSQL sends them and as JSON text; a single row included.
    pub max_bytes: usize,
    /// From the call to the answer, waiting for a connection included.
    pub deadline: Duration,
    /// The most reads at once; more wait, within their deadlines.
    pub sessions: usize,
}

impl Default for ReadLimits {
    fn default() -> Self {
        Self { default_rows: 500, max_rows: 10_000, max_bytes: 1 << 20, deadline: Duration::from_secs(30), sessions: 8 }
    }
}

/// What to read.
#[derive(Debug)]
pub struct ReadRequest<'a> {
    /// One statement.
    pub sql: &'a str,
    /// `$1`, `$2`, ... as JSON.
    pub params: &'a [Value],
    /// Rows to return at the most; the default of [`ReadLimits`] if `None`.
    pub row_limit: Option<u32>,
    /// What each row looks like.
    pub form: RowForm,
}

/// What was read.
#[derive(Debug)]
pub struct ResultSet {
    /// The columns, their names made unique.
    pub columns: Vec<Column>,
    /// The rows as JSON text: objects by column name, or arrays as long as `columns`.
    pub rows: Vec<Box<RawValue>>,
    /// Whether there was more than the limits on rows and bytes let through.
    pub truncated: bool,
    /// The room that a large answer takes; given back when it is dropped.
    pub room: Option<Room>,
}

/// Why nothing was read.
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
    /// The parameters do not fit the statement.
    #[error("{0}")]
    Params(String),
    /// One row is larger than a whole answer may be.
    #[error("{0}")]
    TooLarge(Error),
    /// The rest: PostgreSQL's own errors, the connection, the deadline.
    #[error(transparent)]
    Database(#[from] Error),
}

/// Reads through a pool of its own, logged in as a role of its own.
#[derive(Debug, Clone)]
pub struct Reader {
    pool: Pool,
    types: Arc<TypeCatalog>,
    shapes: Arc<Shapes>,
    rooms: Rooms,
    limits: ReadLimits,
}

impl Reader {
    /// A reader of this database. Opens no connection yet.
    #[must_use]
    pub fn new(target: Target, limits: ReadLimits) -> Self {
        let settings = vec![
            // One more layer: what runs outside our own transaction could not write either.
            ("default_transaction_read_only", "on"),
            // Compiling takes seconds where the estimates are off, as on the catalog, and 500 rows never pay for it.
            ("jit", "off"),
        ];
        let pool = Pool::new(target, settings, limits.sessions);
        let rooms = Rooms::new(limits.sessions);
        Self { pool, types: Arc::default(), shapes: Arc::default(), rooms, limits }
    }

    /// The bounds.
    #[must_use]
    pub fn limits(&self) -> &ReadLimits {
        &self.limits
    }

    /// A session of the reader's login, for questions of our own about that login.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn lease(&self) -> Result<Lease, Error> {
        self.pool.lease(Instant::now() + self.limits.deadline).await
    }

    /// Waits until PostgreSQL has been told of every session that is to stop: before the process ends.
    pub async fn drain(&self) {
        self.pool.drain().await;
    }

    /// Runs one read. Cancelling the future frees the backend.
    ///
    /// # Errors
    /// [`ReadError`]; nothing of the database has changed in any case.
    pub async fn query(&self, request: &ReadRequest<'_>) -> Result<ResultSet, ReadError> {
        let deadline = Instant::now() + self.limits.deadline;
        let outcome = self.attempt(deadline, request).await;
        if self.may_read_again(&outcome) { self.attempt(deadline, request).await } else { outcome }
    }

    /// The session may have died in the pool (PostgreSQL restarted): a read can simply be tried on a fresh one.
    fn may_read_again<T>(&self, outcome: &Result<T, ReadError>) -> bool {
        let Err(ReadError::Database(Error::Lost(error))) = outcome else { return false };
        tracing::info!(%error, "a pooled connection was lost; reading again on a fresh one");
        self.pool.forget_idle();
        true
    }

    async fn attempt(&self, deadline: Instant, request: &ReadRequest<'_>) -> Result<ResultSet, ReadError> {
        let room = self.rooms.one(deadline).await?;
        let mut lease = self.pool.lease(deadline).await?;
        let outcome = tokio::time::timeout_at(deadline, self.query_on(lease.session(), request)).await;
        settle(lease, outcome).map(|result| result.in_room(room))
    }
}

/// What became of a read, and of the session that it ran on.
fn settle<T>(lease: Lease, outcome: Result<Result<T, ReadError>, Elapsed>) -> Result<T, ReadError> {
    match outcome {
        Ok(outcome) => {
            clean_later(lease);
            outcome
        }
        Err(_) => {
            lease.discard();
            Err(ReadError::Database(Error::Deadline))
        }
    }
}

/// Gives the session back once nothing of the call is left in it: after the answer, so that nobody waits for it.
fn clean_later(mut lease: Lease) {
    // Rows that nobody reads are still coming: stop them.
    if lease.session().connection.owed > run::OWED_BY_CLEANING {
        return lease.discard();
    }
    // Refused before anything was sent.
    if lease.session().is_idle() {
        return;
    }
    tokio::spawn(async move {
        let session = lease.session();
        let cleaned = async {
            if session.connection.owed > 0 {
                return session.finish().await;
            }
            // Refused before it ran: the transaction is still open.
            session.batch("rollback").await?;
            session.discard_all().await
        };
        if cleaned.await.is_err() {
            lease.discard();
        }
    });
}

/// SQLSTATE 25006, `read_only_sql_transaction`: the statement would have written.
fn refusal(error: Error) -> ReadError {
    match error {
        Error::Server(error) if error.sqlstate == "25006" => ReadError::WouldWrite(error),
        error => ReadError::Database(error),
    }
}

fn too_large(error: Error) -> ReadError {
    match error {
        error @ (Error::MessageTooLarge { .. } | Error::TooManyValues { .. }) => ReadError::TooLarge(error),
        error => ReadError::Database(error),
    }
}
