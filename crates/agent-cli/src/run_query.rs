//! Runs one statement on the executor and emits its events, including the terminal one. Shared by `pipe` and
//! `one_shot`.

use std::time::Duration;

use pg::{
    BoxFuture, ExecuteError, NamedSession, Query, QueryEvent, QuerySummary, RowDelivery, SqlExecutor, Transaction,
};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::error_event;
use crate::events::{ColumnName, DryRun, Event, Request, ResultEnd, ResultEvent, ResultRows, ResultStart, Rows, Trace};
use crate::writer::{EventSender, OutputClosedError};

/// The maximum number of events of a statement that wait to be forwarded.
const WAITING_CHUNKS: usize = 2;

/// How long a cancelled statement may take to stop.
pub(crate) const STOP_GRACE: Duration = Duration::from_secs(5);

/// How long to wait for the answer to COMMIT when the session ends.
pub(crate) const COMMIT_GRACE: Duration = Duration::from_secs(10);

/// Requests to end, made by signals.
#[derive(Debug, Clone, Default)]
pub struct StopSignals {
    /// Ends the run as `close` does.
    pub asked: CancellationToken,
    /// Ends the run at once: statements in flight are cancelled.
    pub urged: CancellationToken,
}

#[derive(Debug, Clone)]
pub(crate) struct StopTokens {
    /// Cancelled when the agent cancels the request, and at the end of the session.
    pub(crate) request: CancellationToken,
    /// Cancelled when the session ends.
    pub(crate) session: CancellationToken,
}

impl StopTokens {
    /// Uses one token as both.
    pub(crate) fn only(stop: &CancellationToken) -> Self {
        Self { request: stop.clone(), session: stop.clone() }
    }
}

impl Request {
    fn full_trace(&self, completed: &QuerySummary) -> Trace {
        Trace { row_count: Some(completed.row_count), payload_bytes: Some(completed.payload_bytes), ..self.trace() }
    }
}

pub(crate) enum ExecutionContext<'a> {
    /// A transaction of its own.
    Alone(&'a dyn SqlExecutor, &'a NamedSession),
    /// An open transaction.
    In(&'a mut dyn Transaction, &'a NamedSession),
}

pub(crate) struct Outcome {
    /// The terminal event of its request.
    pub(crate) event: Event,
    /// Whether the statement did not stop when it was cancelled, and was abandoned. Its executor cannot be used
    /// again.
    pub(crate) is_abandoned: bool,
}

/// Runs one statement. Its other events go to `event_sender`; the returned event is the last one of the request.
pub(crate) async fn run(
    runner: ExecutionContext<'_>,
    request: &Request,
    query: Query,
    event_sender: &EventSender,
    stop: &StopTokens,
) -> Outcome {
    let run = QueryRun {
        request,
        event_sender,
        is_streamed: matches!(query.delivery, RowDelivery::Batches { .. }),
        stop,
        execution: stop.request.child_token(),
        timeout: query.statement_timeout,
        // In an open transaction, a statement commits nothing by itself.
        may_commit: !query.read_only && matches!(runner, ExecutionContext::Alone(..)),
        begun: CancellationToken::new(),
        whole: CancellationToken::new(),
    };
    let (read_only, is_in_transaction) = (query.read_only, matches!(runner, ExecutionContext::In(..)));
    let (out, chunks) = mpsc::channel(WAITING_CHUNKS);
    let (execution, place): (BoxFuture<'_, QuerySummary>, _) = match runner {
        ExecutionContext::Alone(executor, place) => (executor.query(place, query, out, run.execution.clone()), place),
        ExecutionContext::In(transaction, place) => (transaction.query(query, out, run.execution.clone()), place),
    };
    let mut taken = CollectedResult::default();
    let taking = take_all(chunks, &mut taken, &run);
    let failed = match run.run(execution, taking).await {
        // A result that was received only in part is not a result. A write is not committed then.
        Some(Ok(_)) if !run.whole.is_cancelled() => ExecuteError::Cancelled,
        Some(Ok(completed)) => {
            return Outcome { event: taken.into_event(request, completed, run.may_commit), is_abandoned: false };
        }
        Some(Err(failed)) => failed,
        None if run.is_committing() => unknown(taken.correlation_id),
        None => {
            let event = error_event::event(ExecuteError::Cancelled, None, request);
            return Outcome { event, is_abandoned: true };
        }
    };
    let failed = if read_only { error_event::write_hint(failed, is_in_transaction) } else { failed };
    Outcome { event: error_event::event(failed, Some(&place.target), request), is_abandoned: false }
}

/// The error of a COMMIT whose answer took too long.
pub(crate) fn unknown(correlation_id: Option<String>) -> ExecuteError {
    let message = "the answer to COMMIT did not come before the session ended".to_owned();
    ExecuteError::CommitOutcomeUnknown { message, correlation_id }
}

/// How an execution ended; `None` if the statement was cancelled and did not stop.
type Ran = Option<Result<QuerySummary, ExecuteError>>;

/// The progress of a statement, and its possible ends.
struct QueryRun<'s> {
    request: &'s Request,
    event_sender: &'s EventSender,
    is_streamed: bool,
    stop: &'s StopTokens,
    /// Asks the executor to stop.
    execution: CancellationToken,
    /// The time limit of the whole statement, zero for none. While rows are not read, PostgreSQL does not check its
    /// own timeout.
    timeout: Duration,
    may_commit: bool,
    /// Cancelled when the first chunk has arrived.
    begun: CancellationToken,
    /// Cancelled when everything was received.
    whole: CancellationToken,
}

impl QueryRun<'_> {
    /// Runs the statement and receives its chunks concurrently. A stop ends the receiving at once, even while it waits
    /// for a reader. The statement then has [`STOP_GRACE`] to report its outcome. A commit in progress is not stopped.
    async fn run(&self, mut execution: BoxFuture<'_, QuerySummary>, taking: impl Future<Output = ()>) -> Ran {
        let mut taking = Box::pin(taking);
        let ended = tokio::select! {
            biased;
            ended = &mut execution => ended,
            () = &mut taking => {
                drop(taking);
                return self.rest(execution).await;
            }
            () = self.stop.request.cancelled() => {
                drop(taking);
                return self.rest(execution).await;
            }
            () = self.overdue() => {
                drop(taking);
                self.execution.cancel();
                let stopped = tokio::time::timeout(STOP_GRACE, execution).await;
                return stopped.ok().map(|_| Err(ExecuteError::timed_out()));
            }
        };
        // Dropping the execution closes its end of the channel, so no backend waits for the reader any more.
        drop(execution);
        tokio::select! {
            biased;
            () = &mut taking => {}
            () = self.stop.request.cancelled() => {}
        }
        Some(ended)
    }

    /// Awaits the outcome of the statement after the receiving has ended.
    async fn rest(&self, execution: BoxFuture<'_, QuerySummary>) -> Ran {
        let (asked, grace) = match self.is_committing() {
            true => (&self.stop.session, COMMIT_GRACE),
            false => (&self.stop.request, STOP_GRACE),
        };
        tokio::select! {
            biased;
            ended = execution => Some(ended),
            () = stopped_for(asked, grace) => None,
        }
    }

    fn is_committing(&self) -> bool {
        self.may_commit && self.whole.is_cancelled()
    }

    /// Completes when the timeout has passed since the first row and not everything was received.
    async fn overdue(&self) {
        self.begun.cancelled().await;
        if self.timeout.is_zero() {
            return std::future::pending().await;
        }
        tokio::time::sleep(self.timeout).await;
        if self.whole.is_cancelled() {
            std::future::pending().await
        }
    }
}

/// Waits for the stop and then for `grace`.
pub(crate) async fn stopped_for(stop: &CancellationToken, grace: Duration) {
    stop.cancelled().await;
    tokio::time::sleep(grace).await;
}

/// Completes at this time; never without one.
pub(crate) async fn passed(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// The rows that have been received so far.
#[derive(Default)]
struct CollectedResult {
    columns: Vec<ColumnName>,
    rows: Rows,
    is_started: bool,
    correlation_id: Option<String>,
}

impl CollectedResult {
    fn into_event(self, request: &Request, completed: QuerySummary, is_commit: bool) -> Event {
        let trace = request.full_trace(&completed);
        let command_tag = match completed.tag {
            _ if completed.returns_rows => format!("ROWS {}", completed.row_count),
            Some(tag) => tag,
            None => format!("EXECUTE {}", completed.row_count),
        };
        let (id, session) = (request.id.clone(), request.session.clone());
        let correlation_id = completed.correlation_id;
        if self.is_started {
            let end = ResultEnd { id, session, command_tag, correlation_id, is_commit, trace };
            return Event::ResultEnd(Box::new(end));
        }
        let (columns, rows, row_count) = (self.columns, self.rows, completed.row_count);
        let result =
            ResultEvent { id, session, command_tag, columns, rows, row_count, correlation_id, is_commit, trace };
        Event::Result(Box::new(result))
    }

    async fn take(&mut self, chunk: QueryEvent, run: &QueryRun<'_>) -> Result<(), OutputClosedError> {
        let QueryRun { request, event_sender, is_streamed, .. } = *run;
        let id = request.id.clone();
        match chunk {
            QueryEvent::Columns(columns) => {
                let columns: Vec<ColumnName> = columns.iter().map(ColumnName::from).collect();
                if is_streamed {
                    self.is_started = true;
                    let session = request.session.clone();
                    event_sender.emit(&Event::ResultStart(ResultStart { id, session, columns })).await?;
                } else {
                    self.columns = columns;
                }
            }
            QueryEvent::Rows { json, count } => {
                let rows = Rows::from_json(json);
                if is_streamed {
                    let event = ResultRows { id, rows, rows_batch_count: count };
                    event_sender.emit(&Event::ResultRows(event)).await?;
                } else {
                    self.rows = rows;
                }
            }
            QueryEvent::Notice(notice) => event_sender.emit(&error_event::notice(*notice, request)).await?,
            QueryEvent::AwaitAck { taken, correlation_id } => {
                // The acknowledgement commits a write, so all rows must have been written before it. An inline result
                // is written with the terminal event.
                if is_streamed {
                    event_sender.written().await?;
                }
                self.correlation_id = correlation_id;
                run.whole.cancel();
                // The receiver may be gone: a read is not committed.
                let _ = taken.send(());
            }
        }
        Ok(())
    }
}

/// Receives chunks until the last one, or until one cannot be forwarded. The channel is then closed, and the statement
/// is rolled back.
async fn take_all(mut chunks: mpsc::Receiver<QueryEvent>, taken: &mut CollectedResult, run: &QueryRun<'_>) {
    while let Some(chunk) = chunks.recv().await {
        run.begun.cancel();
        if taken.take(chunk, run).await.is_err() {
            return;
        }
    }
    run.whole.cancel();
}

/// Describes the parameters and columns of a statement without running it.
pub(crate) async fn describe(
    executor: &dyn SqlExecutor,
    place: &NamedSession,
    request: &Request,
    query: Query,
    cancel: &CancellationToken,
) -> Event {
    let described = tokio::select! {
        biased;
        described = executor.describe(place, &query.sql, cancel.clone()) => described,
        () = stopped_for(cancel, STOP_GRACE) => Err(ExecuteError::Cancelled),
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
        Err(failed) => error_event::event(failed, Some(&place.target), request),
    }
}
