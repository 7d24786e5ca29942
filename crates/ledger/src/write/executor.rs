//! [`WriteExecutor`], the trait that a write tool implements.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use pg::ServerError;
use serde_json::{Map, Value};
use types::{CorrelationId, ErrorCode, Failure, Principal, ProposalId, Rollback, Tier, ToolLimit};

use crate::write::failures::ExecutorError;
use crate::write::policy::PolicyCall;
use crate::write::write_tx::WriteTx;

/// A call as its executor sees it: the caller and the parameters.
#[derive(Debug, Clone)]
pub struct WriteRequest {
    /// The caller.
    pub principal: Principal,
    /// Every effective parameter by name, including defaults and values that the server fills in.
    pub params: Map<String, Value>,
}

/// The future of an executor's work.
pub type WriteFuture<'a> = Pin<Box<dyn Future<Output = Result<WriteOutput, ExecutorError>> + Send + 'a>>;

/// How long an identical call without an idempotency key counts as a duplicate, by default.
pub const DEDUP_WINDOW: Duration = Duration::from_secs(300);

/// Executes one kind of write, in the gate's transaction. Its result is committed together with the record; if it
/// refuses, the transaction is rolled back and a failure is recorded.
///
/// A request may come from a proposal that was stored long ago. So an executor must check everything that it relies
/// on, and must take the account from the principal, never from a parameter.
pub trait WriteExecutor: Send + Sync + 'static {
    /// Checks the request before anything is recorded.
    fn check(&self, request: &WriteRequest) -> Result<(), Failure> {
        let _ = request;
        Ok(())
    }

    /// Executes the write.
    ///
    /// # Errors
    /// [`ExecutorError`]; the gate rolls the transaction back.
    fn execute<'a>(&'a self, tx: &'a mut WriteTx<'_>, request: &'a WriteRequest) -> WriteFuture<'a>;

    /// Computes the preview. The default executes the write, since the transaction is rolled back. Override this if a
    /// part of the write cannot be rolled back, or must not run before an approval.
    fn preview<'a>(&'a self, tx: &'a mut WriteTx<'_>, request: &'a WriteRequest) -> WriteFuture<'a> {
        self.execute(tx, request)
    }

    /// Whether the gate refuses an approved write whose work differs from its preview.
    fn preview_is_binding(&self) -> bool {
        true
    }

    /// A text that identifies the work: its statements, or a name and a version. Reviewers approve this definition.
    fn definition(&self) -> String;

    /// The tier of the tool; [`Tier::Auto`] needs no approval.
    fn tier(&self) -> Tier {
        Tier::Auto
    }

    /// Whether a proposal of this tier may be executed.
    fn supports_tier(&self, tier: Tier) -> bool {
        self.tier() == tier
    }

    /// The rules and the limit that a call must pass before it is admitted; `None` if there are none. A confirmed
    /// proposal has passed them already.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidParams`] if [`WriteExecutor::check`] would refuse the request.
    fn policy(&self, request: &WriteRequest) -> Result<Option<PolicyCall<'_>>, Failure> {
        let _ = request;
        Ok(None)
    }

    /// The limit of the tool. [`WriteExecutor::policy`] applies its limit of calls; its limit of rows applies at the
    /// end of a write.
    fn limit(&self) -> Option<ToolLimit> {
        None
    }

    /// The columns that identify the rows of [`WriteOutput::before`] and [`WriteOutput::after`]; empty if they are
    /// unknown.
    fn row_key(&self) -> &[String] {
        &[]
    }

    /// The writes that this write undoes, in the order in which the record names them; empty for a write that is not
    /// an undo. A call with the idempotency key of an undo ([`crate::undone_by`]) undoes the write that the key
    /// names.
    fn undoes(&self, request: &WriteRequest) -> Vec<CorrelationId> {
        let _ = request;
        Vec::new()
    }

    /// How long an identical call without an idempotency key counts as a duplicate.
    fn dedup_window(&self) -> Duration {
        DEDUP_WINDOW
    }
}

/// The result of an executor.
#[derive(Debug, Clone)]
pub struct WriteOutput {
    /// The answer for the caller.
    pub data: Value,
    /// The number of changed rows.
    pub rows_affected: u64,
    /// The rows before the write, if the tool reads them.
    pub before: Option<Value>,
    /// The same rows after the write; deleted rows are absent.
    pub after: Option<Value>,
    /// How to undo the write.
    pub rollback: Rollback,
    /// The tables of which an UPDATE or DELETE without a condition changed every row: `schema.table`.
    pub unfiltered: Vec<String>,
}

impl WriteOutput {
    /// A result without row images.
    #[must_use]
    pub const fn new(data: Value, rows_affected: u64, rollback: Rollback) -> Self {
        Self { data, rows_affected, before: None, after: None, rollback, unfiltered: Vec::new() }
    }

    /// Whether the tool reads the rows, and so says itself which of their values matter.
    #[must_use]
    pub const fn reads_rows(&self) -> bool {
        self.before.is_some() || self.after.is_some()
    }

    /// The failure of a write that changed the wrong number of rows, for executors with a rule for it. The gate rolls
    /// back.
    #[must_use]
    pub fn wrong_row_count(expected: &str, got: u64) -> Failure {
        Failure::new(
            ErrorCode::RowCountMismatch,
            format!("the write would have touched {got} row(s) where {expected} is allowed; nothing was written"),
        )
    }
}

/// A condition that a write must meet inside its own transaction, such as the proposal that it executes.
pub(crate) trait WritePrecondition: Send + Sync + 'static {
    /// The id under which the write is recorded.
    fn correlation_id(&self) -> CorrelationId;

    /// The proposal that the write executes, if it does.
    fn proposal_id(&self) -> Option<ProposalId> {
        None
    }

    /// Executes the write, and refuses it if the condition is not met.
    fn execute<'a>(
        &'a self,
        executor: &'a dyn WriteExecutor,
        tx: &'a mut WriteTx<'_>,
        request: &'a WriteRequest,
    ) -> WriteFuture<'a>;

    /// The failure if the ledger refuses the outcome because the condition is not met; `None` for every other error.
    fn refused(&self, error: &ServerError) -> Option<Failure> {
        let _ = error;
        None
    }

    /// The new state of the proposal after this failure, for `countersign.fail`; `None` if the state does not change.
    fn state_after(&self, failure: &Failure) -> Option<&'static str> {
        let _ = failure;
        None
    }
}
