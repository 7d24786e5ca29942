//! A proposal as the texts about it show it to a caller.

use std::borrow::Cow;

use ledger::proposals::Proposal;
use review::RowMasks;
use types::Masks;

/// A proposal with the masks of a caller. A text for a caller is made of this type only: a text has no columns, so it cannot be
/// masked afterwards.
pub(crate) struct ShownProposal<'a>(Cow<'a, Proposal>);

impl<'a> ShownProposal<'a> {
    /// The proposal for a caller with these masks.
    pub(crate) fn new(proposal: &'a Proposal, masks: Option<&Masks>) -> Self {
        Self(match masks {
            None => Cow::Borrowed(proposal),
            Some(masks) => Cow::Owned(RowMasks::masked_proposal(masks, proposal.clone())),
        })
    }

    /// Whether it is masked. Its stored description is not.
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
