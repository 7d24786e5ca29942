//! The transaction of a read: the server's own statements around an agent's statement.
//!
//! Every session prepares them once:
//!
//! ```text
//! known text   BEGIN READ ONLY · settings · context · the statement · encoding · Sync        ROLLBACK · reset · Sync
//! new text     BEGIN READ ONLY · settings · context · Parse, Describe · SAVEPOINT · mode · EXPLAIN · Sync
//!              ROLLBACK TO · RELEASE · the statement · encoding · Sync             ROLLBACK · reset · Sync
//! ```
//! The context is the role and the claims of a caller (`client::session::caller_context`), if it has any.
//!
//! A statement that fails makes PostgreSQL skip the rest of its pipeline, up to the next Sync. `ROLLBACK` comes after
//! a Sync, so it runs in any case, and no answer waits for it.
//!
//! A pooler may lend the next transaction another backend, so nothing is prepared, and the reset precedes the end of
//! the transaction:
//!
//! ```text
//! BEGIN READ ONLY · settings · context · the statement · encoding · advisory locks · DEALLOCATE ALL · ROLLBACK · Sync
//! ```
//!
//! `ROLLBACK` undoes everything that a statement can do to its session, except session-level advisory locks and
//! statements of SQL's PREPARE. The encoding check releases the locks. The rest of the reset repeats what `ROLLBACK`
//! does and looks for prepared statements. It is omitted after a statement whose plan shows that it leaves nothing
//! (see [`super::inspection::Inspection::leaves_nothing`]).

use std::time::Duration;

use types::StandbyAge;

use crate::client::error::{Error, ServerError};
use crate::client::session::pooler_transaction::{RESET_STATEMENTS, setting};
use crate::client::session::{CONTEXT_SQL, ContextStatements, ROLE_SQL, Session, TransactionSettings};
use crate::client::session_settings::{SessionSettings, check_client};
use crate::client::wire::{MAX_MESSAGE_BYTES, Purpose, StatementId, other_encoding};
use crate::query::plan::{BACK_TO_SAVEPOINT, RELEASE, SAVEPOINT};

/// The first column says whether SQL's PREPARE has left a statement. The session must not be reused then.
const CHECK_SQL: &str = "\
select exists(select from pg_catalog.pg_prepared_statements where from_sql), pg_catalog.pg_advisory_unlock_all()";

/// Fails with SQLSTATE 22021 if the statement has changed `client_encoding`. PostgreSQL 14 and later report a changed
/// setting only before ReadyForQuery, and `ROLLBACK` has undone the change by then.
const ENCODING_SQL: &str = "\
select pg_catalog.convert_from(case when pg_catalog.pg_client_encoding() operator(pg_catalog.=) 'UTF8' \
                                    then ''::pg_catalog.bytea else '\\xff' end, 'UTF8'), \
       pg_catalog.pg_advisory_unlock_all()";

/// As the first query of the transaction it fixes the mode: SET TRANSACTION READ WRITE is an error afterwards. It
/// makes the settings of [`TransactionSettings`], in this order.
const SETTINGS_SQL: &str = concat!(
    "select pg_catalog.set_config('countersign.account_id', $1, true), \
            pg_catalog.set_config('statement_timeout', $2, true), pg_catalog.set_config('lock_timeout', $3, true), \
            pg_catalog.set_config('idle_in_transaction_session_timeout', $2, true), \
            pg_catalog.set_config('countersign.caller', $4, true), pg_catalog.pg_is_in_recovery(), \
            pg_catalog.date_part('epoch', pg_catalog.clock_timestamp() operator(pg_catalog.-) pg_catalog.pg_last_xact_replay_timestamp()), ",
    check_client!()
);

/// The columns of [`SETTINGS_SQL`] about a standby.
const STANDBY_COLUMNS: std::ops::Range<usize> = 5..7;

/// Settings for a plan for unknown parameters with all partitions: PostgreSQL often decides which partitions it skips
/// when a statement starts, and EXPLAIN would show only the others.
const PLAN_MODE_SQL: &str = "\
select pg_catalog.set_config('plan_cache_mode', 'force_generic_plan', true), \
       pg_catalog.set_config('enable_partition_pruning', 'off', true)";

/// Additional settings for a plan that shows every use of a column: an index would provide an order without a sort.
const MASKED_PLAN_MODE_SQL: &str = "\
select pg_catalog.set_config('enable_seqscan', 'on', true), pg_catalog.set_config('enable_indexscan', 'off', true), \
       pg_catalog.set_config('enable_indexonlyscan', 'off', true), pg_catalog.set_config('enable_bitmapscan', 'off', true)";

/// One of the server's own statements.
#[derive(Debug, Clone, Copy)]
struct Own {
    name: &'static str,
    sql: &'static str,
}

const BEGIN: Own = Own { name: "countersign_begin", sql: "begin read only" };
const SETTINGS: Own = Own { name: "countersign_settings", sql: SETTINGS_SQL };
const CONTEXT: Own = Own { name: "countersign_context", sql: CONTEXT_SQL };
const ROLE: Own = Own { name: "countersign_role", sql: ROLE_SQL };
const SET_SAVEPOINT: Own = Own { name: "countersign_savepoint", sql: SAVEPOINT };
const PLAN_MODE: Own = Own { name: "countersign_plan_mode", sql: PLAN_MODE_SQL };
const TO_SAVEPOINT: Own = Own { name: "countersign_to_savepoint", sql: BACK_TO_SAVEPOINT };
const RELEASE_SAVEPOINT: Own = Own { name: "countersign_release", sql: RELEASE };
const ENCODING: Own = Own { name: "countersign_encoding", sql: ENCODING_SQL };
const ROLLBACK: Own = Own { name: "countersign_rollback", sql: "rollback" };
const AUTHORIZATION: Own = Own { name: "countersign_authorization", sql: "set session authorization default" };
const RESET: Own = Own { name: "countersign_reset", sql: "reset all" };
const CHECK: Own = Own { name: "countersign_check", sql: CHECK_SQL };

/// The statements that a session prepares in its first transaction.
const PREPARED: [Own; 10] = [
    SETTINGS,
    SET_SAVEPOINT,
    PLAN_MODE,
    TO_SAVEPOINT,
    RELEASE_SAVEPOINT,
    ENCODING,
    ROLLBACK,
    AUTHORIZATION,
    RESET,
    CHECK,
];

/// The statements around reads, for the sessions of one pool.
#[derive(Debug)]
pub(super) struct ReadTransaction {
    /// The second statement through a pooler. It also makes the settings that a direct session starts with.
    pooled_settings: String,
}

impl ReadTransaction {
    /// The statements for sessions that start with these settings if there is no pooler.
    pub(super) fn new(settings: &SessionSettings) -> Self {
        let all: Vec<_> = settings.iter().collect();
        Self { pooled_settings: format!("{SETTINGS_SQL}, {}", setting(&all)) }
    }

    /// Queues the beginning of a transaction, for a caller with this context.
    pub(super) fn push_begin(&self, session: &mut Session, context: Option<&ContextStatements>) -> Result<(), Error> {
        self.push_settled(session)?;
        session.context_statement = None;
        let Some(context) = context else { return Ok(()) };
        let is_new = !session.is_pooled() && !std::mem::replace(&mut session.context_prepared, true);
        if is_new {
            prepare(session, &[CONTEXT, ROLE])?;
        }
        session.context_statement = Some(push_own_with(session, CONTEXT, context.params())?);
        if context.role().is_some() { push_own(session, ROLE) } else { Ok(()) }
    }

    fn push_settled(&self, session: &mut Session) -> Result<(), Error> {
        let settings = session.settings.clone();
        if session.is_pooled() {
            push_own(session, BEGIN)?;
            session.push_unnamed(&self.pooled_settings, &settings.params(), &[])?;
            session.connection.watch_last();
            return Ok(session.connection.push_execute("", 0)?);
        }
        if !session.boundary_prepared {
            prepare(session, &[BEGIN])?;
        }
        push_own(session, BEGIN)?;
        if !session.boundary_prepared {
            // Sent after BEGIN: parsing a query takes a snapshot, after which the mode of a transaction cannot
            // change.
            prepare(session, &PREPARED)?;
            session.boundary_prepared = true;
        }
        push_settings(session, &settings)
    }

    /// Queues the end of a transaction, and the reset of the session after the transaction's own ReadyForQuery.
    /// Through a pooler, the transaction must not have failed. [`statement_error`] interprets errors of the end.
    pub(super) fn push_end(&self, session: &mut Session, leaves_nothing: bool) -> Result<(), Error> {
        session.connection.max_message_bytes = MAX_MESSAGE_BYTES;
        push_own(session, ENCODING)?;
        if session.is_pooled() {
            for sql in RESET_STATEMENTS.into_iter().chain([ROLLBACK.sql]) {
                session.push_unnamed(sql, &[], &[])?;
                session.connection.push_execute("", 0)?;
            }
            session.connection.push_sync(Purpose::Call);
            return Ok(());
        }
        session.connection.push_sync(Purpose::Call);
        push_rollback(session, leaves_nothing)
    }

    /// Queues `ROLLBACK` and the reset of the session. One ReadyForQuery answers both; after it the session can be
    /// reused.
    pub(super) fn push_rollback(&self, session: &mut Session) -> Result<(), Error> {
        session.connection.max_message_bytes = MAX_MESSAGE_BYTES;
        if session.is_pooled() {
            return session.push_abort_and_reset();
        }
        push_rollback(session, false)
    }
}

/// How far behind the standby is that runs the transaction; `None` for a primary.
pub(super) fn standby_age(session: &mut Session) -> Option<StandbyAge> {
    let row = session.connection.take_watched()?;
    match row.get(STANDBY_COLUMNS)? {
        [Some(in_recovery), seconds] if in_recovery == "t" => {
            let seconds: Option<f64> = seconds.as_ref().and_then(|seconds| seconds.parse().ok());
            let age = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds.max(0.0)).ok());
            Some(StandbyAge { behind_ms: age.and_then(|age| age.as_millis().try_into().ok()) })
        }
        _ => None,
    }
}

/// Queues the query that fixes the mode and makes the settings. Not used through a pooler.
pub(super) fn push_settings(session: &mut Session, settings: &TransactionSettings) -> Result<(), Error> {
    session.connection.next_statement();
    session.connection.watch_last();
    session.connection.push_bind("", SETTINGS.name, &settings.params())?;
    Ok(session.connection.push_execute("", 0)?)
}

/// Queues the settings for a plan that will not be executed. [`push_end_of_planning`] undoes them, and also undoes
/// settings made by functions that PostgreSQL evaluates while it plans.
pub(super) fn push_planning(session: &mut Session, is_masked: bool) -> Result<(), Error> {
    push_own(session, SET_SAVEPOINT)?;
    push_own(session, PLAN_MODE)?;
    if is_masked {
        session.push_unnamed(MASKED_PLAN_MODE_SQL, &[], &[])?;
        session.connection.push_execute("", 0)?;
    }
    Ok(())
}

/// Queues the return to the settings of the transaction.
pub(super) fn push_end_of_planning(session: &mut Session) -> Result<(), Error> {
    push_own(session, TO_SAVEPOINT)?;
    push_own(session, RELEASE_SAVEPOINT)
}

fn push_rollback(session: &mut Session, leaves_nothing: bool) -> Result<(), Error> {
    push_own(session, ROLLBACK)?;
    for name in session.statements.take_obsolete() {
        session.connection.push_close_statement(&name)?;
    }
    if !leaves_nothing {
        for own in [AUTHORIZATION, RESET, CHECK] {
            push_own(session, own)?;
        }
    }
    session.push_last_sync();
    Ok(())
}

/// The error to report if a statement after the caller's statement has failed.
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

fn prepare(session: &mut Session, statements: &[Own]) -> Result<(), Error> {
    for own in statements {
        session.connection.next_statement();
        // A statement of this name may exist: after an error it is unknown which statements were prepared.
        session.connection.push_close_statement(own.name)?;
        session.connection.push_parse(own.name, own.sql, &[])?;
    }
    Ok(())
}

/// Queues one of the server's own statements, without parameters.
fn push_own(session: &mut Session, own: Own) -> Result<(), Error> {
    push_own_with(session, own, &[]).map(drop)
}

fn push_own_with(session: &mut Session, own: Own, params: &[Option<String>]) -> Result<StatementId, Error> {
    let statement = session.connection.next_statement();
    if session.is_pooled() {
        session.connection.push_parse("", own.sql, &[])?;
        session.connection.push_bind("", "", params)?;
    } else {
        session.connection.push_bind("", own.name, params)?;
    }
    session.connection.push_execute("", 0)?;
    Ok(statement)
}
