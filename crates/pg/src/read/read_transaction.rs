//! What stands around an agent's statement: the same few statements of ours each time, prepared once a session.
//!
//! ```text
//! BEGIN READ ONLY · first · the agent's statement · encoding · ROLLBACK · Sync      RESET .. · check · Sync
//! ```
//! A statement that fails takes what follows with it, up to the next Sync, so then the end is sent once more.
//!
//! Through a pooler nothing is prepared, since the next read has another backend, and the cleaning comes before the end: with
//! the end the backend is lent to somebody else.
//!
//! ```text
//! BEGIN READ ONLY · first · the agent's statement · encoding · advisory locks · DEALLOCATE ALL · ROLLBACK · Sync
//! ```
//!
//! After ROLLBACK the only things that a statement can leave behind are advisory locks and what SQL's PREPARE has made,
//! since nothing else outlives the transaction. The rest of the cleaning is what DISCARD ALL does beyond that (PostgreSQL
//! manual), but for the prepared statements of ours: another layer, should ROLLBACK not do what it says.

use std::time::Duration;

use super::layers::{Layer, Layers};
use crate::error::{Error, ServerError};
use crate::session::pooler_transaction::{RESET_STATEMENTS, setting};
use crate::session::{Session, SessionSettings, check_client};
use crate::sql_executor::Query;
use crate::wire::other_encoding;

/// How many statements come before the agent's.
pub(super) const OPENING_STATEMENTS: usize = 2;

const BEGIN: &str = "countersign_begin";
const FIRST: &str = "countersign_first";
const ENCODING: &str = "countersign_encoding";
const END: &str = "countersign_end";
const AUTHORIZATION: &str = "countersign_authorization";
const RESET: &str = "countersign_reset";
const CHECK: &str = "countersign_check";

/// The first column tells whether the session must not be used again: the statements that SQL's PREPARE has made stay.
const CHECK_SQL: &str = "\
select exists(select from pg_catalog.pg_prepared_statements where from_sql), pg_catalog.pg_advisory_unlock_all()";

/// Fails with SQLSTATE 22021 when the statement has changed `client_encoding`. PostgreSQL 14 and later report a changed setting
/// only before ReadyForQuery, and ROLLBACK has taken it back by then.
const ENCODING_SQL: &str = "\
select pg_catalog.convert_from(case when pg_catalog.pg_client_encoding() operator(pg_catalog.=) 'UTF8' \
                                    then ''::pg_catalog.bytea else '\\xff' end, 'UTF8')";

/// The first query fixes the mode: afterwards SET TRANSACTION READ WRITE is an error, whoever says it. What it sets is
/// [`TransactionSettings`], in this order.
const LIMITS: &str = concat!(
    "select pg_catalog.set_config('countersign.account_id', $1, true), \
            pg_catalog.set_config('statement_timeout', $2, true), pg_catalog.set_config('lock_timeout', $3, true), \
            pg_catalog.set_config('idle_in_transaction_session_timeout', $2, true), ",
    check_client!()
);

/// The circumstances of a read.
#[derive(Debug, Clone, Default)]
pub(crate) struct TransactionSettings {
    /// On whose behalf it is (see [`crate::ReadRequest`]).
    pub(super) account: String,
    /// In milliseconds; 0 is none. It counts for each Execute.
    pub(super) statement_timeout_ms: u128,
    /// The same.
    pub(super) lock_timeout_ms: u128,
}

impl TransactionSettings {
    const COUNT: usize = 3;

    fn params(&self) -> [Option<String>; Self::COUNT] {
        [
            Some(self.account.clone()),
            Some(self.statement_timeout_ms.to_string()),
            Some(self.lock_timeout_ms.to_string()),
        ]
    }

    /// Of a query with limits of its own.
    pub(super) fn of(query: &Query) -> Self {
        let (statement_timeout_ms, lock_timeout_ms) =
            (query.statement_timeout.as_millis(), query.lock_timeout.as_millis());
        Self { account: String::new(), statement_timeout_ms, lock_timeout_ms }
    }

    /// Of a read that may take so long.
    pub(super) fn within(account: &str, deadline: Duration) -> Self {
        let (account, timeout_ms) = (account.to_owned(), deadline.as_millis());
        Self { account, statement_timeout_ms: timeout_ms, lock_timeout_ms: timeout_ms }
    }
}

/// The names and texts of these statements.
#[derive(Debug)]
pub(super) struct ReadTransaction {
    opening: [(&'static str, String); OPENING_STATEMENTS],
    end: (&'static str, String),
    cleaning: Vec<(&'static str, String)>,
    /// The second statement of the opening, through a pooler: also what a session of our own is started with.
    pooled_first: String,
    /// How many of the session's circumstances the second statement of the opening takes, directly and through a pooler.
    params: usize,
    pooled_params: usize,
}

impl ReadTransaction {
    /// For sessions that would be started with these settings.
    pub(super) fn new(layers: Layers, settings: &SessionSettings) -> Self {
        let all: Vec<_> = settings.iter().collect();
        let pooled_first = format!("{LIMITS}, {}", setting(&all));
        let begin = if layers.has(Layer::ReadOnlyTransaction) { "begin read only" } else { "begin read write" };
        let (first, params) = match (layers.has(Layer::FixedMode), layers.has(Layer::Timeouts)) {
            (true, true) => (LIMITS.to_owned(), TransactionSettings::COUNT),
            (true, false) => ("select pg_catalog.set_config('countersign.account_id', $1, true)".to_owned(), 1),
            // Commands take no snapshot, and so leave the mode open.
            (false, _) => ("reset search_path".to_owned(), 0),
        };
        let end = if layers.has(Layer::Rollback) { "rollback" } else { "commit" };
        let cleaning = [(AUTHORIZATION, "set session authorization default"), (RESET, "reset all"), (CHECK, CHECK_SQL)];
        let cleaning = cleaning.into_iter().filter(|_| layers.has(Layer::Cleaning));
        Self {
            opening: [(BEGIN, begin.to_owned()), (FIRST, first)],
            end: (END, end.to_owned()),
            pooled_first,
            params,
            pooled_params: TransactionSettings::COUNT,
            cleaning: cleaning.map(|(name, text)| (name, text.to_owned())).collect(),
        }
    }

    /// Queues the beginning of the transaction.
    pub(super) fn push_opening(&self, session: &mut Session) -> Result<(), Error> {
        let [begin, first] = &self.opening;
        if session.is_pooled() {
            let around = session.around.params();
            for (sql, count) in [(&begin.1, 0), (&self.pooled_first, self.pooled_params)] {
                let params = around.get(..count).unwrap_or_default();
                session.push_unnamed(sql, params, &[])?;
                session.connection.push_execute("", 0)?;
            }
            return Ok(());
        }
        let around = session.around.clone();
        if session.boundary_prepared {
            push(session, begin.0)?;
            return self.push_limits(session, &around);
        }
        prepare(session, begin)?;
        push(session, begin.0)?;
        // In the transaction block: what is parsed before takes a snapshot, and then BEGIN may not say READ WRITE.
        let encoding = (ENCODING, ENCODING_SQL.to_owned());
        for statement in [first, &encoding, &self.end].into_iter().chain(&self.cleaning) {
            prepare(session, statement)?;
        }
        session.boundary_prepared = true;
        self.push_limits(session, &around)
    }

    /// Queues the query that fixes the mode, sets the limits, and says on whose behalf this is. Not through a pooler.
    pub(super) fn push_limits(&self, session: &mut Session, around: &TransactionSettings) -> Result<(), Error> {
        session.connection.push_bind("", FIRST, around.params().get(..self.params).unwrap_or_default())?;
        session.connection.push_execute("", 0)?;
        Ok(())
    }

    /// Queues the end of a transaction that has not failed, and what leaves nothing in the session. The end of this has a
    /// ReadyForQuery of its own, unless a pooler is in between. [`statement_error`] says what its errors mean.
    pub(super) fn push_end(&self, session: &mut Session) -> Result<(), Error> {
        if !session.is_pooled() {
            push(session, ENCODING)?;
            push(session, self.end.0)?;
            session.connection.push_sync();
            return self.push_cleaning(session);
        }
        for sql in [ENCODING_SQL].into_iter().chain(RESET_STATEMENTS).chain([self.end.1.as_str()]) {
            session.push_unnamed(sql, &[], &[])?;
            session.connection.push_execute("", 0)?;
        }
        session.connection.push_sync();
        Ok(())
    }

    /// Queues the end of a transaction that may have failed, and what leaves nothing in the session; one ReadyForQuery is
    /// owed for all of it, and then the session can be used again.
    pub(super) fn push_abort_and_reset(&self, session: &mut Session) -> Result<(), Error> {
        if session.is_pooled() {
            return session.push_abort_and_reset();
        }
        push(session, self.end.0)?;
        self.push_cleaning(session)
    }

    /// Queues what leaves nothing in the session; one ReadyForQuery is owed for it, and then the session can be used
    /// again.
    fn push_cleaning(&self, session: &mut Session) -> Result<(), Error> {
        for name in session.remembered.take_obsolete() {
            session.connection.push_close_statement(&name)?;
        }
        self.cleaning.iter().try_for_each(|(name, _)| push(session, name))?;
        session.push_last_sync();
        Ok(())
    }
}

/// The error of the statement that an error of the end of its transaction means.
pub(super) fn statement_error(error: ServerError) -> ServerError {
    match error.sqlstate.as_str() {
        "22021" => other_encoding("another one"),
        "26000" => ServerError {
            hint: Some("Call no function that executes DEALLOCATE ALL or DISCARD ALL.".to_owned()),
            ..ServerError::synthetic(
                "26000",
                "a function that the query calls removed the prepared statements of the session",
            )
        },
        _ => error,
    }
}

fn prepare(session: &mut Session, (name, text): &(&str, String)) -> Result<(), Error> {
    // It may be there, if it is not known whether it is.
    session.connection.push_close_statement(name)?;
    session.connection.push_parse(name, text, &[])
}

fn push(session: &mut Session, name: &str) -> Result<(), Error> {
    session.connection.push_bind("", name, &[])?;
    session.connection.push_execute("", 0)?;
    Ok(())
}
