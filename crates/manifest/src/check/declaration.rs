//! What a tool says of itself: description, statements, rows, and what only a write may say.

use crate::file::Tool;
use crate::read::Draft;
use crate::{Mistakes, Tier};

/// The most that `max_rows` may allow.
const MOST_ROWS: i64 = 10_000;

/// The most characters that `not_found` may have.
const LONGEST_NOT_FOUND: usize = 200;

/// Checks it.
pub(super) fn check(draft: &Draft<'_>, tool: &Tool, mistakes: &mut Mistakes) {
    access(draft, tool, mistakes);
    description(draft, tool, mistakes);
    sql(draft, tool, mistakes);
    rows(draft, tool, mistakes);
    max_rows(draft, tool, mistakes);
    not_found(draft, tool, mistakes);
    if tool.is(false) {
        only_for_writes(draft, tool, mistakes);
    }
}

fn access(draft: &Draft<'_>, tool: &Tool, mistakes: &mut Mistakes) {
    if tool.lacks("access", tool.access.is_none()) {
        let message = "a tool says what it may do: access = \"read\", \"write\" or \"admin\"";
        mistakes.0.push(draft.mistake(tool.name.span(), message));
    }
}

fn description(draft: &Draft<'_>, tool: &Tool, mistakes: &mut Mistakes) {
    if tool.lacks("description", tool.description.get_ref().trim().is_empty()) {
        let message = "a description is needed: what the tool does, what it needs, what makes it fail";
        mistakes.0.push(draft.mistake(tool.description.span(), message));
    }
}

fn sql(draft: &Draft<'_>, tool: &Tool, mistakes: &mut Mistakes) {
    let texts = &tool.sql.get_ref().texts;
    if tool.lacks("sql", texts.is_empty()) && !tool.has_executor() {
        mistakes.0.push(draft.mistake(tool.sql.span(), "sql is needed: one statement, or an array of several"));
    }
    for (text, span) in texts {
        if text.trim().is_empty() {
            let span = span.clone().unwrap_or_else(|| tool.sql.span());
            mistakes.0.push(draft.mistake(span, "a statement is empty"));
        }
    }
    if texts.len() > 1 && tool.is(false) {
        mistakes.0.push(draft.mistake(tool.sql.span(), "a read has one statement: several are for writes"));
    }
}

fn rows(draft: &Draft<'_>, tool: &Tool, mistakes: &mut Mistakes) {
    if tool.is(true) && tool.lacks("rows", tool.rows.is_none()) && !tool.has_executor() {
        let message = "a write says how many rows are right: rows = \"one\", \"at_most_one\", \"some\" or \"any\"";
        mistakes.0.push(draft.mistake(tool.name.span(), message));
    }
}

/// A write of any number of rows has a bound, so that a wrong WHERE cannot reach a whole table (attack MA03).
fn max_rows(draft: &Draft<'_>, tool: &Tool, mistakes: &mut Mistakes) {
    if let (Some(most), true) = (&tool.max_rows, tool.is(false)) {
        mistakes.0.push(draft.mistake(most.span(), "the server bounds what a read returns: max_rows is for writes"));
    }
    let Some(rows) = tool.rows.as_ref().filter(|_| tool.is(true) && !tool.has_executor()) else { return };
    let word = rows.get_ref().as_str();
    match &tool.max_rows {
        None if tool.lacks("max_rows", !rows.get_ref().is_single()) => {
            let message = format!(
                "a write of rows = \"{word}\" needs max_rows (1 to {MOST_ROWS}), the most rows that one call may touch: \
                 without it a wrong WHERE would reach the whole table"
            );
            mistakes.0.push(draft.mistake(rows.span(), message));
        }
        Some(most) if rows.get_ref().is_single() => {
            let message = format!("rows = \"{word}\" is a bound already: max_rows is for \"some\" and \"any\"");
            mistakes.0.push(draft.mistake(most.span(), message));
        }
        Some(most) if !(1..=MOST_ROWS).contains(most.get_ref()) => {
            mistakes.0.push(draft.mistake(most.span(), format!("max_rows is 1 to {MOST_ROWS}")));
        }
        _ => {}
    }
}

/// The words for no row make sense only where no row is wrong.
fn not_found(draft: &Draft<'_>, tool: &Tool, mistakes: &mut Mistakes) {
    let Some(message) = tool.not_found.as_ref().filter(|_| tool.is(true)) else { return };
    let mut note = |why: &str| mistakes.0.push(draft.mistake(message.span(), why));
    if message.get_ref().trim().is_empty() {
        note("not_found is empty: say what was not found, as in \"Package not found or access denied\"");
    } else if message.get_ref().trim().chars().count() > LONGEST_NOT_FOUND {
        note(&format!("not_found has at most {LONGEST_NOT_FOUND} characters"));
    }
    if let Some(rows) = tool.rows.as_ref().filter(|rows| rows.get_ref().allows(0)) {
        let word = rows.get_ref().as_str();
        note(&format!("rows = \"{word}\" is content with no row: not_found is for \"one\" and \"some\""));
    }
}

fn only_for_writes(draft: &Draft<'_>, tool: &Tool, mistakes: &mut Mistakes) {
    if let Some(before) = &tool.before {
        mistakes.0.push(draft.mistake(before.span(), "a read overwrites nothing: before is for writes"));
    }
    if let Some(after) = &tool.after {
        mistakes.0.push(draft.mistake(after.span(), "a read leaves everything as it was: after is for writes"));
    }
    if let Some(executor) = &tool.executor {
        mistakes.0.push(draft.mistake(executor.span(), "a read is a query, in sql: executor is for writes"));
    }
    if let Some(not_found) = &tool.not_found {
        mistakes.0.push(draft.mistake(not_found.span(), "a read answers with no rows: not_found is for writes"));
    }
    if let Some(tier) = tool.tier.as_ref().filter(|tier| *tier.get_ref() > Tier::Auto) {
        mistakes.0.push(draft.mistake(tier.span(), "nobody needs to agree to a read: tier is for writes"));
    }
    if let Some(undo_tier) = &tool.undo_tier {
        mistakes.0.push(draft.mistake(undo_tier.span(), "a read leaves nothing to undo: undo_tier is for writes"));
    }
}
