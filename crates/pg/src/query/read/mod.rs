//! The read path: one statement, in a transaction that cannot write, within bounds.
//!
//! `run` is the pipeline itself, and `frame` what stands around the agent's statement in it; `remembered` knows
//! which texts a session has prepared, and `shapes` how they were described, so that a text seen before costs one round trip;
//! `functions` looks at what a new one calls, `account_setting` at what it sets; `rows` and `rendered` take in the answer; `convert` is for columns whose text
//! alone does not give their JSON; `explain` shows the plan of a read without running it; `streamed`
//! hands rows on as they arrive.

mod account_setting;
mod answer;
mod execution;
mod explain;
mod fetch;
mod function_policy;
mod inspection;
mod portioned;
mod portions;
mod query;
mod read_transaction;
mod response_budget;
mod row_buffer;
mod server_json;
mod statement_metadata;
mod stream;

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use serde_json::value::RawValue;
use tokio::time::Instant;
use tokio::time::error::Elapsed;
use types::Column;

use crate::client::connect_options::ConnectOptions;
use crate::client::error::{Error, ServerError};
use crate::client::limits::TruncatedBy;
use crate::client::pool::{Pool, PoolStatus, PooledSession};
use crate::client::search_path::SearchPath;
use crate::client::session_settings::SessionSettings;
use crate::query::json_rows::JsonRows;
use crate::query::json_rows::RowFormat;
use crate::query::type_catalog::TypeCatalog;
use crate::query::value::EncodeError;
pub(crate) use answer::Answer;
pub(crate) use execution::{EMPTY_STATEMENT, is_about_values};
use function_policy::FunctionPolicy;
use read_transaction::ReadTransaction;
use response_budget::ResponseBudget;
pub use response_budget::ResponsePermit;
pub(crate) use statement_metadata::StatementMetadata;

/// The bounds of a read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadLimits {
    /// Rows when neither the caller nor the query says how many (promise D5-07).
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

impl ReadLimits {
    /// How many rows to return at the most: what the caller asks for decides; a query with a LIMIT of its own is only held to
    /// the most that may be asked for.
    fn rows(&self, asked: Option<u32>, has_limit: bool) -> usize {
        let rows = asked.unwrap_or(if has_limit { self.max_rows } else { self.default_rows });
        rows.min(self.max_rows) as usize
    }
}

/// What to read.
#[derive(Debug)]
pub struct ReadRequest<'a> {
    /// One statement.
    pub sql: &'a str,
    /// `$1`, `$2`, ... as JSON.
    pub params: &'a [Value],
    /// Rows to return at the most. If `None`: the default of [`ReadLimits`], or the most that they allow if the query has a
    /// LIMIT of its own.
    pub row_limit: Option<u32>,
    /// What each row looks like.
    pub format: RowFormat,
    /// On whose behalf: `countersign.account_id` in the transaction, for row level security to go by. A query cannot set it
    /// to something else (`account_setting`).
    pub account: Option<&'a str>,
}

/// What was read.
#[derive(Debug)]
pub struct ResultSet {
    /// The columns, their names made unique.
    pub columns: Vec<Column>,
    /// The rows as JSON text: objects by column name, or arrays as long as `columns`.
    pub rows: Vec<Box<RawValue>>,
    /// Which limit left rows out, if one did.
    pub truncated_by: Option<TruncatedBy>,
    /// The room that a large answer takes; given back when it is dropped.
    pub permit: Option<ResponsePermit>,
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
    /// It calls a function that acts beyond the transaction.
    #[error("{function} may not be called in a read: {why}")]
    ForbiddenFunction {
        /// Its name.
        function: String,
        /// What it does, or whose it is: the end of a sentence.
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

impl ResultSet {
    /// These rows up to `max_bytes` of JSON text.
    #[must_use]
    pub fn truncate_to(
        columns: Vec<Column>,
        rows: &[Vec<Option<String>>],
        max_bytes: usize,
        truncated_by: Option<TruncatedBy>,
    ) -> Self {
        let mut json = JsonRows::new(RowFormat::Object, max_bytes);
        let is_whole = rows.iter().all(|row| json.take_texts(row, &columns).unwrap_or_default());
        let truncated_by = if is_whole { truncated_by } else { Some(TruncatedBy::MaxBytes) };
        Self { columns, rows: json.into_rows(), truncated_by, permit: None }
    }
}

/// Reads through a pool of its own, logged in as a role of its own.
#[derive(Debug, Clone)]
pub struct Reader {
    pool: Pool,
    types: Arc<TypeCatalog>,
    /// `None` for trusted texts: what they call is not looked up.
    functions: Option<Arc<FunctionPolicy>>,
    transaction: Arc<ReadTransaction>,
    budget: ResponseBudget,
    limits: ReadLimits,
    /// Whether statements without result columns are run, too.
    allow_commands: bool,
}

impl Reader {
    /// A reader of this database whose statements are read with this search path. Opens no connection yet.
    #[must_use]
    pub fn new(options: ConnectOptions, path: &SearchPath, limits: ReadLimits) -> Self {
        let settings = SessionSettings::default()
            .with_search_path(path.setting())
            // Compiling takes seconds where the estimates are off, as on the catalog, and 500 rows never pay for it.
            .with("jit", "off")
            // What runs outside our own transaction could not write either.
            .with("default_transaction_read_only", "on");
        Self::with_settings(options, settings, limits)
    }

    /// A reader for statements of the caller's own, with or without result columns, on sessions as the database gives them,
    /// in which others may write.
    pub(crate) fn for_adhoc_sql(options: ConnectOptions, sessions: usize) -> Self {
        let limits = ReadLimits { sessions, ..ReadLimits::default() };
        let settings = SessionSettings::default().with_login_search_path();
        let functions = Some(Arc::new(FunctionPolicy::with_any_setting()));
        Self { allow_commands: true, functions, ..Self::with_settings(options, settings, limits) }
    }

    fn with_settings(options: ConnectOptions, settings: SessionSettings, limits: ReadLimits) -> Self {
        let transaction = Arc::new(ReadTransaction::new(&settings));
        let budget = ResponseBudget::new(limits.sessions);
        Self {
            pool: Pool::new(options, settings, limits.sessions),
            types: Arc::default(),
            functions: Some(Arc::default()),
            transaction,
            budget,
            limits,
            allow_commands: false,
        }
    }

    /// Refuses statements that read a relation of this schema, whatever the login may read.
    #[must_use]
    pub fn deny_schema(mut self, schema: &'static str) -> Self {
        self.functions = Some(Arc::new(FunctionPolicy::deny_schema(schema)));
        self
    }

    /// A reader for texts that are constants of this program: what they call is not looked up.
    #[must_use]
    pub fn for_trusted_sql(&self) -> Self {
        Self { functions: None, ..self.clone() }
    }

    /// The bounds.
    #[must_use]
    pub fn limits(&self) -> &ReadLimits {
        &self.limits
    }

    /// Where its sessions connect, and as whom.
    #[must_use]
    pub fn target(&self) -> &ConnectOptions {
        self.pool.target()
    }

    /// A session of the reader's login, for questions of our own about that login.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn acquire(&self) -> Result<PooledSession, Error> {
        self.pool.acquire(Instant::now() + self.limits.deadline).await
    }

    /// The same, however long it takes.
    pub(crate) async fn acquire_until(&self, deadline: Instant) -> Result<PooledSession, Error> {
        self.pool.acquire(deadline).await
    }

    /// What it knows of the database's types.
    pub(crate) fn types(&self) -> &TypeCatalog {
        &self.types
    }

    /// Gives a session back after a read.
    pub(crate) async fn end<T>(&self, lease: PooledSession, outcome: Result<T, ReadError>) -> Result<T, ReadError> {
        self.give_back(lease, Ok(outcome)).await
    }

    /// How its pool stands now. A read that waits for room for its answer waits as well.
    #[must_use]
    pub fn status(&self) -> PoolStatus {
        let usage = self.pool.status();
        PoolStatus { waiting: usage.waiting + self.budget.waiting(), ..usage }
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
        if self.should_retry_read(&outcome, deadline) { self.attempt(deadline, request).await } else { outcome }
    }

    /// A read changes nothing, so it can be done once more.
    fn should_retry_read<T>(&self, outcome: &Result<T, ReadError>, deadline: Instant) -> bool {
        matches!(outcome, Err(ReadError::Database(error)) if self.pool.should_retry_read(error, deadline))
    }

    async fn attempt(&self, deadline: Instant, request: &ReadRequest<'_>) -> Result<ResultSet, ReadError> {
        let permit = self.budget.one(deadline).await?;
        let mut lease = self.pool.acquire_with_retry(deadline).await?;
        let outcome = tokio::time::timeout_at(deadline, self.query_on(lease.session(), request)).await;
        self.give_back(lease, outcome).await.map(|result| result.with_permit(permit))
    }

    /// What became of a read. Its session goes back to the pool while it is cleaned, so that nobody waits for that but
    /// whoever takes it next.
    async fn give_back<T>(
        &self,
        mut lease: PooledSession,
        outcome: Result<Result<T, ReadError>, Elapsed>,
    ) -> Result<T, ReadError> {
        let Ok(outcome) = outcome else {
            lease.suspect_silence();
            lease.discard();
            return Err(ReadError::Database(Error::Deadline));
        };
        let session = lease.session();
        let has_pending = session.connection.has_pending();
        let is_under_way = has_pending && !session.connection.reset_pending();
        let is_open = !has_pending && !session.is_idle();
        // Rows that nobody reads are still coming: stop them. Or the transaction is still open: refused before it ran. That
        // its end is sent takes no waiting; a session that would have to wait is not worth it.
        if is_under_way
            || (is_open && (!session.boundary_prepared || self.push_abort_and_reset(session).await.is_err()))
        {
            lease.discard();
        }
        outcome
    }
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
