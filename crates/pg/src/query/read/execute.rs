//! Runs one statement in a read transaction.
//!
//! ```text
//! known text   the transaction around the statement                             one round trip
//! new text     its beginning, description and plan · the statement and the end   two round trips
//! ```
//! A text is known only in sessions that have run it, and new in every other one
//! (`client::session::statement_cache`). Types that the process does not know, and texts that PostgreSQL cannot plan
//! for unknown parameters, take further round trips.
//!
//! Rows that need a conversion, and rows that are passed on as they arrive, come in portions.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use types::PgType;

use super::answer::{Answer, RowOutput};
use super::fetch::{FetchError, StatementHandle, statement_error};
use super::function_policy::{FunctionPolicy, forbidden, is_forbidden, push_guard};
use super::inspection::{Inspection, PolicyVerdict};
use super::portions::{PORTAL, Portions, portions_of, rows_to_ask};
use super::prepare::Described;
use super::read_transaction::{self, push_end_of_planning};
use super::row_buffer::RowBuffer;
use super::server_json::{ServerJson, explained};
use super::statement_metadata::StatementMetadata;
use super::{ReadError, ReadRequest, Reader, ResultSet, refusal, too_large};
use crate::client::error::{Error, ServerError};
use crate::client::session::Session;
use crate::client::wire::{Failure, Purpose, StatementId};
use crate::query::columns;
use crate::query::plan::PlanResult;
use crate::query::value::{self, EncodeError};

pub(crate) const EMPTY_STATEMENT: &str = "there is no statement in the text";

/// The ids of the statements that were queued for a read.
struct Sent {
    /// The first statement after those of the transaction.
    first: StatementId,
    guard: Option<StatementId>,
    row_types_check: Option<StatementId>,
    statement: StatementId,
}

impl Reader {
    /// Runs one read, and keeps its rows.
    pub(super) async fn read_on(
        &self,
        session: &mut Session,
        request: &ReadRequest<'_>,
    ) -> Result<ResultSet, ReadError> {
        session.settings = self.settings_for(request.account.unwrap_or_default());
        let mut rows = RowBuffer::new(&self.limits, request);
        let text = (request.sql, request.params.len());
        self.run(session, text, |types| value::encode_all(request.params, types), &mut rows).await?;
        let columns = match rows.changed() {
            None => None,
            Some(raw) => {
                // The schema has changed since the text was described. The arrived rows and columns are the answer.
                session.statements.forget(&self.cache_key(request.sql));
                self.types.forget();
                session.await_reset().await?;
                Some(columns::resolve(&self.types, session, &raw).await?)
            }
        };
        let standby = read_transaction::standby_age(session);
        rows.finish(columns).map(|result| ResultSet { standby, ..result }).map_err(too_large)
    }

    /// Runs the text. `encode` returns the text forms of its parameters. The rows go to `output`.
    pub(super) async fn run<O: RowOutput>(
        &self,
        session: &mut Session,
        (sql, param_count): (&str, usize),
        encode: impl Fn(&[Arc<PgType>]) -> Result<Vec<Option<String>>, EncodeError> + Send,
        output: &mut O,
    ) -> Result<(), ReadError> {
        let key = self.cache_key(sql);
        // Not cached: the result of a mask check depends on the caller and on the current catalog.
        let known = if self.masking.is_none() { session.statements.get::<StatementMetadata>(&key) } else { None };
        if let Some((metadata, name)) = known {
            let params = encode(&metadata.params)?;
            match self.execute(session, &metadata, StatementHandle::Prepared(&name), &params, output).await {
                // The statement did not run: it no longer fits the database.
                Err(FetchError::Outdated(_)) => {
                    self.types.forget();
                    session.statements.forget(&key);
                    session.await_reset().await?;
                }
                outcome => return outcome.map_err(FetchError::into_error),
            }
        }
        let name = session.statements.new_name();
        let seen = Instant::now();
        let outcome = self.run_new(session, &name, (sql, param_count), encode, output).await;
        match outcome {
            Ok(Some(metadata)) => session.statements.insert(&key, metadata, name, seen),
            outcome => {
                session.statements.drop_name(name);
                outcome?;
            }
        }
        Ok(())
    }

    /// Prepares the text under this name, inspects its plan, and runs it. Returns its metadata if other calls may use
    /// them.
    async fn run_new<O: RowOutput>(
        &self,
        session: &mut Session,
        name: &str,
        (sql, param_count): (&str, usize),
        encode: impl Fn(&[Arc<PgType>]) -> Result<Vec<Option<String>>, EncodeError> + Send,
        output: &mut O,
    ) -> Result<Option<Arc<StatementMetadata>>, ReadError> {
        let planned_params = self.functions.is_some().then_some(param_count);
        let Described { mut metadata, planned, sources, masked_columns } =
            self.describe(session, (name, sql), planned_params).await?;
        let params = encode(&metadata.params)?;
        let plan = match (&self.masking, &planned) {
            (Some(_), Some(PlanResult::Plan(plan))) => Some(plan.clone()),
            _ => None,
        };
        let mut inspection = match (self.functions.as_deref(), planned) {
            (Some(functions), Some(planned)) => functions.inspect(session, (name, sql), &params, planned, true).await?,
            _ => Inspection::NONE,
        };
        metadata.apply(&inspection);
        if let Some(masking) = &self.masking {
            let masks = masking.inspect(session, (sql, plan.as_ref()), &sources, masked_columns.as_deref()).await?;
            metadata.masks = Some(masks);
            // The plan was made without index scans, so the statement must be parsed again to run.
            inspection.is_unpruned = true;
        }
        match inspection.verdict {
            PolicyVerdict::Unseen if self.allow_commands => {
                session.drop_superuser(std::mem::take(&mut inspection.in_planning)).await?;
            }
            PolicyVerdict::SeesStatements => session.push_close_remembered()?,
            _ => {}
        }
        let handle = StatementHandle::Inspected { name, sql, inspection: &inspection };
        let outcome = self.execute(session, &metadata, handle, &params, output).await;
        outcome.map_err(FetchError::into_error)?;
        // The catalog has been asked about all functions, which was too late for the end of this transaction.
        let are_built_in = |functions: &FunctionPolicy| functions.are_built_in(&inspection.unverified);
        metadata.leaves_nothing = inspection.leaves_nothing && self.functions.as_deref().is_some_and(are_built_in);
        let verdict = inspection.verdict;
        let is_cacheable = if self.masking.is_some() {
            false
        } else if O::MAY_CHANGE {
            matches!(verdict, PolicyVerdict::Always | PolicyVerdict::Unseen) && metadata.is_cacheable_with_recheck(sql)
        } else {
            verdict == PolicyVerdict::Always && metadata.is_cacheable(sql)
        };
        Ok(is_cacheable.then(|| Arc::new(metadata)))
    }

    pub(super) fn push_opening(&self, session: &mut Session) -> Result<(), Error> {
        session.connection.max_message_bytes = self.limits.max_bytes;
        self.transaction.push_begin(session, self.context_statements())
    }

    /// Ends an open transaction and resets the session, without waiting for the answers.
    pub(super) async fn push_abort_and_reset(&self, session: &mut Session) -> Result<(), Error> {
        if !session.boundary_prepared {
            // The statements around a read may be missing. The next read prepares them again.
            session.batch_execute("rollback").await?;
            return session.discard_all().await;
        }
        if session.is_pooled() && session.is_idle() {
            return Ok(());
        }
        self.transaction.push_rollback(session)?;
        Ok(session.connection.flush().await?)
    }

    /// Runs the statement up to the limits of `output`, rolls back and resets the session. Does not wait for the
    /// reset.
    pub(super) async fn execute<O: RowOutput>(
        &self,
        session: &mut Session,
        metadata: &StatementMetadata,
        handle: StatementHandle<'_>,
        params: &[Option<String>],
        output: &mut O,
    ) -> Result<(), FetchError> {
        output.begin(metadata);
        let portions = portions_of(metadata, output);
        let sent = session.push_whole(|session| {
            self.push_statement(session, metadata, (handle, params), portions.as_ref(), output)
        })?;
        session.connection.flush().await?;
        let mut answer = Answer::new(sent.statement, metadata, output).with_checks(sent.row_types_check, sent.guard);
        let failure = session.connection.converse(&mut answer).await.map_err(too_large)?;
        if let Some(failure) = failure.as_ref().filter(|failure| failure.statement < sent.first) {
            session.mark_unusable();
            if let Some(refused) = self.refused_role(session, failure.statement) {
                return Err(refused.into());
            }
        }
        if let (Some(guard), StatementHandle::Inspected { inspection, .. }) = (sent.guard, handle) {
            let elsewhere = std::mem::take(&mut answer.elsewhere);
            let refused = failure.as_ref().filter(|failure| failure.statement <= guard);
            self.verify(session, &inspection.unverified, elsewhere, refused).await?;
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
                    (Some(_), true) => self.reset_failed(session, metadata).await?,
                    (Some(_), false) => self.push_abort_and_reset(session).await?,
                    // The command may have changed the session in any way (DEALLOCATE ALL), so the session is not
                    // reused.
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

    /// Queues the statement and the statements of the transaction around it.
    fn push_statement<O: RowOutput>(
        &self,
        session: &mut Session,
        metadata: &StatementMetadata,
        (handle, params): (StatementHandle<'_>, &[Option<String>]),
        portions: Option<&Portions>,
        output: &O,
    ) -> Result<Sent, Error> {
        let (name, is_prepared) = match handle {
            StatementHandle::Inspected { name, .. } => (name, false),
            StatementHandle::Prepared(name) => (name, true),
        };
        let (first, guard) = match handle {
            StatementHandle::Prepared(_) => {
                self.push_opening(session)?;
                (session.connection.next_statement(), None)
            }
            StatementHandle::Inspected { name, sql, inspection } => push_inspected(session, (name, sql), inspection)?,
        };
        // The row types of a known text may have other fields by now.
        let row_types_check = match metadata.row_types.as_ref().filter(|_| is_prepared) {
            Some(row_types) => Some(row_types.push(&mut session.connection)?),
            None => None,
        };
        session.connection.max_message_bytes = output.max_message_bytes();
        let statement = session.connection.next_statement();
        let portal = if portions.is_some() { PORTAL } else { "" };
        let formats = metadata.conversion.as_ref().map_or(&[][..], ServerJson::formats);
        session.connection.push_bind_as(portal, name, (&[], params), formats)?;
        // PostgreSQL refuses a prepared statement whose result columns have changed their types, but not one whose
        // row types have changed their fields.
        if O::MAY_CHANGE && (metadata.row_types.is_some() || !is_prepared) {
            session.connection.push_describe_portal(portal)?;
        }
        session.connection.push_execute(portal, rows_to_ask(portions, output))?;
        if portions.is_some() || !metadata.returns_rows {
            session.connection.push_sync(Purpose::Call);
        } else {
            self.transaction.push_end(session, metadata.leaves_nothing)?;
        }
        Ok(Sent { first, guard, row_types_check, statement })
    }

    /// Remembers functions that passed the guard. Returns the error if one did not.
    async fn verify(
        &self,
        session: &mut Session,
        names: &[String],
        elsewhere: BTreeSet<String>,
        refused: Option<&Failure>,
    ) -> Result<(), ReadError> {
        let Some(refused) = refused else {
            if let Some(functions) = &self.functions {
                functions.remember(names, &elsewhere);
            }
            return Ok(());
        };
        session.guard_prepared = false;
        if !is_forbidden(&refused.error) {
            return Ok(());
        }
        if !session.connection.reset_pending() {
            self.push_abort_and_reset(session).await?;
        }
        session.await_reset().await?;
        forbidden(session, names).await?.map_or(Ok(()), Err)
    }

    /// Waits for the end of the transaction, which has been sent. Returns PostgreSQL's error if the transaction
    /// failed. Does not wait for the reset.
    pub(super) async fn ended(
        &self,
        session: &mut Session,
        metadata: &StatementMetadata,
    ) -> Result<Option<ServerError>, Error> {
        match session.finish().await {
            Ok(()) => Ok(None),
            Err(Error::Server(error)) => {
                self.reset_failed(session, metadata).await?;
                Ok(Some(read_transaction::statement_error(*error)))
            }
            Err(error) => Err(error),
        }
    }

    /// Resets a session whose transaction failed after its end was sent. On a direct connection `ROLLBACK` runs
    /// anyway, but the query that releases advisory locks did not run.
    async fn reset_failed(&self, session: &mut Session, metadata: &StatementMetadata) -> Result<(), Error> {
        if session.is_pooled() || metadata.leaves_nothing {
            self.transaction.push_rollback(session)?;
            session.connection.flush().await?;
        }
        Ok(())
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
        // The types of parameters or columns may have changed, or the parameters were encoded for an earlier version
        // of a row type.
        if is_unbound && (answer.is_stale || matches!(handle, StatementHandle::Prepared(_))) {
            return FetchError::Outdated(error);
        }
        // PostgreSQL checks the parameters at Bind, before the statement starts.
        if is_unbound && has_params && is_about_values(&error) {
            return FetchError::Read(ReadError::Params(error.about_parameter()));
        }
        let error = explained(error, answer.conversion());
        FetchError::Read(refusal(Error::Server(Box::new(error))))
    }
}

/// Queues what precedes an inspected statement: the return from planning, and the guard. Returns the first statement
/// after those of the transaction.
fn push_inspected(
    session: &mut Session,
    (name, sql): (&str, &str),
    inspection: &Inspection,
) -> Result<(StatementId, Option<StatementId>), Error> {
    if inspection.in_planning {
        push_end_of_planning(session)?;
    }
    let first = session.connection.next_statement();
    if inspection.in_planning && inspection.is_unpruned {
        // The statement was planned without partition pruning, and PostgreSQL would keep that plan.
        session.connection.push_close_statement(name)?;
        session.connection.push_parse(name, sql, &[])?;
    }
    let names = &inspection.unverified;
    let guard = if names.is_empty() { None } else { Some(push_guard(session, names)?) };
    Ok((first, guard))
}

/// data_exception and, for domains, integrity_constraint_violation: a type does not accept the text of a parameter.
/// Not division_by_zero, which PostgreSQL may raise while it plans.
pub(crate) fn is_about_values(error: &ServerError) -> bool {
    let class = error.sqlstate.get(..2);
    matches!(class, Some("22" | "23")) && error.sqlstate != "22012"
}
