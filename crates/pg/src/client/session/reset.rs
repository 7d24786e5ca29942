//! The reset of a session, after which any call may use it.

use super::{PipelineStatement, Session};
use crate::client::error::{Error, ServerError};
use crate::client::wire::{Event, Purpose, row_texts};

/// Prepared once in a session. The first column of the query says whether SQL's PREPARE has left a statement. If it
/// has, the session is not reused.
const RESET_SQL: [&str; 7] = [
    "set session authorization default",
    "reset all",
    "close all",
    "unlisten *",
    "discard temporary",
    "discard sequences",
    "select exists(select from pg_catalog.pg_prepared_statements where from_sql), pg_catalog.pg_advisory_unlock_all()",
];

impl Session {
    /// Queues the Sync after which the session can be reused.
    pub(crate) fn push_last_sync(&mut self) {
        self.connection.push_sync(Purpose::Reset);
    }

    /// Waits for the end of a reset, if one is pending.
    ///
    /// # Errors
    /// The session is not clean and must not be used again.
    pub(crate) async fn await_reset(&mut self) -> Result<(), Error> {
        while self.connection.reset_pending() {
            self.receive_reset().await?;
        }
        Ok(())
    }

    async fn receive_reset(&mut self) -> Result<(), Error> {
        let mut has_statements = false;
        let mut take = |event| {
            // A row of the check in `read::read_transaction`: the statement left something that a reset does not
            // remove.
            if let Event::Row(_, body) = event {
                has_statements |= row_texts(&body)?.first() == Some(&Some("t"));
            }
            Ok(())
        };
        let failure = self.connection.converse(&mut take).await?.map(Error::from);
        let failure = failure
            .or_else(|| has_statements.then(|| left_behind("prepared statements of a call are left")))
            .or_else(|| self.is_in_block().then(|| left_behind("the transaction of a call is still open")));
        self.is_unusable |= failure.is_some();
        failure.map_or(Ok(()), Err)
    }

    /// Closes the statements of agents, so that the next text cannot read their texts. Only queued.
    pub(crate) fn push_close_remembered(&mut self) -> Result<(), Error> {
        for known in self.statements.take_all() {
            self.connection.push_close_statement(&known)?;
        }
        Ok(())
    }

    /// Marks the statements around a read as not prepared, since an error left this unknown.
    pub(crate) fn invalidate_boundary_statements(&mut self) {
        self.boundary_prepared = self.is_pooled();
        self.guard_prepared = false;
        self.context_prepared = false;
    }

    /// Resets what a transaction may leave in its session: settings, role, temporary tables, sequence values, cursors,
    /// LISTEN and advisory locks. Statements prepared by the protocol stay. The next user of the session waits for the
    /// answer. Through a pooler nothing is sent: the pooler resets its backends.
    pub async fn push_reset(&mut self) -> Result<(), Error> {
        if self.is_pooled() || !self.is_idle() {
            return Ok(());
        }
        self.push_whole(|session| {
            RESET_SQL.iter().try_for_each(|sql| session.push_step(&PipelineStatement::without_params(sql)).map(drop))
        })?;
        self.push_last_sync();
        Ok(self.connection.flush().await?)
    }

    /// Like [`Session::discard_all`], but the next user of the session waits for the answer.
    pub(crate) async fn push_discard(&mut self) -> Result<(), Error> {
        self.prepared.clear();
        self.statements.take_all();
        self.invalidate_boundary_statements();
        self.connection.push_simple_query("discard all", Purpose::Reset)?;
        Ok(self.connection.flush().await?)
    }

    /// Removes everything that the last call may have left: settings, role, temporary tables, prepared statements,
    /// LISTEN, advisory locks, cursors (PostgreSQL manual, DISCARD).
    ///
    /// # Errors
    /// An error of the server. The session must not be used again then.
    pub async fn discard_all(&mut self) -> Result<(), Error> {
        self.prepared.clear();
        self.statements.take_all();
        self.invalidate_boundary_statements();
        self.connection.push_simple_query("discard all", Purpose::Call)?;
        self.connection.flush().await?;
        self.finish().await
    }
}

/// object_not_in_prerequisite_state: why a session is not used again.
fn left_behind(message: &str) -> Error {
    Error::Server(Box::new(ServerError::synthetic("55000", message)))
}
