//! Statements that must return rows do.

use types::StatementShape;

use crate::Mistakes;
use crate::compile::Inferred;
use crate::file::Tool;
use crate::read::Draft;

/// Checks the result of a tool, and what `before` and `after` capture.
pub(super) fn check(draft: &Draft<'_>, tool: &Tool, inferred: &Inferred, mistakes: &mut Mistakes) {
    if inferred.result().is_some_and(returns_nothing) {
        let last = tool.sql.get_ref().texts.last().and_then(|(_, span)| span.clone());
        let span = last.unwrap_or_else(|| tool.sql.span());
        if tool.is(true) {
            let message = "the last statement of a write returns what it did: add RETURNING";
            mistakes.0.push(draft.mistake(span, message));
        } else if tool.is(false) {
            mistakes.0.push(draft.mistake(span, "a read returns rows, and this statement has no result columns"));
        }
    }
    for (key, declared, statement, instead) in [
        ("before", &tool.before, &inferred.before, "select .. for update"),
        ("after", &tool.after, &inferred.after, "select"),
    ] {
        if let (Some(declared), Some(statement)) = (declared, statement)
            && returns_nothing(&statement.shape)
        {
            let message = format!("{key} captures rows, and this statement has no result columns: use {instead}");
            mistakes.0.push(draft.mistake(declared.span(), message));
        }
    }
}

fn returns_nothing(shape: &StatementShape) -> bool {
    shape.columns.as_ref().is_none_or(Vec::is_empty)
}
