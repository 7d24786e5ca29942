//! Sessions that may write. Only `ledger` uses them: every write goes through its gate. Of the crates above
//! `ledger`, only the binary depends on this one, to connect the parts (`tests/acceptance/architecture.rs` checks it).

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use types::{Column, PgType};

use crate::client::connect_options::ConnectOptions;
use crate::client::error::Error;
use crate::client::pool::{Pool, PoolStatus, PooledSession};
use crate::client::search_path::SearchPath;
use crate::client::session::StatementResult;
use crate::client::session_settings::SessionSettings;
use crate::client::wire::FieldDescription;
use crate::query::columns;
use crate::query::sql_executor::{ExecuteError, StatementTimeouts, reject_session_commands, run_user_statement};
use crate::query::type_catalog::TypeCatalog;
use crate::query::{Query, RowSink};

/// How much longer than the statement timeout a server may be silent. Afterwards, the record of the write is looked
/// up.
const READ_TIMEOUT_MARGIN: Duration = Duration::from_secs(2);

/// A pool of sessions that may write, and the types of their database.
#[derive(Debug, Clone)]
pub struct WriterPool {
    pool: Pool,
    types: Arc<TypeCatalog>,
}

impl WriterPool {
    /// A pool on this database, of at most this many sessions. Opens no connection yet. Names without a schema are
    /// looked up in PostgreSQL's own schema, and then in `path`: nobody else may create objects in the schemas there.
    #[must_use]
    pub fn new(target: ConnectOptions, path: &SearchPath, sessions: usize) -> Self {
        Self::with_settings(target, SessionSettings::default().with_search_path(path.setting()), sessions)
    }

    /// Like [`WriterPool::new`], but with the search path of the role: people expect the names of their other
    /// sessions.
    #[must_use]
    pub fn interactive(target: ConnectOptions, sessions: usize) -> Self {
        Self::with_settings(target, SessionSettings::default().with_login_search_path(), sessions)
    }

    /// The ledger's functions rely on READ COMMITTED: each statement must see what was committed before it, whatever
    /// the defaults of the role and the database are.
    fn with_settings(target: ConnectOptions, settings: SessionSettings, sessions: usize) -> Self {
        let settings = settings.with("default_transaction_isolation", "read committed");
        Self { pool: Pool::new(target, settings, sessions), types: Arc::default() }
    }

    /// Runs one statement of a front end's user under this name to its end, in the open transaction of the session.
    ///
    /// # Errors
    /// [`ExecuteError`]. The transaction must be rolled back to a point before the statement. COMMIT, ROLLBACK and
    /// PREPARE TRANSACTION are refused before they have an effect.
    pub async fn run_user_statement(
        &self,
        lease: &mut PooledSession,
        statement: &str,
        query: &Query,
        sink: &mut RowSink,
    ) -> Result<(), ExecuteError> {
        let session = lease.session();
        // COMMIT runs under the same timeout.
        let timeout = Some(query.statement_timeout).filter(|it| !it.is_zero());
        session.connection.read_timeout = timeout.map(|it| it + READ_TIMEOUT_MARGIN);
        session.set_limits(StatementTimeouts::of(query)).await?;
        run_user_statement(session, &self.types, (statement, None), query, sink).await?;
        reject_session_commands(sink)
    }

    /// Leases a session, before `deadline`.
    pub async fn acquire(&self, deadline: Instant) -> Result<PooledSession, Error> {
        self.pool.acquire(deadline).await
    }

    /// Runs one of the server's own statements on a session of the pool, before `deadline`.
    pub async fn run_one(
        &self,
        sql: &str,
        params: &[Option<String>],
        deadline: Instant,
    ) -> Result<StatementResult, Error> {
        self.acquire(deadline).await?.run_one(sql, params, deadline).await
    }

    /// The database, and the login of the sessions.
    #[must_use]
    pub fn target(&self) -> &ConnectOptions {
        self.pool.target()
    }

    #[must_use]
    pub fn status(&self) -> PoolStatus {
        self.pool.status()
    }

    /// Retires all present sessions, after a lost connection: the others may be lost too.
    pub fn retire_all(&self) {
        self.pool.retire_all();
    }

    /// Closes the idle sessions that were not used for this time.
    pub async fn close_unused(&self, time: Duration) {
        self.pool.close_unused(time).await;
    }

    /// Waits until PostgreSQL has received every pending cancel request.
    pub async fn drain(&self) {
        self.pool.drain().await;
    }

    /// The types with these oids.
    pub async fn resolve_types(&self, lease: &mut PooledSession, oids: &[u32]) -> Result<Vec<Arc<PgType>>, Error> {
        self.types.resolve_all(lease.session(), oids).await
    }

    /// The result columns with their types and unique names.
    pub async fn resolve_columns(
        &self,
        lease: &mut PooledSession,
        raw: &[FieldDescription],
    ) -> Result<Vec<Column>, Error> {
        columns::resolve(&self.types, lease.session(), raw).await
    }
}
