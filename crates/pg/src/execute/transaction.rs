//! A transaction of several statements on a connection that is theirs.

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::direct::{commit, unless_cancelled};
use super::running::{Limits, STATEMENT, ending_in_block, run_in};
use super::{Chunk, Completed, Executing, Failed, Outlet, Query, Transaction};
use crate::error::ServerError;
use crate::pool::Lease;
use crate::read::Reader;

/// A block that is open.
#[derive(Debug)]
pub(super) struct Opened {
    reader: Reader,
    /// Whether it is one that cannot write.
    read_only: bool,
    /// `None` once the block is gone: a statement was stopped in the middle, or its result was not taken.
    lease: Option<Lease>,
}

impl Opened {
    pub(super) fn new(reader: Reader, lease: Lease, read_only: bool) -> Self {
        Self { reader, read_only, lease: Some(lease) }
    }
}

/// in_failed_sql_transaction, in PostgreSQL's words.
fn failed_already() -> Failed {
    Failed::Sql(Box::new(ServerError {
        hint: Some("Send rollback, and begin anew.".to_owned()),
        ..ServerError::ours("25P02", "current transaction is aborted, commands ignored until end of transaction block")
    }))
}

async fn run(lease: &mut Lease, reader: &Reader, query: &Query, outlet: &mut Outlet) -> Result<(), Failed> {
    let session = lease.session();
    session.set_limits(Limits::of(query)).await?;
    let forbids = query.read_only.then_some(reader);
    run_in(session, reader.types(), (STATEMENT, forbids), query, outlet).await?;
    ending_in_block(outlet)?;
    Ok(outlet.finish().await?)
}

impl Transaction for Opened {
    fn query<'a>(
        &'a mut self,
        query: Query,
        out: mpsc::Sender<Chunk>,
        cancel: CancellationToken,
    ) -> Executing<'a, Completed> {
        Box::pin(async move {
            let query = Query { read_only: self.read_only, ..query };
            let mut outlet = Outlet::new(out, query.delivery);
            // It comes back if the block is still one.
            let mut lease = self.lease.take().ok_or_else(failed_already)?;
            let outcome = unless_cancelled(&cancel, run(&mut lease, &self.reader, &query, &mut outlet)).await;
            match outcome {
                Ok(()) => {
                    self.lease = Some(lease);
                    Ok(outlet.completed())
                }
                // PostgreSQL itself knows that the block has failed, or nothing has happened in it.
                Err(error @ (Failed::Sql(_) | Failed::Params(_) | Failed::Unsupported { .. }))
                    if lease.session().connection.owed == 0 =>
                {
                    self.lease = Some(lease);
                    Err(error)
                }
                // What has run is not what its caller has seen: it is undone now.
                Err(error) => {
                    lease.discard();
                    Err(error)
                }
            }
        })
    }

    fn commit(mut self: Box<Self>) -> Executing<'static, Completed> {
        Box::pin(async move {
            let mut lease = self.lease.take().ok_or_else(failed_already)?;
            let tag = commit(&mut lease).await?;
            Ok(Completed { tag: Some(tag), ..Completed::default() })
        })
    }

    fn roll_back(mut self: Box<Self>) -> Executing<'static, Completed> {
        Box::pin(async move {
            if let Some(mut lease) = self.lease.take() {
                lease.session().leave_block("rollback").await;
            }
            Ok(Completed { tag: Some("ROLLBACK".to_owned()), ..Completed::default() })
        })
    }
}
