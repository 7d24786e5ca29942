//! A session: runs statements and returns rows of text. It has no notion of JSON, of pools, or of the meaning of
//! statements.

mod caller_context;
mod caller_seal;
mod collector;
mod description;
pub(crate) mod pooler_transaction;
mod reset;
mod run_to_completion;
mod statement_cache;
mod transaction_settings;

use std::collections::HashMap;
use std::time::Duration;

use crate::client::connect_options::{ConnectOptions, Pooler};
use crate::client::error::{ConnectError, Error, ServerError};
use crate::client::session_settings::SessionSettings;
use crate::client::wire::{self, CancelKey, Connection, Failure, Purpose, StatementId, TransactionStatus};
use crate::client::wire::{FieldDescription, OtherEngine};
pub use caller_context::ContextStatements;
pub(crate) use caller_context::{CONTEXT_SQL, ROLE_SQL};
pub use caller_seal::CallerSeal;
use collector::Collector;
pub use collector::RowRetention;
pub use description::StatementDescription;
use pooler_transaction::TransactionPreamble;
pub use run_to_completion::CompleteResult;
pub(crate) use statement_cache::{SEEN_FOR, StatementCache};
pub(crate) use transaction_settings::TransactionSettings;

/// One statement of a pipeline.
#[derive(Debug, Clone, Copy)]
pub struct PipelineStatement<'a> {
    /// One statement. The session prepares it once and keeps it, so the number of different texts must be bounded.
    pub sql: &'a str,
    /// Its parameters in text form; `None` is SQL NULL.
    pub params: &'a [Option<String>],
    /// The oids of the parameter types that the server must not infer.
    pub param_types: &'a [u32],
}

impl<'a> PipelineStatement<'a> {
    /// A statement whose parameter types the server infers.
    #[must_use]
    pub const fn new(sql: &'a str, params: &'a [Option<String>]) -> Self {
        Self { sql, params, param_types: &[] }
    }

    /// A statement without parameters.
    #[must_use]
    pub const fn without_params(sql: &'a str) -> Self {
        Self::new(sql, &[])
    }
}

/// The result of a statement.
#[derive(Debug, Clone, Default)]
pub struct StatementResult {
    /// The result columns; empty for a statement that returns no rows.
    pub columns: Vec<FieldDescription>,
    /// Its rows, in text form.
    pub rows: Vec<Vec<Option<String>>>,
    /// The command tag, e.g. `INSERT 0 3`.
    pub tag: String,
    /// The first 20 notices that it raised.
    pub notices: Vec<ServerError>,
}

impl StatementResult {
    /// The first row, if there is one with so many columns.
    #[must_use]
    pub fn into_row<const N: usize>(self) -> Option<[Option<String>; N]> {
        self.rows.into_iter().next()?.try_into().ok()
    }

    /// The first value of the first row.
    #[must_use]
    pub fn into_value(self) -> Option<String> {
        self.rows.into_iter().next()?.into_iter().next()?
    }

    /// The number of rows in the command tag: the last word of `INSERT 0 3`, `UPDATE 2`, `SELECT 5`.
    #[must_use]
    pub fn rows_affected(&self) -> u64 {
        self.tag.rsplit(' ').next().and_then(|count| count.parse().ok()).unwrap_or_default()
    }
}

/// A pipeline that stopped.
#[derive(Debug)]
pub struct PipelineError {
    /// The index of the failed step, from 0. The steps before it ran; those after it did not.
    pub step: usize,
    /// The reason.
    pub error: Error,
}

/// The most bytes of text that one pipeline may return; more is [`Error::MessageTooLarge`].
pub(crate) const MAX_PIPELINE_BYTES: usize = 8 << 20;

/// The tag, the length and the number of columns: the bytes of a row message without its values.
const ROW_HEADER_BYTES: usize = 7;

/// The time limit for the end of a session.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(1);

/// A connection with its prepared statements.
#[derive(Debug)]
pub struct Session {
    pub(crate) connection: Connection,
    /// The statements that begin each transaction through a pooler.
    preamble: Option<TransactionPreamble>,
    /// The names of prepared statements by text and parameter types.
    pub(crate) prepared: HashMap<(String, Vec<u32>), String>,
    /// The number of names used so far.
    names: u64,
    /// Whether the statements around a read are prepared (`query::read::read_transaction`). Always set through a
    /// pooler, where none are.
    pub(crate) boundary_prepared: bool,
    /// Whether the check of functions is prepared (`query::read::function_policy`).
    pub(crate) guard_prepared: bool,
    /// Whether the statements for the role and the claims of a caller are prepared.
    pub(crate) context_prepared: bool,
    /// The settings of the next read's transaction.
    pub(crate) settings: TransactionSettings,
    /// The statement that gave the last read's transaction the role of its caller.
    pub(crate) context_statement: Option<StatementId>,
    /// The statements of agents that are prepared.
    pub(crate) statements: StatementCache,
    /// Whether unqualified names are looked up in PostgreSQL's own schema only.
    pub(crate) has_system_path: bool,
    /// The session must not be reused: the schema has changed under a prepared statement, its reset has failed, or its
    /// state is unknown.
    is_unusable: bool,
}

impl Session {
    /// Connects, and starts the session with these settings.
    ///
    /// # Errors
    /// [`ConnectError`], within the target's connect timeout.
    pub async fn connect(target: &ConnectOptions, settings: &SessionSettings) -> Result<Self, ConnectError> {
        let connection = wire::connect(target, settings).await?;
        let preamble = (target.pooler == Pooler::Transaction).then(|| TransactionPreamble::new(settings));
        let is_pooled = preamble.is_some();
        Ok(Self {
            connection,
            preamble,
            prepared: HashMap::new(),
            names: 0,
            boundary_prepared: is_pooled,
            guard_prepared: false,
            context_prepared: false,
            settings: TransactionSettings::default(),
            context_statement: None,
            statements: StatementCache::new(!is_pooled),
            has_system_path: settings.has_system_path(),
            is_unusable: false,
        })
    }

    /// The engine that has reported itself at the start, if it is another one than PostgreSQL.
    #[must_use]
    pub fn other_engine(&self) -> Option<OtherEngine> {
        self.connection.reported.other_engine
    }

    /// Whether no request is pending and no transaction is open. Only then may another call use the session.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        !self.connection.has_pending() && self.connection.transaction_status == TransactionStatus::Idle
    }

    /// Whether a transaction block is open and has not failed.
    #[must_use]
    pub fn in_transaction(&self) -> bool {
        !self.connection.has_pending() && self.connection.transaction_status == TransactionStatus::Open
    }

    /// Whether a transaction block is open, failed or not, and no answer is pending.
    pub(crate) fn is_in_block(&self) -> bool {
        self.in_sync() && self.connection.transaction_status != TransactionStatus::Idle
    }

    /// Whether no answer is pending and the connection is usable.
    #[must_use]
    pub fn in_sync(&self) -> bool {
        !self.connection.has_pending() && !self.connection.is_broken
    }

    /// Whether the session can be leased again: it is idle or only waits for its reset, and its prepared statements
    /// still fit the database.
    #[must_use]
    pub fn is_reusable(&self) -> bool {
        (self.is_idle() || self.connection.reset_pending()) && !self.is_unusable
    }

    /// Whether the connection is known to be lost.
    pub(crate) fn is_broken(&self) -> bool {
        self.connection.is_broken
    }

    /// Whether the server has closed the connection while the session was idle.
    pub(crate) fn was_closed(&mut self) -> bool {
        self.connection.is_closed()
    }

    /// Begins the next pipeline with a probe if the peer has been silent for long. Not through a pooler, which may
    /// have no backend for it yet.
    pub(crate) fn push_probe(&mut self) {
        if !self.is_pooled() {
            self.connection.push_probe();
        }
    }

    pub(crate) fn cancel_key(&self) -> CancelKey {
        self.connection.key.clone()
    }

    /// The process id of its backend.
    #[must_use]
    pub fn backend_pid(&self) -> i32 {
        self.connection.key.process_id
    }

    /// [`Connection::push_whole`] for what a session pushes.
    pub(crate) fn push_whole<T, E>(&mut self, push: impl FnOnce(&mut Self) -> Result<T, E>) -> Result<T, E> {
        let before = self.connection.pushed();
        push(self).inspect_err(|_| self.connection.take_back(before))
    }

    /// Runs the steps as one pipeline: one round trip, and the first error skips all later steps (PostgreSQL manual,
    /// "Pipelining"). Outside a transaction block the pipeline is a transaction of its own.
    ///
    /// # Errors
    /// [`PipelineError`]: the step that failed, and the reason. After [`Error::Lost`] it is unknown which steps ran.
    pub async fn run(&mut self, steps: &[PipelineStatement<'_>]) -> Result<Vec<StatementResult>, PipelineError> {
        if self.is_pooled() && self.is_idle() {
            self.run_in_transaction(steps).await
        } else {
            self.run_pipeline(steps).await
        }
    }

    /// Like [`Session::run`], but within the transaction that is open, if one is.
    async fn run_pipeline(&mut self, steps: &[PipelineStatement<'_>]) -> Result<Vec<StatementResult>, PipelineError> {
        let mut parsing = Vec::with_capacity(steps.len());
        let pushed = self.connection.pushed();
        let before = self.connection.next_statement();
        for (step, statement) in steps.iter().enumerate() {
            match self.push_step(statement) {
                Ok(name) => parsing.push(name),
                Err(error) => {
                    self.connection.take_back(pushed);
                    self.forget_unparsed(&parsing, 0);
                    return Err(PipelineError { step, error });
                }
            }
        }
        self.connection.push_sync(Purpose::Call);
        self.connection.flush().await.map_err(|error| PipelineError { step: 0, error: Error::Lost(error) })?;
        let step_of = |statement: StatementId| statement.since(before).saturating_sub(1);
        let keep = RowRetention { rows: usize::MAX, bytes: MAX_PIPELINE_BYTES };
        let mut collector = Collector::new(keep, ROW_HEADER_BYTES).after(before);
        let failure = self.collect(&mut collector).await;
        let mut results = collector.results;
        let failure = failure.map_err(|error| PipelineError { step: results.len(), error })?;
        self.forget_unparsed(&parsing, collector.parsed.map_or(0, |last| last.since(before)));
        if let Some(Failure { statement, error }) = failure {
            let step = step_of(statement);
            // feature_not_supported: "cached plan must not change result type", after a change of the schema. If this
            // pipeline parsed the text itself, the error has another cause.
            let is_new = parsing.get(step).is_some_and(Option::is_some);
            self.is_unusable |= !is_new && error.sqlstate == "0A000" || error.is_stale_function();
            return Err(PipelineError { step, error: Error::Server(error) });
        }
        if collector.truncated_by.is_some() {
            let error = Error::MessageTooLarge { size: collector.bytes, limit: MAX_PIPELINE_BYTES };
            return Err(PipelineError { step: results.len().saturating_sub(1), error });
        }
        results.truncate(steps.len());
        Ok(results)
    }

    /// Collects an answer up to the next ReadyForQuery.
    async fn collect(&mut self, collector: &mut Collector) -> Result<Option<Failure>, Error> {
        let ended = self.connection.converse(&mut |event| collector.take(event)).await;
        // A value is not UTF-8: the connection must not be used further.
        ended.inspect_err(|error| {
            if matches!(error, Error::Server(_)) {
                self.connection.poison(error);
            }
        })
    }

    /// Like [`Session::run`], for rows that may be as large as the answer of a whole pipeline: records of the ledger.
    pub(crate) async fn run_large(
        &mut self,
        steps: &[PipelineStatement<'_>],
    ) -> Result<Vec<StatementResult>, PipelineError> {
        let usual = std::mem::replace(&mut self.connection.max_message_bytes, MAX_PIPELINE_BYTES);
        let outcome = self.run(steps).await;
        self.connection.max_message_bytes = usual;
        outcome
    }

    /// Queues one step. Returns the name of its statement if the step prepares it now.
    fn push_step(&mut self, step: &PipelineStatement<'_>) -> Result<Option<String>, Error> {
        if self.is_pooled() {
            self.push_unnamed(step.sql, step.params, step.param_types)?;
            self.connection.push_describe_portal("")?;
            self.connection.push_execute("", 0)?;
            return Ok(Some(String::new()));
        }
        let key = (step.sql.to_owned(), step.param_types.to_vec());
        let known = self.prepared.get(&key).cloned();
        let is_new = known.is_none();
        let name = known.unwrap_or_else(|| {
            self.names += 1;
            format!("countersign_{}", self.names)
        });
        self.connection.next_statement();
        if is_new {
            self.connection.push_parse(&name, step.sql, step.param_types)?;
        }
        self.connection.push_bind("", &name, step.params)?;
        self.connection.push_describe_portal("")?;
        self.connection.push_execute("", 0)?;
        if is_new {
            self.prepared.insert(key, name.clone());
        }
        Ok(is_new.then_some(name))
    }

    /// Queues Parse and Bind of the unnamed statement, which the next Parse without a name replaces.
    pub(crate) fn push_unnamed(
        &mut self,
        sql: &str,
        params: &[Option<String>],
        param_types: &[u32],
    ) -> Result<(), Error> {
        self.connection.next_statement();
        self.connection.push_parse("", sql, param_types)?;
        Ok(self.connection.push_bind("", "", params)?)
    }

    /// Queues Parse of a named statement as the beginning of the next pipeline.
    pub(crate) fn push_ahead(&mut self, name: &str, sql: &str) -> Result<(), Error> {
        self.connection.next_statement();
        self.connection.push_parse(name, sql, &[])
    }

    /// Closes the prepared statement of a text that will not be used again. Only queued: Close is sent with the next
    /// pipeline.
    pub(crate) fn forget(&mut self, sql: &str) -> Result<(), Error> {
        let key = (sql.to_owned(), Vec::new());
        match self.prepared.remove(&key) {
            Some(name) => Ok(self.connection.push_close_statement(&name)?),
            None => Ok(()),
        }
    }

    /// Forgets the statements that an error kept from being parsed. `parsed` is the number of steps up to the last
    /// parsed one.
    fn forget_unparsed(&mut self, parsing: &[Option<String>], parsed: usize) {
        let unparsed: Vec<&String> = parsing.iter().skip(parsed).flatten().collect();
        if !unparsed.is_empty() {
            self.prepared.retain(|_, name| !unparsed.contains(&&*name));
        }
    }

    /// Runs a constant text of this program, which may contain several statements, in the simple protocol.
    pub async fn batch_execute(&mut self, own_text: &str) -> Result<(), Error> {
        self.connection.push_simple_query(own_text, Purpose::Call)?;
        self.connection.flush().await?;
        self.finish().await
    }

    /// Reads up to the next ReadyForQuery.
    pub(crate) async fn finish(&mut self) -> Result<(), Error> {
        self.connection.finish().await
    }

    /// Sends Terminate and closes the connection.
    pub async fn close(mut self) {
        self.end(GOODBYE_TIMEOUT).await;
    }

    /// Ends the session within this time, without consuming it.
    pub(crate) async fn end(&mut self, within: Duration) {
        self.connection.terminate(within).await;
    }
}
