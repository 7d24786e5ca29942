//! Refuses writes that another session executes: to foreign tables, to tables of Citus, and to others that Citus
//! changes over a connection to its own node.
//!
//! The other session commits before the local transaction does. If the local COMMIT is then lost, the record says that
//! nothing was written, and a repeated call writes twice. The compiler refuses the remote writes that a plan shows
//! (`types::RemotePart`). This module finds those of triggers, functions and callers' SQL at the end of a write, by
//! the lock that the transaction holds on each table that it wrote. The other session rolls back as long as the local
//! transaction has not committed. What a function writes that Citus runs on another node is not seen here.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pg::{PipelineStatement, PooledSession, ServerError, StatementResult};
use tokio::time::Instant;
use types::{ErrorCode, Failure};

/// How long to skip the check for a database that has neither foreign tables nor Citus.
const ABSENT_FOR: Duration = Duration::from_secs(10);

/// Tables that are locked as statements that write lock them; TRUNCATE takes the second mode. The query runs with the
/// search_path of the login.
macro_rules! written {
    () => {
        "select pg_catalog.min(pg_catalog.format('%I.%I', n.nspname, c.relname)) \
         from pg_catalog.pg_locks l join pg_catalog.pg_class c on c.oid operator(pg_catalog.=) l.relation \
         join pg_catalog.pg_namespace n on n.oid operator(pg_catalog.=) c.relnamespace \
         where l.locktype operator(pg_catalog.=) 'relation' and l.granted \
           and l.mode operator(pg_catalog.=) any (array['RowExclusiveLock', 'AccessExclusiveLock'])"
    };
}

/// Whether the database has foreign tables, whether it has Citus, and a foreign table that the transaction has
/// written to.
const FOREIGN_SQL: &str = concat!(
    "select exists (select from pg_catalog.pg_foreign_table)::pg_catalog.text, \
            (pg_catalog.to_regclass('pg_catalog.pg_dist_partition') is not null)::pg_catalog.text, (",
    written!(),
    " and l.pid operator(pg_catalog.=) pg_catalog.pg_backend_pid() and c.relkind operator(pg_catalog.=) 'f')"
);

/// A table that the transaction has written to and that Citus manages, or one that Citus has written to for it in
/// another session of this node. Citus does so with any table, if the statement joins it with one of its own.
const CITUS_SQL: &str = concat!(
    written!(),
    " and c.relkind operator(pg_catalog.=) any (array['r', 'p']::pg_catalog.\"char\"[]) \
      and (l.pid operator(pg_catalog.=) pg_catalog.pg_backend_pid() \
           and exists (select from pg_catalog.pg_dist_partition d \
                       where d.logicalrelid::pg_catalog.oid operator(pg_catalog.=) c.oid) \
        or l.pid operator(pg_catalog.=) any ( \
            select t.process_id from pg_catalog.get_all_active_transactions() t \
            where t.global_pid operator(pg_catalog.=) pg_catalog.citus_backend_gpid() \
              and t.process_id operator(pg_catalog.<>) pg_catalog.pg_backend_pid()))"
);

#[derive(Debug)]
pub(crate) enum RemoteWriteError {
    /// PostgreSQL refused a deferred constraint or trigger.
    Deferred(Box<ServerError>),
    /// Another session has written for the transaction.
    Refused(Box<Failure>),
    Database(pg::Error),
}

/// When the database was last found to have no tables on other servers. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct RemoteWrites(Arc<Mutex<Option<Instant>>>);

impl RemoteWrites {
    /// Runs the deferred triggers of a transaction, and refuses it if another session has written for it.
    pub(crate) async fn refuse(&self, lease: &mut PooledSession) -> Result<(), RemoteWriteError> {
        let absent = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if absent.is_some_and(|since| since.elapsed() < ABSENT_FOR) {
            return Ok(());
        }
        let steps = ["set constraints all immediate", FOREIGN_SQL].map(PipelineStatement::without_params);
        let outcomes = lease.session().run(&steps).await.map_err(|failed| match failed.error {
            pg::Error::Server(error) if failed.step == 0 => RemoteWriteError::Deferred(error),
            error => RemoteWriteError::Database(error),
        })?;
        let row = outcomes.into_iter().next_back().and_then(StatementResult::into_row);
        let [has_foreign, has_citus, foreign] = row.unwrap_or_default();
        let (has_foreign, has_citus) = (has_foreign.as_deref() == Some("true"), has_citus.as_deref() == Some("true"));
        if let Some(table) = foreign {
            return Err(refusal(&table, ", a foreign table, in a session of another database"));
        }
        if has_citus {
            let step = [PipelineStatement::without_params(CITUS_SQL)];
            let outcomes =
                lease.session().run(&step).await.map_err(|failed| RemoteWriteError::Database(failed.error))?;
            if let Some(table) = outcomes.into_iter().next_back().and_then(StatementResult::into_value) {
                return Err(refusal(&table, " in a session of Citus"));
            }
        }
        let absent = (!has_foreign && !has_citus).then(Instant::now);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = absent;
        Ok(())
    }
}

fn refusal(table: &str, place: &str) -> RemoteWriteError {
    let message = format!(
        "the write changes {table}{place}: it may commit although this one does not, so the outcome could not be \
         told, and a repeated call could write twice; nothing was written"
    );
    let hint = "Write tables of this database only, in a statement without others. Rows of other servers can be read.";
    RemoteWriteError::Refused(Box::new(Failure::new(ErrorCode::NotPermitted, message).hint(hint)))
}
