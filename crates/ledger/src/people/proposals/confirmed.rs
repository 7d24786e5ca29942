//! Executes an approved proposal in the transaction of its write, so that both end in one COMMIT.

use pg::{PipelineStatement, ServerError};
use types::{CorrelationId, ErrorCode, Failure, ProposalId};

use super::preview::{Preview, definition_changed};
use super::state::{ProposalStatus, closed};
use crate::write::caller_part::Rights;
use crate::write::definitions;
use crate::write::executor::{WriteExecutor, WriteFuture, WriteOutput, WritePrecondition, WriteRequest};
use crate::write::failures::ExecutorError;
use crate::write::lock_wait::LOCK_NOT_AVAILABLE;
use crate::write::write_tx::WriteTx;

/// The proposal that an attempt executes, the id of its record, and the preview that was approved.
pub(super) struct ConfirmedProposal {
    pub(super) proposal_id: ProposalId,
    pub(super) correlation_id: CorrelationId,
    pub(super) preview: Preview,
}

/// The maximum number of changed definitions that an error names.
const MAX_NAMED: usize = 5;

/// The SQLSTATE of a write that changes other rows than were agreed on (see the migrations).
const OTHER_ROWS: &str = "CS008";

const HOLD_SQL: &str = "select countersign.lock_proposal($1, $2) as verdict";

impl WritePrecondition for ConfirmedProposal {
    fn correlation_id(&self) -> CorrelationId {
        self.correlation_id
    }

    fn proposal_id(&self) -> Option<ProposalId> {
        Some(self.proposal_id)
    }

    fn execute<'a>(
        &'a self,
        executor: &'a dyn WriteExecutor,
        tx: &'a mut WriteTx<'_>,
        request: &'a WriteRequest,
    ) -> WriteFuture<'a> {
        Box::pin(self.execute_confirmed(executor, tx, request))
    }

    fn refused(&self, error: &ServerError) -> Option<Failure> {
        (error.sqlstate == OTHER_ROWS).then(|| stale(&error.message))
    }

    /// `None` if only this attempt has failed, and the proposal stays confirmed.
    fn state_after(&self, failure: &Failure) -> Option<&'static str> {
        if is_transient(failure) {
            return None;
        }
        Some(if failure.code == ErrorCode::ProposalStale { "stale" } else { "failed" })
    }
}

impl ConfirmedProposal {
    /// Executes the write, and refuses it unless it matches the preview. The comparison is made in the same
    /// transaction, which holds all of its locks, so nothing can change before the COMMIT. `countersign.finish` compares
    /// which rows the write changes, in every number; here are the values that people were shown.
    async fn execute_confirmed(
        &self,
        executor: &dyn WriteExecutor,
        tx: &mut WriteTx<'_>,
        request: &WriteRequest,
    ) -> Result<WriteOutput, ExecutorError> {
        self.hold(tx).await?;
        self.check_definitions(tx).await?;
        let work = executor.execute(tx, request).await.map_err(|refusal| match refusal {
            // The rows existed when the preview was made.
            ExecutorError::Rejected(failure)
                if matches!(failure.code, ErrorCode::RowCountMismatch | ErrorCode::NotFound) =>
            {
                stale(&failure.message).into()
            }
            refusal => refusal,
        })?;
        if executor.preview_is_binding() {
            if let Some(difference) = self.preview.difference(&work) {
                return Err(stale(&difference).into());
            }
            let effects = tx.effects().await?;
            if let Some(difference) = self.preview.difference_of_effects(effects) {
                return Err(stale(&difference).into());
            }
            // A definition may have been replaced while the write ran.
            self.check_definitions(tx).await?;
        }
        Ok(work)
    }

    /// Checks that the definitions on which the write depends are those of the preview.
    async fn check_definitions(&self, tx: &mut WriteTx<'_>) -> Result<(), ExecutorError> {
        let changed = definitions::changed(tx, &self.preview.definitions).await?;
        let (named, others) = changed.split_at(changed.len().min(MAX_NAMED));
        let others = if others.is_empty() { String::new() } else { format!(" and {} more", others.len()) };
        match named {
            [] => Ok(()),
            [one] => Err(stale(&definition_changed(one)).into()),
            several => {
                let why = format!("the definitions of {}{others} have changed since", several.join(", "));
                Err(stale(&why).into())
            }
        }
    }

    /// Checks that the proposal is confirmed and belongs to this attempt, and locks it until the transaction ends.
    async fn hold(&self, tx: &mut WriteTx<'_>) -> Result<(), ExecutorError> {
        let params = [Some(self.proposal_id.to_string()), Some(self.correlation_id.to_string())];
        let rows = tx.run_with(Rights::Login, &[PipelineStatement::new(HOLD_SQL, &params)]).await?;
        let row = rows.first().and_then(|rows| rows.rows.first());
        let verdict = row.and_then(|row| row.get("verdict")).and_then(|verdict| verdict.as_str()).unwrap_or_default();
        if verdict == "done" { Ok(()) } else { Err(refused(verdict).into()) }
    }
}

/// Whether the reason is outside of the proposal, which may succeed later as it is: a conflict with other transactions (class
/// 40), a lock that another session holds, a lost connection (08), resources of the server (53), its shutdown (57P), or a
/// standby.
pub(super) fn is_transient(failure: &Failure) -> bool {
    let states = ["40", LOCK_NOT_AVAILABLE, "08", "53", "57P", "25006"];
    failure.sqlstate.as_deref().is_some_and(|state| states.iter().any(|start| state.starts_with(start)))
}

/// The failure of a proposal whose execution would differ from the approved preview.
pub(crate) fn stale(why: &str) -> Failure {
    let message = format!("{why}: what was agreed to is not what would happen now, so nothing was written");
    Failure::new(ErrorCode::ProposalStale, message).hint("Call the tool again, and show the new proposal.")
}

pub(super) fn refused(verdict: &str) -> Failure {
    match verdict {
        "altered" => Failure::new(
            ErrorCode::DigestMismatch,
            "the proposal was modified in the database after it was created; nothing was written",
        )
        .hint("Tell the operator, and call the tool again for a new proposal."),
        "busy" => Failure::new(ErrorCode::DuplicateInFlight, "another server carries out this proposal"),
        verdict => match ProposalStatus::parse(verdict) {
            Some(status) => closed(status, None),
            None => super::state::not_found(),
        },
    }
}
