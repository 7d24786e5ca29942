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

use crate::error::{Error, ServerError};
use crate::session::pooler_transaction::{RESET_STATEMENTS, setting};
use crate::session::{Session, TransactionSettings};
use crate::session_settings::{SessionSettings, check_client};
use crate::wire::{MAX_MESSAGE_BYTES, Purpose, other_encoding};

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
const SETTINGS_SQL: &str = concat!(
    "select pg_catalog.set_config('countersign.account_id', $1, true), \
            pg_catalog.set_config('statement_timeout', $2, true), pg_catalog.set_config('lock_timeout', $3, true), \
            pg_catalog.set_config('idle_in_transaction_session_timeout', $2, true), ",
    check_client!()
);

/// The statements of ours that every session prepares, by name.
const PREPARED: [(&str, &str); 7] = [
    (BEGIN, "begin read only"),
    (FIRST, SETTINGS_SQL),
    (ENCODING, ENCODING_SQL),
    (END, "rollback"),
    (AUTHORIZATION, "set session authorization default"),
    (RESET, "reset all"),
    (CHECK, CHECK_SQL),
];

/// The boundary of read transactions, for the sessions of one pool.
#[derive(Debug)]
pub(super) struct ReadTransaction {
    /// The second statement of the opening, through a pooler: also what a session of our own is started with.
    pooled_first: String,
}

impl ReadTransaction {
    /// For sessions that would be started with these settings.
    pub(super) fn new(settings: &SessionSettings) -> Self {
        let all: Vec<_> = settings.iter().collect();
        Self { pooled_first: format!("{SETTINGS_SQL}, {}", setting(&all)) }
    }

    /// Queues the beginning of the transaction.
    pub(super) fn push_begin(&self, session: &mut Session) -> Result<(), Error> {
        let settings = session.settings.clone();
        if session.is_pooled() {
            session.push_unnamed("begin read only", &[], &[])?;
            session.connection.push_execute("", 0)?;
            session.push_unnamed(&self.pooled_first, &settings.params(), &[])?;
            return Ok(session.connection.push_execute("", 0)?);
        }
        if !session.boundary_prepared {
            prepare(session, PREPARED.first())?;
        }
        push(session, BEGIN)?;
        if !session.boundary_prepared {
            // In the transaction block: what is parsed before takes a snapshot, and then BEGIN may not say READ WRITE.
            prepare(session, PREPARED.iter().skip(1))?;
            session.boundary_prepared = true;
        }
        push_settings(session, &settings)
    }

    /// Queues the end of a transaction that has not failed, and the reset of the session. The reset has a ReadyForQuery of its
    /// own, unless a pooler is in between. [`statement_error`] says what its errors mean.
    pub(super) fn push_rollback(&self, session: &mut Session) -> Result<(), Error> {
        session.connection.max_message_bytes = MAX_MESSAGE_BYTES;
        if !session.is_pooled() {
            push(session, ENCODING)?;
            push(session, END)?;
            session.connection.push_sync(Purpose::Call);
            return push_reset(session);
        }
        for sql in [ENCODING_SQL].into_iter().chain(RESET_STATEMENTS).chain(["rollback"]) {
            session.push_unnamed(sql, &[], &[])?;
            session.connection.push_execute("", 0)?;
        }
        session.connection.push_sync(Purpose::Call);
        Ok(())
    }

    /// Queues the end of a transaction that may have failed, and the reset of the session; one ReadyForQuery answers all of
    /// it, and then the session can be used again.
    pub(super) fn push_abort_and_reset(&self, session: &mut Session) -> Result<(), Error> {
        session.connection.max_message_bytes = MAX_MESSAGE_BYTES;
        if session.is_pooled() {
            return session.push_abort_and_reset();
        }
        push(session, END)?;
        push_reset(session)
    }
}

/// Queues the query that fixes the mode, makes the settings, and says on whose behalf this is. Not through a pooler.
pub(super) fn push_settings(session: &mut Session, settings: &TransactionSettings) -> Result<(), Error> {
    session.connection.next_statement();
    session.connection.push_bind("", FIRST, &settings.params())?;
    Ok(session.connection.push_execute("", 0)?)
}

/// Queues the reset of the session; one ReadyForQuery answers it, and then the session can be used again.
fn push_reset(session: &mut Session) -> Result<(), Error> {
    for name in session.statements.take_obsolete() {
        session.connection.push_close_statement(&name)?;
    }
    for name in [AUTHORIZATION, RESET, CHECK] {
        push(session, name)?;
    }
    session.push_last_sync();
    Ok(())
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

fn prepare<'a>(
    session: &mut Session,
    statements: impl IntoIterator<Item = &'a (&'a str, &'a str)>,
) -> Result<(), Error> {
    for (name, text) in statements {
        session.connection.next_statement();
        // It may be there, if it is not known whether it is.
        session.connection.push_close_statement(name)?;
        session.connection.push_parse(name, text, &[])?;
    }
    Ok(())
}

fn push(session: &mut Session, name: &str) -> Result<(), Error> {
    session.connection.next_statement();
    session.connection.push_bind("", name, &[])?;
    Ok(session.connection.push_execute("", 0)?)
}
