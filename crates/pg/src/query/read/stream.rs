//! A read whose rows are passed on as they arrive, for front ends that run statements of their users. It also runs
//! commands (SET, CREATE TABLE): PostgreSQL decides which of them a read-only transaction refuses.

use std::time::Duration;

use postgres_protocol::message::backend::DataRowBody;
use serde_json::Value;
use tokio::time::Instant;

use super::answer::RowOutput;
use super::inspection::PolicyVerdict;
use super::statement_metadata::StatementMetadata;
use super::{ReadError, Reader, read_transaction};
use crate::client::error::{Error, ServerError};
use crate::client::session::{Session, TransactionSettings};
use crate::client::wire::Purpose;
use crate::query::{Query, QueryDescription, RowSink};

/// Makes the transaction run as a role that may only read. A command without a plan may call any function, and a
/// superuser's calls can do anything (COPY TO PROGRAM). A login that can do this without being a superuser may not
/// run such a command. This is one layer of defence: a DO block can set its role back.
const LESS_SQL: &str = "select pg_catalog.current_setting('role'), \
    case when pg_catalog.current_setting('is_superuser') = 'on' \
         then pg_catalog.set_config('role', 'pg_read_all_data', true) end, \
    exists(select from pg_catalog.pg_roles where rolname in ('pg_execute_server_program', 'pg_write_server_files') \
           and pg_catalog.pg_has_role(oid, 'usage'))";
const ROLE_SQL: &str = "select pg_catalog.set_config('role', $1, true)";

impl RowOutput for RowSink {
    const MAY_CHANGE: bool = false;
    const FIRST_PORTION: usize = 1;

    fn begin(&mut self, metadata: &StatementMetadata) {
        if metadata.returns_rows {
            self.set_columns(&metadata.columns);
        }
    }

    fn row_limit(&self) -> Option<usize> {
        self.row_limit()
    }

    fn max_message_bytes(&self) -> usize {
        self.max_message_bytes()
    }

    fn is_streamed(&self) -> bool {
        self.is_streamed()
    }

    fn blocked(&self) -> Duration {
        self.blocked()
    }

    async fn take(&mut self, body: &DataRowBody) -> Result<bool, Error> {
        self.push_row(body).await
    }

    async fn take_values(&mut self, row: Vec<Value>) -> Result<bool, Error> {
        self.push_values(&row).await
    }

    async fn notice(&mut self, notice: Box<ServerError>) -> Result<(), Error> {
        self.push_notice(notice).await
    }

    fn complete(&mut self, tag: &str) {
        self.set_tag(tag);
    }

    fn due(&self) -> Option<Instant> {
        self.due()
    }

    async fn flush(&mut self) -> Result<(), Error> {
        self.flush_batch().await
    }
}

impl Reader {
    /// Runs the query on this session. Does not finish the sink ([`RowSink::finish`]).
    pub(crate) async fn stream_on(
        &self,
        session: &mut Session,
        query: &Query,
        sink: &mut RowSink,
    ) -> Result<(), ReadError> {
        session.settings = TransactionSettings {
            account: String::new(),
            caller: String::new(),
            statement_timeout_ms: query.statement_timeout.as_millis(),
            lock_timeout_ms: query.lock_timeout.as_millis(),
        };
        self.run(session, (&query.sql, query.params.len()), |types| query.encoded(types), sink).await
    }

    /// Refuses a described text that calls a function which a read may not call. If the plan does not show the calls,
    /// the text runs as a role that may only read; the returned role must be restored with [`Session::set_role`].
    pub(crate) async fn check_streamed(
        &self,
        session: &mut Session,
        sql: &str,
        params: &[Option<String>],
    ) -> Result<Option<String>, ReadError> {
        let Some(functions) = &self.functions else { return Ok(None) };
        match functions.check(session, sql, params).await? {
            PolicyVerdict::Unseen => Ok(Some(session.drop_superuser(false).await?)),
            _ => Ok(None),
        }
    }

    /// The parameters and columns of a statement. The statement is not run.
    pub(crate) async fn describe_on(&self, session: &mut Session, sql: &str) -> Result<QueryDescription, ReadError> {
        session.settings = TransactionSettings::default();
        let name = session.statements.new_name();
        let described = self.describe(session, (&name, sql), None).await;
        session.statements.drop_name(name);
        let shape = described?.metadata;
        self.push_abort_and_reset(session).await?;
        let StatementMetadata { params, columns, returns_rows, .. } = shape;
        Ok(QueryDescription { params, columns: returns_rows.then_some(columns) })
    }
}

impl Session {
    /// Makes the rest of this transaction run as a role that may only read, if its role is a superuser. Returns the
    /// previous role. `in_planning`: the settings for planning are still in force.
    pub(super) async fn drop_superuser(&mut self, in_planning: bool) -> Result<String, ReadError> {
        if in_planning {
            read_transaction::push_end_of_planning(self)?;
            self.connection.push_sync(Purpose::Call);
            self.connection.flush().await.map_err(Error::Lost)?;
            self.finish().await?;
        }
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

    /// Restores a role that [`Session::drop_superuser`] returned.
    pub(crate) async fn set_role(&mut self, role: String) -> Result<(), Error> {
        self.rows(ROLE_SQL, &[Some(role)]).await?;
        Ok(())
    }
}
