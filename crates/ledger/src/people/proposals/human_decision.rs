//! Decisions of people, outside of the agent: over a login with the role `countersign_approver`, which no server has,
//! or in the console.

use std::time::Duration;

use tokio::time::Instant;
use types::{ErrorCode, Failure, ProposalId, Secret, visible};

use super::decide::{Decision, TransitionResult, verdict_of};
use super::execute::PAUSE;
use super::state::{ProposalStatus, closed, not_found};
use super::{LINE_SQL, ONE_SQL, Proposal, ProposalSummary, Proposals};
use crate::people::console::hash;
use crate::write::failures::ledger_failure;

const BEGIN_SQL: &str = "select countersign.begin_decision($1)";
const DECIDE_SQL: &str = "select countersign.decide_as_reviewer($1, $2, $3, $4, $5, $6)";
const CONSOLE_SQL: &str = "select countersign.decide_as_console($1, $2, decode($3, 'hex'), \
                           make_interval(secs => $7::text::double precision), $4, $5, $6)";

/// The right to decide once on one proposal, within 15 minutes. A separate transaction creates it, so that SQL
/// injected into an approver's session cannot decide with a single call.
#[derive(Debug)]
pub struct DecisionNonce(Secret);

/// The person who decides in the console.
#[derive(Debug)]
pub struct ConsoleDecider<'a> {
    /// The token of the person's console session.
    pub session: &'a Secret,
    /// The person's name, for messages only. The session determines who decides.
    pub person: &'a str,
    /// The maximum age of the sign-in for an approval; `None` for any age.
    pub approve_within: Option<Duration>,
}

/// The reason why a decision in the console does not count.
#[derive(Debug)]
pub enum ConsoleDecisionError {
    SessionEnded,
    /// The sign-in is too old, or the provider does not report its time.
    SignInAgain,
    /// Another reason.
    Refused(Failure),
}

impl From<Failure> for ConsoleDecisionError {
    fn from(failure: Failure) -> Self {
        Self::Refused(failure)
    }
}

impl Proposals {
    /// Prepares a decision on a proposal that the person has seen.
    pub async fn begin_decision(&self, id: ProposalId) -> Result<DecisionNonce, Failure> {
        let deadline = Instant::now() + self.call_deadline;
        let answer = self.writer.run_one(BEGIN_SQL, &[Some(id.to_string())], deadline).await;
        let answer = answer.map_err(|error| may_not_decide(&error).unwrap_or_else(|| ledger_failure(&error)))?;
        let nonce = answer.into_value();
        nonce.map(|nonce| DecisionNonce(Secret::new(nonce))).ok_or_else(not_found)
    }

    /// Decides on behalf of `who`, the user of the operating system.
    pub async fn decide_as_person(
        &self,
        id: ProposalId,
        who: &str,
        choice: &Decision,
        nonce: DecisionNonce,
    ) -> Result<Proposal, Failure> {
        let verdict = self.verdict(DECIDE_SQL, id, who.to_owned(), &[], choice, nonce).await?;
        self.settle(id, who, choice, &verdict).await
    }

    /// Decides for a person whom the console has verified.
    pub async fn decide_in_console(
        &self,
        id: ProposalId,
        decider: &ConsoleDecider<'_>,
        choice: &Decision,
    ) -> Result<Proposal, ConsoleDecisionError> {
        let nonce = self.begin_decision(id).await?;
        let within = decider.approve_within.map(|within| within.as_secs_f64().to_string());
        let verdict = self.verdict(CONSOLE_SQL, id, hash(decider.session), &[within], choice, nonce).await?;
        match verdict.as_str() {
            "session_ended" => Err(ConsoleDecisionError::SessionEnded),
            "sign_in_again" => Err(ConsoleDecisionError::SignInAgain),
            "not_reviewer" => {
                let message = "an auditor reads, and does not decide";
                Err(Failure::new(ErrorCode::NotPermitted, message).into())
            }
            verdict => Ok(self.settle(id, decider.person, choice, verdict).await?),
        }
    }

    /// Sends the decision and returns the ledger's verdict. `who` is the parameter that identifies the person; `more`
    /// are the last parameters.
    async fn verdict(
        &self,
        sql: &str,
        id: ProposalId,
        who: String,
        more: &[Option<String>],
        choice: &Decision,
        nonce: DecisionNonce,
    ) -> Result<String, Failure> {
        choice.check()?;
        let (outcome, digest, reason) = choice.parts();
        let nonce = Some(nonce.0.expose().to_owned());
        let mut params = vec![Some(id.to_string()), Some(outcome.to_owned()), Some(who), digest, reason, nonce];
        params.extend_from_slice(more);
        let deadline = Instant::now() + self.call_deadline;
        let answer = self.writer.run_one(sql, &params, deadline).await;
        let answer = answer.map_err(|error| decision_failure(&error, "countersign proposals show"))?;
        Ok(answer.into_value().unwrap_or_default())
    }

    /// The proposal after the ledger's verdict on a decision.
    async fn settle(&self, id: ProposalId, who: &str, choice: &Decision, verdict: &str) -> Result<Proposal, Failure> {
        let transitioned = match verdict {
            "proposer" => {
                let message = format!("\"{who}\" has proposed this, and nobody approves their own proposals");
                return Err(Failure::new(ErrorCode::NotPermitted, message).hint("A different person must approve it."));
            }
            "nonce_unknown" => {
                let message = "more than 15 minutes have passed since the proposal was shown; nothing was decided";
                return Err(Failure::new(ErrorCode::NotPermitted, message).hint("Run the command again."));
            }
            "enough" => {
                let message = "a proposal takes 10 questions at most; nothing was asked";
                return Err(Failure::new(ErrorCode::NotPermitted, message).hint("Approve or reject it."));
            }
            "not_in_group" | "other_channel" => return Err(self.refused_approval(id, verdict).await?),
            verdict => verdict_of(verdict)?,
        };
        let proposal = self.get_decided(None, id).await?;
        let again = match choice {
            Decision::Confirm { .. } => [ProposalStatus::Confirmed, ProposalStatus::Executed],
            Decision::Reject { .. } => [ProposalStatus::Rejected; 2],
            Decision::Ask { .. } => [ProposalStatus::Pending; 2],
        };
        match transitioned {
            TransitionResult::Is(status) if !again.contains(&status) => {
                Err(closed(status, proposal.error_message.as_deref()))
            }
            TransitionResult::Done | TransitionResult::Waits | TransitionResult::Is(_) => Ok(proposal),
        }
    }

    /// The failure of a person whose approval does not count for this proposal.
    async fn refused_approval(&self, id: ProposalId, verdict: &str) -> Result<Failure, Failure> {
        let proposal = self.get(None, id).await?.ok_or_else(not_found)?;
        let (message, hint) = if verdict == "not_in_group" {
            let group = visible(proposal.rule.approvers.as_deref().unwrap_or_default());
            (
                format!(
                    "this is for the group \"{group}\" to approve, and this login is not in it; nothing was approved"
                ),
                format!("A member of the role \"{group}\" must approve it. It can be rejected here."),
            )
        } else {
            (
                "the approvals of a proposal come all by the command line, or all by the console, and this one has approvals \
                 of the other kind; nothing was approved"
                    .to_owned(),
                "A person is known by the login on the command line and by name in the console, so one person would count twice. \
                 Approve it there."
                    .to_owned(),
            )
        };
        Ok(Failure::new(ErrorCode::NotPermitted, message).hint(hint))
    }

    /// Waits until the proposal is no longer confirmed, or until the deadline, and returns it.
    pub async fn ended(&self, id: ProposalId, deadline: Instant) -> Result<Proposal, Failure> {
        // Without its parameters and rows, which may be large.
        let is_confirmed = async || {
            let line: Vec<ProposalSummary> = self.read(LINE_SQL, ONE_SQL, &[Some(id.to_string()), None, None]).await?;
            Ok::<bool, Failure>(line.iter().any(|proposal| proposal.status == ProposalStatus::Confirmed))
        };
        // What cannot be read now may be read at the end.
        while is_confirmed().await.unwrap_or(true) && Instant::now() + PAUSE < deadline {
            tokio::time::sleep(PAUSE).await;
        }
        self.get_decided(None, id).await
    }
}

/// The failure of a statement that decides. If only its answer is lost, the decision may count: `look` is the command
/// that shows it.
pub(crate) fn decision_failure(error: &pg::Error, look: &str) -> Failure {
    match error {
        pg::Error::Lost(_) | pg::Error::Deadline => Failure::new(
            ErrorCode::DbError,
            "the connection to the ledger was lost, and whether the decision counts is not known",
        )
        .hint(format!("Look with `{look}`; repeating the decision is safe.")),
        _ => may_not_decide(error).unwrap_or_else(|| ledger_failure(error)),
    }
}

/// The failure if the login has no right to decide.
pub(crate) fn may_not_decide(error: &pg::Error) -> Option<Failure> {
    let is_refused = error.server_error().is_some_and(|error| error.sqlstate == "42501");
    let failure = || {
        Failure::new(ErrorCode::NotPermitted, "this database login may not decide on proposals").hint(
            "Use a login that has the role: grant countersign_approver to <login>. Servers log in without it, so that \
             nothing an agent does can approve.",
        )
    };
    is_refused.then(failure)
}
