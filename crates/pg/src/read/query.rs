//! One read on one session.
//!
//! ```text
//! a text seen before   the frame around the statement                                               one round trip
//! a new one            the opening of the frame, describe · what it calls · the rest of the frame    two or three more
//! ```
//! A text seen before is prepared in the sessions that have run it; to others it is new (`remembered`).

use std::sync::Arc;
use std::time::Instant;

use serde_json::Value;

use super::function_policy::{Inspection, PolicyVerdict};
use super::read_transaction::{self, OPENING_STATEMENTS, TransactionSettings};
use super::row_buffer::{Before, Progress, Rows};
use super::server_json::{self, ServerJson, explained};
use super::statement_metadata::StatementMetadata;
use super::{Layer, ReadError, ReadRequest, Reader, ResultSet, refusal, too_large};
use crate::columns;
use crate::error::{Error, ServerError};
use crate::session::{Session, StatementDescription};
use crate::value;

/// Where the statement of a pipeline comes from.
#[derive(Debug, Clone, Copy)]
pub(super) enum Statement<'a> {
    /// It has been described in this transaction, under this name.
    Described(&'a str),
    /// It is prepared in this session, under this name.
    Prepared(&'a str),
}

impl<'a> Statement<'a> {
    pub(super) fn name(self) -> &'a str {
        match self {
            Self::Described(name) | Self::Prepared(name) => name,
        }
    }
}

impl Reader {
    pub(super) async fn query_on(
        &self,
        session: &mut Session,
        request: &ReadRequest<'_>,
    ) -> Result<ResultSet, ReadError> {
        session.around = TransactionSettings::within(request.account.unwrap_or_default(), self.limits.deadline);
        if let Some((shape, name)) = session.remembered.known(request.sql) {
            let params = encode(&shape, request.params)?;
            match self.fetch(session, &shape, Statement::Prepared(&name), &params, request).await {
                // Nothing has run: the text does not fit the database as it was described.
                Err(Fetched::Outdated(_)) => {
                    session.remembered.forget(request.sql);
                    session.await_reset().await?;
                }
                outcome => return outcome.map_err(Fetched::into_error),
            }
        }
        if !self.layers.has(Layer::ExtendedProtocol) {
            return self.run_simple(session, request.sql).await;
        }
        let name = session.remembered.new_name();
        let seen = Instant::now();
        let outcome = self.run_new(session, &name, request).await;
        match &outcome {
            Ok((_, Some(shape))) => session.remembered.put(request.sql, shape, name, seen),
            Ok((_, None)) | Err(_) => session.remembered.drop_name(name),
        }
        outcome.map(|(result, _)| result)
    }

    /// Describes the text under this name, looks at what it calls, and runs it. With the rows comes the shape, if it holds
    /// for other calls as well.
    async fn run_new(
        &self,
        session: &mut Session,
        name: &str,
        request: &ReadRequest<'_>,
    ) -> Result<(ResultSet, Option<Arc<StatementMetadata>>), ReadError> {
        let mut shape = self.describe(session, name, request.sql).await?;
        let params = encode(&shape, request.params)?;
        let Inspection { checked, has_limit, .. } = if self.layers.has(Layer::Functions) {
            self.functions.check(session, request.sql, &params).await?
        } else {
            Inspection::NONE
        };
        shape.has_limit = has_limit;
        let shape = Arc::new(shape);
        if checked == PolicyVerdict::SeesStatements {
            session.push_close_remembered()?;
        }
        let holds = matches!(checked, PolicyVerdict::Always | PolicyVerdict::Unseen)
            && shape.is_cacheable_with_recheck(request.sql);
        let result = self.fetch(session, &shape, Statement::Described(name), &params, request).await;
        let result = result.map_err(Fetched::into_error)?;
        Ok((result, holds.then_some(shape)))
    }

    pub(super) fn push_opening(&self, session: &mut Session) -> Result<Before, Error> {
        session.connection.max_message_bytes = self.limits.max_bytes;
        self.frame.push_opening(session)?;
        Ok(Before { bound: OPENING_STATEMENTS })
    }

    /// A text that cannot be sent takes the opening with it.
    fn push_behind_opening(
        &self,
        session: &mut Session,
        push: impl FnOnce(&mut Session) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let pushed = session.push_whole(|session| {
            self.push_opening(session)?;
            push(session)
        });
        pushed.inspect_err(|_| session.invalidate_boundary_statements())
    }

    /// Opens the transaction and describes the agent's statement in it; nothing of the agent's runs.
    pub(super) async fn describe(
        &self,
        session: &mut Session,
        name: &str,
        sql: &str,
    ) -> Result<StatementMetadata, ReadError> {
        self.push_behind_opening(session, |session| session.push_describe(name, sql, &[]))?;
        session.connection.flush().await.map_err(Error::Lost)?;
        let mut bound = 0;
        let described = session.receive_shape(&mut bound).await;
        if bound != OPENING_STATEMENTS {
            session.invalidate_boundary_statements();
        }
        let StatementDescription { params: param_oids, columns: raw } = described.map_err(refusal)?;
        let returns_rows = raw.is_some();
        let raw = match raw {
            Some(raw) => raw,
            None if self.allow_commands || !self.layers.has(Layer::ResultColumns) => Vec::new(),
            None => return Err(ReadError::NoResultColumns),
        };
        let params = self.types.resolve_all(session, &param_oids).await?;
        let columns = columns::resolve(&self.types, session, &raw).await?;
        let column_oids: Vec<u32> = raw.iter().map(|column| column.type_oid).collect();
        let shape = StatementMetadata { returns_rows, ..StatementMetadata::new(params, columns, column_oids) };
        match &shape.row_types {
            Some(row_types) if !row_types.are_current(session).await? => {
                self.types.forget();
                let params = self.types.resolve_all(session, &param_oids).await?;
                let columns = columns::resolve(&self.types, session, &raw).await?;
                Ok(StatementMetadata { returns_rows, ..StatementMetadata::new(params, columns, shape.column_oids) })
            }
            _ => Ok(shape),
        }
    }

    /// Ends a transaction that is still open, and cleans the session: without waiting for it.
    pub(super) async fn push_abort_and_reset(&self, session: &mut Session) -> Result<(), Error> {
        if !session.boundary_prepared {
            // The statements of the frame may not be there: they are made anew at the next opening.
            session.batch_execute(if self.layers.has(Layer::Rollback) { "rollback" } else { "commit" }).await?;
            return session.discard_all().await;
        }
        if session.is_pooled() && session.is_idle() {
            return Ok(());
        }
        self.frame.push_abort_and_reset(session)?;
        Ok(session.connection.flush().await?)
    }

    /// What a server does that trusts the simple protocol: only ever without [`Layer::ExtendedProtocol`].
    async fn run_simple(&self, session: &mut Session, sql: &str) -> Result<ResultSet, ReadError> {
        self.push_behind_opening(session, |session| Ok(session.connection.push_simple_query(sql)?))?;
        session.connection.push_sync();
        session.connection.flush().await.map_err(Error::Lost)?;
        let outcome = session.finish().await.map_err(refusal);
        session.finish().await?;
        self.push_abort_and_reset(session).await?;
        outcome.map(|()| ResultSet { columns: Vec::new(), rows: Vec::new(), truncated_by: None, permit: None })
    }

    /// Runs the statement up to the limits, rolls back and cleans the session. The end of the cleaning is not waited for.
    pub(super) async fn fetch(
        &self,
        session: &mut Session,
        shape: &Arc<StatementMetadata>,
        statement: Statement<'_>,
        params: &[Option<String>],
        request: &ReadRequest<'_>,
    ) -> Result<ResultSet, Fetched> {
        let mut rows = Rows::new(
            Arc::clone(shape),
            self.limits.rows(request.row_limit, shape.has_limit),
            (request.format, self.limits.max_bytes),
        );
        let before = self.push_statement(session, &rows, shape, statement, params)?;
        session.connection.flush().await?;
        let mut failure = rows.receive(session, before).await.map_err(too_large)?;
        if !rows.is_open {
            session.invalidate_boundary_statements();
        }
        if shape.conversion.is_some() {
            failure = self.convert(session, &mut rows, failure).await.map_err(too_large)?;
        } else if rows.cut_by_bytes {
            return rows.finish(shape.columns.clone()).map_err(|error| too_large(error).into());
        } else if failure.is_some() {
            self.leave_failed(session).await?;
        }
        if let Some(error) = failure {
            return Err(self.failed(&rows, statement, error, !params.is_empty()));
        }
        let columns = match rows.changed.take() {
            None => shape.columns.clone(),
            Some(raw) => {
                // The schema has changed since the text was described: what came back counts.
                session.remembered.forget(request.sql);
                self.types.forget();
                session.await_reset().await?;
                columns::resolve(&self.types, session, &raw).await?
            }
        };
        rows.finish(columns).map_err(|error| too_large(error).into())
    }

    /// Queues the pipeline of one statement, frame and all; what comes before the statement in it.
    fn push_statement(
        &self,
        session: &mut Session,
        rows: &Rows,
        shape: &StatementMetadata,
        statement: Statement<'_>,
        params: &[Option<String>],
    ) -> Result<Before, Error> {
        let is_described = matches!(statement, Statement::Described(_));
        let mut before = if is_described { Before::default() } else { self.push_opening(session)? };
        // What a text seen before gave may have other fields now.
        if let Some(row_types) = shape.row_types.as_ref().filter(|_| !is_described) {
            row_types.push(&mut session.connection)?;
            before.bound += 1;
        }
        let formats = shape.conversion.as_ref().map_or(&[][..], ServerJson::formats);
        session.connection.push_bind_as("", statement.name(), (&[], params), formats)?;
        // A prepared statement is refused when the types of its columns have changed; not when a row type has.
        if shape.row_types.is_some() || !matches!(statement, Statement::Prepared(_)) {
            session.connection.push_describe_portal("")?;
        }
        session.connection.push_execute("", rows.portion())?;
        if shape.conversion.is_some() {
            session.connection.push_sync();
        } else {
            self.frame.push_end(session)?;
        }
        Ok(before)
    }

    /// Has the server make JSON of what only it can, and sends the end of the frame behind it.
    async fn convert(
        &self,
        session: &mut Session,
        rows: &mut Rows,
        mut failure: Option<ServerError>,
    ) -> Result<Option<ServerError>, Error> {
        if failure.is_none() {
            failure = rows.receive_rest(session).await?;
        }
        if failure.is_some() {
            self.push_abort_and_reset(session).await?;
            return Ok(failure);
        }
        let drafts = rows.take_drafts();
        let has_leaves = server_json::push(session, &drafts)?;
        self.frame.push_end(session)?;
        session.connection.flush().await?;
        let converted = server_json::receive(session, drafts, has_leaves, self.limits.max_bytes).await;
        let failure = match converted {
            Ok(converted) => {
                rows.take_converted(converted)?;
                if rows.cut_by_bytes {
                    return Ok(None);
                }
                None
            }
            Err(Error::Server(error)) => Some(*error),
            Err(error) => return Err(error),
        };
        // The end fails with the conversion.
        let ended = self.ended(session).await?;
        Ok(failure.or(ended))
    }

    /// Waits for the end of the transaction, which has been sent ([`super::read_transaction::ReadTransaction::push_end`]); what PostgreSQL refused
    /// in it. The cleaning is not waited for.
    pub(super) async fn ended(&self, session: &mut Session) -> Result<Option<ServerError>, Error> {
        match session.finish().await {
            Ok(()) => Ok(None),
            Err(Error::Server(error)) => {
                self.leave_failed(session).await?;
                Ok(Some(read_transaction::statement_error(*error)))
            }
            Err(error) => Err(error),
        }
    }

    /// Leaves a transaction that failed after its end had been sent.
    pub(super) async fn leave_failed(&self, session: &mut Session) -> Result<(), Error> {
        if !session.is_pooled() {
            // The end of the cleaning, which failed with the transaction.
            let _ = session.finish().await;
        }
        self.push_abort_and_reset(session).await
    }

    /// What the caller is told of a statement that PostgreSQL refused.
    fn failed(&self, rows: &Rows, statement: Statement<'_>, error: ServerError, has_params: bool) -> Fetched {
        let conversion = rows.conversion();
        match rows.progress {
            // The parameters were made for a row type as it was.
            Progress::Unbound if rows.is_stale => {
                self.types.forget();
                Fetched::Outdated(error)
            }
            // Its parameters may be of other types now, or its columns.
            Progress::Unbound if matches!(statement, Statement::Prepared(_)) => Fetched::Outdated(error),
            // PostgreSQL judges the parameters when they are bound; the statement has not started then.
            Progress::Unbound if has_params && is_about_values(&error) => {
                Fetched::Error(ReadError::Params(error.about_parameter()))
            }
            _ => Fetched::Error(refusal(Error::Server(Box::new(explained(error, conversion))))),
        }
    }
}

/// data_exception and, for domains, integrity_constraint_violation: a text that its type does not take. But not
/// division_by_zero, which is computed while it is planned.
pub(crate) fn is_about_values(error: &ServerError) -> bool {
    let class = error.sqlstate.get(..2);
    matches!(class, Some("22" | "23")) && error.sqlstate != "22012"
}

/// What keeps a statement from giving rows.
pub(super) enum Fetched {
    /// It was not parsed, or not bound, as it was described.
    Outdated(ServerError),
    Error(ReadError),
}

impl Fetched {
    pub(super) fn into_error(self) -> ReadError {
        match self {
            Self::Outdated(error) => refusal(Error::Server(Box::new(error))),
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

/// The parameters in text form, as many as the statement takes.
pub(super) fn encode(shape: &StatementMetadata, given: &[Value]) -> Result<Vec<Option<String>>, ReadError> {
    Ok(value::encode_all(given, &shape.params)?)
}
