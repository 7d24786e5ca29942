//! After a decision: the next proposal that waits for the person, or the inbox, with a line about what was decided.

use ledger::console::ConsolePerson;
use ledger::proposals::{Proposal, ProposalStatus, ProposalSummary};
use review::waits_for_reviewer;
use serde::Deserialize;
use types::{Failure, ProposalId, visible};

use crate::state::DatabaseState;

/// The maximum number of proposals among which the next one is.
const MAX_PROPOSALS: u32 = 200;

/// The query of the page after a decision.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct DecidedQuery {
    /// The id of the decided proposal.
    decided: String,
}

/// A proposal that was just decided.
pub(crate) struct Decided {
    pub(crate) path: String,
    pub(crate) status: &'static str,
    pub(crate) what: String,
}

impl DecidedQuery {
    pub(crate) async fn proposal(&self, state: &DatabaseState) -> Result<Option<Decided>, Failure> {
        let Some(id) = ProposalId::parse(&self.decided) else { return Ok(None) };
        let found = state.database.proposals.get(None, id).await?;
        Ok(found.map(|proposal| Decided {
            path: state.database.path(format_args!("/proposals/{id}")),
            // One that waits for the approval of others is pending.
            status: proposal.status.as_str(),
            what: visible(&proposal.title),
        }))
    }
}

/// Whether the proposal waits for this person.
pub(super) fn can_decide(person: &ConsolePerson, proposal: &ProposalSummary) -> bool {
    let is_of_group = proposal.rule.approvers.as_ref().is_none_or(|group| person.groups.contains(group));
    is_of_group && waits_for_reviewer(proposal, &person.name, person.role.may_decide())
}

/// The page after the decision about a proposal. One that was approved and not executed keeps its page, which says why.
pub(super) async fn next(
    state: &DatabaseState,
    person: &ConsolePerson,
    proposal: &Proposal,
) -> Result<String, Failure> {
    let id = proposal.proposal_id;
    let path = |page: &str| state.database.path(page);
    if matches!(proposal.status, ProposalStatus::Failed | ProposalStatus::Stale | ProposalStatus::Expired) {
        return Ok(path(&format!("/proposals/{id}")));
    }
    let waiting = state.database.proposals.waiting(MAX_PROPOSALS).await?;
    let next = waiting.iter().map(|one| &one.proposal).find(|one| one.proposal_id != id && can_decide(person, one));
    let next = next.map_or_else(|| "/".to_owned(), |next| format!("/proposals/{}", next.proposal_id));
    Ok(path(&format!("{next}?decided={id}")))
}
