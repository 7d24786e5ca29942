//! A write without an effect needs nobody's agreement. It is executed at once, on condition that it still changes nothing.

use types::{CorrelationId, ErrorCode, Failure};

use super::preview::{Preview, concurrent_changes};
use super::{Proposals, TRIES};
use crate::write::attempt::{WriteCall, WriteOutcome};
use crate::write::executor::{WriteExecutor, WriteFuture, WritePrecondition, WriteRequest};
use crate::write::failures::WriteError;
use crate::write::write_tx::WriteTx;

struct WithoutEffect(CorrelationId);

impl WritePrecondition for WithoutEffect {
    fn correlation_id(&self) -> CorrelationId {
        self.0
    }

    fn execute<'a>(
        &'a self,
        executor: &'a dyn WriteExecutor,
        tx: &'a mut WriteTx<'_>,
        request: &'a WriteRequest,
    ) -> WriteFuture<'a> {
        Box::pin(async move {
            let work = executor.execute(tx, request).await?;
            if tx.changes_nothing(work.rows_affected).await? {
                Ok(work)
            } else {
                let message =
                    "the write changed nothing when it was tried, and would change rows now; nothing was written";
                Err(Failure::new(ErrorCode::ProposalStale, message).into())
            }
        })
    }
}

/// A write that needs agreement, unless it has no effect.
#[derive(Debug)]
pub enum Previewed {
    /// What a person has to agree to.
    Preview(Box<Preview>),
    /// The write has no effect, and was executed and recorded.
    Executed(WriteOutcome),
}

impl Proposals {
    /// Makes the preview of the write, or executes it if there is nothing to agree to. A write that undoes others has an
    /// effect on the ledger.
    pub async fn preview_or_execute(&self, call: &WriteCall) -> Result<Previewed, WriteError> {
        for _ in 0..TRIES {
            let preview = self.preview(call).await?;
            if !preview.changes_nothing || !call.undoes().is_empty() {
                return Ok(Previewed::Preview(preview.into()));
            }
            let condition = WithoutEffect(CorrelationId::new());
            match self.gate.perform_if(call.clone(), Some(Box::new(condition))).await {
                Err(error) if error.failure.code == ErrorCode::ProposalStale => {}
                outcome => return outcome.map(Previewed::Executed),
            }
        }
        Err(concurrent_changes().into())
    }
}
