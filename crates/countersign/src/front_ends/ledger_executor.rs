//! Writes of the command line that the ledger records: mutations of the tool `cli_write`, through the gate like any other.
//!
//! ```text
//! one statement    its record · the statement, its rows handed on, everything taken? · its outcome, COMMIT
//! begin .. commit  one record for all of them: it ends with what they were
//! ```
//! Each is a write of its own, however often the same text is sent: nothing here is a retry.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agent_cli::executor::{
    BoxFuture, ExecuteError, IsolationLevel, Query, QueryEvent, QuerySummary, RowSink, ServerError, Transaction,
    TransactionOptions,
};
use ledger::read::Error;
use ledger::{
    AdhocError, ExecutorError, Gate, WriteAttempt, WriteError, WriteExecutor, WriteFuture, WriteOutcome, WriteOutput,
    WriteRequest, WriteTx,
};
use serde_json::{Map, Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use types::{CorrelationId, ErrorCode, Failure, Principal, Redaction, Rollback};

/// The name of the tool in the records.
const TOOL: &str = "cli_write";

const IRREVERSIBLE: &str = "A statement from the command line: nothing here knows how to undo it.";

/// How long the protocol around a statement may take beyond the statement's own limits.
const AROUND: Duration = Duration::from_secs(2);

/// How long an answer may take beyond the statement's own limits. The gate looks for the outcome, and records it, even after that.
const ANSWER: Duration = Duration::from_millis(4500);

/// How long it may take to open a transaction.
const BEGIN_TIMEOUT: Duration = Duration::from_secs(15);

/// A statement without a limit of its own.
const NO_LIMIT: Duration = Duration::from_secs(24 * 3600);

/// One statement on its way into the ledger's transaction.
struct SentStatement {
    query: Query,
    out: mpsc::Sender<QueryEvent>,
    cancel: CancellationToken,
    /// Its outcome within the transaction.
    done: oneshot::Sender<Result<QuerySummary, ExecuteError>>,
}

/// What a record keeps of a transaction's statements; it takes 4 MiB in all.
const MAX_TRANSCRIPT_BYTES: usize = 3 << 20;

/// What stands around a statement in its record.
const RECORD_OVERHEAD_BYTES: usize = 100;

enum CliStep {
    Run(Box<SentStatement>),
    Commit,
}

/// Carries out what is sent to it, in one transaction.
struct CliWrite {
    steps: Mutex<Option<mpsc::Receiver<CliStep>>>,
    /// Told the receipt when the transaction is open, if somebody waits for that.
    opened: Mutex<Option<oneshot::Sender<Option<String>>>>,
    /// Whether it ends after its first statement.
    is_single: bool,
}

impl CliWrite {
    /// What it is sent, for the one who asks first.
    fn take_steps(&self) -> Option<mpsc::Receiver<CliStep>> {
        self.steps.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    async fn run(&self, tx: &mut WriteTx<'_>) -> Result<WriteOutput, ExecutorError> {
        // Before the steps are taken: a transaction that could not be opened is tried again.
        tx.run(&[]).await?;
        let Some(mut steps) = self.take_steps() else {
            return Err(Failure::new(ErrorCode::InternalError, "the statement has been carried out already").into());
        };
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(opened) = opened {
            let _ = opened.send(tx.correlation_id().map(str::to_owned));
        }
        let mut transcript = Transcript::default();
        loop {
            match steps.recv().await {
                Some(CliStep::Run(sent)) => {
                    let SentStatement { query, out, cancel, done } = *sent;
                    let ran = match transcript.room_for(&query) {
                        Ok(()) => statement(tx, &query, out, &cancel).await,
                        Err(failure) => Err(ExecutorError::from(failure).into()),
                    };
                    let refused = match ran {
                        Ok(completed) => {
                            transcript.add(&query, &completed);
                            let _ = done.send(Ok(completed));
                            None
                        }
                        Err(AdhocError { failed, refusal }) => {
                            let _ = done.send(Err(failed.unwrap_or_else(|| lost(&refusal))));
                            Some(refusal)
                        }
                    };
                    match refused {
                        Some(refusal) => return Err(refusal),
                        None if self.is_single => {
                            tx.seal_session().await?;
                            return Ok(transcript.of_one());
                        }
                        None => {}
                    }
                }
                Some(CliStep::Commit) => {
                    tx.seal_session().await?;
                    return Ok(transcript.of_all());
                }
                None => {
                    let rolled_back =
                        Failure::new(ErrorCode::SqlError, "the transaction was rolled back as it was told");
                    return Err(rolled_back.into());
                }
            }
        }
    }
}

impl WriteExecutor for CliWrite {
    fn execute<'a>(&'a self, tx: &'a mut WriteTx<'_>, _order: &'a WriteRequest) -> WriteFuture<'a> {
        Box::pin(self.run(tx))
    }

    fn definition(&self) -> String {
        TOOL.to_owned()
    }
}

/// Runs one statement; what it gives is taken, or it has failed.
async fn statement(
    tx: &mut WriteTx<'_>,
    query: &Query,
    out: mpsc::Sender<QueryEvent>,
    cancel: &CancellationToken,
) -> Result<QuerySummary, AdhocError> {
    let mut outlet = RowSink::new(out, query.delivery);
    let cancelled = |refusal| AdhocError { failed: Some(ExecuteError::Cancelled), refusal };
    let running = async {
        tx.run_streaming(query, &mut outlet).await?;
        if let Some(correlation_id) = tx.correlation_id() {
            outlet.set_correlation_id(correlation_id.to_owned());
        }
        let unread = Failure::new(ErrorCode::SqlError, "nobody took the result, so it was rolled back");
        outlet.finish().await.map_err(|_| cancelled(unread.into()))
    };
    tokio::select! {
        biased;
        // It is in the middle of something: the gate gives the connection up, and finds out what became of the record.
        () = cancel.cancelled() => return Err(cancelled(ExecutorError::ConnectionLost(Error::ReceiverDropped))),
        ran = running => ran?,
    }
    Ok(outlet.into_summary())
}

/// What a transaction has done: what its record tells.
#[derive(Default)]
struct Transcript {
    statements: Vec<Value>,
    bytes: usize,
    rows_affected: u64,
}

impl Transcript {
    /// Whether the record has room for it as well.
    fn room_for(&mut self, query: &Query) -> Result<(), Failure> {
        let params: usize = query.params.iter().map(|param| param.to_string().len()).sum();
        self.bytes += query.sql.len() + params + RECORD_OVERHEAD_BYTES;
        if self.bytes <= MAX_TRANSCRIPT_BYTES {
            return Ok(());
        }
        let message = format!(
            "the record of a transaction takes {MAX_TRANSCRIPT_BYTES} bytes of statements and parameters; it was rolled back"
        );
        Err(Failure::new(ErrorCode::ResultTooLarge, message).hint("Commit more often."))
    }

    fn add(&mut self, query: &Query, completed: &QuerySummary) {
        self.rows_affected += completed.row_count;
        self.statements.push(json!({
            "sql": query.sql, "params": query.params, "command_tag": completed.tag, "row_count": completed.row_count,
        }));
    }

    /// A statement is in the record's parameters already.
    fn of_one(self) -> WriteOutput {
        let one = self.statements.into_iter().next().unwrap_or_default();
        let data = json!({"command_tag": one.get("command_tag"), "row_count": one.get("row_count")});
        work(data, self.rows_affected)
    }

    fn of_all(self) -> WriteOutput {
        work(json!({"statements": self.statements}), self.rows_affected)
    }
}

fn work(data: Value, rows_affected: u64) -> WriteOutput {
    let rollback = Rollback::irreversible(IRREVERSIBLE);
    WriteOutput { data, rows_affected, before: None, after: None, rollback }
}

/// Writes to one ledger on behalf of one person.
#[derive(Debug, Clone)]
pub(super) struct LedgerExecutor {
    gate: Gate,
    principal: Principal,
    /// One for each session that the gate may have: waiting for one counts for no deadline.
    places: Arc<Semaphore>,
}

impl LedgerExecutor {
    pub(super) fn new(gate: Gate, principal: Principal, sessions: usize) -> Self {
        Self { gate, principal, places: Arc::new(Semaphore::new(sessions)) }
    }

    async fn place(&self) -> Result<OwnedSemaphorePermit, ExecuteError> {
        let place = Arc::clone(&self.places).acquire_owned().await;
        place.map_err(|error| ExecuteError::Internal(error.to_string()))
    }

    /// Hands a write to the gate. The work of a transaction comes through `steps`.
    fn perform(
        &self,
        place: OwnedSemaphorePermit,
        params: Map<String, Value>,
        write: &Arc<CliWrite>,
        within: Duration,
    ) -> JoinHandle<Result<WriteOutcome, WriteError>> {
        let attempt = WriteAttempt {
            request: WriteRequest { principal: self.principal.clone(), params },
            tool: TOOL.to_owned(),
            redaction: Redaction::default(),
            // No two calls are the same call.
            idempotency_key: Some(CorrelationId::new().to_string()),
            deadline: Instant::now() + within + AROUND,
            executor: Arc::<CliWrite>::clone(write),
            precondition: None,
        };
        let gate = self.gate.clone();
        tokio::spawn(async move {
            let settled = gate.perform(attempt).await;
            drop(place);
            settled
        })
    }

    /// Runs one statement in a transaction of its own.
    pub(super) async fn query(
        &self,
        query: Query,
        out: mpsc::Sender<QueryEvent>,
        cancel: CancellationToken,
    ) -> Result<QuerySummary, ExecuteError> {
        let params =
            [("sql".to_owned(), query.sql.as_str().into()), ("params".to_owned(), query.params.clone().into())];
        let within = limit(query.statement_timeout);
        let place = tokio::select! {
            biased;
            () = cancel.cancelled() => return Err(ExecuteError::Cancelled),
            place = self.place() => place?,
        };
        let (step, steps) = mpsc::channel(1);
        let (done, mut outcome) = oneshot::channel();
        let sent = SentStatement { query, out, cancel, done };
        let _ = step.send(CliStep::Run(Box::new(sent))).await;
        let write = Arc::new(CliWrite { steps: Mutex::new(Some(steps)), opened: Mutex::new(None), is_single: true });
        let performing = self.perform(place, params.into_iter().collect(), &write, within);
        let Ok(performed) = tokio::time::timeout(within + ANSWER, performing).await else {
            return Err(match outcome.try_recv() {
                // It has failed within its transaction: no COMMIT was sent.
                Ok(Err(failed)) => failed,
                Ok(Ok(completed)) => unanswered(completed.correlation_id),
                // From here on it cannot begin.
                Err(_) if write.take_steps().is_some() => {
                    ExecuteError::Lost("the ledger did not answer; nothing was written".to_owned())
                }
                Err(_) => unanswered(None),
            });
        };
        match (settled(performed)?, outcome.await) {
            // The statement's own answer says more than its record.
            (Err(stopped), Ok(Err(failed))) if stopped.failure.code != ErrorCode::CommitOutcomeUnknown => Err(failed),
            (Err(stopped), _) => Err(failed(&stopped)),
            (Ok(correlation_id), Ok(Ok(completed))) => {
                Ok(QuerySummary { correlation_id: Some(correlation_id), ..completed })
            }
            (Ok(_), _) => Err(ExecuteError::Internal("the write has a record and no outcome".to_owned())),
        }
    }

    /// Opens a transaction of several statements.
    pub(super) async fn begin(&self, begin: TransactionOptions) -> Result<Box<dyn Transaction>, ExecuteError> {
        if begin.isolation.is_some_and(|isolation| isolation != IsolationLevel::ReadCommitted) {
            return Err(ExecuteError::Unsupported {
                message: "a recorded transaction has the isolation level read committed".to_owned(),
                hint: Some(
                    "Leave isolation_level out, or give --no-audit where the configuration allows it.".to_owned(),
                ),
            });
        }
        let params = [("transaction".to_owned(), Value::Bool(true))];
        let (step, steps) = mpsc::channel(1);
        let (open, opened) = oneshot::channel();
        let steps = Mutex::new(Some(steps));
        let write = Arc::new(CliWrite { steps, opened: Mutex::new(Some(open)), is_single: false });
        let place = self.place().await?;
        let settled_later = self.perform(place, params.into_iter().collect(), &write, begin.timeout);
        let Ok(opened) = tokio::time::timeout(BEGIN_TIMEOUT, opened).await else {
            return Err(ExecuteError::Lost("the ledger did not answer to BEGIN; nothing was written".to_owned()));
        };
        let Ok(correlation_id) = opened else {
            return match settled(settled_later.await)? {
                Err(stopped) => Err(failed(&stopped)),
                Ok(_) => Err(ExecuteError::Internal("the transaction ended before it began".to_owned())),
            };
        };
        Ok(Box::new(OpenTransaction { correlation_id, step, settled: settled_later, longest: Duration::ZERO }))
    }
}

/// A transaction that waits for its statements. Dropped, it is rolled back.
struct OpenTransaction {
    correlation_id: Option<String>,
    step: mpsc::Sender<CliStep>,
    settled: JoinHandle<Result<WriteOutcome, WriteError>>,
    /// The longest statement timeout so far.
    longest: Duration,
}

impl Transaction for OpenTransaction {
    fn correlation_id(&self) -> Option<String> {
        self.correlation_id.clone()
    }

    fn query<'a>(
        &'a mut self,
        query: Query,
        out: mpsc::Sender<QueryEvent>,
        cancel: CancellationToken,
    ) -> BoxFuture<'a, QuerySummary> {
        Box::pin(async move {
            self.longest = self.longest.max(limit(query.statement_timeout));
            let (done, outcome) = oneshot::channel();
            let sent = SentStatement { query, out, cancel, done };
            self.step.send(CliStep::Run(Box::new(sent))).await.map_err(|_| ExecuteError::in_failed_transaction())?;
            outcome.await.unwrap_or_else(|_| Err(ExecuteError::in_failed_transaction()))
        })
    }

    fn commit(self: Box<Self>) -> BoxFuture<'static, QuerySummary> {
        Box::pin(async move {
            let Self { step, settled: later, correlation_id, longest } = *self;
            let is_open = step.send(CliStep::Commit).await.is_ok();
            drop(step);
            let Ok(later) = tokio::time::timeout(longest + ANSWER, later).await else {
                return Err(if is_open { unanswered(correlation_id) } else { ExecuteError::in_failed_transaction() });
            };
            match settled(later)? {
                Ok(correlation_id) => {
                    let (tag, correlation_id) = (Some("COMMIT".to_owned()), Some(correlation_id));
                    Ok(QuerySummary { tag, correlation_id, ..QuerySummary::default() })
                }
                Err(stopped) if is_open || stopped.failure.code == ErrorCode::CommitOutcomeUnknown => {
                    Err(failed(&stopped))
                }
                Err(_) => Err(ExecuteError::in_failed_transaction()),
            }
        })
    }

    fn roll_back(self: Box<Self>) -> BoxFuture<'static, QuerySummary> {
        Box::pin(async move {
            let Self { step, settled: later, .. } = *self;
            drop(step);
            // Its record is final before the answer is given, if the server answers.
            let _ = tokio::time::timeout(ANSWER, later).await;
            Ok(QuerySummary { tag: Some("ROLLBACK".to_owned()), ..QuerySummary::default() })
        })
    }
}

/// A statement's limit; zero is none.
fn limit(statement_timeout: Duration) -> Duration {
    if statement_timeout.is_zero() { NO_LIMIT } else { statement_timeout }
}

fn unanswered(correlation_id: Option<String>) -> ExecuteError {
    let message = "the ledger did not answer: the write may or may not have happened".to_owned();
    ExecuteError::CommitOutcomeUnknown { message, correlation_id }
}

type Outcome = Result<Result<WriteOutcome, WriteError>, tokio::task::JoinError>;

/// The receipt of a write that stands.
fn settled(outcome: Outcome) -> Result<Result<String, WriteError>, ExecuteError> {
    match outcome {
        Ok(Ok(WriteOutcome::Executed { correlation_id, .. })) => Ok(Ok(correlation_id.to_string())),
        Ok(Ok(WriteOutcome::Duplicate { .. })) => {
            Err(ExecuteError::Internal("a write of its own was taken for another one".to_owned()))
        }
        Ok(Err(stopped)) => Ok(Err(stopped)),
        Err(error) => Err(ExecuteError::Internal(error.to_string())),
    }
}

fn failed(stopped: &WriteError) -> ExecuteError {
    match stopped.failure.code {
        ErrorCode::CommitOutcomeUnknown => ExecuteError::CommitOutcomeUnknown {
            message: stopped.failure.message.clone(),
            correlation_id: stopped.correlation_id.map(|id| id.to_string()),
        },
        _ => of_failure(&stopped.failure),
    }
}

fn of_failure(failure: &Failure) -> ExecuteError {
    match (failure.code, &failure.sqlstate) {
        (ErrorCode::SqlError | ErrorCode::InvalidParams | ErrorCode::Timeout, Some(sqlstate)) => {
            let ExecuteError::Sql(mut error) = sql(sqlstate, &failure.message) else {
                return ExecuteError::Internal(failure.message.clone());
            };
            error.hint.clone_from(&failure.hint);
            ExecuteError::Sql(error)
        }
        (ErrorCode::Timeout, None) => sql("57014", &failure.message),
        (ErrorCode::InDoubtAborted, _) => ExecuteError::Lost(failure.message.clone()),
        _ => ExecuteError::Ledger {
            message: failure.message.clone(),
            hint: failure.hint.clone(),
            retryable: failure.retryable,
        },
    }
}

fn sql(sqlstate: &str, message: &str) -> ExecuteError {
    let (severity, sqlstate, message) = ("ERROR".to_owned(), sqlstate.to_owned(), message.to_owned());
    ExecuteError::Sql(Box::new(ServerError { severity, sqlstate, message, ..ServerError::default() }))
}

fn lost(refusal: &ExecutorError) -> ExecuteError {
    match refusal {
        ExecutorError::Rejected(failure) => of_failure(failure),
        ExecutorError::ConnectionLost(error) => ExecuteError::Lost(error.to_string()),
    }
}
