//! Runs a user's statement in an open transaction block.

use std::time::Duration;

use super::ExecuteError;
use super::commit::READ_TIMEOUT_MARGIN;
use crate::client::error::{Error, ServerError};
use crate::client::session::{PipelineStatement, Session};
use crate::client::session_settings::check_client;
use crate::client::wire::Purpose;
use crate::query::columns;
use crate::query::read::{Answer, EMPTY_STATEMENT, Reader, StatementMetadata, is_about_values};
use crate::query::type_catalog::TypeCatalog;
use crate::query::{Query, RowSink};

const LIMITS_SQL: &str = concat!(
    "select pg_catalog.set_config('statement_timeout', $1, true), pg_catalog.set_config('lock_timeout', $2, true), ",
    check_client!()
);

/// Puts the transaction into the failed state. PostgreSQL then accepts only a statement that ends the transaction or
/// returns to a savepoint (`IsTransactionExitStmt`). It refuses any other statement with 25P02, before the statement
/// has an effect.
const FAIL: [&str; 2] = ["savepoint countersign_probe", DIVISION_BY_ZERO];
const RECOVER: [&str; 2] = ["rollback to savepoint countersign_probe", "release savepoint countersign_probe"];

/// Fails in every transaction.
const DIVISION_BY_ZERO: &str = "select 1 operator(pg_catalog./) 0";

const CONTROL_HINT: &str = "A statement runs in a transaction of its own. For several in one, use the commands begin, commit and rollback of the pipe.";

/// `statement_timeout` and `lock_timeout` in milliseconds; 0 means no limit.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct StatementTimeouts {
    statement: Duration,
    lock: Duration,
}

impl StatementTimeouts {
    pub(crate) fn of(query: &Query) -> Self {
        Self { statement: query.statement_timeout, lock: query.lock_timeout }
    }

    fn params(self) -> [Option<String>; 2] {
        [self.statement, self.lock].map(|timeout| Some(timeout.as_millis().to_string()))
    }
}

/// How much of a statement has run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ran {
    /// The whole statement.
    Whole,
    /// Nothing: the statement ends the transaction or returns to a savepoint.
    TransactionExit,
}

/// Runs the query, prepared under this name. After any error, the transaction must be rolled back. `forbids` is the
/// policy for the functions of a read; `None` for a write.
pub(crate) async fn run_user_statement(
    session: &mut Session,
    types: &TypeCatalog,
    (statement, forbids): (&str, Option<&Reader>),
    query: &Query,
    sink: &mut RowSink,
) -> Result<(), ExecuteError> {
    match run_unless_exit(session, types, (statement, forbids), query, sink).await? {
        Ran::Whole => Ok(()),
        Ran::TransactionExit => Err(control("it ends the transaction, or goes back in it")),
    }
}

/// Runs the query. Reports a transaction exit instead of refusing it.
pub(super) async fn run_unless_exit(
    session: &mut Session,
    types: &TypeCatalog,
    (statement, forbids): (&str, Option<&Reader>),
    query: &Query,
    sink: &mut RowSink,
) -> Result<Ran, ExecuteError> {
    let outcome = run_named(session, types, (statement, forbids), query, sink).await;
    if sink.tag().is_some_and(|tag| tag.starts_with("DEALLOCATE")) {
        session.prepared.clear();
    }
    if session.in_sync() {
        session.connection.push_close_statement(statement).map_err(Error::Lost)?;
    }
    outcome
}

async fn run_named(
    session: &mut Session,
    types: &TypeCatalog,
    (statement, forbids): (&str, Option<&Reader>),
    query: &Query,
    sink: &mut RowSink,
) -> Result<Ran, ExecuteError> {
    let shape = session.describe(statement, &query.sql, &[]).await?;
    let param_types = types.resolve_all(session, &shape.params).await?;
    let params = query.encoded(&param_types).map_err(|error| ExecuteError::Params(error.to_string()))?;
    let returns_rows = shape.columns.is_some();
    let columns = columns::resolve(types, session, shape.columns.as_deref().unwrap_or_default()).await?;
    if !returns_rows && params.is_empty() && session.is_transaction_exit(statement).await? {
        return Ok(Ran::TransactionExit);
    }
    if returns_rows {
        sink.set_columns(&columns);
    }
    let role = match forbids {
        Some(reader) => reader.check_streamed(session, &query.sql, &params).await?,
        None => None,
    };
    // All columns are received as text, whatever their types are.
    let metadata = StatementMetadata { conversion: None, ..StatementMetadata::new(param_types, columns, Vec::new()) };
    session.run_described(statement, &params, &metadata, sink).await?;
    if let Some(role) = role {
        session.set_role(role).await?;
    }
    Ok(Ran::Whole)
}

impl Session {
    /// Opens a transaction block. A first query fixes its mode, so no statement in it can change the mode.
    pub(super) async fn open_block(&mut self, mode: &str, limits: StatementTimeouts) -> Result<(), ExecuteError> {
        let begin = format!("begin {mode}");
        let params = limits.params();
        let steps = [PipelineStatement::without_params(&begin), PipelineStatement::new(LIMITS_SQL, &params)];
        self.run(&steps).await.map_err(|failed| failed.error)?;
        Ok(())
    }

    /// Sets the timeouts without a prepared statement, since the user's statement may have removed those (DEALLOCATE
    /// ALL).
    pub(crate) async fn set_limits(&mut self, limits: StatementTimeouts) -> Result<(), ExecuteError> {
        self.push_unnamed(LIMITS_SQL, &limits.params(), &[])?;
        self.connection.push_execute("", 0).map_err(Error::Lost)?;
        self.connection.push_sync(Purpose::Call);
        self.connection.flush().await.map_err(Error::Lost)?;
        Ok(self.finish().await?)
    }

    /// Commits, and returns the command tag, which must be COMMIT.
    pub(super) async fn commit_block(&mut self) -> Result<String, Error> {
        // The user's statement may have removed prepared statements, so none is assumed to exist.
        self.prepared.clear();
        let outcomes = self.run(&[PipelineStatement::without_params("commit")]).await.map_err(|failed| failed.error)?;
        match outcomes.last().map(|outcome| outcome.tag.as_str()) {
            Some("COMMIT") => Ok("COMMIT".to_owned()),
            Some("ROLLBACK") => Err(Error::Server(Box::new(ServerError {
                hint: Some("Nothing of it was written.".to_owned()),
                ..ServerError::synthetic("25P02", "the transaction had failed, so COMMIT was answered with ROLLBACK")
            }))),
            tag => {
                self.mark_unusable();
                let said = format!("COMMIT was answered with {}", tag.unwrap_or("nothing"));
                Err(Error::Lost(std::io::Error::other(said)))
            }
        }
    }

    /// Ends the block if this does not have to wait for a running statement, and discards the state of the session.
    /// If this fails, the session is not reused.
    pub(super) async fn leave_block(&mut self, end: &str) {
        if !self.in_sync() {
            return;
        }
        self.connection.read_timeout = Some(READ_TIMEOUT_MARGIN);
        let ended = if end.is_empty() { Ok(()) } else { self.batch_execute(end).await };
        if ended.is_err() || self.push_discard().await.is_err() {
            self.mark_unusable();
        }
    }

    /// Whether the prepared statement, which takes no parameters, ends a transaction or returns to a savepoint:
    /// COMMIT, ROLLBACK, PREPARE TRANSACTION, ROLLBACK TO. The statement is not run.
    async fn is_transaction_exit(&mut self, statement: &str) -> Result<bool, Error> {
        for sql in FAIL {
            self.push_unnamed(sql, &[], &[])?;
            self.connection.push_execute("", 0)?;
        }
        self.connection.push_sync(Purpose::Call);
        self.connection.next_statement();
        self.connection.push_bind("", statement, &[])?;
        self.connection.push_sync(Purpose::Call);
        for sql in RECOVER {
            self.push_unnamed(sql, &[], &[])?;
            self.connection.push_execute("", 0)?;
        }
        self.connection.push_sync(Purpose::Call);
        self.connection.flush().await?;
        let failed = self.finish().await;
        let bound = self.finish().await;
        self.finish().await?;
        match (failed, bound) {
            (Err(Error::Server(failed)), _) if failed.sqlstate != "22012" => Err(Error::Server(failed)),
            (_, Ok(())) => Ok(true),
            (_, Err(Error::Server(_))) => Ok(false),
            (_, Err(error)) => Err(error),
        }
    }

    /// Runs a statement that ends the transaction or returns to a savepoint. Returns whether the transaction is open
    /// afterwards.
    ///
    /// The statement runs in a failed transaction, where `ROLLBACK TO SAVEPOINT` works as usual, and every other
    /// accepted statement, including COMMIT, is a ROLLBACK.
    ///
    /// # Errors
    /// PostgreSQL's error; 25P02 for any other statement. The transaction has failed then.
    pub(super) async fn go_back(&mut self, sql: &str) -> Result<bool, Error> {
        let is_open = self.in_transaction();
        self.push_whole(|it| {
            if is_open {
                it.push_unnamed(DIVISION_BY_ZERO, &[], &[])?;
                it.connection.push_execute("", 0)?;
                it.connection.push_sync(Purpose::Call);
            }
            it.push_unnamed(sql, &[], &[])?;
            it.connection.push_execute("", 0)?;
            it.connection.push_sync(Purpose::Call);
            Ok::<_, Error>(())
        })?;
        self.connection.flush().await?;
        if is_open {
            match self.finish().await {
                Ok(()) | Err(Error::Server(_)) => {}
                Err(error) => return Err(error),
            }
        }
        self.finish().await?;
        Ok(self.in_transaction())
    }

    /// Runs the statement that was described under this name to its end. Its rows go to the sink.
    ///
    /// # Errors
    /// [`ExecuteError`]. The transaction must be rolled back. If the session is not idle afterwards, it must not be
    /// reused.
    async fn run_described(
        &mut self,
        statement: &str,
        params: &[Option<String>],
        metadata: &StatementMetadata,
        sink: &mut RowSink,
    ) -> Result<(), ExecuteError> {
        let usual = std::mem::replace(&mut self.connection.max_message_bytes, sink.max_message_bytes());
        let pushed = self.connection.push_whole(|connection| {
            let id = connection.next_statement();
            connection.push_bind("", statement, params)?;
            connection.push_execute("", 0)?;
            Ok(id)
        });
        self.connection.max_message_bytes = usual;
        let id = pushed.map_err(Error::Lost)?;
        self.connection.push_sync(Purpose::Call);
        self.connection.flush().await.map_err(Error::Lost)?;
        let mut answer = Answer::new(id, metadata, sink).run_to_end();
        let failure = self.connection.converse(&mut answer).await?;
        if answer.copies {
            return Err(ExecuteError::copy());
        }
        if answer.is_empty {
            return Err(ExecuteError::Params(EMPTY_STATEMENT.to_owned()));
        }
        match failure {
            None => Ok(()),
            Some(failure) if !answer.was_bound && !params.is_empty() && is_about_values(&failure.error) => {
                Err(ExecuteError::Params(failure.error.about_parameter()))
            }
            Some(failure) => Err(ExecuteError::Sql(failure.error)),
        }
    }
}

/// Command tags of statements that need a session of their own.
const OF_A_SESSION: [&str; 2] = ["LISTEN", "UNLISTEN"];

/// Command tags of transaction control.
const CONTROL: [&str; 7] =
    ["BEGIN", "START TRANSACTION", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE", "PREPARE TRANSACTION"];

pub(super) fn control(why: &str) -> ExecuteError {
    ExecuteError::Unsupported {
        message: format!("transaction control as a statement is not supported: {why}"),
        hint: Some(CONTROL_HINT.to_owned()),
    }
}

/// Refuses the result of a statement that exceeded a limit, or that is not supported in a transaction of its own.
pub(crate) fn reject_session_commands(sink: &RowSink) -> Result<(), ExecuteError> {
    if let Some(overflow) = sink.overflow() {
        return Err(ExecuteError::TooLarge { message: overflow.to_owned(), taken: Some(sink.taken()) });
    }
    match sink.tag() {
        Some(tag) if OF_A_SESSION.contains(&tag) => Err(ExecuteError::Unsupported {
            message: format!("{tag} is not supported: there is no way here for notifications"),
            hint: None,
        }),
        Some(tag) if CONTROL.contains(&tag) => Err(control(tag)),
        _ => Ok(()),
    }
}

/// Like [`reject_session_commands`], for a transaction of several statements, which may have savepoints.
pub(crate) fn reject_unsupported_in_block(sink: &RowSink) -> Result<(), ExecuteError> {
    match sink.tag() {
        Some("SAVEPOINT" | "RELEASE") => Ok(()),
        _ => reject_session_commands(sink),
    }
}
