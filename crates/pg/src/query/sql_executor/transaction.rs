//! A transaction of several statements on a connection of its own.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::commit::{READ_TIMEOUT_MARGIN, commit, read_timeout, unless_cancelled};
use super::user_statement::{Ran, StatementTimeouts, control, reject_unsupported_in_block, run_unless_exit};
use super::{BoxFuture, ExecuteError, Transaction};
use crate::client::pool::PooledSession;
use crate::client::session::Session;
use crate::query::read::Reader;
use crate::query::{Query, QueryEvent, QuerySummary, RowSink};

#[derive(Debug)]
pub(super) struct OpenTransaction {
    reader: Reader,
    read_only: bool,
    /// `None` once the block is over: one of its statements failed, was cancelled, or its result was not taken.
    lease: Option<PooledSession>,
    savepoints: Savepoints,
    /// The longest statement timeout so far, zero for none; `None` before the first statement.
    longest: Option<Duration>,
}

#[derive(Debug, Default)]
struct Savepoints {
    /// The begin time of the transaction, once a savepoint is set. From then on, a statement that PostgreSQL refuses
    /// does not end the block.
    begun_at: Option<String>,
    /// Whether the block has failed, so that only returning to a savepoint is possible.
    has_failed: bool,
}

impl OpenTransaction {
    pub(super) fn new(reader: Reader, lease: PooledSession, read_only: bool) -> Self {
        Self { reader, read_only, lease: Some(lease), savepoints: Savepoints::default(), longest: None }
    }
}

async fn run(
    lease: &mut PooledSession,
    savepoints: &mut Savepoints,
    reader: &Reader,
    query: &Query,
    sink: &mut RowSink,
) -> Result<(), ExecuteError> {
    let session = lease.session();
    session.connection.read_timeout = read_timeout(query.statement_timeout);
    let ran = if savepoints.has_failed {
        Ran::TransactionExit
    } else {
        session.set_limits(StatementTimeouts::of(query)).await?;
        let forbids = query.read_only.then_some(reader);
        let statement = session.statements.new_name();
        run_unless_exit(session, reader.types(), (&statement, forbids), query, sink).await?
    };
    match ran {
        Ran::Whole => reject_unsupported_in_block(sink)?,
        Ran::TransactionExit => go_back(session, savepoints, query, sink).await?,
    }
    if sink.tag() == Some("SAVEPOINT") && savepoints.begun_at.is_none() {
        savepoints.begun_at = Some(begun_at(session).await?);
    }
    Ok(sink.finish().await?)
}

/// Runs `ROLLBACK TO SAVEPOINT`. Any other statement that ends the transaction is refused.
async fn go_back(
    session: &mut Session,
    savepoints: &Savepoints,
    query: &Query,
    sink: &mut RowSink,
) -> Result<(), ExecuteError> {
    let Some(known) = savepoints.begun_at.as_ref() else {
        return Err(control("it ends the transaction, or goes back in it without a savepoint"));
    };
    if !query.params.is_empty() {
        return Err(ExecuteError::in_failed_transaction());
    }
    // With AND CHAIN, a statement ends the transaction and begins another one.
    if !session.go_back(&query.sql).await? || begun_at(session).await? != *known {
        return Err(control("it ends the transaction"));
    }
    if query.read_only {
        // The savepoint was set by a command without a plan, which runs with a weaker role. Returning to the
        // savepoint restores that role.
        session.batch_execute("reset role").await?;
    }
    sink.set_tag("ROLLBACK");
    Ok(())
}

/// The begin time of the open transaction, which identifies it within the session.
async fn begun_at(session: &mut Session) -> Result<String, ExecuteError> {
    let sql = "select pg_catalog.to_char(pg_catalog.timezone('utc', pg_catalog.transaction_timestamp()), \
                      'YYYY-MM-DD HH24:MI:SS.US')";
    let rows = session.rows(sql, &[]).await?;
    let cell = rows.into_iter().next().and_then(|row| row.into_iter().next()).flatten();
    cell.ok_or_else(|| ExecuteError::Internal("the server does not say when the transaction began".to_owned()))
}

impl Transaction for OpenTransaction {
    fn query<'a>(
        &'a mut self,
        query: Query,
        out: mpsc::Sender<QueryEvent>,
        cancel: CancellationToken,
    ) -> BoxFuture<'a, QuerySummary> {
        Box::pin(async move {
            let query = Query { read_only: self.read_only, ..query };
            let mut sink = RowSink::new(out, query.delivery);
            // The connection is put back if the statement succeeded. Otherwise the block is over: its effects are not
            // what the caller has seen.
            let mut lease = self.lease.take().ok_or_else(ExecuteError::in_failed_transaction)?;
            let running = run(&mut lease, &mut self.savepoints, &self.reader, &query, &mut sink);
            match unless_cancelled(&cancel, running).await {
                Ok(()) => {
                    let timeout = query.statement_timeout;
                    self.longest = Some(self.longest.map_or(timeout, |longest| longer(longest, timeout)));
                    self.savepoints.has_failed = false;
                    self.lease = Some(lease);
                    Ok(sink.into_summary())
                }
                Err(error @ (ExecuteError::Sql(_) | ExecuteError::Params(_)))
                    if self.savepoints.begun_at.is_some() && lease.session().is_in_block() =>
                {
                    self.savepoints.has_failed = true;
                    self.lease = Some(lease);
                    Err(error)
                }
                Err(error) => {
                    lease.session().leave_block("rollback").await;
                    Err(error)
                }
            }
        })
    }

    fn commit(mut self: Box<Self>) -> BoxFuture<'static, QuerySummary> {
        Box::pin(async move {
            let mut lease = self.lease.take().ok_or_else(ExecuteError::in_failed_transaction)?;
            if self.savepoints.has_failed {
                lease.session().leave_block("rollback").await;
                return Err(ExecuteError::in_failed_transaction());
            }
            let tag = if self.read_only {
                // A read-only transaction leaves nothing to keep, and a COMMIT could send a NOTIFY. So it is rolled
                // back.
                lease.session().leave_block("rollback").await;
                "COMMIT".to_owned()
            } else {
                commit(&mut lease, self.longest.unwrap_or(READ_TIMEOUT_MARGIN)).await?
            };
            Ok(QuerySummary { tag: Some(tag), ..QuerySummary::default() })
        })
    }

    fn roll_back(mut self: Box<Self>) -> BoxFuture<'static, QuerySummary> {
        Box::pin(async move {
            if let Some(mut lease) = self.lease.take() {
                lease.session().leave_block("rollback").await;
            }
            Ok(QuerySummary { tag: Some("ROLLBACK".to_owned()), ..QuerySummary::default() })
        })
    }
}

/// The longer timeout; zero means no limit.
fn longer(one: Duration, other: Duration) -> Duration {
    if one.is_zero() || other.is_zero() { Duration::ZERO } else { one.max(other) }
}
