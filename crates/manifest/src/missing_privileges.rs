//! Reports missing privileges of the login: one mistake for each object, even if many statements use it.

use std::collections::BTreeMap;

use types::ReferencedObjects;

use crate::parse::ParsedTool;
use crate::{Diagnostic, Diagnostics, StatementSpec};

/// insufficient_privilege: "permission denied for ..".
pub(crate) const INSUFFICIENT_PRIVILEGE: &str = "42501";

const GRANTS: &str = "`countersign check --grants` prints what is missing";

/// By PostgreSQL's message, which names the object: the first mistake, and the names of all tools with it.
#[derive(Debug, Default)]
pub(crate) struct MissingPrivileges(BTreeMap<String, (Diagnostic, Vec<String>)>);

impl MissingPrivileges {
    /// Records that a statement of this tool or note could not be described or planned. `why` has PostgreSQL's
    /// message.
    pub(crate) fn note(&mut self, why: Diagnostic) {
        let name = why.tool.clone().unwrap_or_else(|| "a note".to_owned());
        let (_, names) = self.0.entry(why.message.clone()).or_insert_with(|| (why, Vec::new()));
        if names.last() != Some(&name) {
            names.push(name);
        }
    }

    /// Records the privileges that the plans of a write tool need and the login lacks. Read tools use another login.
    pub(crate) fn note_plans<'a>(
        &mut self,
        parsed: &ParsedTool<'_>,
        statements: impl Iterator<Item = &'a StatementSpec>,
    ) {
        if !parsed.tool.as_ref().is_some_and(|tool| tool.is(true)) {
            return;
        }
        for statement in statements {
            if let ReferencedObjects::Forbidden(why) = &statement.shape.referenced_objects {
                self.note(parsed.diagnostic(parsed.span.clone(), why));
            }
        }
    }

    /// The mistakes of each tool separately.
    pub(crate) fn by_tool(&self) -> impl Iterator<Item = Diagnostic> {
        self.0.values().flat_map(|(why, names)| {
            names.iter().map(|name| Diagnostic {
                at: why.at.clone(),
                tool: Some(name.clone()),
                message: format!("{} (SQLSTATE {INSUFFICIENT_PRIVILEGE}); {GRANTS}", why.message),
            })
        })
    }

    pub(crate) fn report(self, diagnostics: &mut Diagnostics) {
        for (why, names) in self.0.into_values() {
            let message =
                format!("{} (SQLSTATE {INSUFFICIENT_PRIVILEGE}), in {}; {GRANTS}", why.message, names.join(", "));
            diagnostics.0.push(Diagnostic { message, tool: None, ..why });
        }
    }
}
