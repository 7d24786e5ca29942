//! Runs one statement in the transaction of a read.
//!
//! ```text
//! a text seen before   the read transaction around the statement                                             one round trip
//! a new one            its opening, describe · what the statement calls · the statement and the end of it    two or three more
//! ```
//! A text seen before is prepared in the sessions that have run it; to others it is new (`session::statement_cache`).
//!
//! Rows that need a conversion, or that are passed on as they arrive, come portion by portion.

use std::sync::Arc;
use std::time::Instant;

use types::PgType;

use super::answer::{Answer, RowOutput};
use super::fetch::{FetchError, StatementHandle, statement_error};
use super::function_policy::{Inspection, PolicyVerdict};
use super::portioned::{PORTAL, portions_of, rows_to_ask};
use super::portions::Portions;
use super::read_transaction;
use super::server_json::{ServerJson, explained};
use super::statement_metadata::StatementMetadata;
use super::{ReadError, Reader, refusal, too_large};
use crate::columns;
use crate::error::{Error, ServerError};
use crate::session::{Session, StatementDescription};
use crate::value::EncodeError;
use crate::wire::{FieldDescription, Purpose, StatementId};

/// The error of a text without a statement.
pub(crate) const EMPTY_STATEMENT: &str = "there is no statement in the text";

/// What was pushed of a statement.
struct Sent {
    statement: StatementId,
    row_types_check: Option<StatementId>,
}

impl Reader {
    /// Runs the text, its rows into `output`.
    pub(super) async fn run<O: RowOutput>(
        &self,
        session: &mut Session,
        sql: &str,
        encode: impl Fn(&[Arc<PgType>]) -> Result<Vec<Option<String>>, EncodeError> + Send,
        output: &mut O,
    ) -> Result<(), ReadError> {
        if let Some((metadata, name)) = session.statements.get::<StatementMetadata>(sql) {
            let params = encode(&metadata.params)?;
            match self.execute(session, &metadata, StatementHandle::Prepared(&name), &params, output).await {
                // Nothing has run: the text does not fit the database as it was described.
                Err(FetchError::Outdated(_)) => {
                    self.types.forget();
                    session.statements.forget(sql);
                    session.await_reset().await?;
                }
                outcome => return outcome.map_err(FetchError::into_error),
            }
        }
        let name = session.statements.new_name();
        let seen = Instant::now();
        let outcome = self.run_new(session, &name, sql, encode, output).await;
        match outcome {
            Ok(Some(metadata)) => session.statements.insert(sql, metadata, name, seen),
            outcome => {
                session.statements.drop_name(name);
                outcome?;
            }
        }
        Ok(())
    }

    /// Describes the text under this name, looks at what it calls, and runs it. Returns its metadata if they are valid for
    /// other calls as well.
    async fn run_new<O: RowOutput>(
        &self,
        session: &mut Session,
        name: &str,
        sql: &str,
        encode: impl Fn(&[Arc<PgType>]) -> Result<Vec<Option<String>>, EncodeError> + Send,
        output: &mut O,
    ) -> Result<Option<Arc<StatementMetadata>>, ReadError> {
        let mut metadata = self.describe(session, name, sql).await?;
        let params = encode(&metadata.params)?;
        let Inspection { verdict, has_limit, is_parallel } = match self.functions.as_deref() {
            Some(functions) => functions.check(session, sql, &params).await?,
            None => Inspection::NONE,
        };
        (metadata.has_limit, metadata.is_parallel) = (has_limit, is_parallel);
        let metadata = Arc::new(metadata);
        match verdict {
            PolicyVerdict::Unseen if self.allow_commands => drop(session.drop_superuser().await?),
            PolicyVerdict::SeesStatements => session.push_close_remembered()?,
            _ => {}
        }
        let outcome = self.execute(session, &metadata, StatementHandle::Described(name), &params, output).await;
        outcome.map_err(FetchError::into_error)?;
        let is_cacheable = if O::MAY_CHANGE {
            matches!(verdict, PolicyVerdict::Always | PolicyVerdict::Unseen) && metadata.is_cacheable_with_recheck(sql)
        } else {
            verdict == PolicyVerdict::Always && metadata.is_cacheable(sql)
        };
        Ok(is_cacheable.then_some(metadata))
    }

    fn push_opening(&self, session: &mut Session) -> Result<(), Error> {
        session.connection.max_message_bytes = self.limits.max_bytes;
        self.transaction.push_begin(session)
    }

    /// Opens the transaction and describes the statement in it; nothing of the statement runs.
    pub(super) async fn describe(
        &self,
        session: &mut Session,
        name: &str,
        sql: &str,
    ) -> Result<StatementMetadata, ReadError> {
        let pushed = session.push_whole(|session| {
            self.push_opening(session)?;
            session.push_describe(name, sql, &[])
        });
        // A text that cannot be sent takes the opening with it.
        let statement = pushed.inspect_err(|_| session.invalidate_boundary_statements())?;
        session.connection.flush().await.map_err(Error::Lost)?;
        let described = session.receive_description().await?.map_err(|failure| {
            if failure.statement < statement {
                session.invalidate_boundary_statements();
            }
            refusal(failure.into())
        })?;
        let StatementDescription { params, columns: raw } = described;
        let returns_rows = raw.is_some();
        if !returns_rows && !self.allow_commands {
            return Err(ReadError::NoResultColumns);
        }
        let raw = raw.unwrap_or_default();
        let metadata = self.resolve(session, &params, &raw).await?;
        let metadata = match &metadata.row_types {
            Some(row_types) if !row_types.are_current(session).await? => {
                self.types.forget();
                self.resolve(session, &params, &raw).await?
            }
            _ => metadata,
        };
        Ok(StatementMetadata { returns_rows, ..metadata })
    }

    async fn resolve(
        &self,
        session: &mut Session,
        params: &[u32],
        raw: &[FieldDescription],
    ) -> Result<StatementMetadata, Error> {
        let params = self.types.resolve_all(session, params).await?;
        let columns = columns::resolve(&self.types, session, raw).await?;
        Ok(StatementMetadata::new(params, columns, raw.iter().map(|column| column.type_oid).collect()))
    }

    /// Ends a transaction that is still open and resets the session, without waiting for it.
    pub(super) async fn push_abort_and_reset(&self, session: &mut Session) -> Result<(), Error> {
        if !session.boundary_prepared {
            // The statements of the transaction's boundary may be missing: they are prepared again at the next opening.
            session.batch_execute("rollback").await?;
            return session.discard_all().await;
        }
        if session.is_pooled() && session.is_idle() {
            return Ok(());
        }
        self.transaction.push_abort_and_reset(session)?;
        Ok(session.connection.flush().await?)
    }

    /// Runs the statement up to the limits of `output`, rolls back and resets the session. The end of the reset is not
    /// waited for.
    pub(super) async fn execute<O: RowOutput>(
        &self,
        session: &mut Session,
        metadata: &StatementMetadata,
        handle: StatementHandle<'_>,
        params: &[Option<String>],
        output: &mut O,
    ) -> Result<(), FetchError> {
        output.begin(metadata)?;
        let portions = portions_of(metadata, output);
        let sent = session.push_whole(|session| {
            self.push_statement(session, metadata, (handle, params), portions.as_ref(), output)
        })?;
        session.connection.flush().await?;
        let mut answer = Answer::new(sent.statement, sent.row_types_check, metadata, output);
        let failure = session.connection.converse(&mut answer).await.map_err(too_large)?;
        if failure.as_ref().is_some_and(|failure| failure.statement < sent.row_types_check.unwrap_or(sent.statement)) {
            session.invalidate_boundary_statements();
        }
        if answer.copies {
            return Err(ReadError::Copy.into());
        }
        let failure = match portions {
            Some(portions) if !answer.is_cut => {
                self.run_portions(session, (portions, &mut answer), failure, sent.statement).await?
            }
            _ if answer.is_cut => None,
            _ => {
                match (&failure, metadata.returns_rows) {
                    (Some(_), true) => self.leave_failed(session).await?,
                    (Some(_), false) => self.push_abort_and_reset(session).await?,
                    // Whatever it has done to the session (DEALLOCATE ALL): it ends with it.
                    (None, false) => session.mark_unusable(),
                    (None, true) => {}
                }
                if failure.is_none() && answer.is_empty {
                    return Err(ReadError::Params(EMPTY_STATEMENT.to_owned()).into());
                }
                failure.map(|failure| statement_error(failure, sent.statement))
            }
        };
        match failure {
            None => Ok(()),
            Some(error) => Err(self.refused(&answer, handle, error, !params.is_empty())),
        }
    }

    /// Queues the pipeline of one statement, with the transaction around it.
    fn push_statement<O: RowOutput>(
        &self,
        session: &mut Session,
        metadata: &StatementMetadata,
        (handle, params): (StatementHandle<'_>, &[Option<String>]),
        portions: Option<&Portions>,
        output: &O,
    ) -> Result<Sent, Error> {
        let (name, is_prepared) = match handle {
            StatementHandle::Described(name) => (name, false),
            StatementHandle::Prepared(name) => (name, true),
        };
        if is_prepared {
            self.push_opening(session)?;
        }
        // What a text seen before gave may have other fields now.
        let row_types_check = match metadata.row_types.as_ref().filter(|_| is_prepared) {
            Some(row_types) => Some(row_types.push(&mut session.connection)?),
            None => None,
        };
        session.connection.max_message_bytes = output.max_message_bytes();
        let statement = session.connection.next_statement();
        let portal = if portions.is_some() { PORTAL } else { "" };
        let formats = metadata.conversion.as_ref().map_or(&[][..], ServerJson::formats);
        session.connection.push_bind_as(portal, name, (&[], params), formats)?;
        // A prepared statement is refused when the types of its columns have changed; not when a row type has.
        if O::MAY_CHANGE && (metadata.row_types.is_some() || !is_prepared) {
            session.connection.push_describe_portal(portal)?;
        }
        session.connection.push_execute(portal, rows_to_ask(portions, output))?;
        if portions.is_some() || !metadata.returns_rows {
            session.connection.push_sync(Purpose::Call);
        } else {
            self.transaction.push_rollback(session)?;
        }
        Ok(Sent { statement, row_types_check })
    }

    /// Waits for the end of the transaction, which has been sent; returns what PostgreSQL refused in it. The reset is not waited
    /// for.
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
    async fn leave_failed(&self, session: &mut Session) -> Result<(), Error> {
        if !session.is_pooled() {
            // The end of the reset, which failed with the transaction.
            let _ = session.finish().await;
        }
        self.push_abort_and_reset(session).await
    }

    /// The error for a statement that PostgreSQL refused.
    fn refused<O: RowOutput>(
        &self,
        answer: &Answer<'_, O>,
        handle: StatementHandle<'_>,
        error: ServerError,
        has_params: bool,
    ) -> FetchError {
        let is_unbound = !answer.was_bound;
        // Its parameters may be of other types now, or its columns; or they were made for a row type as it was.
        if is_unbound && (answer.is_stale || matches!(handle, StatementHandle::Prepared(_))) {
            return FetchError::Outdated(error);
        }
        // PostgreSQL judges the parameters when they are bound; the statement has not started then.
        if is_unbound && has_params && is_about_values(&error) {
            return FetchError::Read(ReadError::Params(error.about_parameter()));
        }
        let error = explained(error, answer.conversion());
        FetchError::Read(refusal(Error::Server(Box::new(error))))
    }
}

/// data_exception and, for domains, integrity_constraint_violation: a text that its type does not take. But not
/// division_by_zero, which is computed while it is planned.
pub(crate) fn is_about_values(error: &ServerError) -> bool {
    let class = error.sqlstate.get(..2);
    matches!(class, Some("22" | "23")) && error.sqlstate != "22012"
}
