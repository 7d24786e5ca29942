//! Tools of a tier above `auto`: what is proposed is stored, shown, and compared when it is agreed to.

use types::ReferencedObjects;

use crate::Mistakes;
use crate::compile::Inferred;
use crate::file::Tool;
use crate::read::Draft;

/// Checks what the declaration alone says.
pub(super) fn check(draft: &Draft<'_>, tool: &Tool, mistakes: &mut Mistakes) {
    if !tool.needs_agreement() {
        return;
    }
    for param in tool.param.iter().filter(|param| param.sensitive) {
        let message = format!(
            "parameter {}: a proposal keeps its parameters until somebody agrees, and shows them: a sensitive one is for \
             tools of tier auto",
            param.name.get_ref()
        );
        mistakes.0.push(draft.mistake(param.name.span(), message));
    }
}

/// Checks that somebody can see what they agree to, and that it is still so when it is written.
pub(super) fn check_reach(draft: &Draft<'_>, tool: &Tool, inferred: &Inferred, mistakes: &mut Mistakes) {
    let Some(tier) = tool.tier.as_ref().filter(|_| tool.needs_agreement()) else { return };
    let overwrites = |referenced_objects: &ReferencedObjects| {
        matches!(referenced_objects, ReferencedObjects::Planned { overwrites: true, .. })
    };
    if tool.lacks("before", tool.before.is_none())
        && inferred.statements.iter().any(|statement| overwrites(&statement.shape.referenced_objects))
    {
        let message = "a write of this tier that updates or deletes rows needs before (select .. for update), or nobody \
                       could see what they agree to";
        mistakes.0.push(draft.mistake(tier.span(), message));
    }
    let (Some(declared), Some(before)) = (&tool.before, &inferred.before) else { return };
    // One that changes rows, or returns none, is a mistake already.
    let looks = before.shape.columns.as_ref().is_some_and(|columns| !columns.is_empty());
    if looks
        && matches!(before.shape.referenced_objects, ReferencedObjects::Planned { changes: false, locks: false, .. })
    {
        let message = "before does not lock the rows that it shows, so they could change between the comparison with what \
                       was agreed to and the write: add for update, or for no key update";
        mistakes.0.push(draft.mistake(declared.span(), message));
    }
}
