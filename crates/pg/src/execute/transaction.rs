//! A transaction of several statements on a connection that is theirs.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::direct::{COMMIT_PATIENCE, commit, unless_cancelled};
use super::running::{Limits, ending_in_block, run_in};
use super::{Chunk, Completed, Executing, Failed, Outlet, Query, Transaction};
use crate::pool::Lease;
use crate::read::Reader;

/// A block that is open.
#[derive(Debug)]
pub(super) struct Opened {
    reader: Reader,
    /// Whether it is one that cannot write.
    read_only: bool,
    /// `None` once the block is over: a statement in it has failed, was stopped, or its result was not taken.
    lease: Option<Lease>,
    /// The longest statement timeout so far.
    longest: Duration,
}

impl Opened {
    pub(super) fn new(reader: Reader, lease: Lease, read_only: bool) -> Self {
        Self { reader, read_only, lease: Some(lease), longest: COMMIT_PATIENCE }
    }
}

async fn run(lease: &mut Lease, reader: &Reader, query: &Query, outlet: &mut Outlet) -> Result<(), Failed> {
    let session = lease.session();
    session.set_limits(Limits::of(query)).await?;
    let forbids = query.read_only.then_some(reader);
    let statement = session.remembered.new_name();
    run_in(session, reader.types(), (&statement, forbids), query, outlet).await?;
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
            // It comes back if all went well. Otherwise the block is over: what has run in it is not what its caller has seen.
            let mut lease = self.lease.take().ok_or_else(Failed::in_failed_transaction)?;
            match unless_cancelled(&cancel, run(&mut lease, &self.reader, &query, &mut outlet)).await {
                Ok(()) => {
                    self.longest = longer(self.longest, query.statement_timeout);
                    self.lease = Some(lease);
                    Ok(outlet.completed())
                }
                Err(error) => {
                    lease.session().leave_block("rollback").await;
                    Err(error)
                }
            }
        })
    }

    fn commit(mut self: Box<Self>) -> Executing<'static, Completed> {
        Box::pin(async move {
            let mut lease = self.lease.take().ok_or_else(Failed::in_failed_transaction)?;
            let tag = if self.read_only {
                // Nothing of it can be kept, so nothing is: a NOTIFY would be sent.
                lease.session().leave_block("rollback").await;
                "COMMIT".to_owned()
            } else {
                commit(&mut lease, self.longest).await?
            };
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

/// The longer one; zero is without end.
fn longer(one: Duration, other: Duration) -> Duration {
    if one.is_zero() || other.is_zero() { Duration::ZERO } else { one.max(other) }
}
