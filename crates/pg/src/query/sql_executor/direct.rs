//! [`SqlExecutor`] on PostgreSQL, without a ledger.
//!
//! ```text
//! a read     the read path (`read::stream`): a transaction that cannot write, rolled back, the session cleaned
//! a write    BEGIN · limits · describe · run to its end · everything taken? · COMMIT · DISCARD ALL
//! ```

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::commit::{NO_DEADLINE, READ_TIMEOUT_MARGIN, commit, read_timeout, unless_cancelled};
use super::transaction::OpenTransaction;
use super::user_statement::{StatementTimeouts, run_user_statement};
use super::{
    BoxFuture, ExecuteError, NamedSession, SqlExecutor, Transaction, TransactionOptions, reject_session_commands,
};
use crate::client::pool::PooledSession;
use crate::client::wire::MAX_MESSAGE_BYTES;
use crate::query::read::Reader;
use crate::query::{Query, QueryDescription, QueryEvent, QuerySummary, RowSink};

/// The maximum number of connections of one session.
const SESSIONS: usize = 5;

/// How long the server may be silent while it describes a statement. Describing has no statement timeout and may wait
/// for a lock.
const DESCRIBE_READ_TIMEOUT: Duration = Duration::from_secs(30);

/// Runs statements on PostgreSQL, over its own pools.
#[derive(Debug, Default)]
pub struct DirectExecutor {
    /// By session name, with the generation of the pool.
    pools: Mutex<HashMap<String, (u64, Reader)>>,
}

impl DirectExecutor {
    fn pools(&self) -> MutexGuard<'_, HashMap<String, (u64, Reader)>> {
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn at(&self, place: &NamedSession) -> Reader {
        let mut pools = self.pools();
        match pools.get(&place.session) {
            Some((generation, reader)) if *generation == place.generation => return reader.clone(),
            // The statement was sent before the session moved to another server. It runs on the old server, as one of
            // the last there.
            Some((generation, _)) if *generation > place.generation => {
                return Reader::for_adhoc_sql(place.target.clone(), SESSIONS);
            }
            _ => {}
        }
        let reader = Reader::for_adhoc_sql(place.target.clone(), SESSIONS);
        pools.insert(place.session.clone(), (place.generation, reader.clone()));
        reader
    }

    async fn read(&self, place: &NamedSession, query: &Query, sink: &mut RowSink) -> Result<(), ExecuteError> {
        let reader = self.at(place);
        let mut lease = acquire(&reader, read_timeout(query.statement_timeout)).await?;
        let outcome = reader.stream_on(lease.session(), query, sink).await;
        reader.end(lease, outcome).await?;
        reject_session_commands(sink)?;
        Ok(sink.finish().await?)
    }

    /// Runs a write up to, but not including, COMMIT.
    async fn write(
        &self,
        place: &NamedSession,
        query: &Query,
        sink: &mut RowSink,
    ) -> Result<PooledSession, ExecuteError> {
        let reader = self.at(place);
        let mut lease = acquire(&reader, read_timeout(query.statement_timeout)).await?;
        let session = lease.session();
        session.open_block("read write", StatementTimeouts::of(query)).await?;
        // The text cannot contain this name, so it cannot EXECUTE itself, which would never end.
        let statement = session.statements.new_name();
        let ran = run_user_statement(session, reader.types(), (&statement, None), query, sink).await;
        let outcome = ran.and_then(|()| reject_session_commands(sink));
        let outcome = match outcome {
            Ok(()) => sink.finish().await.map_err(ExecuteError::from),
            Err(error) => Err(error),
        };
        match outcome {
            Ok(()) => Ok(lease),
            Err(error) => {
                lease.session().leave_block("rollback").await;
                Err(error)
            }
        }
    }
}

impl SqlExecutor for DirectExecutor {
    fn query<'a>(
        &'a self,
        place: &'a NamedSession,
        query: Query,
        out: mpsc::Sender<QueryEvent>,
        cancel: CancellationToken,
    ) -> BoxFuture<'a, QuerySummary> {
        Box::pin(async move {
            let mut sink = RowSink::new(out, query.delivery);
            if query.read_only {
                unless_cancelled(&cancel, self.read(place, &query, &mut sink)).await?;
            } else {
                let mut lease = unless_cancelled(&cancel, self.write(place, &query, &mut sink)).await?;
                commit(&mut lease, query.statement_timeout).await?;
            }
            Ok(sink.into_summary())
        })
    }

    fn describe<'a>(
        &'a self,
        place: &'a NamedSession,
        sql: &'a str,
        cancel: CancellationToken,
    ) -> BoxFuture<'a, QueryDescription> {
        Box::pin(async move {
            let reader = self.at(place);
            let describing = async {
                let mut lease = acquire(&reader, Some(DESCRIBE_READ_TIMEOUT)).await?;
                let described = reader.describe_on(lease.session(), sql).await;
                Ok(reader.end(lease, described).await?)
            };
            unless_cancelled(&cancel, describing).await
        })
    }

    fn begin<'a>(&'a self, place: &'a NamedSession, begin: TransactionOptions) -> BoxFuture<'a, Box<dyn Transaction>> {
        Box::pin(async move {
            let reader = self.at(place);
            let mut lease = acquire(&reader, Some(READ_TIMEOUT_MARGIN)).await?;
            let mut mode = if begin.read_only { "read only" } else { "read write" }.to_owned();
            if let Some(isolation) = begin.isolation {
                mode = format!("isolation level {} {mode}", isolation.as_str());
            }
            lease.session().open_block(&mode, StatementTimeouts::default()).await?;
            Ok(Box::new(OpenTransaction::new(reader, lease, begin.read_only)) as Box<dyn Transaction>)
        })
    }

    fn forget(&self, session: &str) {
        self.pools().remove(session);
    }

    fn drain(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            let pools: Vec<Reader> = self.pools().values().map(|(_, reader)| reader.clone()).collect();
            for pool in pools {
                pool.drain().await;
            }
        })
    }
}

/// A connection whose server may be silent for this long.
async fn acquire(reader: &Reader, read_timeout: Option<Duration>) -> Result<PooledSession, ExecuteError> {
    let mut lease = reader.acquire_until(Instant::now() + NO_DEADLINE).await?;
    let connection = &mut lease.session().connection;
    connection.max_message_bytes = MAX_MESSAGE_BYTES;
    connection.read_timeout = read_timeout;
    Ok(lease)
}
