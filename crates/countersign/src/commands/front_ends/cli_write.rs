//! The write executor of the command line: runs the statements that it receives in one recorded transaction.

use std::sync::{Mutex, PoisonError};

use agent_cli::executor::{ExecuteError, Query, QueryEvent, QuerySummary, RowSink};
use ledger::read::Error;
use ledger::{AdhocError, ExecutorError, WriteExecutor, WriteFuture, WriteOutput, WriteRequest, WriteTx};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use types::{ErrorCode, Failure, Rollback};

use super::write_errors::rejection;

/// The name of the tool in the records.
pub(super) const TOOL: &str = "cli_write";

const IRREVERSIBLE: &str = "A statement from the command line: nothing here knows how to undo it.";

/// Limit of the statements and parameters in the record of one transaction, in bytes. A record takes 4 MiB in all.
const MAX_TRANSCRIPT_BYTES: usize = 3 << 20;

/// Bytes that a record adds to each statement: keys, punctuation, command tag and row count.
const RECORD_OVERHEAD_BYTES: usize = 100;

/// One statement for the ledger's transaction.
pub(super) struct SentStatement {
    pub(super) query: Query,
    pub(super) out: mpsc::Sender<QueryEvent>,
    pub(super) cancel: CancellationToken,
    /// Receives the outcome of the statement within the transaction.
    pub(super) done: oneshot::Sender<Result<QuerySummary, ExecuteError>>,
}

/// Next step of a transaction.
pub(super) enum CliStep {
    Run(Box<SentStatement>),
    Commit,
}

/// Executes the steps that it receives in one transaction.
pub(super) struct CliWrite {
    steps: Mutex<Option<mpsc::Receiver<CliStep>>>,
    /// Receives the correlation id when the transaction is open. `None` for a single statement.
    opened: Mutex<Option<oneshot::Sender<Option<String>>>>,
    /// Whether the transaction ends after its first statement.
    is_single: bool,
}

impl CliWrite {
    /// A write of one statement.
    pub(super) fn single(steps: mpsc::Receiver<CliStep>) -> Self {
        Self { steps: Mutex::new(Some(steps)), opened: Mutex::new(None), is_single: true }
    }

    /// A write of all statements up to [`CliStep::Commit`]; `opened` receives the correlation id.
    pub(super) fn transaction(steps: mpsc::Receiver<CliStep>, opened: oneshot::Sender<Option<String>>) -> Self {
        Self { steps: Mutex::new(Some(steps)), opened: Mutex::new(Some(opened)), is_single: false }
    }

    /// Takes the receiver of the steps. `None` after the first call.
    pub(super) fn take_steps(&self) -> Option<mpsc::Receiver<CliStep>> {
        self.steps.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    async fn run(&self, tx: &mut WriteTx<'_>) -> Result<WriteOutput, ExecutorError> {
        // Opens the transaction before the steps are taken, because the gate retries one that cannot be opened.
        tx.run(&[]).await?;
        let Some(mut steps) = self.take_steps() else {
            return Err(Failure::new(ErrorCode::InternalError, "the statement was already executed").into());
        };
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(opened) = opened {
            let _ = opened.send(tx.correlation_id().map(|id| id.to_string()));
        }
        let mut transcript = Transcript::default();
        loop {
            match steps.recv().await {
                Some(CliStep::Run(sent)) => {
                    let SentStatement { query, out, cancel, done } = *sent;
                    let ran = match transcript.reserve(&query) {
                        Ok(()) => statement(tx, &query, out, &cancel).await,
                        Err(failure) => Err(ExecutorError::from(failure).into()),
                    };
                    match ran {
                        Ok(completed) => {
                            transcript.add(&query, &completed);
                            let _ = done.send(Ok(completed));
                        }
                        Err(AdhocError { failed, refusal }) => {
                            let _ = done.send(Err(failed.unwrap_or_else(|| rejection(&refusal))));
                            return Err(refusal);
                        }
                    }
                    if self.is_single {
                        tx.seal_session().await?;
                        return Ok(transcript.into_single_output());
                    }
                }
                Some(CliStep::Commit) => {
                    tx.seal_session().await?;
                    return Ok(transcript.into_output());
                }
                None => {
                    return Err(Failure::new(ErrorCode::SqlError, "rolled back at the client's request").into());
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

/// Runs one statement. On success the client has received all of its rows.
async fn statement(
    tx: &mut WriteTx<'_>,
    query: &Query,
    out: mpsc::Sender<QueryEvent>,
    cancel: &CancellationToken,
) -> Result<QuerySummary, AdhocError> {
    let mut sink = RowSink::new(out, query.delivery);
    let cancelled = |refusal| AdhocError { failed: Some(ExecuteError::Cancelled), refusal };
    let running = async {
        tx.run_streaming(query, &mut sink).await?;
        if let Some(correlation_id) = tx.correlation_id() {
            sink.set_correlation_id(correlation_id.to_string());
        }
        let unread = Failure::new(ErrorCode::SqlError, "client disconnected before reading the result; rolled back");
        sink.finish().await.map_err(|_| cancelled(unread.into()))
    };
    tokio::select! {
        biased;
        // The statement is still running: the gate drops the connection and resolves the record.
        () = cancel.cancelled() => return Err(cancelled(ExecutorError::ConnectionLost(Error::ReceiverDropped))),
        ran = running => ran?,
    }
    Ok(sink.into_summary())
}

/// Statements of a transaction, as its record contains them.
#[derive(Default)]
struct Transcript {
    statements: Vec<Value>,
    bytes: usize,
    rows_affected: u64,
}

impl Transcript {
    /// Counts the bytes of the statement.
    ///
    /// # Errors
    /// The record would exceed [`MAX_TRANSCRIPT_BYTES`].
    fn reserve(&mut self, query: &Query) -> Result<(), Failure> {
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

    /// Output of a single statement. Its text is already in the parameters of the record.
    fn into_single_output(self) -> WriteOutput {
        let one = self.statements.into_iter().next().unwrap_or_default();
        let data = json!({"command_tag": one.get("command_tag"), "row_count": one.get("row_count")});
        output(data, self.rows_affected)
    }

    fn into_output(self) -> WriteOutput {
        output(json!({"statements": self.statements}), self.rows_affected)
    }
}

/// Whether the changes can be undone depends on tracking, which the ledger determines.
fn output(data: Value, rows_affected: u64) -> WriteOutput {
    let rollback = match rows_affected {
        0 => Rollback::irreversible(IRREVERSIBLE),
        _ => Rollback { checked: None, ..Rollback::by_effects() },
    };
    WriteOutput::new(data, rows_affected, rollback)
}
