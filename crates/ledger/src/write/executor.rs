//! Executors: what a write tool implements.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use serde_json::{Map, Value};
use types::{CorrelationId, ErrorCode, Failure, Principal, ProposalId, Rollback, Tier, ToolLimit};

use crate::write::failures::ExecutorError;
use crate::write::policy::PolicyCall;
use crate::write::write_tx::WriteTx;

/// The requester and the parameters of a call, for an executor.
#[derive(Debug, Clone)]
pub struct WriteRequest {
    /// On whose behalf.
    pub principal: Principal,
    /// Every effective parameter by name: defaults and server-filled ones included.
    pub params: Map<String, Value>,
}

/// The future of an executor's work.
pub type WriteFuture<'a> = Pin<Box<dyn Future<Output = Result<WriteOutput, ExecutorError>> + Send + 'a>>;

/// The default time for which an identical call without a key counts as the same call.
pub const DEDUP_WINDOW: Duration = Duration::from_secs(300);

/// Carries out one kind of write. Runs inside the gate's transaction: what it returns is committed with its record,
/// what it refuses is rolled back and recorded as a failure.
///
/// A request may come from a proposal that was stored long ago, so an executor relies on nothing that it has not checked
/// itself, and goes by the account of the principal, never by one among the parameters.
pub trait WriteExecutor: Send + Sync + 'static {
    /// Whether the request makes sense to it, before anything is recorded.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidParams`] with what is wrong.
    fn check(&self, request: &WriteRequest) -> Result<(), Failure> {
        let _ = request;
        Ok(())
    }

    /// Does the work.
    ///
    /// # Errors
    /// [`ExecutorError`]: nothing of the work stays.
    fn execute<'a>(&'a self, tx: &'a mut WriteTx<'_>, request: &'a WriteRequest) -> WriteFuture<'a>;

    /// The expected work. Its transaction is rolled back, so this is the work itself, unless a part of it cannot be
    /// rolled back or must not happen before an approval.
    ///
    /// # Errors
    /// As [`WriteExecutor::execute`].
    fn preview<'a>(&'a self, tx: &'a mut WriteTx<'_>, request: &'a WriteRequest) -> WriteFuture<'a> {
        self.execute(tx, request)
    }

    /// Whether a write whose work differs from its preview is refused.
    fn preview_is_binding(&self) -> bool {
        true
    }

    /// A text that identifies the work: statements, or a name and a version. A reviewer approves this definition.
    fn definition(&self) -> String;

    /// The tier of approval; `None` if no approval is needed.
    fn tier(&self) -> Tier {
        Tier::Auto
    }

    /// Whether a proposal of this tier may be carried out.
    fn supports_tier(&self, tier: Tier) -> bool {
        self.tier() == tier
    }

    /// The rules and the limit that a call must pass before it is admitted; `None` if there are none. A confirmed proposal has
    /// passed them.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidParams`]: the request is one that [`WriteExecutor::check`] refuses.
    fn policy(&self, request: &WriteRequest) -> Result<Option<PolicyCall<'_>>, Failure> {
        let _ = request;
        Ok(None)
    }

    /// The limit of the tool. Its calls are a part of [`WriteExecutor::policy`]; its rows are counted where a write ends.
    fn limit(&self) -> Option<ToolLimit> {
        None
    }

    /// The columns that identify the rows of [`WriteOutput::before`] and [`WriteOutput::after`]; empty if they are
    /// unknown.
    fn row_key(&self) -> &[String] {
        &[]
    }

    /// The writes that it takes back, in the order in which the record names them; empty for any other write. A call whose key is that of
    /// an undo ([`crate::undone_by`]) takes back the write of the key.
    fn undoes(&self, request: &WriteRequest) -> Vec<CorrelationId> {
        let _ = request;
        Vec::new()
    }

    /// The time for which an identical call without a key counts as the same call.
    fn dedup_window(&self) -> Duration {
        DEDUP_WINDOW
    }
}

/// The work of an executor.
#[derive(Debug, Clone)]
pub struct WriteOutput {
    /// The answer for the caller.
    pub data: Value,
    /// The number of changed rows.
    pub rows_affected: u64,
    /// The rows as they were before, if the tool looked at them.
    pub before: Option<Value>,
    /// The same rows after the write; deleted rows are absent.
    pub after: Option<Value>,
    /// How to undo it.
    pub rollback: Rollback,
}

impl WriteOutput {
    /// The refusal of a write that touched the wrong number of rows, for executors that have a rule for it; the gate
    /// rolls back.
    #[must_use]
    pub fn wrong_row_count(expected: &str, got: u64) -> Failure {
        Failure::new(
            ErrorCode::RowCountMismatch,
            format!("the write would have touched {got} row(s) where {expected} is allowed; nothing was written"),
        )
    }
}

/// A condition that a write must meet inside its own transaction, such as a proposal that it executes.
pub trait WritePrecondition: Debug + Send + Sync + 'static {
    /// Id of the attempt, under which the write is recorded.
    fn correlation_id(&self) -> CorrelationId;

    /// The proposal that the write executes.
    fn proposal_id(&self) -> ProposalId;

    /// Executes the write, and refuses it if the condition is not met.
    fn execute<'a>(
        &'a self,
        executor: &'a dyn WriteExecutor,
        tx: &'a mut WriteTx<'_>,
        request: &'a WriteRequest,
    ) -> WriteFuture<'a>;

    /// State that a failure of the write puts the proposal in, for `countersign.fail`; `None` to leave it as it is.
    fn state_after(&self, failure: &Failure) -> Option<&'static str>;
}
