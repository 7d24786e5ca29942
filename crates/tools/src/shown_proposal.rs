//! A proposal as the texts about it show it to a caller.

use std::borrow::Cow;

use ledger::proposals::Proposal;
use types::Masks;

use crate::proposal_text;
use crate::row_masking::RowMasks;

/// A proposal with the masks of a caller. A text for a caller is made of this type only: a text has no columns, so it cannot be
/// masked afterwards.
pub(crate) struct ShownProposal<'a>(Cow<'a, Proposal>);

impl<'a> ShownProposal<'a> {
    /// The proposal for a caller with these masks. `title` is that of its tool.
    pub(crate) fn new(proposal: &'a Proposal, title: &str, masks: Option<&Masks>) -> Self {
        let Some(masks) = masks else { return Self(Cow::Borrowed(proposal)) };
        let masked = RowMasks::masked_proposal(masks, proposal.clone());
        let description = proposal_text::description(title, &masked.params, &masked.preview);
        Self(Cow::Owned(Proposal { description, ..masked }))
    }

    /// The paragraph about it.
    pub(crate) fn into_description(self) -> String {
        match self.0 {
            Cow::Borrowed(proposal) => proposal.description.clone(),
            Cow::Owned(proposal) => proposal.description,
        }
    }
}

impl std::ops::Deref for ShownProposal<'_> {
    type Target = Proposal;

    fn deref(&self) -> &Proposal {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use types::{Mask, MaskKey, MaskedColumn, Secret};

    use super::*;

    #[test]
    fn no_text_for_a_caller_with_masks_has_a_masked_value() {
        let proposal: Proposal = serde_json::from_value(json!({
            "proposal_id": "3f0c1a52-9c1e-4c7e-8a55-0d9f6b1f2a34", "account_id": "default", "tool_name": "set_pin", "tool_version": "1",
            "definition": "", "tier": "confirm", "approvals": 1, "approvers": null, "approved_by": [], "description": "Set a pin with pin 4711.",
            "params": {"id": 1, "pin": 4711}, "params_hash": "", "digest": "", "created_at": "", "expires_at": "", "status": "pending",
            "preview": {"rows_affected": 1, "result": {"pin": 4711}, "before": [{"id": 1, "pin": 4710}], "after": [{"id": 1, "pin": 4711}],
                "rollback": types::Rollback::irreversible("")},
        }))
        .unwrap();
        let column = MaskedColumn {
            schema: "shop".to_owned(),
            table: "pins".to_owned(),
            column: "pin".to_owned(),
            mask: Mask::Null,
        };
        let masks = Masks {
            columns: vec![column],
            trusted_functions: Vec::new(),
            key: MaskKey::new(Secret::new("key".to_owned())),
        };
        let shown = ShownProposal::new(&proposal, "Set a pin", Some(&masks));
        let question = proposal_text::question("Set a pin", &shown);
        assert_eq!(shown.params.get("pin"), Some(&Value::Null));
        assert!(!question.contains("47") && question.contains("pin: null"), "{question}");
        let description = "Set a pin with id 1, pin null. It would touch 1 row. It cannot be undone.";
        assert_eq!(shown.into_description(), description);
        let whole = ShownProposal::new(&proposal, "Set a pin", None);
        assert!(proposal_text::question("Set a pin", &whole).contains("pin: 4711"));
    }
}
