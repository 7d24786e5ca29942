//! Flow of a write tool above tier `auto`: the call previews the write and requests approval.
//!
//! ```text
//! call ──> an identical write exists? ──> preview, twice ──> proposal ──> "requires approval", and the question
//! the same call with the user's answer ──> executed, or rejected
//! ```
//! The transport decides how to ask the user. It gets the [`Question`] with the output, and repeats the call with the
//! [`UserDecision`]. A transport that cannot ask forwards only the output, which explains the next step to the agent.

use ledger::proposals::{
    DecisionChannel, ExecutedProposal, NewProposal, Previewed, Proposal, ProposalStatus, Proposals,
};
use ledger::{AppliedPolicy, Gate, WriteCall, WriteError, WriteOutcome};
use serde::Serialize;
use serde_json::Value;
use types::{CorrelationId, ErrorCode, Failure, Tier};

use crate::confirmation::Confirmation;
use crate::listed_numbers::listed_numbers;
use crate::mixed_script;
use crate::proposal_data::ProposalData;
use crate::proposal_text;
use crate::services::{ConsoleLinks, Services};
use crate::shown_proposal::ShownProposal;
use crate::tool::{
    Call, Disposition, PageRequest, Question, ToolError, ToolOutput, ToolResult, UserAnswer, UserDecision,
};

/// `data` of a write that is not executed yet.
#[derive(Debug, Serialize)]
struct RequiresApproval {
    requires_approval: bool,
    proposal: ProposalData,
    message: String,
}

/// `data` of a call that duplicates an earlier identical call.
#[derive(Debug, Serialize)]
struct DuplicateData {
    duplicate: bool,
    original_correlation_id: CorrelationId,
    cached_result: Value,
    message: String,
}

/// Runs a write tool's call: through the gate, or into a proposal.
pub(crate) struct ApprovalFlow {
    gate: Gate,
    proposals: Proposals,
    confirmation: Confirmation,
}

impl ApprovalFlow {
    pub(crate) fn new(services: &Services) -> Self {
        let (gate, proposals) = (services.ledger.gate(), services.ledger.proposals());
        Self { gate, proposals, confirmation: Confirmation::new(services) }
    }

    /// Executes the write of this call, or makes this proposal if its tier is above `auto`.
    pub(crate) async fn write(&self, call: &Call, write: WriteCall, proposal: NewProposal) -> ToolResult {
        // The check precedes the gate, so that an invalid request leaves no record.
        write.executor.check(&write.request)?;
        // Even if the tier is `auto`, a rule of the tool may have caused the question.
        let may_ask = proposal.tier != Tier::Auto || write.executor.policy(&write.request)?.is_some();
        let decision = call.decision.as_ref().filter(|_| may_ask);
        if let Some(decision) = decision {
            return self.resume(call, &write, decision).await;
        }
        if proposal.tier != Tier::Auto {
            return self.propose(call, write, proposal).await;
        }
        refuse_answer(call)?;
        match self.gate.perform(write.clone()).await {
            Ok(WriteOutcome::NeedsApproval(applied)) => self.propose_by(call, write, proposal, applied.into()).await,
            outcome => write_output(&write.tool, outcome),
        }
    }

    /// Makes a proposal for a tool whose tier requires one.
    async fn propose(&self, call: &Call, write: WriteCall, proposal: NewProposal) -> ToolResult {
        if let Some((original, cached_result)) = self.proposals.standing(&write).await? {
            let outcome = WriteOutcome::Duplicate { correlation_id: original, original, cached_result };
            return write_output(&write.tool, Ok(outcome));
        }
        let applied = self.proposals.apply_policy(&write).await?;
        self.propose_by(call, write, proposal, applied).await
    }

    /// Makes a proposal with the tier that the tool's policy requires, or else with the tool's own tier.
    async fn propose_by(
        &self,
        call: &Call,
        write: WriteCall,
        mut proposal: NewProposal,
        policy: Option<AppliedPolicy>,
    ) -> ToolResult {
        let mut preview = match self.proposals.preview_or_execute(&write).await {
            Ok(Previewed::Preview(preview)) => *preview,
            Ok(Previewed::Executed(outcome)) => return write_output(&write.tool, Ok(outcome)),
            Err(error) => return Err(refused(error)),
        };
        if let Some(AppliedPolicy { tier, rule }) = policy {
            proposal.tier = tier;
            preview.rule = rule;
        }
        preview.in_title.clone_from(&proposal.in_title);
        preview.warnings.append(&mut proposal.warnings);
        preview.warnings.extend(mixed_script::warnings(&write));
        preview.warnings.extend(proposal_text::no_key(&preview));
        let description = proposal_text::description(&proposal.title, &write.request.params, &preview);
        let proposal = self.proposals.store(&write, &proposal, &preview, &description).await?;
        tracing::info!(proposal_id = %proposal.proposal_id, tool = write.tool, tier = proposal.tier.as_str(), "proposed");
        self.requires_approval(call, proposal)
    }

    fn requires_approval(&self, call: &Call, proposal: Proposal) -> ToolResult {
        // If the user's answer decided nothing, do not ask again in the same call.
        let asks = proposal.tier == Tier::Confirm && call.asks_user && call.decision.is_none();
        let shown = ShownProposal::new(&proposal, call.masks.as_deref());
        let question = asks.then(|| question(&shown));
        let has = |tool: &str| call.tools.info(tool).is_some();
        let is_for_person = self.confirmation.is_for_person(&proposal, call);
        let console = self.confirmation.console();
        let page = console.filter(|_| is_for_person && !asks).map(|console| page_request(&shown, console));
        let next = match proposal.tier {
            Tier::Auto | Tier::Confirm if !is_for_person => {
                let again = if call.decision.is_some() { UNDECIDED } else { "" };
                format!(
                    "{again}Show the proposal to the user. If they agree, call confirm_proposal with its proposal_id and digest; if \
                     they do not, call reject_proposal."
                )
            }
            Tier::Auto | Tier::Confirm => self.confirmation.by_person(&proposal),
            Tier::Approve if proposal.rule.approvals > 1 => {
                "Several different people who are not the proposer have to approve it, outside of this conversation \
                 (countersign proposals approve)."
                    .to_owned()
            }
            Tier::Approve => {
                "A person who is not the proposer has to approve it, outside of this conversation (countersign proposals \
                 approve)."
                    .to_owned()
            }
        };
        let state = match proposal.rule.approvals {
            2.. if has("get_proposal") => " get_proposal says who has, and what has become of it.",
            _ if is_for_person && has("get_proposal") => " get_proposal says what has become of it.",
            _ => "",
        };
        let data = RequiresApproval {
            requires_approval: true,
            proposal: ProposalData::new(&shown, console, is_for_person),
            message: format!("Nothing was written yet. {next}{state}"),
        };
        ToolOutput::read(&data).map(|answer| ToolOutput {
            question,
            page,
            success: Disposition::Proposed,
            is_masked: true,
            ..answer
        })
    }

    /// Continues a repeated call with the user's answer to the question.
    async fn resume(&self, call: &Call, write: &WriteCall, decision: &UserDecision) -> ToolResult {
        let proposal = self.proposals.get(Some(&call.principal), decision.proposal_id).await?.ok_or_else(other_call)?;
        if !self.proposals.is_of(&proposal, write) {
            return Err(other_call().into());
        }
        if decides_nothing(decision, &proposal) {
            return self.requires_approval(call, proposal);
        }
        let executed = decide(&self.proposals, call, &proposal, decision).await?;
        write_output(&write.tool, Ok(executed.outcome))
    }
}

/// Whether the answer leaves the proposal pending. A client without a user interface cancels or declines elicitations by
/// itself, so a cancellation does not come from a user (I-4), and a refusal within a second neither.
pub(crate) fn decides_nothing(decision: &UserDecision, proposal: &Proposal) -> bool {
    let is_of_client = match decision.answer {
        UserAnswer::Accept => false,
        UserAnswer::Decline => channel(decision).is_automatic(),
        UserAnswer::Cancel => true,
    };
    is_of_client && matches!(proposal.status, ProposalStatus::Pending)
}

const fn channel(decision: &UserDecision) -> DecisionChannel {
    DecisionChannel::Elicitation { answered_after: decision.answered_after }
}

/// What the agent is told of an answer that decides nothing.
const UNDECIDED: &str = "The question was cancelled, or answered by the client itself: nobody has decided. ";

/// Applies the user's decision. A decision is valid only once: the proposal must still be pending.
pub(crate) async fn decide(
    proposals: &Proposals,
    call: &Call,
    proposal: &Proposal,
    decision: &UserDecision,
) -> Result<ExecutedProposal, ToolError> {
    let owner = &call.principal;
    let id = proposal.proposal_id;
    if !matches!(proposal.status, ProposalStatus::Pending) {
        return Err(ToolError { correlation_id: proposal.correlation_id, failure: Box::new(proposal.closed()) });
    }
    if decision.answer == UserAnswer::Accept {
        let digest = decision.digest.clone();
        let executors = call.tools.executors();
        let executed = proposals.confirm(owner, proposal, digest, channel(decision), executors, call.deadline).await;
        return executed.map_err(refused);
    }
    let reason = "declined by the user";
    proposals.reject(owner, id, Some(reason.to_owned()), channel(decision), call.deadline).await?;
    let failure = Failure::new(ErrorCode::ProposalRejected, format!("not written: {reason}"));
    Err(failure.hint("Do not propose it again unless the user asks for it.").into())
}

pub(crate) fn question(proposal: &ShownProposal<'_>) -> Question {
    Question {
        proposal_id: proposal.proposal_id,
        digest: proposal.digest.clone(),
        text: proposal_text::question(proposal),
    }
}

/// A request to open the proposal's page, for the user of a client that supports URL elicitation.
fn page_request(proposal: &ShownProposal<'_>, console: &ConsoleLinks) -> PageRequest {
    let (proposal_id, text) = (proposal.proposal_id, proposal_text::question(proposal));
    let who = if proposal.tier == Tier::Approve { "Somebody who is not the proposer" } else { "A person" };
    PageRequest {
        proposal_id,
        url: console.proposal(&proposal_id),
        text: format!("{who} has to approve this in the console. {text}"),
    }
}

pub(crate) fn refused(stopped: WriteError) -> ToolError {
    ToolError { correlation_id: stopped.correlation_id, failure: stopped.failure }
}

/// Rejects an answer to a tool that asks no question. The tool asked before the registry changed. A rejection by the
/// user must not become a write now.
fn refuse_answer(call: &Call) -> Result<(), Failure> {
    if call.decision.is_none() {
        return Ok(());
    }
    let message = "the user's answer is to a question that this tool does not ask any more; nothing was written";
    Err(Failure::new(ErrorCode::ProposalStale, message).hint("Call the tool without the answer, if the user wants it."))
}

fn other_call() -> Failure {
    Failure::new(
        ErrorCode::InvalidParams,
        "this elicitation response does not match the call (arguments or account differ); nothing was written",
    )
}

fn write_output(tool: &str, outcome: Result<WriteOutcome, WriteError>) -> ToolResult {
    match outcome {
        Ok(WriteOutcome::Executed { correlation_id, output }) => {
            let number_fields = listed_numbers(tool, &output.data);
            ToolOutput::of_write(&output.data, correlation_id, &output)
                .map(|answer| ToolOutput { number_fields, ..answer })
        }
        Ok(WriteOutcome::Duplicate { correlation_id, original, cached_result }) => {
            let number_fields = listed_numbers(tool, &cached_result);
            let data = DuplicateData {
                duplicate: true,
                original_correlation_id: original,
                cached_result,
                message: format!("Identical {tool} was already executed successfully. Returning cached result."),
            };
            let (correlation_id, success) = (Some(correlation_id), Disposition::Duplicate);
            ToolOutput::read(&data).map(|answer| ToolOutput { correlation_id, success, number_fields, ..answer })
        }
        Ok(WriteOutcome::NeedsApproval(_)) => {
            Err(Failure::new(ErrorCode::InternalError, "the write needs approval, and was not proposed").into())
        }
        Err(error) => Err(refused(error)),
    }
}
