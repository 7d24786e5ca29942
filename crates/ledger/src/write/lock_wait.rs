//! Says who holds a lock for which a statement waits, so that whoever waits for the write knows why.

use std::pin::pin;
use std::time::Duration;

use pg::{PooledSession, ServerError, WriterPool};
use tokio::time::Instant;
use types::{ErrorCode, Failure};

use crate::write::failures::{ExecutorError, sql_failure};

/// The SQLSTATE of a statement that waited longer than `lock_timeout`, or was not to wait.
pub(crate) const LOCK_NOT_AVAILABLE: &str = "55P03";

const QUERY_CANCELED: &str = "57014";

/// After this time another session looks up what the statement waits for, and again each time that it passes.
const LOOK_UP_AFTER: Duration = Duration::from_secs(2);

/// What ends sooner for want of a lock did not wait for it.
const SHORTEST_WAIT: Duration = Duration::from_millis(500);

/// The time limit of each look-up.
const LOOK_UP_TIMEOUT: Duration = Duration::from_secs(1);

/// The first session or prepared transaction that the session waits for. When a transaction began is shown to members of
/// pg_read_all_stats only.
const HOLDER_SQL: &str = "\
select coalesce( \
    (select pg_catalog.format('a session of %I%s%s', a.usename, \
            case when a.application_name <> '' then pg_catalog.format(' (application %I)', a.application_name) end, \
            pg_catalog.to_char(a.xact_start at time zone 'UTC', '\" since \"HH24:MI:SS\" UTC\"')) \
     from pg_catalog.pg_stat_activity a where a.pid = b.pid), \
    (select pg_catalog.format('the prepared transaction %L of %I', p.gid, p.owner) \
     from pg_catalog.pg_locks w join pg_catalog.pg_prepared_xacts p on p.transaction = w.transactionid \
     where w.pid = $1::int4 and not w.granted and p.database = pg_catalog.current_database() limit 1), \
    'another session') \
from pg_catalog.unnest(pg_catalog.pg_blocking_pids($1::int4)) with ordinality b (pid, place) order by b.place limit 1";

/// What is known about the wait of statements that have ended.
pub(crate) struct LockWait {
    /// Since when they waited, as far as the look-ups can tell.
    since: Instant,
    /// Who held the lock at the last look-up; `None` if nobody did.
    holder: Option<String>,
}

/// The session as PostgreSQL knows it; `None` behind a pooler, where it is another one in each transaction.
pub(crate) fn backend_pid(lease: &mut PooledSession) -> Option<i32> {
    let session = lease.session();
    (!session.is_pooled()).then(|| session.backend_pid())
}

/// Runs the statements of this session, and looks up what they wait for.
pub(crate) async fn watched<T>(
    writer: &WriterPool,
    pid: Option<i32>,
    statements: impl Future<Output = T>,
) -> (T, LockWait) {
    let mut wait = LockWait { since: Instant::now(), holder: None };
    let mut statements = pin!(statements);
    loop {
        tokio::select! {
            biased;
            outcome = &mut statements => return (outcome, wait),
            () = tokio::time::sleep(LOOK_UP_AFTER), if pid.is_some() => {}
        }
        let params = [pid.map(|pid| pid.to_string())];
        tokio::select! {
            biased;
            outcome = &mut statements => return (outcome, wait),
            found = writer.run_one(HOLDER_SQL, &params, Instant::now() + LOOK_UP_TIMEOUT) => match found {
                Ok(found) => wait.note(found.into_value()),
                Err(error) => tracing::debug!(%error, "what a write waits for is not known"),
            }
        }
    }
}

impl LockWait {
    fn note(&mut self, holder: Option<String>) {
        if holder.is_none() {
            self.since = Instant::now();
        }
        self.holder = holder;
    }

    /// The failure of statements that ended with this SQLSTATE, if they waited for a lock until their time was over.
    fn failure(&self, sqlstate: &str) -> Option<Failure> {
        let time = self.since.elapsed();
        let holder = match (sqlstate, &self.holder) {
            (LOCK_NOT_AVAILABLE | QUERY_CANCELED, Some(holder)) => holder,
            // A statement that was not to wait (NOWAIT) keeps its message.
            (LOCK_NOT_AVAILABLE, None) if time >= SHORTEST_WAIT => "another session",
            _ => return None,
        };
        let message = format!("waited {:.0} s for a lock of {holder}; nothing was written", time.as_secs_f64());
        Some(Failure { sqlstate: Some(LOCK_NOT_AVAILABLE.to_owned()), ..Failure::new(ErrorCode::Timeout, message) })
    }

    /// The failure for an error of PostgreSQL in these statements.
    pub(crate) fn sql_failure(&self, error: &ServerError) -> Failure {
        self.failure(&error.sqlstate).unwrap_or_else(|| sql_failure(error))
    }

    /// The error, with what its statements have waited for.
    pub(crate) fn explain_error(&self, error: pg::Error) -> pg::Error {
        let pg::Error::Server(error) = error else { return error };
        match self.failure(&error.sqlstate) {
            Some(Failure { message, .. }) => pg::Error::Server(Box::new(ServerError { message, ..*error })),
            None => pg::Error::Server(error),
        }
    }

    /// The outcome of an executor, with what it has waited for.
    pub(crate) fn explain<T>(&self, outcome: Result<T, ExecutorError>) -> Result<T, ExecutorError> {
        outcome.map_err(|error| match error {
            ExecutorError::Rejected(failure) => {
                let waited = failure.sqlstate.as_deref().and_then(|sqlstate| self.failure(sqlstate));
                waited.unwrap_or(failure).into()
            }
            lost @ ExecutorError::ConnectionLost(_) => lost,
        })
    }
}
