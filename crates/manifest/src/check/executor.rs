//! A write that a Rust function carries out: what it has instead of statements, and what it cannot have beside it.

use super::is_name;
use crate::Mistakes;
use crate::file::Tool;
use crate::read::Draft;

/// Checks it; `registered` are the names of those that there are.
pub(super) fn check(draft: &Draft<'_>, tool: &Tool, registered: &[&str], mistakes: &mut Mistakes) {
    let Some(executor) = tool.executor.as_ref().filter(|_| tool.is(true)) else { return };
    let name = executor.get_ref().as_str();
    if !is_name(name, 64, "_-") {
        let message = "executor is the name of a registered one: 1 to 64 of the characters a-z A-Z 0-9 _ -";
        mistakes.0.push(draft.mistake(executor.span(), message));
    } else if !registered.contains(&name) {
        let known =
            if registered.is_empty() { "none is".to_owned() } else { format!("registered: {}", registered.join(", ")) };
        let message = format!("it needs the executor \"{name}\", which is not registered in this server ({known})");
        mistakes.0.push(draft.mistake(executor.span(), message));
    }
    // The span of a key that is not there is empty.
    let sql = Some(tool.sql.span()).filter(|span| !span.is_empty());
    for (key, span) in [
        ("sql", sql),
        ("rows", tool.rows.as_ref().map(serde_spanned::Spanned::span)),
        ("max_rows", tool.max_rows.as_ref().map(serde_spanned::Spanned::span)),
    ] {
        if let Some(span) = span {
            let message = match key {
                "sql" => "a write has sql or an executor, not both".to_owned(),
                key => format!("an executor counts its rows itself: {key} is for sql"),
            };
            mistakes.0.push(draft.mistake(span, message));
        }
    }
    if tool.lacks("before", tool.before.is_none()) {
        let message = "an executor needs before, a query of the rows that it is about to change: it gives the parameters \
                       their types, and the record what was there";
        mistakes.0.push(draft.mistake(executor.span(), message));
    }
}
