//! What the login has no right to: one mistake for each thing, however many statements name it.

use std::collections::BTreeMap;

use types::ReferencedObjects;

use crate::compile::Inferred;
use crate::read::Draft;
use crate::{Mistake, Mistakes};

/// PostgreSQL: "permission denied for ..".
pub(crate) const INSUFFICIENT_PRIVILEGE: &str = "42501";

/// By PostgreSQL's words, which name the thing: the first mistake, and the names of all tools.
#[derive(Debug, Default)]
pub(crate) struct Denied(BTreeMap<String, (Mistake, Vec<String>)>);

impl Denied {
    /// Notes that something of this tool, or of a note, could not be described or planned; `why` is PostgreSQL's message.
    pub(crate) fn note(&mut self, why: Mistake) {
        let name = why.tool.clone().unwrap_or_else(|| "a note".to_owned());
        let (_, names) = self.0.entry(why.message.clone()).or_insert_with(|| (why, Vec::new()));
        if names.last() != Some(&name) {
            names.push(name);
        }
    }

    /// The same of the plans of a write: reads have another login.
    pub(crate) fn note_plans(&mut self, draft: &Draft<'_>, inferred: &Inferred) {
        if !draft.tool.as_ref().is_some_and(|tool| tool.is(true)) {
            return;
        }
        for statement in inferred.before.iter().chain(&inferred.statements).chain(&inferred.after) {
            if let ReferencedObjects::Forbidden(why) = &statement.shape.referenced_objects {
                self.note(draft.mistake(draft.span.clone(), why));
            }
        }
    }

    /// Adds what was noted.
    pub(crate) fn tell(self, mistakes: &mut Mistakes) {
        for (why, names) in self.0.into_values() {
            let message = format!(
                "{} (SQLSTATE {INSUFFICIENT_PRIVILEGE}), in {}; `countersign check --grants` prints what is missing",
                why.message,
                names.join(", ")
            );
            mistakes.0.push(Mistake { message, tool: None, ..why });
        }
    }
}
