//! A proposal as the caller may see it.

use std::borrow::Cow;

use ledger::proposals::{CallerChanges, Preview, Proposal};
use review::{RowMasks, Since};
use serde_json::Value;
use types::{AccountId, CellMasks, Effects, Masks, RowHistoryEntry};

/// A proposal as its caller may see it: with the masks of the caller, and without rows that the caller could not read.
/// Texts for a caller are made only from this type: a text has no columns, so it cannot be masked afterwards.
pub(crate) struct ShownProposal<'a> {
    proposal: Cow<'a, Proposal>,
    /// The preview without masks, to be compared and not shown.
    unmasked: &'a Preview,
    masks: Option<&'a Masks>,
    since: Option<Since>,
    /// The number of rows that have changed since and that the caller cannot read now.
    unread: u64,
}

impl<'a> ShownProposal<'a> {
    pub(crate) fn new(proposal: &'a Proposal, masks: Option<&'a Masks>) -> Self {
        let mut shown = match masks {
            None => Cow::Borrowed(proposal),
            Some(masks) => Cow::Owned(RowMasks::masked_proposal(masks, proposal.clone())),
        };
        if previews(proposal).any(has_unseen) {
            let shown = shown.to_mut();
            let found = shown.check.as_mut().and_then(|check| check.found.as_mut());
            for preview in std::iter::once(&mut shown.preview).chain(found) {
                preview.effects = preview.effects.take().map(Effects::seen);
                preview.labels.clear();
            }
        }
        Self { proposal: shown, unmasked: &proposal.preview, masks, since: None, unread: 0 }
    }

    /// Also with what has changed since it was made. Rows that are not those of a tracked table cannot be read as the
    /// caller, so of them only the sentence of the check is shown.
    pub(crate) fn with_changes(mut self, changes: CallerChanges, masks: Option<&Masks>) -> Self {
        let CallerChanges { changes, unread, is_check_shown } = changes;
        let changes = changes.into_iter().map(|change| change.shown(CellMasks::new(masks)));
        let changes: Vec<_> = changes.map(|change| for_account(change, &self.proposal.account_id)).collect();
        if !is_check_shown && let Some(check) = &mut self.proposal.to_mut().check {
            check.found = None;
        }
        let mut since = Since::new(&self.proposal, &changes);
        if let Some(since) = &mut since {
            since.rows.groups.retain(|group| group.table.is_some());
        }
        Self { since, unread, ..self }
    }

    /// For a caller with masks without the parameters: another profile of the account may have made the proposal, and
    /// a part of a masked value cannot be recognized.
    pub(crate) fn without_masked_params(mut self) -> Self {
        if self.is_masked() {
            let proposal = self.proposal.to_mut();
            proposal.title.clone_from(&proposal.tool_name);
            proposal.params.clear();
        }
        self
    }

    /// What has changed since, if it was looked for.
    pub(crate) const fn since(&self) -> Option<&Since> {
        self.since.as_ref()
    }

    /// The preview without masks. A value that differs may be equal once it is masked.
    pub(crate) const fn unmasked(&self) -> &Preview {
        self.unmasked
    }

    pub(crate) const fn unread(&self) -> u64 {
        self.unread
    }

    /// The effects as an agent gets them.
    pub(crate) fn effects(&self) -> Option<Effects<Value>> {
        let masks = CellMasks::new(self.masks);
        self.preview.effects.clone().map(|effects| effects.without_masked_updates(&masks))
    }

    /// Whether masks were applied. The stored description has no masks.
    pub(crate) const fn is_masked(&self) -> bool {
        self.masks.is_some()
    }
}

/// The preview of a proposal, and that of its newest check.
fn previews(proposal: &Proposal) -> impl Iterator<Item = &Preview> {
    std::iter::once(&proposal.preview).chain(proposal.check.as_ref().and_then(|check| check.found.as_ref()))
}

fn has_unseen(preview: &Preview) -> bool {
    preview.effects.iter().flat_map(|effects| &effects.rows).any(|row| row.is_unseen)
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
