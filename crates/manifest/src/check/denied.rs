//! What the login has no right to: one mistake for each thing, however many statements name it.

use std::collections::BTreeMap;

use contract::Reach;

use crate::compile::Inferred;
use crate::read::Draft;
use crate::{Mistake, Mistakes};

/// By PostgreSQL's words, which name the thing: the first mistake, and the tools.
#[derive(Debug, Default)]
pub(crate) struct Denied(BTreeMap<String, (Mistake, Vec<String>)>);

impl Denied {
    /// Notes that a statement of this tool could not be described or planned.
    pub(crate) fn note(&mut self, draft: &Draft<'_>, why: &str) {
        let first = || (Mistake { tool: None, ..draft.mistake(draft.span.clone(), why) }, Vec::new());
        let (_, tools) = self.0.entry(why.to_owned()).or_insert_with(first);
        let tool = draft.label.clone().unwrap_or_default();
        if tools.last() != Some(&tool) {
            tools.push(tool);
        }
    }

    /// The same of the plans of a write: reads have another login.
    pub(crate) fn note_plans(&mut self, draft: &Draft<'_>, inferred: &Inferred) {
        if !draft.tool.as_ref().is_some_and(|tool| tool.is(true)) {
            return;
        }
        for statement in inferred.before.iter().chain(&inferred.statements).chain(&inferred.after) {
            if let Reach::Forbidden(why) = &statement.shape.reach {
                self.note(draft, why);
            }
        }
    }

    /// Adds what was noted.
    pub(crate) fn tell(self, mistakes: &mut Mistakes) {
        for (mistake, tools) in self.0.into_values() {
            let message = format!(
                "{} (SQLSTATE 42501), for the login of the server, in {}: `countersign check --grants`, as the owner of \
                 the tables, prints the privileges that are missing",
                mistake.message,
                tools.join(", ")
            );
            mistakes.0.push(Mistake { message, ..mistake });
        }
    }
}
