//! A read whose rows are handed on as they arrive, for front ends that run statements of their caller's own. It takes commands
//! as well (SET, CREATE TABLE): PostgreSQL says which of them a transaction that cannot write refuses.

use std::sync::Arc;
use std::time::Instant;

use super::portions::{self, Portions};
use super::query::{Fetched, Statement};
use super::read_transaction::{self, OPENING_STATEMENTS, TransactionSettings};
use super::row_buffer::Before;
use super::server_json;
use super::statement_metadata::StatementMetadata;
use super::{Layer, ReadError, Reader, refusal, too_large};
use crate::error::{Error, ServerError};
use crate::read::function_policy::{Inspection, PolicyVerdict};
use crate::read::server_json::explained;
use crate::session::Session;
use crate::sql_executor::{Arrival, Expected, Query, QueryDescription, RowSink, arrive};

/// What a command without a plan calls cannot be seen beforehand, and a superuser's can do anything (COPY TO PROGRAM), so it
/// runs as a role that may only read; that of a login which may do such things without being one does not run. It is a layer:
/// a DO block can take its own role back.
const LESS_SQL: &str = "select pg_catalog.current_setting('role'), \
    case when pg_catalog.current_setting('is_superuser') = 'on' \
         then pg_catalog.set_config('role', 'pg_read_all_data', true) end, \
    exists(select from pg_catalog.pg_roles where rolname in ('pg_execute_server_program', 'pg_write_server_files') \
           and pg_catalog.pg_has_role(oid, 'usage'))";
const ROLE_SQL: &str = "select pg_catalog.set_config('role', $1, true)";

/// The portal of the statement: one of no name would not outlive a conversion of its rows.
const PORTAL: &str = "countersign_portal";

impl Reader {
    /// Runs the query on this session. Its end is not handed on yet ([`RowSink::finish`]).
    pub(crate) async fn stream_on(
        &self,
        session: &mut Session,
        query: &Query,
        outlet: &mut RowSink,
    ) -> Result<(), ReadError> {
        session.around = TransactionSettings::of(query);
        session.connection.capture_notices = true;
        let outcome = self.stream_known_or_new(session, query, outlet).await;
        session.connection.capture_notices = false;
        outcome
    }

    async fn stream_known_or_new(
        &self,
        session: &mut Session,
        query: &Query,
        outlet: &mut RowSink,
    ) -> Result<(), ReadError> {
        if let Some((shape, name)) = session.remembered.known(&query.sql) {
            let params = query.encoded(&shape.params)?;
            match self.stream(session, &shape, Statement::Prepared(&name), &params, outlet).await {
                // Nothing has run: the text does not fit the database as it was described.
                Err(Fetched::Outdated(_)) => {
                    self.types.forget();
                    session.remembered.forget(&query.sql);
                    session.await_reset().await?;
                }
                outcome => return outcome.map_err(Fetched::into_error),
            }
        }
        let name = session.remembered.new_name();
        let seen = Instant::now();
        let outcome = self.stream_new(session, &name, query, outlet).await;
        match &outcome {
            Ok(Some(shape)) => session.remembered.put(&query.sql, shape, name, seen),
            Ok(None) | Err(_) => session.remembered.drop_name(name),
        }
        outcome.map(drop)
    }

    async fn stream_new(
        &self,
        session: &mut Session,
        name: &str,
        query: &Query,
        outlet: &mut RowSink,
    ) -> Result<Option<Arc<StatementMetadata>>, ReadError> {
        let mut shape = self.describe(session, name, &query.sql).await?;
        let params = query.encoded(&shape.params)?;
        let Inspection { checked, is_parallel, .. } = if self.layers.has(Layer::Functions) {
            self.functions.check(session, &query.sql, &params).await?
        } else {
            Inspection::NONE
        };
        shape.is_parallel = is_parallel;
        let shape = Arc::new(shape);
        if checked == PolicyVerdict::Unseen {
            session.drop_superuser().await?;
        }
        if checked == PolicyVerdict::SeesStatements {
            session.push_close_remembered()?;
        }
        let outcome = self.stream(session, &shape, Statement::Described(name), &params, outlet).await;
        outcome.map_err(Fetched::into_error)?;
        let stays = checked == PolicyVerdict::Always && shape.stays(&query.sql);
        Ok(stays.then_some(shape))
    }

    async fn stream(
        &self,
        session: &mut Session,
        shape: &StatementMetadata,
        statement: Statement<'_>,
        params: &[Option<String>],
        outlet: &mut RowSink,
    ) -> Result<(), Fetched> {
        let portions = portions(shape, outlet);
        let before = self.push_streamed(session, shape, statement, params, (outlet.row_limit(), portions.as_ref()))?;
        session.connection.max_message_bytes = outlet.max_message_bytes();
        session.connection.flush().await?;
        if shape.returns_rows {
            outlet.begin(&shape.columns)?;
        }
        let expected = Expected {
            before: before.bound,
            columns: &shape.columns,
            conversion: shape.conversion.as_ref(),
            to_its_end: false,
        };
        let mut arrival = arrive(session, &expected, outlet).await.map_err(too_large)?;
        let was_bound = arrival.bound > before.bound;
        if arrival.bound < before.bound {
            session.invalidate_boundary_statements();
        }
        if arrival.copies {
            return Err(ReadError::Copy.into());
        }
        let failure = if let Some(portions) = portions {
            self.stream_portions(session, &Expected { before: 0, ..expected }, (portions, arrival), outlet).await?
        } else if arrival.is_cut {
            None
        } else {
            let failure = arrival.failure.take();
            match (&failure, shape.returns_rows) {
                (Some(_), true) => self.leave_failed(session).await?,
                (Some(_), false) => self.push_abort_and_reset(session).await?,
                // Whatever it has done to the session (DEALLOCATE ALL): it ends with it.
                (None, false) => session.mark_unusable(),
                (None, true) => {}
            }
            if failure.is_none() && arrival.is_empty {
                return Err(ReadError::Params(EMPTY_STATEMENT.to_owned()).into());
            }
            failure.map(|error| if arrival.has_ended { read_transaction::statement_error(error) } else { error })
        };
        match failure {
            None => Ok(()),
            Some(error) => Err(refused(error, was_bound, statement, !params.is_empty())),
        }
    }

    /// `row_limit` is that of a statement whose rows do not come in portions.
    fn push_streamed(
        &self,
        session: &mut Session,
        shape: &StatementMetadata,
        statement: Statement<'_>,
        params: &[Option<String>],
        (row_limit, portions): (i32, Option<&Portions>),
    ) -> Result<Before, Error> {
        let is_described = matches!(statement, Statement::Described(_));
        let before = if is_described { Before::default() } else { self.push_opening(session)? };
        debug_assert!(is_described || before.bound == OPENING_STATEMENTS);
        let formats = shape.conversion.as_ref().map_or(&[][..], server_json::ServerJson::formats);
        session.connection.push_bind_as(PORTAL, statement.name(), (&[], params), formats)?;
        session.connection.push_execute(PORTAL, portions.map_or(row_limit, Portions::rows))?;
        if portions.is_some() || !shape.returns_rows {
            session.connection.push_sync();
        } else {
            self.frame.push_end(session)?;
        }
        Ok(before)
    }

    /// Portion by portion, up to the end of the transaction; what PostgreSQL refused. Of rows that need it, the server makes JSON
    /// of what only it can before it gives the next ones.
    async fn stream_portions(
        &self,
        session: &mut Session,
        expected: &Expected<'_>,
        (mut portions, mut arrival): (Portions, Arrival),
        outlet: &mut RowSink,
    ) -> Result<Option<ServerError>, Fetched> {
        loop {
            if arrival.is_cut {
                return Ok(None);
            }
            let largest_row = arrival.drafts.iter().map(|draft| draft.bytes).max().unwrap_or_default();
            portions.arrived(outlet.blocked(), largest_row);
            let failure = match arrival.failure.take() {
                None => self.take_drafts(session, &mut arrival, outlet).await?,
                failure => failure,
            };
            if let Some(error) = failure {
                if self.push_abort_and_reset(session).await.is_err() {
                    session.mark_unusable();
                }
                return Ok(Some(explained(error, expected.conversion)));
            }
            if !arrival.is_suspended {
                break;
            }
            portions.ask(outlet.blocked());
            arrival = match self.push_portion(session, &portions)? {
                Some(before) => {
                    session.connection.flush().await?;
                    arrive(session, &Expected { before, ..*expected }, outlet).await.map_err(too_large)?
                }
                None => Arrival { failure: Some(out_of_time()), ..Arrival::default() },
            };
        }
        self.frame.push_end(session)?;
        session.connection.flush().await?;
        Ok(self.ended(session).await?)
    }

    /// Queues the next portion, for what is left of the statement's time; how many statements come before it. `None` if no time
    /// is left.
    fn push_portion(&self, session: &mut Session, portions: &Portions) -> Result<Option<usize>, Error> {
        let timeout_ms = session.around.statement_timeout_ms;
        let mut before = 0;
        if timeout_ms > 0 {
            let Some(left_ms) = timeout_ms.checked_sub(portions.elapsed().as_millis()).filter(|left| *left > 0) else {
                return Ok(None);
            };
            let limits = TransactionSettings { statement_timeout_ms: left_ms, ..session.around.clone() };
            self.frame.push_limits(session, &limits)?;
            before = 1;
        }
        session.connection.push_execute(PORTAL, portions.rows())?;
        session.connection.push_sync();
        Ok(Some(before))
    }

    /// Hands on rows that need a conversion; what PostgreSQL refused of it.
    async fn take_drafts(
        &self,
        session: &mut Session,
        arrival: &mut Arrival,
        outlet: &mut RowSink,
    ) -> Result<Option<ServerError>, Fetched> {
        let drafts = std::mem::take(&mut arrival.drafts);
        if drafts.is_empty() {
            return Ok(None);
        }
        let has_leaves = server_json::push(session, &drafts)?;
        session.connection.flush().await?;
        let limit = outlet.max_message_bytes();
        let converted = match server_json::receive(session, drafts, has_leaves, limit).await {
            Ok(converted) if converted.is_cut => Err(Error::MessageTooLarge { size: limit, limit }),
            Err(Error::Server(error)) => return Ok(Some(*error)),
            converted => converted,
        };
        for row in &converted.map_err(too_large)?.rows {
            if !outlet.take_values(row).await? {
                arrival.is_suspended = false;
                break;
            }
        }
        Ok(None)
    }

    /// Refuses this text, which has been described, if it calls what a read may not. If that is not to be seen, it runs as a
    /// role that may only read; the role that it was before is for [`Session::be`].
    pub(crate) async fn check_streamed(
        &self,
        session: &mut Session,
        sql: &str,
        params: &[Option<String>],
    ) -> Result<Option<String>, ReadError> {
        match self.functions.check(session, sql, params).await?.checked {
            PolicyVerdict::Unseen => Ok(Some(session.drop_superuser().await?)),
            _ => Ok(None),
        }
    }

    /// What the statement takes and gives. Nothing of it runs.
    pub(crate) async fn describe_on(&self, session: &mut Session, sql: &str) -> Result<QueryDescription, ReadError> {
        session.around = TransactionSettings::default();
        let name = session.remembered.new_name();
        let shape = self.describe(session, &name, sql).await;
        session.remembered.drop_name(name);
        let shape = shape?;
        self.push_abort_and_reset(session).await?;
        let StatementMetadata { params, columns, returns_rows, .. } = shape;
        Ok(QueryDescription { params, columns: returns_rows.then_some(columns) })
    }
}

impl Session {
    /// What follows in this transaction runs as a role that may only read, if this one is a superuser's; the role before.
    async fn drop_superuser(&mut self) -> Result<String, ReadError> {
        let row = self.rows(LESS_SQL, &[]).await?.into_iter().next();
        let [role, less, has_more] = row.and_then(|row| row.try_into().ok()).unwrap_or_default();
        if less.is_none() && has_more.as_deref() != Some("f") {
            return Err(ReadError::ForbiddenFunction {
                function: "a command without a plan".to_owned(),
                why: "this login may write files or run programs of the server".to_owned(),
            });
        }
        Ok(role.unwrap_or_else(|| "none".to_owned()))
    }

    /// The role that it was before.
    pub(crate) async fn be(&mut self, role: String) -> Result<(), Error> {
        self.rows(ROLE_SQL, &[Some(role)]).await?;
        Ok(())
    }
}

/// What PostgreSQL says of a statement that takes too long.
fn out_of_time() -> ServerError {
    ServerError::synthetic("57014", "canceling statement due to statement timeout")
}

/// The portions in which the rows come; `None` if all of them come at once. PostgreSQL uses parallel workers only for a
/// statement whose rows are asked for at once.
fn portions(shape: &StatementMetadata, outlet: &RowSink) -> Option<Portions> {
    if shape.conversion.is_some() {
        return Some(Portions::up_to(server_json::MAX_PORTION));
    }
    let comes_in_portions = shape.returns_rows && outlet.is_streamed() && !shape.is_parallel;
    comes_in_portions.then(|| Portions::up_to(portions::MAX_ROWS))
}

/// There is no statement in the text.
pub(crate) const EMPTY_STATEMENT: &str = "there is no statement in the text";

fn refused(error: ServerError, was_bound: bool, statement: Statement<'_>, has_params: bool) -> Fetched {
    match statement {
        // Its parameters may be of other types now, or its columns.
        Statement::Prepared(_) if !was_bound => Fetched::Outdated(error),
        // PostgreSQL judges the parameters when they are bound; the statement has not started then.
        _ if !was_bound && has_params && super::query::is_about_values(&error) => {
            Fetched::Error(ReadError::Params(error.about_parameter()))
        }
        _ => Fetched::Error(refusal(Error::Server(Box::new(error)))),
    }
}
