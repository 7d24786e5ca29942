//! A session: statements in, rows of text out. Knows nothing of JSON, of pools or of what its statements mean.

pub(crate) mod pooler_transaction;
mod reset;
mod run_to_completion;
mod settings;

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use fallible_iterator::FallibleIterator;
use postgres_protocol::message::backend::{CommandCompleteBody, DataRowBody, Message, RowDescriptionBody};

use crate::connect_options::{ConnectOptions, Pooler};
use crate::error::{ConnectError, Error, ServerError, utf8};
use crate::read::{StatementCache, TransactionSettings};
use crate::wire::{self, CancelKey, Connection, TransactionStatus};
use pooler_transaction::TransactionPreamble;
pub use run_to_completion::{CompleteResult, PlanResult, RowRetention};
pub use settings::SessionSettings;
pub(crate) use settings::check_client;

/// One statement of a pipeline.
#[derive(Debug, Clone, Copy)]
pub struct PipelineStatement<'a> {
    /// One statement. Prepared once a session and kept, so the number of different texts must be bounded.
    pub sql: &'a str,
    /// Its parameters in text form; `None` is SQL NULL.
    pub params: &'a [Option<String>],
    /// The types of its parameters by oid, where they are not to be inferred.
    pub param_types: &'a [u32],
}

impl<'a> PipelineStatement<'a> {
    /// A statement without parameters.
    #[must_use]
    pub fn without_params(sql: &'a str) -> Self {
        Self { sql, params: &[], param_types: &[] }
    }
}

/// What a statement gave back.
#[derive(Debug, Clone, Default)]
pub struct StatementResult {
    /// Its result columns; empty for a statement that returns none.
    pub columns: Vec<FieldDescription>,
    /// Its rows, in text form.
    pub rows: Vec<Vec<Option<String>>>,
    /// The command tag, e.g. `INSERT 0 3`.
    pub tag: String,
}

impl StatementResult {
    /// How many rows the command tag counts: the last word of `INSERT 0 3`, `UPDATE 2`, `SELECT 5`.
    #[must_use]
    pub fn rows_affected(&self) -> u64 {
        self.tag.rsplit(' ').next().and_then(|count| count.parse().ok()).unwrap_or_default()
    }
}

/// A result column as the server describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldDescription {
    /// The name, not necessarily unique.
    pub name: String,
    /// `pg_type.oid`; of the base type for a domain.
    pub type_oid: u32,
    /// Where it comes from, if straight from a table: `pg_class.oid` and `pg_attribute.attnum`.
    pub source: Option<(u32, i16)>,
}

/// What Describe said.
#[derive(Debug, Clone, Default)]
pub struct StatementDescription {
    /// `pg_type.oid` of each parameter.
    pub params: Vec<u32>,
    /// The result columns; `None` if the statement returns no rows.
    pub columns: Option<Vec<FieldDescription>>,
}

/// A pipeline that stopped.
#[derive(Debug)]
pub struct PipelineError {
    /// Which step, from 0. Those before it ran; those after it did not.
    pub step: usize,
    /// Why.
    pub error: Error,
}

/// What one pipeline may return, in bytes of text, before it is cut off with [`Error::MessageTooLarge`].
const MAX_PIPELINE_BYTES: usize = 8 << 20;

/// The tag, the length and the number of columns, which every row has.
const ROW_HEADER_BYTES: usize = 7;

/// How long a server may take to hear that the session is over.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(1);

/// A connection with its prepared statements.
#[derive(Debug)]
pub struct Session {
    pub(crate) connection: Connection,
    /// What a transaction begins with, if a pooler lends its backend.
    ground: Option<TransactionPreamble>,
    /// What is prepared here under which name: the same text with other parameters is another statement.
    pub(crate) prepared: HashMap<(String, Vec<u32>), String>,
    /// How many names there were.
    names: u64,
    /// How many statements are queued to be parsed that are not of the pipeline they will go out with.
    parses_ahead: usize,
    /// Whether the statements around a read are prepared (`read::frame`), or need not be, through a pooler.
    pub(crate) boundary_prepared: bool,
    /// The circumstances of the next read.
    pub(crate) around: TransactionSettings,
    /// The statements of agents that are prepared.
    pub(crate) remembered: StatementCache,
    /// The last thing that was sent leaves nothing of the call behind.
    reset_pending: bool,
    /// Whether names that are not qualified are looked up in PostgreSQL's own schema only.
    pub(crate) has_system_path: bool,
    /// The database has changed under a prepared statement: only a new session forgets it.
    outdated: bool,
}

impl Session {
    /// Connects, and starts the session with these settings.
    ///
    /// # Errors
    /// [`ConnectError`], within the target's connect timeout.
    pub async fn connect(target: &ConnectOptions, settings: &SessionSettings) -> Result<Self, ConnectError> {
        let connection = wire::connect(target, settings).await?;
        let ground = (target.pooler == Pooler::Transaction).then(|| TransactionPreamble::new(settings));
        let is_pooled = ground.is_some();
        Ok(Self {
            connection,
            ground,
            prepared: HashMap::new(),
            names: 0,
            parses_ahead: 0,
            boundary_prepared: is_pooled,
            around: TransactionSettings::default(),
            remembered: StatementCache::new(!is_pooled),
            reset_pending: false,
            has_system_path: settings.has_system_path(),
            outdated: false,
        })
    }

    /// Whether nothing is under way and no transaction is open: only then may another call use it.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.connection.pending_syncs == 0 && self.connection.transaction_status == TransactionStatus::Idle
    }

    /// Whether a transaction block is open and has not failed.
    #[must_use]
    pub fn in_transaction(&self) -> bool {
        self.connection.pending_syncs == 0 && self.connection.transaction_status == TransactionStatus::Open
    }

    /// Whether a transaction is open or has failed, and nothing is under way.
    pub(crate) fn is_in_block(&self) -> bool {
        self.in_sync() && self.connection.transaction_status != TransactionStatus::Idle
    }

    /// Whether nothing is under way, and it is known what the server says next.
    #[must_use]
    pub fn in_sync(&self) -> bool {
        self.connection.pending_syncs == 0 && !self.connection.is_broken
    }

    /// Whether it can be lent again: idle, or about to be, and its prepared statements still fit the database.
    #[must_use]
    pub fn is_reusable(&self) -> bool {
        (self.is_idle() || self.reset_pending()) && !self.outdated
    }

    /// Whether nothing comes or goes on its connection any more, as far as anybody has noticed.
    pub(crate) fn is_broken(&self) -> bool {
        self.connection.is_broken
    }

    /// Whether the server has ended it while it lay idle.
    pub(crate) fn was_closed(&mut self) -> bool {
        self.connection.is_closed()
    }

    /// Has the next pipeline find out first whether the peer is still there, if that is in doubt. A pooler may have no server for
    /// it yet.
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

    /// Runs the steps as one pipeline: one round trip, and the first error skips all that follow (PostgreSQL manual,
    /// "Pipelining"). Outside a transaction block the pipeline is a transaction of its own.
    ///
    /// # Errors
    /// [`PipelineError`]: the step that failed, and how. After [`Error::Lost`] it is unknown what ran.
    pub async fn run(&mut self, steps: &[PipelineStatement<'_>]) -> Result<Vec<StatementResult>, PipelineError> {
        if self.is_pooled() && self.is_idle() {
            self.run_in_transaction(steps).await
        } else {
            self.run_pipeline(steps).await
        }
    }

    /// The same in whatever transaction there is.
    async fn run_pipeline(&mut self, steps: &[PipelineStatement<'_>]) -> Result<Vec<StatementResult>, PipelineError> {
        let at = |step| move |error: io::Error| PipelineError { step, error: Error::Lost(error) };
        let mut parsing = Vec::with_capacity(steps.len());
        let before = self.connection.pushed();
        for (index, step) in steps.iter().enumerate() {
            match self.push_step(step) {
                Ok(name) => parsing.push(name),
                Err(error) => {
                    self.connection.take_back(before);
                    self.parses_ahead = 0;
                    self.forget_unparsed(&parsing, 0);
                    return Err(PipelineError { step: index, error });
                }
            }
        }
        self.connection.push_sync();
        self.connection.flush().await.map_err(at(0))?;
        self.collect(steps, parsing).await
    }

    /// The same for rows of our own that may be as large as a whole pipeline's answer: records of the ledger.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub(crate) async fn run_large(
        &mut self,
        steps: &[PipelineStatement<'_>],
    ) -> Result<Vec<StatementResult>, PipelineError> {
        let usual = std::mem::replace(&mut self.connection.max_message_bytes, MAX_PIPELINE_BYTES);
        let outcome = self.run(steps).await;
        self.connection.max_message_bytes = usual;
        outcome
    }

    /// Queues one step; the name under which its statement is being prepared now, if it was not before.
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

    /// Queues Parse and Bind of a statement without a name, which is there until the next one.
    pub(crate) fn push_unnamed(
        &mut self,
        sql: &str,
        params: &[Option<String>],
        param_types: &[u32],
    ) -> Result<(), Error> {
        self.connection.push_parse("", sql, param_types)?;
        Ok(self.connection.push_bind("", "", params)?)
    }

    /// Queues Parse of a statement under a name, for the next pipeline to begin with.
    pub(crate) fn push_ahead(&mut self, name: &str, sql: &str) -> Result<(), Error> {
        self.connection.push_parse(name, sql, &[])?;
        self.parses_ahead += 1;
        Ok(())
    }

    async fn collect(
        &mut self,
        steps: &[PipelineStatement<'_>],
        parsing: Vec<Option<String>>,
    ) -> Result<Vec<StatementResult>, PipelineError> {
        let mut outcomes = Vec::with_capacity(steps.len());
        let mut current = StatementResult::default();
        let mut failure = None;
        let mut parsed = 0_usize;
        let ahead = std::mem::take(&mut self.parses_ahead);
        let mut bytes = 0;
        loop {
            let step = outcomes.len();
            let message = self.connection.receive().await.map_err(|error| PipelineError { step, error })?;
            match message {
                Message::ParseComplete => parsed += 1,
                Message::RowDescription(body) => {
                    current.columns =
                        raw_columns(&body).map_err(|error| PipelineError { step, error: error.into() })?;
                }
                Message::DataRow(body) => {
                    // With its header: a row of no columns takes room, too.
                    bytes += body.buffer().len() + ROW_HEADER_BYTES;
                    if bytes <= MAX_PIPELINE_BYTES {
                        let row = raw_row(&body).inspect_err(|error| self.connection.poison(error));
                        current.rows.push(row.map_err(|error| PipelineError { step, error })?);
                    }
                }
                Message::CommandComplete(_) | Message::EmptyQueryResponse if step == steps.len() => {
                    let said = "protocol violation: more answers than statements";
                    let error = Error::Lost(io::Error::new(io::ErrorKind::InvalidData, said));
                    self.connection.poison(&error);
                    return Err(PipelineError { step, error });
                }
                Message::CommandComplete(body) => {
                    current.tag = tag(&body);
                    outcomes.push(std::mem::take(&mut current));
                }
                Message::EmptyQueryResponse => outcomes.push(std::mem::take(&mut current)),
                Message::ErrorResponse(body) => {
                    let error = ServerError::from_fields(body.fields());
                    // feature_not_supported: "cached plan must not change result type", after a change of the schema.
                    // Not of a text that is new in this very pipeline: it has meant that from the beginning.
                    let is_new = parsing.get(step).is_some_and(Option::is_some);
                    self.outdated |= !is_new && error.as_ref().is_ok_and(|error| error.sqlstate == "0A000");
                    let error = error.map_or_else(Error::Lost, |error| Error::Server(Box::new(error)));
                    failure = Some(PipelineError { step, error });
                }
                Message::ReadyForQuery(_) => break,
                _ => {}
            }
        }
        self.forget_unparsed(&parsing, parsed.saturating_sub(ahead));
        if bytes > MAX_PIPELINE_BYTES && failure.is_none() {
            let error = Error::MessageTooLarge { size: bytes, limit: MAX_PIPELINE_BYTES };
            failure = Some(PipelineError { step: outcomes.len().saturating_sub(1), error });
        }
        failure.map_or(Ok(outcomes), Err)
    }

    /// Prepares this text no more: it is one that does not come again. Queued only; it goes out with what is sent next.
    pub(crate) fn forget(&mut self, sql: &str) -> Result<(), Error> {
        let key = (sql.to_owned(), Vec::new());
        match self.prepared.remove(&key) {
            Some(name) => Ok(self.connection.push_close_statement(&name)?),
            None => Ok(()),
        }
    }

    /// Statements behind an error were never parsed: they must not count as prepared.
    fn forget_unparsed(&mut self, parsing: &[Option<String>], parsed: usize) {
        let unparsed: Vec<&String> = parsing.iter().flatten().skip(parsed).collect();
        if !unparsed.is_empty() {
            self.prepared.retain(|_, name| !unparsed.contains(&&*name));
        }
    }

    /// Runs a constant of ours, which may hold several statements, in the simple protocol.
    ///
    /// # Errors
    /// Whatever the server or the connection says.
    pub async fn batch_execute(&mut self, own_text: &str) -> Result<(), Error> {
        self.reset_pending = false;
        self.connection.push_simple_query(own_text)?;
        self.connection.flush().await?;
        self.finish().await
    }

    /// Parses and describes a statement under `name` without running it. It takes the place of the one that had the
    /// name before, if there was one.
    ///
    /// # Errors
    /// [`Error::Server`] if PostgreSQL does not take the text.
    pub async fn describe(
        &mut self,
        name: &str,
        sql: &str,
        param_types: &[u32],
    ) -> Result<StatementDescription, Error> {
        self.connection.push_whole(|connection| {
            connection.push_close_statement(name)?;
            push_describe(connection, name, sql, param_types)
        })?;
        self.connection.flush().await?;
        self.receive_shape(&mut 0).await
    }

    pub(crate) fn push_describe(&mut self, name: &str, sql: &str, param_types: &[u32]) -> Result<(), Error> {
        push_describe(&mut self.connection, name, sql, param_types)
    }

    /// `bound` counts the statements before it that were bound.
    pub(crate) async fn receive_shape(&mut self, bound: &mut usize) -> Result<StatementDescription, Error> {
        let mut shape = StatementDescription::default();
        let mut failure = None;
        loop {
            match self.connection.receive().await? {
                Message::ParameterDescription(body) => match body.parameters().collect() {
                    Ok(params) => shape.params = params,
                    // PostgreSQL describes any number of parameters, with a count of 16 bits; Bind takes no more.
                    Err(_) => failure = Some(too_many_params()),
                },
                Message::BindComplete => *bound += 1,
                Message::RowDescription(body) => shape.columns = Some(raw_columns(&body)?),
                Message::ErrorResponse(body) => failure = Some(ServerError::from_fields(body.fields())?),
                Message::ReadyForQuery(_) => {
                    return failure.map_or(Ok(shape), |error| Err(Error::Server(Box::new(error))));
                }
                _ => {}
            }
        }
    }

    /// Reads up to the next ReadyForQuery and reports the first error on the way.
    pub(crate) async fn finish(&mut self) -> Result<(), Error> {
        let mut failure = None;
        loop {
            match self.connection.receive().await? {
                Message::ErrorResponse(body) if failure.is_none() => {
                    failure = Some(ServerError::from_fields(body.fields())?);
                }
                Message::ReadyForQuery(_) => {
                    self.reset_pending = false;
                    return failure.map_or(Ok(()), |error| Err(Error::Server(Box::new(error))));
                }
                _ => {}
            }
        }
    }

    /// Ends the session politely.
    pub async fn close(mut self) {
        self.end(GOODBYE_TIMEOUT).await;
    }

    /// The same, for whoever holds on to what is left, and for no longer than this.
    pub(crate) async fn end(&mut self, within: Duration) {
        self.connection.terminate(within).await;
    }
}

fn too_many_params() -> ServerError {
    ServerError {
        hint: Some("Give many values as one array: ... = any($1).".to_owned()),
        // program_limit_exceeded
        ..ServerError::synthetic("54000", format!("a statement takes at most {} parameters", u16::MAX))
    }
}

fn push_describe(connection: &mut Connection, name: &str, sql: &str, param_types: &[u32]) -> Result<(), Error> {
    connection.push_parse(name, sql, param_types)?;
    connection.push_describe_statement(name)?;
    connection.push_sync();
    Ok(())
}

/// The longest command tag that is kept, in bytes; those of PostgreSQL have less than 64 (`COMPLETION_TAG_BUFSIZE`).
const MAX_TAG_BYTES: usize = 128;

fn tag(body: &CommandCompleteBody) -> String {
    let tag = body.tag().unwrap_or_default();
    tag.get(..tag.floor_char_boundary(MAX_TAG_BYTES)).unwrap_or_default().to_owned()
}

pub(crate) fn raw_columns(body: &RowDescriptionBody) -> io::Result<Vec<FieldDescription>> {
    body.fields()
        .map(|field| {
            Ok(FieldDescription {
                name: field.name().to_owned(),
                type_oid: field.type_oid(),
                source: (field.table_oid() != 0).then(|| (field.table_oid(), field.column_id())),
            })
        })
        .collect()
}

pub(crate) fn raw_row(body: &DataRowBody) -> Result<Vec<Option<String>>, Error> {
    let mut ranges = body.ranges();
    let mut row = Vec::new();
    while let Some(range) = ranges.next()? {
        let text = range.map(|range| utf8(body.buffer().get(range).unwrap_or_default()).map(str::to_owned));
        row.push(text.transpose()?);
    }
    Ok(row)
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;

    use super::*;

    /// M4
    #[test]
    fn a_command_tag_is_cut() {
        let mut message = BytesMut::from(&b"C\0\0\x04\x05"[..]);
        message.extend_from_slice(&[b'x'; 1024]);
        message.extend_from_slice(b"\0");
        let Ok(Some(Message::CommandComplete(body))) = Message::parse(&mut message) else { panic!("a message") };
        assert_eq!(tag(&body).len(), MAX_TAG_BYTES, "M4");
    }
}
