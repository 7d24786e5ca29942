//! A proposal with the masks of the caller who sees it.

use std::borrow::Cow;

use ledger::proposals::Proposal;
use review::RowMasks;
use types::Masks;

/// A proposal with the masks of a caller. Texts for a caller are made only from this type: a text has no columns, so
/// it cannot be masked afterwards.
pub(crate) struct ShownProposal<'a>(Cow<'a, Proposal>);

impl<'a> ShownProposal<'a> {
    pub(crate) fn new(proposal: &'a Proposal, masks: Option<&Masks>) -> Self {
        Self(match masks {
            None => Cow::Borrowed(proposal),
            Some(masks) => Cow::Owned(RowMasks::masked_proposal(masks, proposal.clone())),
        })
    }

    /// Whether masks were applied. The stored description has no masks.
    pub(crate) const fn is_masked(&self) -> bool {
        matches!(self.0, Cow::Owned(_))
    }
}

impl std::ops::Deref for ShownProposal<'_> {
    type Target = Proposal;

    fn deref(&self) -> &Proposal {
        &self.0
    }
}
