//! Who may approve a proposal, and who has decided.

use ledger::proposals::{Approval, Proposal, ProposalStatus, ProposalSummary};
use types::{AccountId, Tier, visible};

/// The reason why a person cannot approve a proposal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Undecidable {
    /// The proposal is approved already.
    Confirmed,
    /// The proposal has ended.
    Closed,
    /// The person's role may only read.
    NotAReviewer,
    /// The person has approved the proposal, and it waits for others.
    ApprovedBefore,
    /// The person has proposed it.
    OwnProposal,
}

/// The parts of a proposal by which people may approve it.
#[derive(Debug, Clone, Copy)]
pub struct Decidable<'a> {
    status: ProposalStatus,
    tier: Tier,
    approved_by: &'a [Approval],
    account_id: &'a AccountId,
    actor: Option<&'a str>,
}

impl<'a> From<&'a Proposal> for Decidable<'a> {
    fn from(proposal: &'a Proposal) -> Self {
        let Proposal { status, tier, approved_by, account_id, actor, .. } = proposal;
        Self { status: *status, tier: *tier, approved_by, account_id, actor: actor.as_deref() }
    }
}

impl<'a> From<&'a ProposalSummary> for Decidable<'a> {
    fn from(proposal: &'a ProposalSummary) -> Self {
        let ProposalSummary { status, tier, approved_by, account_id, actor, .. } = proposal;
        Self { status: *status, tier: *tier, approved_by, account_id, actor: actor.as_deref() }
    }
}

/// The reason why this person cannot approve a proposal; `None` if they can. `is_reviewer` says whether their role
/// may decide. The ledger checks the same rules again when the person decides.
#[must_use]
pub fn undecidable<'a>(proposal: impl Into<Decidable<'a>>, person: &str, is_reviewer: bool) -> Option<Undecidable> {
    let proposal = proposal.into();
    let is_theirs = |name: &str| is_same_person(name, person);
    match proposal.status {
        ProposalStatus::Confirmed => Some(Undecidable::Confirmed),
        ProposalStatus::Pending if !is_reviewer => Some(Undecidable::NotAReviewer),
        ProposalStatus::Pending if proposal.tier == Tier::Confirm => None,
        ProposalStatus::Pending if proposal.approved_by.iter().any(|one| is_theirs(&one.person)) => {
            Some(Undecidable::ApprovedBefore)
        }
        ProposalStatus::Pending if is_theirs(proposal.account_id.as_str()) || proposal.actor.is_some_and(is_theirs) => {
            Some(Undecidable::OwnProposal)
        }
        ProposalStatus::Pending => None,
        _ => Some(Undecidable::Closed),
    }
}

/// Whether the proposal waits for a reviewer such as this person. One of tier `confirm` waits for the user of its account, whom
/// a reviewer may replace.
#[must_use]
pub fn waits_for_reviewer(proposal: &ProposalSummary, person: &str, is_reviewer: bool) -> bool {
    proposal.tier == Tier::Approve && undecidable(proposal, person, is_reviewer).is_none()
}

/// Whether two names belong to the same person. Like the ledger, this ignores case.
#[must_use]
pub fn is_same_person(one: &str, other: &str) -> bool {
    one.to_lowercase() == other.to_lowercase()
}

/// The person who decided on a proposal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decider {
    /// The database login of a person, or the account whose client decided.
    name: String,
    /// The operating-system user of a person.
    os_user: Option<String>,
    /// Whether an agent said that its user has agreed. Nobody else knows.
    is_passed_on: bool,
}

/// The decider in a recorded decision. On the command line, the ledger has verified the login, but the
/// operating-system user is only what the command reported.
#[must_use]
pub fn decided_by(who: &str, login: Option<&str>, via: Option<&str>) -> Decider {
    let (name, os_user) = match (login, via) {
        (Some(login), Some("command_line")) => (login, Some(visible(who))),
        _ => (who, None),
    };
    Decider { name: visible(name), os_user, is_passed_on: via == Some("confirm_proposal") }
}

impl Decider {
    /// The name of the decider, without the operating-system user.
    #[must_use]
    pub fn short(self) -> String {
        self.name
    }
}

impl std::fmt::Display for Decider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)?;
        self.os_user.as_ref().map_or(Ok(()), |user| write!(f, " (OS user {user})"))?;
        if self.is_passed_on { f.write_str(" (passed on by the agent)") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nobody_approves_their_own_proposal_however_their_name_is_spelled() {
        let proposal = |status: &str, approved_by: &str| -> Proposal {
            let approval = json!({"person": approved_by, "decided_by": "", "decided_login": "", "decided_via": "", "decided_at": ""});
            serde_json::from_value(json!({
                "proposal_id": "3f0c1a52-9c1e-4c7e-8a55-0d9f6b1f2a34", "account_id": "Night", "actor": "Zoë", "tool_name": "t", "title": "T",
                "tool_version": "1", "definition": "", "tier": "approve", "approvals": 2, "approvers": null, "approved_by": [approval],
                "description": "", "params": {}, "params_hash": "", "digest": "", "created_at": "", "expires_at": "", "status": status,
                "preview": {"rows_affected": 1, "result": {}, "rollback": types::Rollback::irreversible("")},
            }))
            .unwrap()
        };
        let pending = proposal("pending", "Anna");
        assert_eq!(undecidable(&pending, "ZOË", true), Some(Undecidable::OwnProposal));
        assert_eq!(undecidable(&pending, "night", true), Some(Undecidable::OwnProposal));
        assert_eq!(undecidable(&pending, "anna", true), Some(Undecidable::ApprovedBefore));
        assert_eq!(undecidable(&pending, "bob", false), Some(Undecidable::NotAReviewer));
        assert_eq!(undecidable(&pending, "bob", true), None);
        assert_eq!(undecidable(&proposal("confirmed", "anna"), "bob", true), Some(Undecidable::Confirmed));
        assert_eq!(undecidable(&proposal("expired", "anna"), "bob", true), Some(Undecidable::Closed));
    }
}
