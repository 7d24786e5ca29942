//! Decisions of the proposing account: it confirms proposals of tier `confirm`, and withdraws its own proposals of
//! any tier.

use std::time::Duration;

use tokio::time::Instant;
use types::{CorrelationId, ErrorCode, Failure, Principal, ProposalId};

use super::confirmed::refused;
use super::state::{ProposalStatus, closed, not_found};
use super::{Proposal, Proposals};
use crate::write::attempt::RESOLVE_TIMEOUT;
use crate::write::failures::ledger_failure;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Approves the preview with this digest.
    Confirm { digest: String },
    Reject {
        /// The reason, if one was given.
        reason: Option<String>,
    },
    /// Asks the agent. The proposal stays pending.
    Ask { question: String },
}

/// The maximum length of a rejection's reason and of a question, in characters.
pub const MAX_REASON_CHARS: usize = 1_000;

impl Decision {
    /// Refuses a text that is too long, and a question without a text.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let (what, text) = match self {
            Self::Reject { reason: Some(reason) } => ("reason", reason),
            Self::Ask { question } => ("question", question),
            Self::Confirm { .. } | Self::Reject { reason: None } => return Ok(()),
        };
        let count = text.chars().count();
        let message = match self {
            Self::Ask { .. } if text.trim().is_empty() => "a question needs a text; nothing was asked".to_owned(),
            _ if count <= MAX_REASON_CHARS => return Ok(()),
            _ => format!(
                "a {what} has {MAX_REASON_CHARS} characters at most, and this one has {count}; nothing was decided"
            ),
        };
        Err(Failure::new(ErrorCode::InvalidParams, message))
    }

    /// The outcome, the digest and the text, as the ledger takes them.
    pub(super) fn parts(&self) -> (&'static str, Option<String>, Option<String>) {
        match self {
            Self::Confirm { digest } => ("confirmed", Some(digest.clone()), None),
            Self::Reject { reason } => ("rejected", None, reason.clone()),
            Self::Ask { question } => ("asked", None, Some(question.clone())),
        }
    }
}

/// The channel through which a decision was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecisionChannel {
    /// A call of `confirm_proposal` or `reject_proposal`.
    Tool,
    /// The answer of the user, whom the client has asked (MCP elicitation).
    Elicitation {
        /// How long after the question it came.
        answered_after: Duration,
    },
}

/// Nobody reads a question and answers it in less time.
const SHORTEST_ANSWER: Duration = Duration::from_secs(1);

impl DecisionChannel {
    /// Whether the client gave the answer, and no person.
    #[must_use]
    pub fn is_automatic(self) -> bool {
        matches!(self, Self::Elicitation { answered_after } if answered_after < SHORTEST_ANSWER)
    }

    /// What people are told about an approval over this channel, beside its name.
    fn note(self) -> Option<String> {
        match self {
            Self::Elicitation { answered_after } if self.is_automatic() => {
                Some(format!("The client accepted {} ms after it was asked.", answered_after.as_millis()))
            }
            Self::Elicitation { .. } | Self::Tool => None,
        }
    }
}

#[derive(Debug)]
pub(super) enum TransitionResult {
    /// The decision was recorded.
    Done,
    /// The decision does not count, because the proposal is in this state.
    Is(ProposalStatus),
    /// The approval counts, now or since an earlier call, but more people must approve.
    Waits,
}

const DECIDE_SQL: &str =
    "select countersign.decide_proposal($1, $2, $3, $4, $5, $6, $7, make_interval(secs => $8::double precision), $9)";

const STATE_SQL: &str =
    "select p.status, p.attempt::text from countersign.proposal p where p.proposal_id = $1::uuid and p.account_id = $2";

impl Proposals {
    /// Compare and swap from `pending`. `attempt` is the correlation id with which the caller will execute the
    /// proposal; it owns the proposal for the time limit of a call.
    pub(super) async fn transition(
        &self,
        owner: &Principal,
        id: ProposalId,
        choice: &Decision,
        via: DecisionChannel,
        attempt: Option<CorrelationId>,
        deadline: Instant,
    ) -> Result<TransitionResult, Failure> {
        choice.check()?;
        let (outcome, digest, reason) = choice.parts();
        let channel = match (via, digest.is_some()) {
            (DecisionChannel::Elicitation { .. }, _) => "elicitation",
            (DecisionChannel::Tool, true) => "confirm_proposal",
            (DecisionChannel::Tool, false) => "reject_proposal",
        };
        let note = || via.note().filter(|_| digest.is_some());
        let reason = reason.or_else(note);
        let params = [
            Some(id.to_string()),
            Some(owner.account_id.as_str().to_owned()),
            Some(outcome.to_owned()),
            Some(channel.to_owned()),
            digest,
            reason,
            attempt.map(|attempt| attempt.to_string()),
            Some(self.attempt_lease().as_secs_f64().to_string()),
            owner.context.to_json(),
        ];
        match self.writer.run_one(DECIDE_SQL, &params, deadline).await {
            Ok(answer) => {
                let verdict = answer.into_value();
                verdict_of(&verdict.unwrap_or_default())
            }
            Err(error @ (pg::Error::Lost(_) | pg::Error::Deadline)) => {
                tracing::info!(proposal_id = %id, %error, "whether a decision counted has to be looked up");
                self.writer.retire_all();
                self.transitioned(owner, id, attempt).await
            }
            Err(error) => Err(ledger_failure(&error)),
        }
    }

    /// The outcome of a decision whose answer was lost.
    async fn transitioned(
        &self,
        owner: &Principal,
        id: ProposalId,
        attempt: Option<CorrelationId>,
    ) -> Result<TransitionResult, Failure> {
        let params = [Some(id.to_string()), Some(owner.account_id.as_str().to_owned())];
        let deadline = Instant::now() + RESOLVE_TIMEOUT;
        let answer = self.writer.run_one(STATE_SQL, &params, deadline).await.map_err(|error| {
            tracing::warn!(proposal_id = %id, %error, "whether a decision counted is not known");
            let message = "the connection to the ledger was lost, and whether the decision counted is not known";
            Failure::new(ErrorCode::DbError, message)
                .hint("Ask get_proposal. If it is confirmed, a server carries it out: do not propose it again.")
        })?;
        let row = answer.into_row::<2>();
        let Some([status, taken]) = row else { return Err(not_found()) };
        match status.as_deref().and_then(ProposalStatus::parse) {
            Some(ProposalStatus::Confirmed) if attempt.is_some() && taken == attempt.map(|it| it.to_string()) => {
                Ok(TransitionResult::Done)
            }
            Some(ProposalStatus::Pending) => {
                let message = "the connection to the ledger was lost, and so far the decision does not count";
                let hint = "Ask get_proposal: while it is pending, decide again; once it is confirmed, a server carries it out.";
                Err(Failure::new(ErrorCode::DbError, message).hint(hint))
            }
            Some(status) => Ok(TransitionResult::Is(status)),
            None => Err(not_found()),
        }
    }

    /// Rejects a proposal on behalf of its account, or of the account's user.
    ///
    /// # Errors
    /// [`ErrorCode::NotFound`], or the code of a state that does not allow a rejection.
    pub async fn reject(
        &self,
        owner: &Principal,
        id: ProposalId,
        reason: Option<String>,
        via: DecisionChannel,
        deadline: Instant,
    ) -> Result<Proposal, Failure> {
        let transitioned = self.transition(owner, id, &Decision::Reject { reason }, via, None, deadline).await?;
        let proposal = self.get_decided(Some(owner), id).await?;
        match transitioned {
            // Rejecting a rejected proposal again succeeds.
            TransitionResult::Done | TransitionResult::Is(ProposalStatus::Rejected) => Ok(proposal),
            TransitionResult::Is(status) => Err(closed(status, proposal.error_message.as_deref())),
            TransitionResult::Waits => Err(proposal.closed()),
        }
    }
}

pub(super) fn verdict_of(verdict: &str) -> Result<TransitionResult, Failure> {
    match verdict {
        "done" => Ok(TransitionResult::Done),
        "approved" | "repeated" => Ok(TransitionResult::Waits),
        "not_yours" => Err(Failure::new(
            ErrorCode::NotPermitted,
            "a person who is not the proposer has to approve this, outside of the agent; nothing was written",
        )
        .hint("Tell the user: it waits for `countersign proposals approve`. get_proposal says what becomes of it.")),
        "digest_mismatch" => Err(Failure::new(
            ErrorCode::DigestMismatch,
            "digest mismatch: the stored proposal differs from the one shown; nothing was written",
        )
        .hint("Read it with get_proposal, show that, and confirm with its digest.")),
        verdict => match ProposalStatus::parse(verdict) {
            Some(status) => Ok(TransitionResult::Is(status)),
            None => Err(refused(verdict)),
        },
    }
}
