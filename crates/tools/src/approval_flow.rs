//! What a write tool above tier `auto` does when it is called: it shows what it would do and asks for agreement.
//!
//! ```text
//! call ──> an identical write stands? ──> preview, twice ──> proposal ──> "requires approval", and the question
//! the same call with the user's answer ──> carried out, or rejected
//! ```
//! How a user is asked is the transport's: it gets the [`Question`] with the answer, and makes the same call again with what
//! the user [`UserDecision`]. A transport that cannot ask leaves it at the answer, which says how to go on.

use ledger::proposals::{DecisionChannel, ExecutedProposal, NewProposal, Proposal, ProposalStatus, Proposals, Tier};
use ledger::{WriteError, WriteOutcome};
use serde::Serialize;
use serde_json::{Map, Value};
use types::{ErrorCode, Failure, ProposalId};

use crate::manifest_tools::write::answer;
use crate::proposal_data::ProposalData;
use crate::proposal_text;
use crate::tool::{Call, Disposition, ToolError, ToolOutput, ToolResult};

/// What a client's user is to be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// About which proposal.
    pub proposal_id: ProposalId,
    /// What it says.
    pub digest: String,
    /// The words.
    pub text: String,
}

/// What the user of a client said to a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserDecision {
    /// About which proposal.
    pub proposal_id: ProposalId,
    /// What it said when the user was asked.
    pub digest: String,
    /// The answer.
    pub answer: UserAnswer,
}

/// MCP's three outcomes of an elicitation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UserAnswer {
    /// Yes.
    Accept,
    /// No.
    Decline,
    /// The question was closed without a choice.
    Cancel,
}

/// `data` of a write that was not made yet.
#[derive(Debug, Serialize)]
struct RequiresApproval {
    requires_approval: bool,
    proposal: ProposalData,
    message: String,
}

/// A tool that asks before it writes.
pub(crate) struct ApprovalFlow {
    pub(crate) proposals: Proposals,
    /// For people: what the tool does.
    pub(crate) title: String,
}

impl ApprovalFlow {
    /// Proposes the write of this call; or goes on with what the user said to that.
    pub(crate) async fn call(&self, call: &Call, draft: NewProposal, warnings: Vec<String>) -> ToolResult {
        draft.executor.check(&draft.request)?;
        if let Some(said) = &call.said {
            return self.resume(call, &draft, said).await;
        }
        if let Some((original, cached_result)) = self.proposals.standing(&draft, call.deadline).await? {
            let settled = WriteOutcome::Duplicate { correlation_id: original, original, cached_result };
            return answer(&draft.tool, Ok(settled));
        }
        let mut preview = self.proposals.preview(&draft, call.deadline).await?;
        preview.warnings.extend(warnings);
        preview.warnings.extend(proposal_text::no_key(&preview));
        let description = proposal_text::description(&self.title, &draft.request.params, &preview);
        let proposal = self.proposals.store(&draft, &preview, &description, call.deadline).await?;
        tracing::info!(proposal_id = %proposal.proposal_id, tool = draft.tool, tier = draft.tier.as_str(), "proposed");
        self.requires_approval(call, proposal)
    }

    fn requires_approval(&self, call: &Call, proposal: Proposal) -> ToolResult {
        let asks = proposal.tier == Tier::Confirm && call.asks_user;
        let question = asks.then(|| question(&self.title, &proposal));
        let message = match proposal.tier {
            Tier::Confirm => {
                "Nothing was written yet. Show the proposal to the user. If they agree, call confirm_proposal \
                with its proposal_id and digest; if they do not, call reject_proposal."
            }
            Tier::Approve => {
                "Nothing was written yet. A person who is not the proposer has to approve it, outside of this \
                conversation (countersign proposals approve). get_proposal says what has become of it."
            }
        };
        let data = RequiresApproval {
            requires_approval: true,
            proposal: ProposalData::new(proposal),
            message: message.to_owned(),
        };
        ToolOutput::read(&data).map(|answer| ToolOutput { question, success: Disposition::Proposed, ..answer })
    }

    /// The call has come again, with the user's answer to the question.
    async fn resume(&self, call: &Call, draft: &NewProposal, said: &UserDecision) -> ToolResult {
        let account = &call.principal.account_id;
        let proposal = self.proposals.get(Some(account), said.proposal_id).await?.ok_or_else(other_call)?;
        if !self.proposals.is_of(&proposal, draft) {
            return Err(other_call().into());
        }
        let carried = decide(&self.proposals, call, &proposal, said).await?;
        answer(&draft.tool, Ok(carried.settled))
    }
}

/// Does what the user said. An answer counts once: the proposal must still wait for it.
pub(crate) async fn decide(
    proposals: &Proposals,
    call: &Call,
    proposal: &Proposal,
    said: &UserDecision,
) -> Result<ExecutedProposal, ToolError> {
    let account = &call.principal.account_id;
    let id = proposal.proposal_id;
    if !matches!(proposal.status, ProposalStatus::Pending) {
        return Err(ToolError { correlation_id: proposal.correlation_id, failure: Box::new(proposal.closed()) });
    }
    let reason = match said.answer {
        UserAnswer::Accept => {
            let digest = said.digest.clone();
            let executors = call.tools.executors();
            let carried =
                proposals.confirm(account, id, digest, DecisionChannel::Elicitation, executors, call.deadline).await;
            return carried.map_err(refused);
        }
        UserAnswer::Decline => "declined by the user",
        UserAnswer::Cancel => "the user closed the question without a choice",
    };
    proposals.reject(account, id, Some(reason.to_owned()), DecisionChannel::Elicitation, call.deadline).await?;
    let failure = Failure::new(ErrorCode::ProposalRejected, format!("not written: {reason}"));
    Err(failure.hint("Do not propose it again unless the user asks for it.").into())
}

/// What the user of a client that can ask is asked.
pub(crate) fn question(title: &str, proposal: &Proposal) -> Question {
    Question {
        proposal_id: proposal.proposal_id,
        digest: proposal.digest.clone(),
        text: proposal_text::question(title, proposal),
    }
}

pub(crate) fn refused(stopped: WriteError) -> ToolError {
    ToolError { correlation_id: stopped.correlation_id, failure: stopped.failure }
}

/// A tool that asks nobody takes no answer. It asked when the tools were others: a no of then must not become a write now.
pub(crate) fn refuse_answer(call: &Call) -> Result<(), Failure> {
    if call.said.is_none() {
        return Ok(());
    }
    let message = "the user's answer is to a question that this tool does not ask any more; nothing was written";
    Err(Failure::new(ErrorCode::ProposalStale, message).hint("Call the tool without the answer, if the user wants it."))
}

fn other_call() -> Failure {
    Failure::new(
        ErrorCode::InvalidParams,
        "the answer belongs to another call: this one has other arguments, or is another account's; nothing was written",
    )
}

/// The caller's own key, if there is one.
pub(crate) fn key_of(arguments: &Map<String, Value>) -> Option<String> {
    arguments.get("idempotency_key").and_then(Value::as_str).map(str::to_owned)
}
