//! Names of tools: ones that clients accept, and no two the same.

use std::collections::HashMap;

use super::is_name;
use crate::Mistakes;
use crate::read::Draft;

/// Checks the names of all tools.
pub(crate) fn names(drafts: &[Draft<'_>], reserved: &[&str], mistakes: &mut Mistakes) {
    let mut first: HashMap<&str, &Draft<'_>> = HashMap::new();
    for draft in drafts {
        let Some(tool) = &draft.tool else { continue };
        let (name, span) = (tool.name.get_ref().as_str(), tool.name.span());
        if name.is_empty() {
            mistakes.0.push(draft.mistake(span, "a tool needs a name, such as name = \"like_tweet\""));
            continue;
        }
        if !is_name(name, 64, "_-") {
            let message = "clients reject this name: use 1 to 64 of the characters a-z A-Z 0-9 _ -";
            mistakes.0.push(draft.mistake(span.clone(), message));
        }
        if reserved.contains(&name) {
            mistakes.0.push(draft.mistake(span.clone(), "this is the name of a built-in tool: choose another"));
        }
        match first.get(name) {
            Some(other) => {
                let at = other.tool.as_ref().map_or(0..0, |tool| tool.name.span());
                let message = format!("two tools have this name; the other is declared at {}", other.locate(at));
                mistakes.0.push(draft.mistake(span, message));
            }
            None => {
                first.insert(name, draft);
            }
        }
    }
}
