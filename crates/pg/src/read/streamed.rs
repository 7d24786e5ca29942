//! A read whose rows are handed on as they arrive, for front ends that run statements of their caller's own. It takes commands
//! as well (SET, CREATE TABLE): PostgreSQL says which of them a transaction that cannot write refuses.

use std::sync::Arc;
use std::time::Instant;

use super::convert;
use super::frame::{Around, OPENING_STATEMENTS};
use super::rows::Before;
use super::run::{Fetched, Statement};
use super::shapes::Shape;
use super::{Layer, ReadError, Reader, refusal, too_large};
use crate::error::{Error, ServerError};
use crate::execute::{Arrival, Described, Expected, Outlet, Query, arrive};
use crate::read::convert::explained;
use crate::read::functions::{Checked, Inspection};
use crate::session::Session;

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
    /// Runs the query on this session. Its end is not handed on yet ([`Outlet::finish`]).
    pub(crate) async fn stream_on(
        &self,
        session: &mut Session,
        query: &Query,
        outlet: &mut Outlet,
    ) -> Result<(), ReadError> {
        session.around = Around::of(query);
        session.connection.hears_notices = true;
        let outcome = self.stream_known_or_new(session, query, outlet).await;
        session.connection.hears_notices = false;
        outcome
    }

    async fn stream_known_or_new(
        &self,
        session: &mut Session,
        query: &Query,
        outlet: &mut Outlet,
    ) -> Result<(), ReadError> {
        if let Some((shape, name)) = session.remembered.known(&query.sql) {
            let params = query.encoded(&shape.params)?;
            match self.stream(session, &shape, Statement::Prepared(&name), &params, outlet).await {
                // Nothing has run: the text does not fit the database as it was described.
                Err(Fetched::Outdated(_)) => {
                    self.types.forget();
                    session.remembered.forget(&query.sql);
                    session.settle().await?;
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
        outlet: &mut Outlet,
    ) -> Result<Option<Arc<Shape>>, ReadError> {
        let shape = Arc::new(self.describe(session, name, &query.sql).await?);
        let params = query.encoded(&shape.params)?;
        let Inspection { checked, .. } = if self.layers.has(Layer::Functions) {
            self.functions.check(session, &query.sql, &params).await?
        } else {
            Inspection::NONE
        };
        if checked == Checked::Unseen {
            session.be_less().await?;
        }
        if checked == Checked::SeesStatements {
            session.push_close_remembered()?;
        }
        let outcome = self.stream(session, &shape, Statement::Described(name), &params, outlet).await;
        outcome.map_err(Fetched::into_error)?;
        let stays = checked == Checked::Always && shape.stays(&query.sql);
        Ok(stays.then_some(shape))
    }

    async fn stream(
        &self,
        session: &mut Session,
        shape: &Shape,
        statement: Statement<'_>,
        params: &[Option<String>],
        outlet: &mut Outlet,
    ) -> Result<(), Fetched> {
        let before = self.push_streamed(session, shape, statement, params, outlet)?;
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
            session.lose_frame();
        }
        if arrival.copies {
            return Err(ReadError::Copy.into());
        }
        if let Some(conversion) = &shape.conversion {
            let expected = Expected { before: 0, conversion: Some(conversion), ..expected };
            return self.stream_converted(session, &expected, arrival, outlet).await;
        }
        if arrival.is_cut {
            return Ok(());
        }
        let Some(error) = arrival.failure.take() else {
            if !shape.returns_rows {
                // Whatever it has done to the session (DEALLOCATE ALL): it ends with it.
                session.retire();
            }
            return if arrival.is_empty { Err(ReadError::Params(NOTHING.to_owned()).into()) } else { Ok(()) };
        };
        if shape.returns_rows {
            // The end of the cleaning, which failed with the transaction.
            let _ = session.finish().await;
        }
        self.push_way_out(session).await?;
        Err(refused(error, was_bound, statement, !params.is_empty()))
    }

    fn push_streamed(
        &self,
        session: &mut Session,
        shape: &Shape,
        statement: Statement<'_>,
        params: &[Option<String>],
        outlet: &Outlet,
    ) -> Result<Before, Error> {
        let is_described = matches!(statement, Statement::Described(_));
        let before = if is_described { Before::default() } else { self.push_opening(session)? };
        debug_assert!(is_described || before.bound == OPENING_STATEMENTS);
        let formats = shape.conversion.as_ref().map_or(&[][..], convert::Conversion::formats);
        session.connection.push_bind_as(PORTAL, statement.name(), (&[], params), formats)?;
        let limit = if shape.conversion.is_some() { convert::portion(0, usize::MAX) } else { outlet.row_limit() };
        session.connection.push_execute(PORTAL, limit)?;
        if shape.conversion.is_some() || !shape.returns_rows {
            session.connection.push_sync();
        } else {
            self.frame.push_end(session)?;
        }
        Ok(before)
    }

    /// Portion by portion: the server makes JSON of what only it can, and then gives the next rows.
    async fn stream_converted(
        &self,
        session: &mut Session,
        expected: &Expected<'_>,
        mut arrival: Arrival,
        outlet: &mut Outlet,
    ) -> Result<(), Fetched> {
        let mut arrived = 0;
        loop {
            if let Some(error) = arrival.failure.take() {
                self.push_way_out(session).await?;
                return Err(Fetched::Error(refusal(Error::Server(Box::new(explained(error, expected.conversion))))));
            }
            let drafts = std::mem::take(&mut arrival.drafts);
            arrived += drafts.len();
            let has_leaves = convert::push(session, &drafts)?;
            session.connection.flush().await?;
            let converted = convert::receive(session, drafts, has_leaves, outlet.max_message_bytes()).await;
            let converted = match converted {
                Ok(converted) => converted,
                Err(error @ Error::Server(_)) => {
                    self.push_way_out(session).await?;
                    return Err(Fetched::Error(refusal(error)));
                }
                Err(error) => return Err(too_large(error).into()),
            };
            if converted.is_cut {
                let limit = outlet.max_message_bytes();
                return Err(too_large(Error::MessageTooLarge { size: limit, limit }).into());
            }
            for row in &converted.rows {
                if !outlet.take_values(row).await? {
                    arrival.is_suspended = false;
                    break;
                }
            }
            if !arrival.is_suspended {
                return Ok(self.push_way_out(session).await?);
            }
            session.connection.push_execute(PORTAL, convert::portion(arrived, usize::MAX))?;
            session.connection.push_sync();
            session.connection.flush().await?;
            arrival = arrive(session, expected, outlet).await.map_err(too_large)?;
        }
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
            Checked::Unseen => Ok(Some(session.be_less().await?)),
            _ => Ok(None),
        }
    }

    /// What the statement takes and gives. Nothing of it runs.
    pub(crate) async fn describe_on(&self, session: &mut Session, sql: &str) -> Result<Described, ReadError> {
        session.around = Around::default();
        let name = session.remembered.new_name();
        let shape = self.describe(session, &name, sql).await;
        session.remembered.drop_name(name);
        let shape = shape?;
        self.push_way_out(session).await?;
        let Shape { params, columns, returns_rows, .. } = shape;
        Ok(Described { params, columns: returns_rows.then_some(columns) })
    }
}

impl Session {
    /// What follows in this transaction runs as a role that may only read, if this one is a superuser's; the role before.
    async fn be_less(&mut self) -> Result<String, ReadError> {
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

/// There is no statement in the text.
pub(crate) const NOTHING: &str = "there is no statement in the text";

fn refused(error: ServerError, was_bound: bool, statement: Statement<'_>, has_params: bool) -> Fetched {
    match statement {
        // Its parameters may be of other types now, or its columns.
        Statement::Prepared(_) if !was_bound => Fetched::Outdated(error),
        // PostgreSQL judges the parameters when they are bound; the statement has not started then.
        _ if !was_bound && has_params && super::run::is_about_values(&error) => {
            Fetched::Error(ReadError::Params(error.about_parameter()))
        }
        _ => Fetched::Error(refusal(Error::Server(Box::new(error)))),
    }
}
