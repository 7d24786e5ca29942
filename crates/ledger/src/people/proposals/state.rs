//! The states of a proposal, and the failures for requests that a state does not allow. The state machine is in
//! SQL (migrations/baseline/65_proposals.sql).
//!
//! ```text
//! pending ──> confirmed ──> executed | failed | stale | expired
//!        └──> rejected | expired
//! ```

use serde::{Deserialize, Serialize};
use types::{ErrorCode, Failure};

types::text_enum! {
    /// The state of a proposal.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum ProposalStatus {
        /// The proposal waits for a decision.
        Pending = "pending",
        /// The proposal was approved and waits for its execution.
        Confirmed = "confirmed",
        /// The user or a reviewer rejected the proposal.
        Rejected = "rejected",
        /// The proposal was not approved in time, or not executed in time.
        Expired = "expired",
        /// The write was executed.
        Executed = "executed",
        /// The write was attempted and refused.
        Failed = "failed",
        /// The write would have differed from the preview.
        Stale = "stale",
    }
}

impl ProposalStatus {
    /// Whether it is of interest what has changed since the proposal was made: nothing was written, and it was not given up.
    #[must_use]
    pub const fn can_be_checked(self) -> bool {
        matches!(self, Self::Pending | Self::Stale)
    }
}

/// The failure of a request that this state does not allow; `why` is the reason in the proposal.
pub(super) fn closed(status: ProposalStatus, why: Option<&str>) -> Failure {
    let (code, message, hint) = match status {
        ProposalStatus::Pending => {
            (ErrorCode::ProposalClosed, "the proposal is still pending", "Ask for agreement first.")
        }
        ProposalStatus::Confirmed => (
            ErrorCode::DuplicateInFlight,
            "the proposal is approved and about to be executed",
            "Ask get_proposal for what becomes of it.",
        ),
        ProposalStatus::Rejected => (
            ErrorCode::ProposalRejected,
            "the proposal was rejected; nothing was written",
            "Do not propose it again unless asked to.",
        ),
        ProposalStatus::Expired => (
            ErrorCode::ProposalExpired,
            "the proposal expired before it was approved or executed; nothing was written",
            "Call the tool again for a new proposal.",
        ),
        ProposalStatus::Executed => {
            (ErrorCode::ProposalClosed, "the proposal was executed", "get_mutation_detail has its correlation_id.")
        }
        ProposalStatus::Failed => (
            ErrorCode::ProposalClosed,
            "the proposal was tried and failed; nothing was written",
            "Call the tool again for a new proposal.",
        ),
        ProposalStatus::Stale => (
            ErrorCode::ProposalStale,
            "what was proposed is no longer what would happen; nothing was written",
            "Call the tool again, and show the new proposal.",
        ),
    };
    let message = why.map_or_else(|| message.to_owned(), |why| format!("{message}: {why}"));
    Failure::new(code, message).hint(hint)
}

/// The failure for a proposal that does not exist or belongs to another account.
#[must_use]
pub fn not_found() -> Failure {
    Failure::new(ErrorCode::NotFound, "this account has no such proposal")
        .hint("Use list_proposals to see current proposals. Rejected and expired proposals are removed after 7 days.")
}
