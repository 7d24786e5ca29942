//! A proposal with the masks of the caller who sees it.

use std::borrow::Cow;

use ledger::proposals::Proposal;
use review::{RowMasks, Since};
use serde_json::Value;
use types::{AccountId, CellMasks, Masks, RowHistoryEntry};

/// A proposal with the masks of a caller. Texts for a caller are made only from this type: a text has no columns, so
/// it cannot be masked afterwards.
pub(crate) struct ShownProposal<'a> {
    proposal: Cow<'a, Proposal>,
    since: Option<Since>,
}

impl<'a> ShownProposal<'a> {
    pub(crate) fn new(proposal: &'a Proposal, masks: Option<&Masks>) -> Self {
        let proposal = match masks {
            None => Cow::Borrowed(proposal),
            Some(masks) => Cow::Owned(RowMasks::masked_proposal(masks, proposal.clone())),
        };
        Self { proposal, since: None }
    }

    /// Also with what has changed since it was made.
    pub(crate) fn with_changes(self, changes: Vec<RowHistoryEntry>, masks: Option<&Masks>) -> Self {
        let changes = changes.into_iter().map(|change| change.shown(CellMasks::new(masks)));
        let changes: Vec<_> = changes.map(|change| for_account(change, &self.proposal.account_id)).collect();
        Self { since: Since::new(&self.proposal, &changes), ..self }
    }

    /// What has changed since, if it was looked for.
    pub(crate) const fn since(&self) -> Option<&Since> {
        self.since.as_ref()
    }

    /// Whether masks were applied. The stored description has no masks.
    pub(crate) const fn is_masked(&self) -> bool {
        matches!(self.proposal, Cow::Owned(_))
    }
}

impl std::ops::Deref for ShownProposal<'_> {
    type Target = Proposal;

    fn deref(&self) -> &Proposal {
        &self.proposal
    }
}

/// A change as an agent of this account sees it: without the names of other accounts, and of people and programs outside.
fn for_account(change: RowHistoryEntry<Value>, account: &AccountId) -> RowHistoryEntry<Value> {
    if change.account_id.as_deref() == Some(account.as_str()) {
        return change;
    }
    RowHistoryEntry { tool_name: None, account_id: None, actor: None, client_name: None, origin: None, ..change }
}
