//! One read on one session.
//!
//! ```text
//! a text seen before   BEGIN READ ONLY · limits · the statement · Sync   ROLLBACK   DISCARD ALL     one round trip
//! a new one            BEGIN READ ONLY · limits · describe · Sync                                   one more before
//! ```
//! Everything before Sync is one pipeline: if BEGIN or the limits fail, the statement is skipped.

use std::sync::Arc;

use contract::Column;
use postgres_protocol::message::backend::Message;
use serde_json::Value;

use super::rendered::Rendered;
use super::shapes::Shape;
use super::{ReadError, ReadRequest, Reader, ResultSet, refusal, too_large};
use crate::columns;
use crate::error::{Error, ServerError};
use crate::session::{RawColumn, RawShape, Session, raw_columns, raw_row};
use crate::value;

/// The name of a statement that is described first. It has one because looking up its types uses others in between.
const DESCRIBED: &str = "agent";

/// What is still to come when an answer is given: the end of DISCARD ALL.
pub(super) const OWED_BY_CLEANING: usize = 1;

/// BEGIN and the limits come before the statement, in the same pipeline.
const OPENING_STATEMENTS: usize = 2;

impl Reader {
    pub(super) async fn query_on(
        &self,
        session: &mut Session,
        request: &ReadRequest<'_>,
    ) -> Result<ResultSet, ReadError> {
        if let Some(shape) = self.shapes.get(request.sql) {
            let params = encode(&shape, request.params)?;
            self.push_opening(session)?;
            let oids: Vec<u32> = shape.params.iter().map(|ty| ty.oid).collect();
            session.connection.push_parse("", request.sql, &oids)?;
            match self.fetch(session, &shape, "", &params, request, OPENING_STATEMENTS).await {
                // Nothing has run: the text did not even parse with the types that it had before.
                Err(Fetched::Unparsed(_)) => {
                    self.shapes.forget(request.sql);
                    session.finish().await?;
                }
                outcome => return outcome.map_err(Fetched::into_error),
            }
        }
        let shape = Arc::new(self.describe(session, request.sql).await?);
        self.shapes.put(request.sql, &shape);
        let params = encode(&shape, request.params)?;
        self.run_described(session, &shape, DESCRIBED, &params, request).await
    }

    /// Runs a statement that has been described under this name.
    pub(super) async fn run_described(
        &self,
        session: &mut Session,
        shape: &Shape,
        statement: &str,
        params: &[Option<String>],
        request: &ReadRequest<'_>,
    ) -> Result<ResultSet, ReadError> {
        self.fetch(session, shape, statement, params, request, 0).await.map_err(Fetched::into_error)
    }

    fn push_opening(&self, session: &mut Session) -> Result<(), Error> {
        session.connection.max_message_bytes = self.limits.max_bytes;
        let timeout_ms = self.limits.deadline.as_millis();
        // The first query fixes the mode: afterwards SET TRANSACTION READ WRITE is an error, whoever says it.
        let limits = format!(
            "select set_config('statement_timeout', '{timeout_ms}', true), set_config('lock_timeout', '{timeout_ms}', true), \
             set_config('idle_in_transaction_session_timeout', '{timeout_ms}', true)"
        );
        for own_text in ["begin read only", &limits] {
            session.connection.push_parse("", own_text, &[])?;
            session.connection.push_bind("", "", &[])?;
            session.connection.push_execute("", 0)?;
        }
        Ok(())
    }

    /// Opens the transaction and describes the agent's statement in it; nothing of the agent's runs.
    pub(super) async fn describe(&self, session: &mut Session, sql: &str) -> Result<Shape, ReadError> {
        self.push_opening(session)?;
        session.push_describe(DESCRIBED, sql, &[])?;
        session.connection.flush().await.map_err(Error::Lost)?;
        let RawShape { params: param_oids, columns: raw } = session.receive_shape().await.map_err(refusal)?;
        let Some(raw) = raw else { return Err(ReadError::NoResultColumns) };
        let mut params = Vec::with_capacity(param_oids.len());
        for oid in param_oids {
            params.push(self.types.resolve(session, oid).await?);
        }
        let columns = columns::resolve(&self.types, session, &raw).await?;
        Ok(Shape { params, columns, column_oids: raw.iter().map(|column| column.type_oid).collect() })
    }

    /// Runs the statement up to the limits, rolls back and cleans the session. The end of the cleaning is not waited for.
    async fn fetch(
        &self,
        session: &mut Session,
        shape: &Shape,
        statement: &str,
        params: &[Option<String>],
        request: &ReadRequest<'_>,
        statements_before: usize,
    ) -> Result<ResultSet, Fetched> {
        let row_limit = request.row_limit.unwrap_or(self.limits.default_rows).min(self.limits.max_rows);
        let one_more = i32::try_from(row_limit).unwrap_or(i32::MAX).saturating_add(1);
        let connection = &mut session.connection;
        connection.push_bind("", statement, params)?;
        connection.push_describe_portal("")?;
        connection.push_execute("", one_more)?;
        connection.push_sync();
        connection.push_own_text("rollback")?;
        session.push_discard_all()?;
        // Only a statement without a name is parsed in this very pipeline.
        let progress = if statement.is_empty() { Progress::Unparsed } else { Progress::Unbound };
        let rendered = Rendered::new(request.form, self.limits.max_bytes);
        let mut rows = Rows::new(shape, progress, row_limit as usize, self.limits.max_bytes, rendered);
        session.connection.flush().await?;
        let failure = match rows.receive(session, statements_before).await {
            Ok(failure) => failure,
            Err(error) => return Err(Fetched::Error(too_large(error))),
        };
        if rows.cut_by_bytes {
            return rows.finish(shape.columns.clone()).map_err(Fetched::Error);
        }
        session.finish().await?;
        if let Some(error) = failure {
            return Err(match rows.progress {
                Progress::Unparsed => Fetched::Unparsed(error),
                // PostgreSQL judges the parameters when they are bound; the statement has not started then.
                Progress::Unbound if !params.is_empty() => Fetched::Error(ReadError::Params(error.message)),
                _ => Fetched::Error(refusal(Error::Server(Box::new(error)))),
            });
        }
        match rows.changed.take() {
            None => rows.finish(shape.columns.clone()).map_err(Fetched::Error),
            Some(raw) => {
                // The schema has changed since the text was described: what came back counts.
                self.shapes.forget(request.sql);
                session.finish().await?;
                let columns = columns::resolve(&self.types, session, &raw).await?;
                rows.finish(columns).map_err(Fetched::Error)
            }
        }
    }
}

/// What keeps a statement from giving rows.
enum Fetched {
    /// It was not parsed with the types that it had before.
    Unparsed(ServerError),
    Error(ReadError),
}

impl Fetched {
    fn into_error(self) -> ReadError {
        match self {
            Self::Unparsed(error) => refusal(Error::Server(Box::new(error))),
            Self::Error(error) => error,
        }
    }
}

impl From<std::io::Error> for Fetched {
    fn from(error: std::io::Error) -> Self {
        Self::Error(ReadError::Database(Error::Lost(error)))
    }
}

impl From<Error> for Fetched {
    fn from(error: Error) -> Self {
        Self::Error(ReadError::Database(error))
    }
}

/// How far the agent's statement got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    Unparsed,
    Unbound,
    Bound,
}

/// Rows on their way.
struct Rows<'a> {
    shape: &'a Shape,
    row_limit: usize,
    max_bytes: usize,
    progress: Progress,
    rendered: Rendered,
    /// The columns as they are now, if they are not as in `shape`; the rows are kept as text then.
    changed: Option<Vec<RawColumn>>,
    raw: Vec<Vec<Option<String>>>,
    truncated: bool,
    cut_by_bytes: bool,
}

impl<'a> Rows<'a> {
    fn new(shape: &'a Shape, progress: Progress, row_limit: usize, max_bytes: usize, rendered: Rendered) -> Self {
        Self {
            shape,
            row_limit,
            max_bytes,
            progress,
            rendered,
            changed: None,
            raw: Vec::new(),
            truncated: false,
            cut_by_bytes: false,
        }
    }

    /// Up to the ReadyForQuery of the statement's Sync, or to the limit on bytes; what the server refused, if it did.
    async fn receive(&mut self, session: &mut Session, statements_before: usize) -> Result<Option<ServerError>, Error> {
        let (mut parsed, mut bound, mut bytes) = (0, 0, 0);
        let mut failure = None;
        loop {
            match session.connection.receive().await? {
                Message::ParseComplete => {
                    parsed += 1;
                    if parsed > statements_before && self.progress == Progress::Unparsed {
                        self.progress = Progress::Unbound;
                    }
                }
                Message::BindComplete => {
                    bound += 1;
                    if bound > statements_before {
                        self.progress = Progress::Bound;
                    }
                }
                Message::RowDescription(body) if self.progress == Progress::Bound => {
                    let columns = raw_columns(&body)?;
                    let is_same =
                        columns.iter().map(|column| column.type_oid).eq(self.shape.column_oids.iter().copied());
                    self.changed = (!is_same).then_some(columns);
                }
                Message::DataRow(body) if self.progress == Progress::Bound => {
                    bytes += body.buffer().len();
                    if self.rendered.len() + self.raw.len() == self.row_limit {
                        self.truncated = true;
                    } else if bytes > self.max_bytes || !self.keep(raw_row(&body)?)? {
                        // The rest is not worth waiting for: the caller's lease stops the server.
                        (self.truncated, self.cut_by_bytes) = (true, true);
                        return Ok(None);
                    }
                }
                Message::ErrorResponse(body) if failure.is_none() => {
                    failure = Some(ServerError::from_fields(body.fields())?);
                }
                Message::ReadyForQuery(_) => return Ok(failure),
                _ => {}
            }
        }
    }

    /// Whether there was room for it.
    fn keep(&mut self, row: Vec<Option<String>>) -> Result<bool, Error> {
        if self.changed.is_some() {
            self.raw.push(row);
            return Ok(true);
        }
        self.rendered.take(&row, &self.shape.columns)
    }

    fn finish(mut self, columns: Vec<Column>) -> Result<ResultSet, ReadError> {
        for row in &self.raw {
            let fits = self.rendered.take(row, &columns).map_err(too_large)?;
            self.truncated |= !fits;
            if !fits {
                break;
            }
        }
        Ok(self.rendered.finish(columns, self.truncated))
    }
}

/// The parameters in text form, as many as the statement takes.
pub(super) fn encode(shape: &Shape, given: &[Value]) -> Result<Vec<Option<String>>, ReadError> {
    value::encode_all(given, &shape.params).map_err(|error| ReadError::Params(error.to_string()))
}
