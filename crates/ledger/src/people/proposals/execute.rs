//! Executes approved proposals through the gate.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use types::{CorrelationId, ErrorCode, Failure, Principal, ProposalId, Redaction, Tier};

use super::confirmed::{ConfirmedProposal, is_transient, stale};
use super::decide::{Decision, DecisionChannel, TransitionResult};
use super::state::ProposalStatus;
use super::{Proposal, Proposals};
use crate::write::attempt::{CANCEL_GRACE, RESOLVE_TIMEOUT, WriteCall, WriteOutcome};
use crate::write::executor::WriteExecutor;
use crate::write::executor_registry::{ExecutorRegistry, definition};
use crate::write::failures::{WriteError, internal_error, ledger_failure};
use crate::write::resolve;

/// An executed proposal, and the outcome of its write.
#[derive(Debug)]
pub struct ExecutedProposal {
    /// The proposal after its execution.
    pub proposal: Proposal,
    /// The outcome of the write.
    pub outcome: WriteOutcome,
}

/// The pause between two checks whether a server has executed or checked the proposal.
pub(super) const PAUSE: Duration = Duration::from_millis(50);

pub(super) const STILL_CONFIRMED: &str = "The proposal stays confirmed, and a server executes it as soon as possible: ask get_proposal, and do not \
    propose it again.";

const RELEASE_SQL: &str = "select countersign.release_proposal($1, $2, $3, $4)";
const END_SQL: &str = "select countersign.end_proposal($1, $2, $3, $4, $5)";

impl Proposals {
    /// How long an attempt owns a proposal: the time limits of its call and of its resolution.
    pub(super) fn attempt_lease(&self) -> Duration {
        self.call_deadline + CANCEL_GRACE + RESOLVE_TIMEOUT
    }

    /// Confirms the proposal with this digest for its account, and executes it. A repeated call gets the same answer.
    /// A proposal that this server cannot execute stays pending: another server may have its tool.
    ///
    /// # Errors
    /// [`WriteError`] with the reason why nothing was written. The write may still happen if the proposal stays
    /// confirmed; then the failure says so.
    pub async fn confirm(
        &self,
        owner: &Principal,
        proposal: &Proposal,
        digest: String,
        via: DecisionChannel,
        executors: &Arc<ExecutorRegistry>,
        deadline: Instant,
    ) -> Result<ExecutedProposal, WriteError> {
        let id = proposal.proposal_id;
        if proposal.status == ProposalStatus::Pending && proposal.tier == Tier::Confirm {
            self.fitting(proposal, executors.get(&proposal.tool_name))?;
        }
        // The task continues if the caller drops the future, so that the proposal is not left half executed.
        let (this, owner, executors) = (self.clone(), owner.clone(), Arc::clone(executors));
        let work = async move { this.decide_and_execute(&owner, id, digest, via, &executors, deadline).await };
        self.gate.spawn(None, work).await
    }

    async fn decide_and_execute(
        &self,
        owner: &Principal,
        id: ProposalId,
        digest: String,
        via: DecisionChannel,
        executors: &ExecutorRegistry,
        deadline: Instant,
    ) -> Result<ExecutedProposal, WriteError> {
        let attempt = CorrelationId::new();
        let transitioned = self
            .transition(owner, id, &Decision::Confirm { digest: digest.clone() }, via, Some(attempt), deadline)
            .await?;
        let proposal = self.get_decided(Some(owner), id).await.map_err(|failure| match transitioned {
            TransitionResult::Done => failure.hint(STILL_CONFIRMED),
            TransitionResult::Is(_) | TransitionResult::Waits => failure,
        })?;
        match transitioned {
            TransitionResult::Done => {
                self.execute_claimed(&proposal, executors.get(&proposal.tool_name), attempt, deadline).await
            }
            // A repeated approval must be for the same preview.
            TransitionResult::Is(ProposalStatus::Confirmed | ProposalStatus::Executed) if digest != proposal.digest => {
                Err(refused_digest().into())
            }
            // Another attempt executes it.
            TransitionResult::Is(ProposalStatus::Confirmed) => {
                self.earlier_result(self.ended(id, deadline).await?).await
            }
            TransitionResult::Is(_) | TransitionResult::Waits => self.earlier_result(proposal).await,
        }
    }

    /// The result of an executed proposal, from its record.
    async fn earlier_result(&self, proposal: Proposal) -> Result<ExecutedProposal, WriteError> {
        let correlation_id = proposal.correlation_id;
        let stopped = WriteError { correlation_id, failure: proposal.closed().into() };
        let Some(correlation_id) = correlation_id.filter(|_| proposal.status == ProposalStatus::Executed) else {
            return Err(stopped);
        };
        // The caller's deadline may have passed while another attempt executed the proposal, so this has a time limit
        // of its own.
        match resolve::ask_record(&self.writer, correlation_id, Instant::now() + RESOLVE_TIMEOUT).await {
            Ok(Some(Ok(outcome))) => Ok(ExecutedProposal { proposal, outcome }),
            // The proposal was executed, but its record was pruned or cannot be read now.
            _ => Err(stopped),
        }
    }

    /// Executes a confirmed proposal with the correlation id `attempt`. The proposal ends together with the record in
    /// the transaction of the write. If the write cannot run, the proposal ends here, or stays confirmed for the next
    /// server that tries.
    pub(super) async fn execute_claimed(
        &self,
        proposal: &Proposal,
        executor: Option<&Arc<dyn WriteExecutor>>,
        attempt: CorrelationId,
        deadline: Instant,
    ) -> Result<ExecutedProposal, WriteError> {
        let id = proposal.proposal_id;
        let executor = match self.fitting(proposal, executor) {
            Ok(executor) => executor,
            Err(mut failure) => {
                self.release(id, Some(attempt), &failure).await;
                failure.hint = Some(STILL_CONFIRMED.to_owned());
                return Err(failure.into());
            }
        };
        if let Err(failure) = executor.check(&proposal.request()) {
            let failure = Failure { message: format!("Invalid payload: {}", failure.message), ..failure };
            self.end(id, attempt, &failure, deadline).await?;
            return Err(failure.into());
        }
        let may_be_repeated = executor.preview_is_binding();
        tracing::info!(proposal_id = %id, tool = proposal.tool_name, account = proposal.account_id.as_str(), "executing");
        let call = WriteCall {
            request: proposal.request(),
            tool: proposal.tool_name.clone(),
            reason: proposal.reason.clone(),
            // The compiler does not allow sensitive parameters in tools that need agreement.
            redaction: Redaction::default(),
            idempotency_key: proposal.idempotency_key.clone(),
            deadline,
            executor,
        };
        let preview = proposal.preview.clone();
        let confirmed = ConfirmedProposal { proposal_id: id, correlation_id: attempt, preview };
        let performed = self.gate.perform_if(call, Some(Box::new(confirmed))).await;
        match performed {
            Ok(outcome @ WriteOutcome::Executed { .. }) => {
                let executed = self.get(None, id).await.ok().flatten();
                // It ended in the transaction of its write.
                let proposal = executed.unwrap_or_else(|| Proposal {
                    status: ProposalStatus::Executed,
                    correlation_id: Some(attempt),
                    ..proposal.clone()
                });
                Ok(ExecutedProposal { proposal, outcome })
            }
            Ok(WriteOutcome::Duplicate { original, .. }) => {
                let failure = stale(&format!("an identical write was executed since (correlation_id {original})"));
                self.unfinished(proposal, attempt, failure.into(), may_be_repeated).await
            }
            // The policy is not applied to a confirmed proposal again.
            Ok(WriteOutcome::NeedsApproval(_)) => {
                self.unfinished(proposal, attempt, internal_error().into(), may_be_repeated).await
            }
            Err(stopped) => self.unfinished(proposal, attempt, stopped, may_be_repeated).await,
        }
    }

    /// The executor of the tool, if it is the one of the proposal and this server computes the same fingerprint.
    pub(super) fn fitting(
        &self,
        proposal: &Proposal,
        executor: Option<&Arc<dyn WriteExecutor>>,
    ) -> Result<Arc<dyn WriteExecutor>, Failure> {
        let tool = &proposal.tool_name;
        let executor = executor.ok_or_else(|| {
            let message = format!("no executor is registered for {tool}, so the proposal cannot be executed");
            Failure::new(ErrorCode::ToolOutdated, message)
                .hint("Nothing was written. Tell the operator: no manifest of this server has the tool.")
        })?;
        if definition(executor.as_ref()) != proposal.definition || !executor.supports_tier(proposal.tier) {
            let message = format!(
                "the tool {tool} of this server is not the one that was proposed: its SQL, a limit or who has to agree \
                 differs; nothing was written"
            );
            return Err(
                Failure::new(ErrorCode::ProposalStale, message).hint("Call the tool again, and show the new proposal.")
            );
        }
        if self.fingerprint(tool, &proposal.request()).as_str() != proposal.params_hash {
            let message = "the proposal has another fingerprint than its parameters have here: it was modified in the database, or \
                           this server has another fingerprint_key; nothing was written";
            return Err(Failure::new(ErrorCode::DigestMismatch, message)
                .hint("Tell the operator, and call the tool again for a new proposal."));
        }
        Ok(Arc::clone(executor))
    }

    /// Handles an attempt that did not execute the proposal. If the write failed, its transaction has ended the
    /// proposal. If the failure came before or after the write, nothing was written, and the proposal may be retried.
    /// If this attempt took too long, another one may have executed the proposal: then its result is the answer.
    async fn unfinished(
        &self,
        proposal: &Proposal,
        attempt: CorrelationId,
        mut stopped: WriteError,
        may_be_repeated: bool,
    ) -> Result<ExecutedProposal, WriteError> {
        let id = proposal.proposal_id;
        match self.get(None, id).await {
            Ok(Some(proposal)) if proposal.status == ProposalStatus::Executed => {
                return self.earlier_result(proposal).await;
            }
            Ok(Some(proposal)) if proposal.status != ProposalStatus::Confirmed => {
                // The same write may succeed later, but it needs a new approval.
                stopped.failure.retryable = false;
                stopped.failure.hint.get_or_insert_with(|| "Call the tool again for a new proposal.".to_owned());
                return Err(stopped);
            }
            Ok(_) | Err(_) => {}
        }
        let failure = &mut stopped.failure;
        // An attempt with a correlation id has passed the gate, so its work may have begun.
        let may_have_begun = stopped.correlation_id.is_some();
        let may_succeed = failure.retryable && failure.code != ErrorCode::Timeout || is_transient(failure);
        if may_succeed && (may_be_repeated || !may_have_begun) {
            self.release(id, Some(attempt), failure).await;
            failure.hint = Some(STILL_CONFIRMED.to_owned());
        } else if let Err(error) = self.end(id, attempt, failure, Instant::now() + RESOLVE_TIMEOUT).await {
            tracing::warn!(proposal_id = %id, %error.message, "the end of a proposal could not be written down");
            failure.hint = Some(STILL_CONFIRMED.to_owned());
        } else {
            failure.retryable = false;
        }
        Err(stopped)
    }

    /// Lets any server try after a pause, and stores why the proposal waits. If this query fails, the ownership of the
    /// attempt expires by itself.
    pub(super) async fn release(&self, id: ProposalId, attempt: Option<CorrelationId>, failure: &Failure) {
        let (code, message) = (failure.code.as_str().to_owned(), failure.message.clone());
        let params = vec![Some(id.to_string()), attempt.map(|it| it.to_string()), Some(code), Some(message)];
        if let Err(error) = self.ask_words(RELEASE_SQL, params, Instant::now() + self.call_deadline).await {
            tracing::info!(proposal_id = %id, %error.message, "a confirmed proposal waits for its attempt to be over");
        }
    }

    /// Ends a confirmed proposal that cannot be executed.
    pub(super) async fn end(
        &self,
        id: ProposalId,
        attempt: CorrelationId,
        failure: &Failure,
        deadline: Instant,
    ) -> Result<(), Failure> {
        tracing::warn!(proposal_id = %id, code = %failure.code, "a confirmed proposal was not executed");
        let outcome =
            if failure.code == ErrorCode::ProposalStale { ProposalStatus::Stale } else { ProposalStatus::Failed };
        let params = vec![
            Some(id.to_string()),
            Some(attempt.to_string()),
            Some(outcome.as_str().to_owned()),
            Some(failure.code.as_str().to_owned()),
            Some(failure.message.clone()),
        ];
        self.ask_words(END_SQL, params, deadline).await.map(drop)
    }

    pub(super) async fn ask_words(
        &self,
        sql: &str,
        params: Vec<Option<String>>,
        deadline: Instant,
    ) -> Result<Vec<String>, Failure> {
        let answer = self.writer.run_one(sql, &params, deadline).await.map_err(|error| ledger_failure(&error))?;
        Ok(answer.rows.into_iter().filter_map(|row| row.into_iter().next().flatten()).collect())
    }
}

fn refused_digest() -> Failure {
    Failure::new(ErrorCode::DigestMismatch, "digest mismatch: the confirmed proposal differs from the one shown")
}
