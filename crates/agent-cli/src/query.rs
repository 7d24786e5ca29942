//! One statement against the executor: events on the way, and the one that ends it. Pipe and one-shot share it.

use std::time::Duration;

use pg::{Chunk, Completed, DbExecutor, Delivery, Executing, Failed, Place, Query, Transaction};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::events::{ColumnName, DryRun, Event, ResultEnd, ResultEvent, ResultRows, ResultStart, Rows, Trace};
use crate::failure::{self, Ended};
use crate::writer::{Outlet, OutputClosed};

/// Chunks that wait to become events.
const WAITING_CHUNKS: usize = 2;

/// How long a statement that was told to stop may take for it.
pub(crate) const STOP_GRACE: Duration = Duration::from_secs(5);

/// Which request it is, and since when.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) id: String,
    pub(crate) session: String,
    pub(crate) started: Instant,
}

impl Request {
    pub(crate) fn trace(&self) -> Trace {
        let elapsed = self.started.elapsed().as_millis();
        Trace { duration_ms: u64::try_from(elapsed).unwrap_or(u64::MAX), ..Trace::default() }
    }

    pub(crate) fn ended(&self) -> Ended {
        Ended { id: self.id.clone(), session: self.session.clone(), trace: self.trace() }
    }

    fn full_trace(&self, completed: &Completed) -> Trace {
        Trace { row_count: Some(completed.row_count), payload_bytes: Some(completed.payload_bytes), ..self.trace() }
    }
}

/// What runs the statement.
pub(crate) enum Runner<'a> {
    /// In a transaction of its own.
    Alone(&'a dyn DbExecutor, &'a Place),
    /// In one that is open.
    In(&'a mut dyn Transaction, &'a Place),
}

/// How a statement ended.
pub(crate) struct Outcome {
    /// The terminal event of its request.
    pub(crate) event: Event,
    /// Whether it did not stop when it was told to and was left alone: what ran it cannot be used again.
    pub(crate) is_abandoned: bool,
}

/// Runs one statement. What it gives on its way goes to `outlet`; nothing of the request follows the event that is returned.
pub(crate) async fn run(
    runner: Runner<'_>,
    request: &Request,
    query: Query,
    outlet: &Outlet,
    cancel: &CancellationToken,
) -> Outcome {
    let is_streamed = matches!(query.delivery, Delivery::Batches { .. });
    // In a transaction that is open nothing is committed yet.
    let may_commit = !query.read_only && matches!(runner, Runner::Alone(..));
    let (out, chunks) = mpsc::channel(WAITING_CHUNKS);
    let (execution, place): (Executing<'_, Completed>, _) = match runner {
        Runner::Alone(executor, place) => (executor.query(place, query, out, cancel.clone()), place),
        Runner::In(transaction, place) => (transaction.query(query, out, cancel.clone()), place),
    };
    let mut taken = Taken::default();
    let ended = execute(execution, take_all(chunks, &mut taken, request, outlet, is_streamed), cancel).await;
    let failed = match ended {
        // What was not taken as a whole is no result. A write is not committed then.
        Ran::Ended(Ok(_)) if !taken.is_whole => Failed::Cancelled,
        Ran::Ended(Ok(completed)) => {
            return Outcome { event: taken.into_event(request, completed), is_abandoned: false };
        }
        Ran::Ended(Err(failed)) => failed,
        Ran::Abandoned if may_commit && taken.is_whole => Failed::CommitOutcomeUnknown {
            message: "the answer to COMMIT did not come before the session ended".to_owned(),
            correlation_id: None,
        },
        Ran::Abandoned => {
            let event = failure::event(Failed::Cancelled, None, request.ended());
            return Outcome { event, is_abandoned: true };
        }
    };
    Outcome { event: failure::event(failed, Some(&place.target), request.ended()), is_abandoned: false }
}

/// Whether it came to its end.
enum Ran {
    Ended(Result<Completed, Failed>),
    /// It was told to stop and did not.
    Abandoned,
}

/// Runs the statement and takes what it gives, both at once. A stop ends the taking at once, also where it waits for a
/// reader; the statement then has [`STOP_GRACE`] to say what became of it.
async fn execute(
    mut execution: Executing<'_, Completed>,
    taking: impl Future<Output = ()>,
    cancel: &CancellationToken,
) -> Ran {
    let mut taking = Box::pin(taking);
    let ended = tokio::select! {
        biased;
        ended = &mut execution => Some(ended),
        () = &mut taking => None,
        () = cancel.cancelled() => {
            drop(taking);
            return match tokio::time::timeout(STOP_GRACE, execution).await {
                Ok(ended) => Ran::Ended(ended),
                Err(_) => Ran::Abandoned,
            };
        }
    };
    let Some(ended) = ended else {
        drop(taking);
        return tokio::select! {
            biased;
            ended = &mut execution => Ran::Ended(ended),
            () = stopped_for(cancel) => Ran::Abandoned,
        };
    };
    // Its end of the channel goes with it.
    drop(execution);
    tokio::select! {
        biased;
        () = &mut taking => {}
        () = cancel.cancelled() => {}
    }
    Ran::Ended(ended)
}

/// [`STOP_GRACE`] after the stop.
pub(crate) async fn stopped_for(cancel: &CancellationToken) {
    cancel.cancelled().await;
    tokio::time::sleep(STOP_GRACE).await;
}

/// What has been taken so far.
#[derive(Default)]
struct Taken {
    columns: Vec<ColumnName>,
    rows: Rows,
    is_started: bool,
    /// Whether that was all.
    is_whole: bool,
}

impl Taken {
    fn into_event(self, request: &Request, completed: Completed) -> Event {
        let trace = request.full_trace(&completed);
        let command_tag = match completed.tag {
            _ if completed.returns_rows => format!("ROWS {}", completed.row_count),
            Some(tag) => tag,
            None => format!("EXECUTE {}", completed.row_count),
        };
        let (id, session) = (request.id.clone(), request.session.clone());
        let correlation_id = completed.correlation_id;
        if self.is_started {
            return Event::ResultEnd(Box::new(ResultEnd { id, session, command_tag, correlation_id, trace }));
        }
        let (columns, rows, row_count) = (self.columns, self.rows, completed.row_count);
        Event::Result(Box::new(ResultEvent {
            id,
            session,
            command_tag,
            columns,
            rows,
            row_count,
            correlation_id,
            trace,
        }))
    }

    async fn take(
        &mut self,
        chunk: Chunk,
        request: &Request,
        outlet: &Outlet,
        is_streamed: bool,
    ) -> Result<(), OutputClosed> {
        let id = request.id.clone();
        match chunk {
            Chunk::Columns(columns) => {
                let columns: Vec<ColumnName> = columns.iter().map(ColumnName::from).collect();
                if is_streamed {
                    self.is_started = true;
                    let session = request.session.clone();
                    outlet.emit(&Event::ResultStart(ResultStart { id, session, columns })).await?;
                } else {
                    self.columns = columns;
                }
            }
            Chunk::Rows { json, count } => {
                let rows = Rows::from_json(json);
                if is_streamed {
                    let event = ResultRows { id, rows, rows_batch_count: count };
                    outlet.emit(&Event::ResultRows(event)).await?;
                } else {
                    self.rows = rows;
                }
            }
            Chunk::Notice(notice) => outlet.emit(&failure::notice(*notice, request.ended())).await?,
            Chunk::Delivered(taken) => {
                // A write is committed on this word: not before every row has left this process. In one piece they
                // leave with the terminal event.
                if is_streamed {
                    outlet.written().await?;
                }
                self.is_whole = true;
                // Nobody may wait for it: a read is not committed.
                let _ = taken.send(());
            }
        }
        Ok(())
    }
}

/// Takes chunks until there are no more, or one cannot be taken; then the channel is closed, and the statement is undone.
async fn take_all(
    mut chunks: mpsc::Receiver<Chunk>,
    taken: &mut Taken,
    request: &Request,
    outlet: &Outlet,
    is_streamed: bool,
) {
    while let Some(chunk) = chunks.recv().await {
        if taken.take(chunk, request, outlet, is_streamed).await.is_err() {
            return;
        }
    }
    taken.is_whole = true;
}

/// Says what a statement takes and gives. Nothing of it runs.
pub(crate) async fn describe(
    executor: &dyn DbExecutor,
    place: &Place,
    request: &Request,
    query: Query,
    cancel: &CancellationToken,
) -> Event {
    let described = tokio::select! {
        biased;
        described = executor.describe(place, &query.sql, cancel.clone()) => described,
        () = stopped_for(cancel) => Err(Failed::Cancelled),
    };
    match described {
        Ok(described) => Event::DryRun(Box::new(DryRun {
            sql: query.sql,
            params: query.params,
            param_types: described.params.iter().map(|ty| ty.name.clone()).collect(),
            columns: described.columns.iter().flatten().map(ColumnName::from).collect(),
            session: request.session.clone(),
            trace: request.trace(),
        })),
        Err(failed) => failure::event(failed, Some(&place.target), request.ended()),
    }
}
