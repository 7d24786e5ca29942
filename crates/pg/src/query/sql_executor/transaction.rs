//! A transaction of several statements on a connection that is theirs.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::commit::{READ_TIMEOUT_MARGIN, commit, read_timeout, unless_cancelled};
use super::user_statement::{Ran, StatementTimeouts, control, ending_in_block, run_unless_exit};
use super::{BoxFuture, ExecuteError, Transaction};
use crate::client::pool::PooledSession;
use crate::client::session::Session;
use crate::query::read::Reader;
use crate::query::{Query, QueryEvent, QuerySummary, RowSink};

/// A block that is open.
#[derive(Debug)]
pub(super) struct OpenTransaction {
    reader: Reader,
    /// Whether the transaction cannot write.
    read_only: bool,
    /// `None` once the block is over: a statement in it has failed, was stopped, or its result was not taken.
    lease: Option<PooledSession>,
    savepoints: Savepoints,
    /// The longest statement timeout so far, zero for none; `None` before the first statement.
    longest: Option<Duration>,
}

/// The savepoints of a block.
#[derive(Debug, Default)]
struct Savepoints {
    /// When the block began, once a savepoint was set in it. A statement that PostgreSQL refuses does not end the block then.
    begun_at: Option<String>,
    /// Whether nothing goes on but going back to a savepoint.
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
        Ran::Whole => ending_in_block(sink)?,
        Ran::TransactionExit => go_back(session, savepoints, query, sink).await?,
    }
    if sink.tag() == Some("SAVEPOINT") && savepoints.begun_at.is_none() {
        savepoints.begun_at = Some(begun_at(session).await?);
    }
    Ok(sink.finish().await?)
}

/// `ROLLBACK TO SAVEPOINT`, and nothing else that ends a transaction or goes back in it.
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
    // AND CHAIN ends a transaction as well, and begins another one.
    if !session.go_back(&query.sql).await? || begun_at(session).await? != *known {
        return Err(control("it ends the transaction"));
    }
    if query.read_only {
        // A savepoint is set by a command without a plan, which runs with fewer rights: what it goes back to.
        session.batch_execute("reset role").await?;
    }
    sink.set_tag("ROLLBACK");
    Ok(())
}

/// When the open transaction began; no other one of the session has begun then.
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
            // It comes back if all went well. Otherwise the block is over: what has run in it is not what its caller has seen.
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
                // Nothing of it can be kept, so nothing is: a NOTIFY would be sent.
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

/// The longer one; zero is without end.
fn longer(one: Duration, other: Duration) -> Duration {
    if one.is_zero() || other.is_zero() { Duration::ZERO } else { one.max(other) }
}
