//! [`DbExecutor`] on PostgreSQL, without a ledger.
//!
//! ```text
//! a read     the read path (`read::streamed`): a transaction that cannot write, rolled back, the session cleaned
//! a write    BEGIN · limits · describe · run to its end · everything taken? · COMMIT · DISCARD ALL
//! ```

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::running::{Limits, run_in};
use super::transaction::Opened;
use super::{
    Begin, Chunk, Completed, DbExecutor, Described, Executing, Failed, Outlet, Place, Query, Transaction, ending,
};
use crate::pool::Lease;
use crate::read::Reader;
use crate::wire::MAX_MESSAGE_BYTES;

/// Connections of one session, at the most.
const SESSIONS: usize = 5;

/// How much longer than its own timeout a statement's server may be silent before it counts as gone. BEGIN and ROLLBACK, which
/// wait for nobody, get this alone.
pub(crate) const PATIENCE_BEYOND_TIMEOUT: Duration = Duration::from_secs(4);

/// How long the server may be silent while it describes a statement, which has no timeout and may wait for a lock.
const DESCRIBE_PATIENCE: Duration = Duration::from_secs(30);

/// Waiting for a connection has no end of its own: whoever waits can cancel.
const NO_DEADLINE: Duration = Duration::from_secs(365 * 24 * 3600);

/// Runs statements on PostgreSQL, over pools of its own.
#[derive(Debug, Default)]
pub struct Direct {
    /// By session, with the generation that they belong to.
    pools: Mutex<HashMap<String, (u64, Reader)>>,
}

impl Direct {
    fn pools(&self) -> MutexGuard<'_, HashMap<String, (u64, Reader)>> {
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn at(&self, place: &Place) -> Reader {
        let mut pools = self.pools();
        match pools.get(&place.session) {
            Some((generation, reader)) if *generation == place.generation => return reader.clone(),
            // What was sent before the session went elsewhere runs where it was sent to, and is the last that does.
            Some((generation, _)) if *generation > place.generation => {
                return Reader::of_commands(place.target.clone(), SESSIONS);
            }
            _ => {}
        }
        let reader = Reader::of_commands(place.target.clone(), SESSIONS);
        pools.insert(place.session.clone(), (place.generation, reader.clone()));
        reader
    }

    async fn read(&self, place: &Place, query: &Query, outlet: &mut Outlet) -> Result<(), Failed> {
        let reader = self.at(place);
        let mut lease = lease(&reader, patience(query.statement_timeout)).await?;
        let outcome = reader.stream_on(lease.session(), query, outlet).await;
        reader.end(lease, outcome).await?;
        ending(outlet)?;
        Ok(outlet.finish().await?)
    }

    /// Everything but the COMMIT.
    async fn write(&self, place: &Place, query: &Query, outlet: &mut Outlet) -> Result<Lease, Failed> {
        let reader = self.at(place);
        let mut lease = lease(&reader, patience(query.statement_timeout)).await?;
        let session = lease.session();
        session.open_block("read write", Limits::of(query)).await?;
        // A name that the text cannot know: a statement that executes itself has no end.
        let statement = session.remembered.new_name();
        let ran = run_in(session, reader.types(), (&statement, None), query, outlet).await;
        let outcome = ran.and_then(|()| ending(outlet));
        let outcome = match outcome {
            Ok(()) => outlet.finish().await.map_err(Failed::from),
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

impl DbExecutor for Direct {
    fn query<'a>(
        &'a self,
        place: &'a Place,
        query: Query,
        out: mpsc::Sender<Chunk>,
        cancel: CancellationToken,
    ) -> Executing<'a, Completed> {
        Box::pin(async move {
            let mut outlet = Outlet::new(out, query.delivery);
            if query.read_only {
                unless_cancelled(&cancel, self.read(place, &query, &mut outlet)).await?;
            } else {
                let mut lease = unless_cancelled(&cancel, self.write(place, &query, &mut outlet)).await?;
                commit(&mut lease, query.statement_timeout).await?;
            }
            Ok(outlet.completed())
        })
    }

    fn describe<'a>(&'a self, place: &'a Place, sql: &'a str, cancel: CancellationToken) -> Executing<'a, Described> {
        Box::pin(async move {
            let reader = self.at(place);
            let describing = async {
                let mut lease = lease(&reader, Some(DESCRIBE_PATIENCE)).await?;
                let described = reader.describe_on(lease.session(), sql).await;
                Ok(reader.end(lease, described).await?)
            };
            unless_cancelled(&cancel, describing).await
        })
    }

    fn begin<'a>(&'a self, place: &'a Place, begin: Begin) -> Executing<'a, Box<dyn Transaction>> {
        Box::pin(async move {
            let reader = self.at(place);
            let mut lease = lease(&reader, Some(PATIENCE_BEYOND_TIMEOUT)).await?;
            let mut mode = if begin.read_only { "read only" } else { "read write" }.to_owned();
            if let Some(isolation) = begin.isolation {
                mode = format!("isolation level {} {mode}", isolation.as_str());
            }
            lease.session().open_block(&mode, Limits::default()).await?;
            Ok(Box::new(Opened::new(reader, lease, begin.read_only)) as Box<dyn Transaction>)
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

/// How long the server of a statement with this timeout may be silent; zero is for as long as it likes.
pub(crate) fn patience(statement_timeout: Duration) -> Option<Duration> {
    Some(statement_timeout).filter(|it| !it.is_zero()).map(|it| it + PATIENCE_BEYOND_TIMEOUT)
}

/// A connection whose server may be silent so long.
async fn lease(reader: &Reader, patience: Option<Duration>) -> Result<Lease, Failed> {
    let mut lease = reader.lease_until(Instant::now() + NO_DEADLINE).await?;
    let connection = &mut lease.session().connection;
    connection.max_message_bytes = MAX_MESSAGE_BYTES;
    connection.patience = patience;
    Ok(lease)
}

pub(super) async fn unless_cancelled<T>(
    cancel: &CancellationToken,
    work: impl Future<Output = Result<T, Failed>>,
) -> Result<T, Failed> {
    tokio::select! {
        biased;
        () = cancel.cancelled() => Err(Failed::Cancelled),
        outcome = work => outcome,
    }
}

/// Commits what the session has open. What was in it stands or does not: nothing else may be said than what the server says.
/// Deferred triggers may take as long as a statement; zero is for as long as they like.
pub(super) async fn commit(lease: &mut Lease, statement_timeout: Duration) -> Result<String, Failed> {
    let session = lease.session();
    session.connection.patience = patience(statement_timeout);
    let within = session.connection.patience.unwrap_or(NO_DEADLINE);
    let Ok(committed) = tokio::time::timeout(within, session.commit_block()).await else {
        // A cancel request would have to wait for it, too, and could only make a COMMIT worse.
        session.connection.give_up(&crate::Error::Deadline);
        return Err(unknown("the server did not answer to COMMIT"));
    };
    let outcome = committed.map_err(|error| match error {
        crate::Error::Server(error) => Failed::Sql(error),
        error => unknown(&format!("the connection was lost while it committed ({error})")),
    });
    session.leave_block("").await;
    outcome
}

fn unknown(why: &str) -> Failed {
    Failed::CommitOutcomeUnknown {
        message: format!("{why}: the write may or may not have happened"),
        correlation_id: None,
    }
}
