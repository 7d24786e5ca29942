//! `confirm_proposal`: the user of the proposing account confirms, and the server executes the write.

use ledger::WriteOutcome;
use ledger::proposals::{DecisionChannel, Proposal, ProposalStatus, Proposals, not_found};
use manifest::Access;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use types::{ErrorCode, Failure, ProposalId, Tier};

use super::{Builtin, proposal_id};
use crate::approval_flow::{decide, decides_nothing, question, refused};
use crate::confirmation::Confirmation;
use crate::listed_numbers::listed_numbers;
use crate::schema::{AnyJson, builtin_info};
use crate::services::Services;
use crate::shown_proposal::ShownProposal;
use crate::tool::{Annotations, Call, Disposition, Tool, ToolInfo, ToolOutput, ToolResult};

pub(super) const NAME: &str = "confirm_proposal";

const DESCRIPTION: &str = "Carry out a proposed write of tier confirm, once the user has seen the proposal and agreed to it. It \
    happens once: the same call again answers the same. If the rows have changed since, nothing is written: proposal_stale. \
    A proposal of tier approve cannot be confirmed here.";

/// What the agent sends.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The proposal_id of the proposal.
    proposal_id: String,
    /// The digest of the proposal, as it was shown.
    #[schemars(regex(pattern = "^[0-9a-f]{64}$"))]
    digest: String,
}

/// `data` of the answer.
#[derive(Debug, Serialize, JsonSchema)]
struct ConfirmData {
    /// The proposal.
    #[schemars(with = "String")]
    proposal_id: ProposalId,
    /// The tool that was executed.
    action: String,
    /// executed, or pending if the user has not answered.
    #[schemars(with = "String")]
    status: ProposalStatus,
    /// The data of the write; absent if nothing was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "std::collections::BTreeMap<String, AnyJson>")]
    result: Option<Value>,
    /// What happened.
    message: String,
}

struct ConfirmProposal {
    proposals: Proposals,
    confirmation: Confirmation,
}

pub(super) fn tool(services: &Services) -> Box<dyn Tool> {
    let info = builtin_info::<Arguments, ConfirmData>(NAME, "Confirm a proposal", DESCRIPTION, Access::Write);
    let hints = Annotations { read_only: false, destructive: true, idempotent: true };
    let (proposals, confirmation) = (services.ledger.proposals(), Confirmation::new(services));
    let (info, tool) = (ToolInfo { hints, ..info }, ConfirmProposal { proposals, confirmation });
    Builtin::boxed(info, tool, |tool, given, call| Box::pin(tool.answer(given, call)))
}

impl ConfirmProposal {
    /// The account's proposal with this id, if the caller's profile has its tool.
    async fn find(&self, call: &Call, id: ProposalId) -> Result<Proposal, Failure> {
        let found = self.proposals.get(Some(&call.principal), id).await?;
        let proposal = found.ok_or_else(not_found)?;
        let tool = &proposal.tool_name;
        let served = call.tools.executors().get(tool).is_some();
        if served && call.tools.info(tool).is_none() {
            let message = format!("{tool} is not a tool of this profile, so its proposals cannot be confirmed here");
            return Err(Failure::new(ErrorCode::NotPermitted, message));
        }
        Ok(proposal)
    }

    /// Asks the user of a client that supports elicitation. An agent's claim that its user agreed is not proof.
    fn ask(&self, proposal: &Proposal, call: &Call) -> ToolResult {
        let question = Some(question(&ShownProposal::new(proposal, call.masks.as_deref())));
        self.waits(proposal).map(|answer| ToolOutput { question, ..answer })
    }

    fn waits(&self, proposal: &Proposal) -> ToolResult {
        let data = ConfirmData {
            proposal_id: proposal.proposal_id,
            action: proposal.tool_name.clone(),
            status: proposal.status,
            result: None,
            message: format!(
                "The question to the user has no answer. Nothing was written, and the proposal still waits. {}",
                self.confirmation.by_person(proposal)
            ),
        };
        ToolOutput::read(&data).map(|answer| ToolOutput { success: Disposition::Proposed, ..answer })
    }

    async fn answer(&self, Arguments { proposal_id: id, digest }: Arguments, mut call: Call) -> ToolResult {
        let id = proposal_id(NAME, &id)?;
        let proposal = self.find(&call, id).await?;
        let executed = match call.decision.take() {
            Some(decision) if decision.proposal_id == id && decision.digest == digest => {
                if decides_nothing(&decision, &proposal) {
                    return self.waits(&proposal);
                }
                decide(&self.proposals, &call, &proposal, &decision).await?
            }
            Some(_) => {
                let message = "the user's answer is about another proposal; nothing was written";
                return Err(Failure::new(ErrorCode::InvalidParams, message).into());
            }
            None => {
                let waits = proposal.status == ProposalStatus::Pending && proposal.tier == Tier::Confirm;
                if call.asks_user && waits && digest == proposal.digest {
                    return self.ask(&proposal, &call);
                }
                if waits && !self.confirmation.is_in_client(&call) {
                    let message = "this client cannot ask its user, and an agent does not confirm; nothing was written";
                    let hint = self.confirmation.by_person(&proposal);
                    return Err(Failure::new(ErrorCode::NotPermitted, message).hint(hint).into());
                }
                let (owner, executors) = (&call.principal, call.tools.executors());
                let confirmed =
                    self.proposals.confirm(owner, &proposal, digest, DecisionChannel::Tool, executors, call.deadline);
                confirmed.await.map_err(refused)?
            }
        };
        let WriteOutcome::Executed { correlation_id, mut output } = executed.outcome else {
            return Err(Failure::new(ErrorCode::InternalError, "proposal executed but returned no result").into());
        };
        let number_fields = listed_numbers(&executed.proposal.tool_name, &output.data);
        let data = ConfirmData {
            proposal_id: id,
            action: executed.proposal.tool_name,
            status: executed.proposal.status,
            result: Some(output.data.take()),
            message: "The proposal was executed.".to_owned(),
        };
        ToolOutput::of_write(&data, correlation_id, &output).map(|answer| ToolOutput { number_fields, ..answer })
    }
}
