//! One read on one session.
//!
//! ```text
//! a text seen before   BEGIN READ ONLY · limits · the statement · Sync   ROLLBACK   DISCARD ALL     one round trip
//! a new one            BEGIN READ ONLY · limits · describe · Sync                                   one more before
//! ```
//! Everything before Sync is one pipeline: if BEGIN or the limits fail, the statement is skipped.

use std::sync::Arc;

use contract::Column;
use postgres_protocol::message::backend::{DataRowBody, Message};
use serde_json::Value;

use super::convert::{self, Conversion, DraftRow, explained};
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
        let params = self.types.resolve_all(session, &param_oids).await?;
        let columns = columns::resolve(&self.types, session, &raw).await?;
        let column_oids: Vec<u32> = raw.iter().map(|column| column.type_oid).collect();
        let shape = Shape::new(params, columns, column_oids);
        match &shape.row_types {
            Some(row_types) if !row_types.are_current(session).await? => {
                self.types.forget();
                let params = self.types.resolve_all(session, &param_oids).await?;
                let columns = columns::resolve(&self.types, session, &raw).await?;
                Ok(Shape::new(params, columns, shape.column_oids))
            }
            _ => Ok(shape),
        }
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
        // Only a statement without a name is parsed in this very pipeline.
        let progress = if statement.is_empty() { Progress::Unparsed } else { Progress::Unbound };
        let mut rows = Rows::new(shape, progress, row_limit as usize, self.limits.max_bytes);
        let connection = &mut session.connection;
        let formats = shape.conversion.as_ref().map_or(&[][..], Conversion::formats);
        // What a text seen before gave may have other fields now.
        let check = shape.row_types.as_ref().filter(|_| statement.is_empty());
        if let Some(row_types) = check {
            row_types.push(connection)?;
        }
        connection.push_bind_as("", statement, (&[], params), formats)?;
        connection.push_describe_portal("")?;
        connection.push_execute("", rows.portion())?;
        connection.push_sync();
        if shape.conversion.is_none() {
            push_cleaning(session)?;
        }
        session.connection.flush().await?;
        let statements_before = statements_before + usize::from(check.is_some());
        let mut failure = rows.receive(session, statements_before).await.map_err(too_large)?;
        if shape.conversion.is_some() {
            failure = rows.receive_rest(session, failure).await.map_err(too_large)?;
        }
        if rows.cut_by_bytes {
            return Ok(rows.finish(shape.columns.clone()));
        }
        session.finish().await?;
        if let Some(error) = failure {
            return Err(match rows.progress {
                Progress::Unparsed => Fetched::Unparsed(error),
                // The parameters were made for a row type as it was.
                Progress::Unbound if rows.is_stale => {
                    self.types.forget();
                    Fetched::Unparsed(error)
                }
                // PostgreSQL judges the parameters when they are bound; the statement has not started then.
                Progress::Unbound if !params.is_empty() => Fetched::Error(ReadError::Params(error.message)),
                _ => Fetched::Error(refusal(Error::Server(Box::new(explained(error, shape.conversion.as_ref()))))),
            });
        }
        match rows.changed.take() {
            None => Ok(rows.finish(shape.columns.clone())),
            Some(raw) => {
                // The schema has changed since the text was described: what came back counts.
                self.shapes.forget(request.sql);
                self.types.forget();
                session.finish().await?;
                let columns = columns::resolve(&self.types, session, &raw).await?;
                Ok(rows.finish(columns))
            }
        }
    }
}

/// What comes after the statement, whatever became of it.
fn push_cleaning(session: &mut Session) -> Result<(), Error> {
    session.connection.push_own_text("rollback")?;
    session.push_discard_all()?;
    Ok(())
}

/// What keeps a statement from giving rows.
enum Fetched {
    /// It was not parsed, or not bound, with the types that it had before.
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

impl From<ReadError> for Fetched {
    fn from(error: ReadError) -> Self {
        Self::Error(error)
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
    decoded: Vec<Vec<Value>>,
    /// The columns as they are now, if they are not as in `shape`; the rows are kept as text then.
    changed: Option<Vec<RawColumn>>,
    raw: Vec<Vec<Option<String>>>,
    /// Rows of a statement with a conversion.
    drafts: Vec<DraftRow>,
    bytes: usize,
    /// A row type is not as it was in `shape`.
    is_stale: bool,
    /// More rows can be asked for.
    is_suspended: bool,
    truncated: bool,
    cut_by_bytes: bool,
}

impl<'a> Rows<'a> {
    fn new(shape: &'a Shape, progress: Progress, row_limit: usize, max_bytes: usize) -> Self {
        Self {
            shape,
            row_limit,
            max_bytes,
            progress,
            decoded: Vec::new(),
            changed: None,
            raw: Vec::new(),
            drafts: Vec::new(),
            bytes: 0,
            is_stale: false,
            is_suspended: false,
            truncated: false,
            cut_by_bytes: false,
        }
    }

    /// Up to the ReadyForQuery of the statement's Sync, or to the limit on bytes; what the server refused, if it did.
    async fn receive(&mut self, session: &mut Session, statements_before: usize) -> Result<Option<ServerError>, Error> {
        let (mut parsed, mut bound) = (0, 0);
        let mut failure = None;
        self.is_suspended = false;
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
                    self.changed = (!is_same || self.is_stale).then_some(columns);
                }
                // The last statement before: the check of row types, if there is one.
                Message::DataRow(body) if self.progress != Progress::Bound && bound == statements_before => {
                    let row = raw_row(&body)?;
                    self.is_stale = self.shape.row_types.as_ref().is_some_and(|row_types| !row_types.are(&row));
                }
                Message::DataRow(body) if self.progress == Progress::Bound => {
                    self.bytes += body.buffer().len();
                    if self.arrived() == self.row_limit {
                        self.truncated = true;
                    } else if self.bytes > self.max_bytes {
                        self.truncated = true;
                        // The rest is not worth waiting for: the caller's lease stops the server. But a portion ends soon.
                        if self.shape.conversion.is_none() {
                            self.cut_by_bytes = true;
                            return Ok(None);
                        }
                    } else {
                        self.keep(&body)?;
                    }
                }
                Message::PortalSuspended => self.is_suspended = self.progress == Progress::Bound,
                Message::ErrorResponse(body) if failure.is_none() => {
                    failure = Some(ServerError::from_fields(body.fields())?);
                }
                Message::ReadyForQuery(_) => return Ok(failure),
                _ => {}
            }
        }
    }

    fn arrived(&self) -> usize {
        self.decoded.len() + self.raw.len() + self.drafts.len()
    }

    /// How many rows to ask for: one more than wanted, in portions if they need a conversion.
    fn portion(&self) -> i32 {
        let wanted = (self.row_limit + 1).saturating_sub(self.arrived());
        match self.shape.conversion {
            None => i32::try_from(wanted).unwrap_or(i32::MAX),
            Some(_) => convert::portion(self.arrived(), wanted),
        }
    }

    /// The other portions, and the conversion; afterwards the end of ROLLBACK is what comes next.
    async fn receive_rest(
        &mut self,
        session: &mut Session,
        mut failure: Option<ServerError>,
    ) -> Result<Option<ServerError>, Error> {
        while self.is_suspended && !self.truncated && failure.is_none() {
            session.connection.push_execute("", self.portion())?;
            session.connection.push_sync();
            session.connection.flush().await?;
            failure = self.receive(session, 0).await?;
        }
        let mut drafts = std::mem::take(&mut self.drafts);
        if failure.is_some() {
            drafts.clear();
        }
        let has_leaves = convert::push(session, &drafts)?;
        push_cleaning(session)?;
        session.connection.flush().await?;
        let converted = convert::receive(session, drafts, has_leaves, self.max_bytes).await;
        match converted {
            Ok(converted) => {
                self.decoded = converted.rows;
                self.truncated |= converted.is_cut;
                self.cut_by_bytes = converted.is_cut;
                Ok(failure)
            }
            Err(Error::Server(error)) => Ok(Some(*error)),
            Err(error) => Err(error),
        }
    }

    fn keep(&mut self, body: &DataRowBody) -> Result<(), Error> {
        match &self.shape.conversion {
            _ if self.changed.is_some() => self.raw.push(raw_row(body)?),
            None => self.decoded.push(decode(&raw_row(body)?, &self.shape.columns)),
            Some(conversion) => self.drafts.push(conversion.draft(body, &self.shape.columns)?),
        }
        Ok(())
    }

    fn finish(self, columns: Vec<Column>) -> ResultSet {
        let rows =
            if self.raw.is_empty() { self.decoded } else { self.raw.iter().map(|row| decode(row, &columns)).collect() };
        ResultSet { columns, rows, truncated: self.truncated }
    }
}

fn decode(row: &[Option<String>], columns: &[Column]) -> Vec<Value> {
    row.iter().zip(columns).map(|(text, column)| value::decode(text.as_deref(), &column.ty)).collect()
}

/// The parameters in text form, as many as the statement takes.
pub(super) fn encode(shape: &Shape, given: &[Value]) -> Result<Vec<Option<String>>, ReadError> {
    value::encode_all(given, &shape.params).map_err(|error| ReadError::Params(error.to_string()))
}
