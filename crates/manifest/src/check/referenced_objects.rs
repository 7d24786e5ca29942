//! What the statements touch, as their plans show it: never the ledger, and nothing changes where one only looks.

use std::ops::Range;

use types::{ReferencedObjects, StatementShape};

use crate::Mistakes;
use crate::compile::Inferred;
use crate::file::Tool;
use crate::read::Draft;

/// The schema of the ledger, which only the server itself writes and reads (attack AU12).
const LEDGER_SCHEMA: &str = "countersign";

/// Checks every statement of a tool.
pub(super) fn check(draft: &Draft<'_>, tool: &Tool, inferred: &Inferred, mistakes: &mut Mistakes) {
    let whole = tool.sql.span();
    let texts = tool.sql.get_ref().texts.iter();
    let spans = texts.map(|(_, span)| span.clone().unwrap_or_else(|| whole.clone()));
    for (statement, span) in inferred.statements.iter().zip(spans) {
        let key = if tool.is(false) { Some("a read changes nothing") } else { None };
        one(draft, tool, ("sql", key), &statement.shape, span, mistakes);
    }
    for (key, why, declared, statement) in [
        ("before", "before only looks", &tool.before, &inferred.before),
        ("after", "after only looks", &tool.after, &inferred.after),
    ] {
        if let (Some(declared), Some(statement)) = (declared, statement) {
            one(draft, tool, (key, Some(why)), &statement.shape, declared.span(), mistakes);
        }
    }
}

/// `looks` is why the statement of this key must not change anything, if it must not.
fn one(
    draft: &Draft<'_>,
    tool: &Tool,
    (key, looks): (&str, Option<&str>),
    shape: &StatementShape,
    span: Range<usize>,
    mistakes: &mut Mistakes,
) {
    match &shape.referenced_objects {
        ReferencedObjects::Planned { schemas, .. } if schemas.iter().any(|schema| schema == LEDGER_SCHEMA) => {
            let message = format!(
                "{key} touches schema {LEDGER_SCHEMA}, which is the ledger: only the server itself writes it, and \
                 get_recent_mutations and get_mutation_detail read it"
            );
            mistakes.0.push(draft.mistake(span, message));
        }
        // A statement without result columns is a mistake of its own here.
        ReferencedObjects::Planned { changes: true, .. } if shape.columns.is_some() => {
            if let Some(why) = looks {
                mistakes.0.push(draft.mistake(span, format!("{why}, and this statement changes rows")));
            }
        }
        ReferencedObjects::Unplanned(why) if tool.is(true) => {
            let message = format!(
                "{key}: PostgreSQL makes no plan for this as the server's role, so what it touches is not known: {why}"
            );
            mistakes.0.push(draft.mistake(span, message));
        }
        // Told of all statements together: `denied.rs`.
        ReferencedObjects::Forbidden(_) | ReferencedObjects::Planned { .. } | ReferencedObjects::Unplanned(_) => {}
    }
}
