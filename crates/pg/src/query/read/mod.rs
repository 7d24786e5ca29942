//! The read path: runs one statement within limits, in a transaction that cannot write.
//!
//! - `prepare` describes and plans a new text, `execute` runs a statement, `read_transaction` has the server's own
//!   statements around it.
//! - `function_policy` and `caller_settings` inspect a new text, `inspection` is their result. `statement_metadata`
//!   keeps what is known of a text, so that the next call takes one round trip.
//! - `mask` determines which result columns are masked, and refuses other uses of masked columns. `mentioned_names`
//!   finds the names in a text, because a plan does not show every call.
//! - `answer` receives rows; `row_buffer` keeps them until the last one, `stream` delivers them as they arrive.
//! - `portions` and `server_json` are for rows that arrive in portions: they are streamed, or their text
//!   does not determine their JSON.
//! - `page` reads the next page of a truncated result. `page_plan` and `page_order` find the order of a query,
//!   `page_text` builds the query for the rows after a key.
//! - `trace` collects the facts of a read for a log.
//! - `explain` plans a read. `response_budget` limits the answers in memory.

mod answer;
mod caller_settings;
mod error;
mod execute;
mod explain;
mod fetch;
mod function_policy;
mod inspection;
mod mask;
mod mentioned_names;
mod page;
mod page_order;
mod page_plan;
mod page_text;
mod portions;
mod prepare;
mod read_transaction;
mod response_budget;
mod row_buffer;
mod server_json;
mod statement_metadata;
mod stream;
mod trace;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;
use tokio::time::error::Elapsed;
use types::{CallerContext, Column, Mask, Masks, RowFormat, StandbyAge};

use crate::client::connect_options::ConnectOptions;
use crate::client::error::Error;
use crate::client::limits::TruncatedBy;
use crate::client::pool::{Pool, PoolStatus, PooledSession};
use crate::client::search_path::SearchPath;
use crate::client::session::{CallerSeal, ContextStatements, Session, TransactionSettings};
use crate::client::session_settings::SessionSettings;
use crate::client::wire::StatementId;
use crate::query::json_rows::{JsonRows, JsonRowsBuilder};
use crate::query::row_writer::RowWriter;
use crate::query::type_catalog::TypeCatalog;
pub(crate) use answer::Answer;
pub use error::{MaskError, ReadError};
use error::{refusal, too_large};
pub(crate) use execute::{EMPTY_STATEMENT, is_about_values};
use function_policy::FunctionPolicy;
pub(crate) use function_policy::forbidden;
use mask::{CheckedRules, Masking};
pub(crate) use mentioned_names::{ATTRIBUTE, has_unicode_identifiers, mentioned_calls};
pub use page::NextPage;
use page::PageOrder;
pub use page_order::PageProblem;
use read_transaction::ReadTransaction;
use response_budget::ResponseBudget;
pub use response_budget::ResponsePermit;
pub(crate) use statement_metadata::StatementMetadata;
pub use trace::{ReadFacts, ReadTrace};

/// The limits of a read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadLimits {
    /// The number of rows if neither the caller nor the query sets one.
    pub default_rows: u32,
    /// The most rows that a caller can request.
    pub max_rows: u32,
    /// The maximum size of the rows, both as PostgreSQL sends them and as JSON text, in bytes. It also applies to a
    /// single row.
    pub max_bytes: usize,
    /// The time from the call to the answer, including the wait for a connection.
    pub deadline: Duration,
    /// The maximum number of concurrent reads. Further reads wait, within their deadlines.
    pub sessions: usize,
}

impl Default for ReadLimits {
    fn default() -> Self {
        Self { default_rows: 500, max_rows: 10_000, max_bytes: 1 << 20, deadline: Duration::from_secs(30), sessions: 8 }
    }
}

impl ReadLimits {
    /// The maximum number of rows to return. For a query with its own LIMIT, only `max_rows` applies.
    fn rows(&self, asked: Option<u32>, has_limit: bool) -> usize {
        let rows = asked.unwrap_or(if has_limit { self.max_rows } else { self.default_rows });
        rows.min(self.max_rows) as usize
    }
}

/// A request to read.
#[derive(Debug, Clone, Copy)]
pub struct ReadRequest<'a> {
    /// One statement.
    pub sql: &'a str,
    /// The values of `$1`, `$2`, ... as JSON.
    pub params: &'a [Value],
    /// The maximum number of rows. If `None`: the default of [`ReadLimits`], or its maximum if the query has a LIMIT
    /// of its own.
    pub row_limit: Option<u32>,
    /// The bytes of JSON text after which no further row is taken, if that is less than the reader allows.
    pub enough_bytes: Option<usize>,
    /// The form of each row.
    pub format: RowFormat,
    /// The account on whose behalf the read runs: `countersign.account_id` in the transaction, for policies of row
    /// level security. A query cannot change it (`caller_settings`).
    pub account: Option<&'a str>,
    /// Collects the facts of the read, if the caller wants them.
    pub trace: Option<&'a ReadTrace>,
    /// The page of the result.
    pub paging: Paging<'a>,
}

impl<'a> ReadRequest<'a> {
    /// The rows of a statement up to the limits of the reader.
    #[must_use]
    pub const fn new(sql: &'a str, params: &'a [Value], format: RowFormat) -> Self {
        let (row_limit, enough_bytes, paging) = (None, None, Paging::None);
        Self { sql, params, row_limit, enough_bytes, format, account: None, trace: None, paging }
    }
}

/// The page of a result to read.
#[derive(Debug, Clone, Copy)]
pub enum Paging<'a> {
    /// The first rows. The rest is not wanted.
    None,
    /// The first rows, and how to read the next ones.
    First,
    /// The rows after this key, a value of [`NextPage::After`] for the same text and parameters, and how to read the
    /// next ones.
    After(&'a [Value]),
}

/// The result of a read.
#[derive(Debug)]
pub struct ResultSet {
    /// The columns, with unique names.
    pub columns: Vec<Column>,
    /// The mask of each column; empty for a caller without masks.
    pub masks: Vec<Option<Mask>>,
    /// The rows as JSON text: objects by column name, or arrays as long as `columns`.
    pub rows: JsonRows,
    /// How far behind the standby was that answered, if one did.
    pub standby: Option<StandbyAge>,
    /// The limit that left rows out, if any.
    pub truncated_by: Option<TruncatedBy>,
    /// The permit of a large answer, released when the answer is dropped.
    pub permit: Option<ResponsePermit>,
    /// How to read the rows that were left out, if the request has pages.
    pub next: Option<NextPage>,
}

impl ResultSet {
    /// The first of these rows, up to `max_bytes` of JSON text.
    #[must_use]
    pub fn truncate_to(
        columns: Vec<Column>,
        rows: &[Vec<Option<String>>],
        max_bytes: usize,
        truncated_by: Option<TruncatedBy>,
    ) -> Self {
        let mut json = JsonRowsBuilder::new(RowWriter::new(columns, RowFormat::Object), max_bytes);
        let is_whole = rows.iter().all(|row| json.take_texts(row).unwrap_or_default());
        Self::new(json, if is_whole { truncated_by } else { Some(TruncatedBy::MaxBytes) })
    }

    fn new(rows: JsonRowsBuilder, truncated_by: Option<TruncatedBy>) -> Self {
        let (rows, writer) = rows.finish();
        let (columns, masks) = writer.into_columns();
        let masks = masks.map(|masks| masks.columns).unwrap_or_default();
        Self { columns, masks, rows, standby: None, truncated_by, permit: None, next: None }
    }
}

/// Reads as one login, over its own pool of sessions.
#[derive(Debug, Clone)]
pub struct Reader {
    pool: Pool,
    types: Arc<TypeCatalog>,
    /// `None` for trusted texts, whose functions are not checked.
    functions: Option<Arc<FunctionPolicy>>,
    transaction: Arc<ReadTransaction>,
    budget: ResponseBudget,
    limits: ReadLimits,
    /// Whether the reader also runs statements without result columns.
    allow_commands: bool,
    masking: Option<Masking>,
    checked_rules: Arc<CheckedRules>,
    /// The role and the claims of the caller, if it has any.
    context: Option<Arc<CallerStatements>>,
    seal: Option<Arc<CallerSeal>>,
    /// The sessions for callers with a role, if they have a login of their own.
    callers: Option<Pool>,
}

/// The statements that give a transaction the context of its caller.
#[derive(Debug)]
struct CallerStatements {
    context: Arc<CallerContext>,
    statements: ContextStatements,
}

impl Reader {
    /// A reader on this database whose statements use this search path. Opens no connection yet.
    #[must_use]
    pub fn new(options: ConnectOptions, path: &SearchPath, limits: ReadLimits) -> Self {
        let settings = SessionSettings::default()
            .with_search_path(path.setting())
            // JIT compilation takes seconds if the estimates are wrong, as on the catalog. It never pays off for 500
            // rows.
            .with("jit", "off")
            // Statements outside the read transaction cannot write either.
            .with("default_transaction_read_only", "on");
        Self::with_settings(options, settings, limits)
    }

    /// A reader for statements of a front end's user, with or without result columns. The transactions of its sessions
    /// are not read-only by default, since other statements on them may write.
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
            masking: None,
            checked_rules: Arc::default(),
            context: None,
            seal: None,
            callers: None,
        }
    }

    /// Seals the callers of reads, for a ledger that verifies it.
    #[must_use]
    pub fn with_seal(mut self, seal: CallerSeal) -> Self {
        self.seal = Some(Arc::new(seal));
        self
    }

    /// Reads of callers with a role use sessions of this login, whose rights no query gets by leaving the role.
    #[must_use]
    pub fn with_callers_login(mut self, login: ConnectOptions) -> Self {
        self.callers = Some(self.pool.with_login(login));
        self
    }

    /// The same reader over the sessions for callers with a role.
    #[must_use]
    pub fn for_callers(&self) -> Self {
        let pool = self.callers.as_ref().unwrap_or(&self.pool).clone();
        Self { pool, ..self.clone() }
    }

    /// The settings of a transaction on behalf of this account.
    fn settings_for(&self, account: &str) -> TransactionSettings {
        let context = self.context.as_ref().map(|caller| caller.context.as_ref());
        let caller = self.seal.as_ref().map(|seal| seal.seal(account, context)).unwrap_or_default();
        TransactionSettings { caller, ..TransactionSettings::within(account, self.limits.deadline) }
    }

    /// Refuses statements that read a relation of this schema, whatever the login may read.
    #[must_use]
    pub fn deny_schema(mut self, schema: &'static str) -> Self {
        self.functions = Some(Arc::new(FunctionPolicy::deny_schema(schema)));
        self
    }

    /// Collects the tables that the plans of statements read, for [`ReadTrace`].
    #[must_use]
    pub fn collecting_tables(mut self) -> Self {
        self.functions = self.functions.map(|functions| Arc::new(functions.collecting_tables()));
        self
    }

    /// A reader for constant texts of this program. Their functions are not checked.
    #[must_use]
    pub fn for_trusted_sql(&self) -> Self {
        Self { functions: None, masking: None, ..self.clone() }
    }

    /// A reader over the same sessions for a caller with these masks. `is_declared`: the operator wrote the
    /// statements, so only their result columns are masked.
    #[must_use]
    pub fn with_masks(&self, masks: Arc<Masks>, is_declared: bool) -> Self {
        Self { masking: Some(Masking::new(masks, Arc::clone(&self.checked_rules), is_declared)), ..self.clone() }
    }

    /// A reader over the same sessions for a caller with this role and these claims.
    #[must_use]
    pub fn with_context(&self, context: &Arc<CallerContext>) -> Self {
        let statements = ContextStatements::of(context);
        let caller = |statements| Arc::new(CallerStatements { context: Arc::clone(context), statements });
        let reader = if context.role.is_some() { self.for_callers() } else { self.clone() };
        Self { context: statements.map(caller), ..reader }
    }

    fn context_statements(&self) -> Option<&ContextStatements> {
        self.context.as_ref().map(|caller| &caller.statements)
    }

    /// The key of a text in the statement cache of a session. A name in a text may be another object for another role,
    /// and the policies of a role call other functions. Neither a text nor a role has U+0000.
    fn cache_key<'t>(&self, sql: &'t str) -> Cow<'t, str> {
        match self.context.as_ref().and_then(|caller| caller.context.role.as_ref()) {
            Some(role) => Cow::Owned(format!("\0role\0{}\0{sql}", role.as_str())),
            None => Cow::Borrowed(sql),
        }
    }

    /// The error for a statement that was refused, if it is the one that sets the role of the caller.
    fn refused_role(&self, session: &Session, statement: StatementId) -> Option<ReadError> {
        let role = self.context.as_ref()?.context.role.as_ref()?;
        (session.context_statement == Some(statement)).then(|| ReadError::RefusedRole(role.clone()))
    }

    /// A reader over the same sessions with another default row limit and another byte limit. Neither exceeds the
    /// current limits.
    #[must_use]
    pub fn with_defaults(mut self, rows: Option<u32>, max_bytes: Option<usize>) -> Self {
        let limits = &mut self.limits;
        limits.default_rows = rows.unwrap_or(limits.default_rows).min(limits.max_rows);
        limits.max_bytes = max_bytes.unwrap_or(limits.max_bytes).min(limits.max_bytes);
        self
    }

    /// The bounds.
    #[must_use]
    pub fn limits(&self) -> &ReadLimits {
        &self.limits
    }

    /// The server and login of its sessions.
    #[must_use]
    pub fn target(&self) -> &ConnectOptions {
        self.pool.target()
    }

    /// Leases a session of the reader's login, for queries about that login.
    pub async fn acquire(&self) -> Result<PooledSession, Error> {
        self.pool.acquire(Instant::now() + self.limits.deadline).await
    }

    /// Leases a session before `deadline`.
    pub(crate) async fn acquire_until(&self, deadline: Instant) -> Result<PooledSession, Error> {
        self.pool.acquire(deadline).await
    }

    pub(crate) fn types(&self) -> &TypeCatalog {
        &self.types
    }

    /// Returns a session after a read.
    pub(crate) async fn end<T>(&self, lease: PooledSession, outcome: Result<T, ReadError>) -> Result<T, ReadError> {
        self.give_back(lease, Ok(outcome)).await
    }

    fn pools(&self) -> impl Iterator<Item = &Pool> {
        [Some(&self.pool), self.callers.as_ref()].into_iter().flatten()
    }

    /// The current state of the pools. Reads that wait for the response budget count as waiting.
    #[must_use]
    pub fn status(&self) -> PoolStatus {
        let usage = self.pools().map(Pool::status).reduce(PoolStatus::plus).unwrap_or_default();
        PoolStatus { waiting: usage.waiting + self.budget.waiting(), ..usage }
    }

    /// Closes the idle sessions that were not used for this time.
    pub async fn close_unused(&self, time: Duration) {
        for pool in self.pools() {
            pool.close_unused(time).await;
        }
    }

    /// Waits until PostgreSQL has received every pending cancel request. For the end of the process.
    pub async fn drain(&self) {
        for pool in self.pools() {
            pool.drain().await;
        }
    }

    /// Runs one read. Cancelling the future frees the backend.
    ///
    /// # Errors
    /// [`ReadError`]; nothing of the database has changed in any case. [`ReadError::Params`] if the query cannot be
    /// continued by a key, or not by this one.
    pub async fn read(&self, request: &ReadRequest<'_>) -> Result<ResultSet, ReadError> {
        let deadline = Instant::now() + self.limits.deadline;
        if let Some(trace) = request.trace {
            trace.set_text(request.sql);
        }
        let mut outcome = self.attempt(deadline, request).await;
        if self.should_retry_read(&outcome, deadline) {
            outcome = self.attempt(deadline, request).await;
        }
        let (mut result, order) = outcome?;
        if let Some(trace) = request.trace {
            trace.set_result(&result);
        }
        if result.truncated_by.is_some() && !matches!(request.paging, Paging::None) {
            result.next = Some(self.next_page(deadline, request, (&result, order)).await);
        }
        Ok(result)
    }

    /// Whether to repeat a read. A read changes nothing, so repeating it is safe.
    fn should_retry_read<T>(&self, outcome: &Result<T, ReadError>, deadline: Instant) -> bool {
        matches!(outcome, Err(ReadError::Database(error)) if self.pool.should_retry_read(error, deadline))
    }

    async fn attempt(
        &self,
        deadline: Instant,
        request: &ReadRequest<'_>,
    ) -> Result<(ResultSet, Option<Arc<PageOrder>>), ReadError> {
        let permit = self.budget.one(deadline).await?;
        let mut lease = self.pool.acquire_with_retry(deadline).await?;
        let outcome = tokio::time::timeout_at(deadline, self.read_page(lease.session(), deadline, request)).await;
        let (result, order) = self.give_back(lease, outcome).await?;
        Ok((result.with_permit(permit), order))
    }

    /// Returns a session after a read. It goes back to its pool while it is reset; only its next user waits for that.
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
        // Unneeded rows are still arriving: cancel the statement. Or the transaction is open because the text was
        // refused: end it. If the end cannot be sent at once, the session is discarded.
        if is_under_way
            || (is_open && (!session.boundary_prepared || self.push_abort_and_reset(session).await.is_err()))
        {
            lease.discard();
        }
        outcome
    }
}
