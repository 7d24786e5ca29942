//! `countersign proposals approve` and `reject`. The ledger decides: it compares the digest of what was shown here
//! with the stored one, and checks who may decide.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{anyhow, bail, ensure};
use ledger::Ledger;
use ledger::proposals::{Decision, Proposal, ProposalStatus};
use review::{Undecidable, undecidable};
use tokio::time::Instant;
use types::{IdPrefix, visible};

use super::args::{ApproveArgs, AskArgs, RejectArgs};
use super::show::{approver, decider, progress};
use super::{find, open_to_decide, refused, show};
use crate::commands::audit::erase;
use crate::settings::DatabaseSettings;
use crate::terminal::os_user;
use crate::terminal::{ask, is_interactive, print_line, print_lines};

pub(crate) async fn approve(arguments: &ApproveArgs, settings: &DatabaseSettings) -> anyhow::Result<ExitCode> {
    let ledger = open_to_decide(settings).await?;
    let proposals = ledger.proposals();
    let mut shown = find(&ledger, &arguments.id).await?;
    let since = show::since(&ledger, &mut shown, settings).await?;
    show::print(&shown, since.as_ref(), arguments.full);
    print_line("");
    ensure!(
        arguments.name.is_none() || erase::is_erasure(&shown),
        "--as is for erasures: others are approved as the user of the operating system"
    );
    let who = arguments.name.clone().unwrap_or_else(os_user::name);
    let nonce = proposals.begin_decision(shown.proposal_id).await.map_err(|failure| refused(&failure))?;
    agree(arguments, &shown, &who).await?;
    let choice = Decision::Confirm { digest: shown.digest.clone() };
    let decided = proposals.decide_as_person(shown.proposal_id, &who, &choice, nonce).await;
    let mut proposal = decided.map_err(|failure| refused(&failure))?;
    if shown.status == ProposalStatus::Pending {
        print_line(&approved(&shown, &proposal));
    }
    if erase::is_erasure(&proposal) && proposal.status == ProposalStatus::Confirmed {
        erase::execute(&ledger.audit(), proposal.proposal_id).await?;
        return Ok(ExitCode::SUCCESS);
    }
    if arguments.wait > 0 && proposal.status == ProposalStatus::Confirmed {
        let deadline = Instant::now() + Duration::from_secs(arguments.wait.into());
        proposal = proposals.ended(shown.proposal_id, deadline).await.map_err(|failure| refused(&failure))?;
    }
    outcome(&ledger, &proposal).await
}

/// The message about an approval that was just given, or had been given before.
fn approved(shown: &Proposal, proposal: &Proposal) -> String {
    let needed = proposal.rule.approvals;
    let [before, given] = [shown, proposal].map(|proposal| proposal.approved_by.len());
    match proposal.approved_by.last() {
        _ if proposal.status == ProposalStatus::Pending && given == before => {
            format!("You have approved this before: {}.", progress(proposal).unwrap_or_default())
        }
        Some(last) if needed > 1 => {
            format!("Approved as {}: {}.", approver(last), progress(proposal).unwrap_or_default())
        }
        _ => format!("Approved as {}.", decider(proposal)),
    }
}

/// Asks the reviewer to approve the proposal that was just shown.
async fn agree(arguments: &ApproveArgs, shown: &Proposal, who: &str) -> anyhow::Result<()> {
    if let Some(digest) = arguments.digest.as_ref().filter(|digest| **digest != shown.digest) {
        bail!(
            "the proposal has the digest {}, and you gave {digest}: what you looked at is not what is stored; nothing was approved",
            shown.digest
        );
    }
    // The ledger refuses such a decision and gives the reason, so the reviewer is not asked.
    let can_be_approved = matches!(undecidable(shown, who, true), None | Some(Undecidable::ApprovedBefore));
    if arguments.digest.is_some() || arguments.yes || !can_be_approved {
        return Ok(());
    }
    ensure!(
        is_interactive(),
        "nobody can be asked here, since this is no terminal: give --digest {} to approve what is shown above, or --yes",
        shown.digest
    );
    let answer = ask("Approve? Type yes:").await?;
    ensure!(answer == "yes", "not approved, since the answer was not yes; the proposal still waits");
    Ok(())
}

/// Prints the result of an approved proposal.
async fn outcome(ledger: &Ledger, proposal: &Proposal) -> anyhow::Result<ExitCode> {
    let why = || visible(proposal.error_message.as_deref().unwrap_or("the ledger does not say why"));
    match proposal.status {
        ProposalStatus::Executed => {
            let receipt = proposal.correlation_id.map(|id| id.to_string()).unwrap_or_default();
            print_line(&format!("Executed: correlation id {receipt}."));
        }
        ProposalStatus::Confirmed => {
            let until = ledger.doctor().executable_until(proposal.proposal_id).await?.unwrap_or_default();
            print_line(&format!(
                "Not executed yet: a server that serves {} executes it, until {until}.",
                visible(&proposal.tool_name)
            ));
            print_lines(proposal.error_message.as_deref().map(|why| format!("It waits: {}", visible(why))));
        }
        ProposalStatus::Failed => bail!("it was approved, tried and refused; nothing was written: {}", why()),
        ProposalStatus::Stale => bail!("it was approved, and is stale: {}", why()),
        ProposalStatus::Expired => {
            bail!("it was approved, and no server that serves the tool carried it out in time; nothing was written")
        }
        ProposalStatus::Pending if !proposal.approved_by.is_empty() => {
            let missing = usize::try_from(proposal.rule.approvals).unwrap_or(usize::MAX) - proposal.approved_by.len();
            let people = if missing == 1 { "another person has".to_owned() } else { format!("{missing} others have") };
            print_line(&format!("Nothing was written yet: {people} to approve it, until {}.", proposal.expires_at));
        }
        ProposalStatus::Pending | ProposalStatus::Rejected => {
            return Err(anyhow!("the proposal is {}, although it was approved", proposal.status.as_str()));
        }
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn ask_agent(arguments: &AskArgs, settings: &DatabaseSettings) -> anyhow::Result<()> {
    decide(&arguments.id, Decision::Ask { question: arguments.question.clone() }, settings).await?;
    print_line("Asked: the agent sees the question with get_proposal. The proposal still waits.");
    Ok(())
}

/// Decides on the proposal whose id begins with this prefix, without asking.
async fn decide(id: &IdPrefix, choice: Decision, settings: &DatabaseSettings) -> anyhow::Result<Proposal> {
    let ledger = open_to_decide(settings).await?;
    let proposals = ledger.proposals();
    let shown = find(&ledger, id).await?;
    let nonce = proposals.begin_decision(shown.proposal_id).await.map_err(|failure| refused(&failure))?;
    let decided = proposals.decide_as_person(shown.proposal_id, &os_user::name(), &choice, nonce).await;
    decided.map_err(|failure| refused(&failure))
}

pub(crate) async fn reject(arguments: &RejectArgs, settings: &DatabaseSettings) -> anyhow::Result<()> {
    let rejected = decide(&arguments.id, Decision::Reject { reason: arguments.reason.clone() }, settings).await?;
    print_line(&format!("Rejected by {}; nothing was written. {}", decider(&rejected), visible(&rejected.description)));
    Ok(())
}
