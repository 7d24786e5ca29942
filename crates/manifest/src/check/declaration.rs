//! Checks that need only the declaration of a tool: names, description, statements, rows, executor, tier.

use std::collections::HashMap;
use types::{REASON, Tier};

use super::is_name;
use crate::Diagnostics;
use crate::file::{RequirementsDeclaration, ToolDeclaration};
use crate::parse::ParsedTool;
use crate::summary::Summary;

/// Upper bound of `max_rows`.
const MAX_ROWS: i64 = 10_000;

/// Maximum length of `not_found`, in characters.
const LONGEST_NOT_FOUND: usize = 200;

/// Checks the declaration of one tool. `executors` are the names of the registered executors.
pub(super) fn check(
    parsed: &ParsedTool<'_>,
    tool: &ToolDeclaration,
    executors: &[&str],
    diagnostics: &mut Diagnostics,
) {
    access(parsed, tool, diagnostics);
    description(parsed, tool, diagnostics);
    sql(parsed, tool, diagnostics);
    rows(parsed, tool, diagnostics);
    max_rows(parsed, tool, diagnostics);
    not_found(parsed, tool, diagnostics);
    reason(parsed, tool, diagnostics);
    summary(parsed, tool, diagnostics);
    executor(parsed, tool, executors, diagnostics);
    approval(parsed, tool, diagnostics);
    approvers(parsed, tool, diagnostics);
    if tool.is(false) {
        only_for_writes(parsed, tool, diagnostics);
    }
    requires(parsed, tool, diagnostics);
}

fn requires(parsed: &ParsedTool<'_>, tool: &ToolDeclaration, diagnostics: &mut Diagnostics) {
    let Some(requires) = &tool.requires else { return };
    let RequirementsDeclaration { extension, role } = requires.get_ref();
    let message = match [extension, role] {
        _ if tool.is(true) => "a write that is sometimes left out surprises its caller: requires is for reads",
        [None, None] => "requires names an extension, a role, or both: requires = { role = \"pg_monitor\" }",
        names if names.into_iter().flatten().any(String::is_empty) => {
            "the extension or role that it requires has no name"
        }
        _ => return,
    };
    diagnostics.0.push(parsed.diagnostic(requires.span(), message));
}

fn access(parsed: &ParsedTool<'_>, tool: &ToolDeclaration, diagnostics: &mut Diagnostics) {
    if tool.lacks("access", tool.access.is_none()) {
        let message = "a tool says what it may do: access = \"read\", \"write\" or \"admin\"";
        diagnostics.0.push(parsed.diagnostic(tool.name.span(), message));
    }
}

fn description(parsed: &ParsedTool<'_>, tool: &ToolDeclaration, diagnostics: &mut Diagnostics) {
    if tool.lacks("description", tool.description.get_ref().trim().is_empty()) {
        let message = "a description is needed: what the tool does, what it needs, what makes it fail";
        diagnostics.0.push(parsed.diagnostic(tool.description.span(), message));
    }
}

fn sql(parsed: &ParsedTool<'_>, tool: &ToolDeclaration, diagnostics: &mut Diagnostics) {
    let texts = &tool.sql.get_ref().texts;
    if tool.lacks("sql", texts.is_empty()) && !tool.has_executor() {
        diagnostics.0.push(parsed.diagnostic(tool.sql.span(), "sql is needed: one statement, or an array of several"));
    }
    for (text, span) in texts {
        if text.trim().is_empty() {
            let span = span.clone().unwrap_or_else(|| tool.sql.span());
            diagnostics.0.push(parsed.diagnostic(span, "a statement is empty"));
        }
    }
    if texts.len() > 1 && tool.is(false) {
        diagnostics.0.push(parsed.diagnostic(tool.sql.span(), "a read has one statement: several are for writes"));
    }
}

fn rows(parsed: &ParsedTool<'_>, tool: &ToolDeclaration, diagnostics: &mut Diagnostics) {
    if tool.is(true) && tool.lacks("rows", tool.rows.is_none()) && !tool.has_executor() {
        let message = "a write says how many rows are right: rows = \"one\", \"at_most_one\", \"some\" or \"any\"";
        diagnostics.0.push(parsed.diagnostic(tool.name.span(), message));
    }
}

/// Checks that a write of any number of rows has a limit, so that a wrong WHERE clause cannot change a whole table.
fn max_rows(parsed: &ParsedTool<'_>, tool: &ToolDeclaration, diagnostics: &mut Diagnostics) {
    if let (Some(most), true) = (&tool.max_rows, tool.is(false)) {
        diagnostics
            .0
            .push(parsed.diagnostic(most.span(), "the server bounds what a read returns: max_rows is for writes"));
    }
    let Some(rows) = tool.rows.as_ref().filter(|_| tool.is(true) && !tool.has_executor()) else { return };
    let word = rows.get_ref().as_str();
    match &tool.max_rows {
        None if tool.lacks("max_rows", !rows.get_ref().is_single()) => {
            let message = format!(
                "a write of rows = \"{word}\" needs max_rows (1 to {MAX_ROWS}), the most rows that one call may touch: \
                 without it a wrong WHERE would reach the whole table"
            );
            diagnostics.0.push(parsed.diagnostic(rows.span(), message));
        }
        Some(most) if rows.get_ref().is_single() => {
            let message = format!("rows = \"{word}\" is a bound already: max_rows is for \"some\" and \"any\"");
            diagnostics.0.push(parsed.diagnostic(most.span(), message));
        }
        Some(most) if !(1..=MAX_ROWS).contains(most.get_ref()) => {
            diagnostics.0.push(parsed.diagnostic(most.span(), format!("max_rows is 1 to {MAX_ROWS}")));
        }
        _ => {}
    }
}

/// Checks that `not_found` is set only if a result without rows is an error.
fn not_found(parsed: &ParsedTool<'_>, tool: &ToolDeclaration, diagnostics: &mut Diagnostics) {
    let Some(message) = tool.not_found.as_ref().filter(|_| tool.is(true)) else { return };
    let mut note = |why: &str| diagnostics.0.push(parsed.diagnostic(message.span(), why));
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

/// Checks that a tool with a parameter of the name does not ask for the reason of a call as well.
fn reason(parsed: &ParsedTool<'_>, tool: &ToolDeclaration, diagnostics: &mut Diagnostics) {
    let Some(reason) = tool.reason.as_ref().filter(|_| tool.is(true)) else { return };
    if tool.param.iter().any(|param| param.name.get_ref() == REASON) {
        let message = "the tool has a parameter \"reason\" of its own: rename it, or leave the key reason out";
        diagnostics.0.push(parsed.diagnostic(reason.span(), message));
    }
}

/// Checks that the summary of a call names parameters that people may see.
fn summary(parsed: &ParsedTool<'_>, tool: &ToolDeclaration, diagnostics: &mut Diagnostics) {
    let Some(declared) = tool.summary.as_ref().filter(|_| tool.is(true)) else { return };
    let mut note = |message: String| diagnostics.0.push(parsed.diagnostic(declared.span(), &message));
    let summary = match Summary::parse(declared.get_ref()) {
        Ok(summary) => summary,
        Err(mistake) => return note(mistake),
    };
    for name in summary.params() {
        match tool.param.iter().find(|param| param.name.get_ref() == name) {
            None => note(format!("summary names the parameter \"{name}\", which the tool does not have")),
            Some(param) if param.sensitive => {
                note(format!("summary names the parameter \"{name}\", which is sensitive: people would see it"));
            }
            Some(_) => {}
        }
    }
}

fn only_for_writes(parsed: &ParsedTool<'_>, tool: &ToolDeclaration, diagnostics: &mut Diagnostics) {
    if let Some(before) = &tool.before {
        diagnostics.0.push(parsed.diagnostic(before.span(), "a read overwrites nothing: before is for writes"));
    }
    if let Some(after) = &tool.after {
        diagnostics.0.push(parsed.diagnostic(after.span(), "a read leaves everything as it was: after is for writes"));
    }
    if let Some(executor) = &tool.executor {
        diagnostics.0.push(parsed.diagnostic(executor.span(), "a read is a query, in sql: executor is for writes"));
    }
    if let Some(not_found) = &tool.not_found {
        diagnostics.0.push(parsed.diagnostic(not_found.span(), "a read answers with no rows: not_found is for writes"));
    }
    if let Some(tier) = tool.tier.as_ref().filter(|tier| *tier.get_ref() > Tier::Auto) {
        diagnostics.0.push(parsed.diagnostic(tier.span(), "a read needs no agreement: tier is for writes"));
    }
    if let Some(reason) = &tool.reason {
        diagnostics.0.push(parsed.diagnostic(reason.span(), "a read changes nothing: reason is for writes"));
    }
    if let Some(summary) = &tool.summary {
        diagnostics.0.push(parsed.diagnostic(summary.span(), "a read needs no decision: summary is for writes"));
    }
    if let Some(undo_tier) = &tool.undo_tier {
        diagnostics
            .0
            .push(parsed.diagnostic(undo_tier.span(), "a read leaves nothing to undo: undo_tier is for writes"));
    }
}

/// Checks a write that a Rust function executes. `registered` are the names of the registered executors.
fn executor(parsed: &ParsedTool<'_>, tool: &ToolDeclaration, registered: &[&str], diagnostics: &mut Diagnostics) {
    let Some(executor) = tool.executor.as_ref().filter(|_| tool.is(true)) else { return };
    let name = executor.get_ref().as_str();
    if !is_name(name, 64, "_-") {
        let message = "executor is the name of a registered one: 1 to 64 of the characters a-z A-Z 0-9 _ -";
        diagnostics.0.push(parsed.diagnostic(executor.span(), message));
    } else if !registered.contains(&name) {
        let known =
            if registered.is_empty() { "none is".to_owned() } else { format!("registered: {}", registered.join(", ")) };
        let message = format!("it needs the executor \"{name}\", which is not registered in this server ({known})");
        diagnostics.0.push(parsed.diagnostic(executor.span(), message));
    }
    // The span of a missing key is empty.
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
            diagnostics.0.push(parsed.diagnostic(span, message));
        }
    }
    if tool.lacks("before", tool.before.is_none()) {
        let message = "an executor needs before, a query of the rows that it is about to change: it gives the parameters \
                       their types, and the record what was there";
        diagnostics.0.push(parsed.diagnostic(executor.span(), message));
    }
}

const MAX_APPROVALS: i64 = 10;

/// Maximum length of the name of a role, in bytes.
const LONGEST_ROLE: usize = 63;

/// Checks `approvals` and `approvers`, which are valid only if people approve.
fn approvers(parsed: &ParsedTool<'_>, tool: &ToolDeclaration, diagnostics: &mut Diagnostics) {
    let mut note = |span, message: String| diagnostics.0.push(parsed.diagnostic(span, message));
    let are_asked = tool.is(true) && tool.tier.as_ref().is_some_and(|tier| *tier.get_ref() == Tier::Approve);
    for (key, span) in [
        ("approvals", tool.approvals.as_ref().map(serde_spanned::Spanned::span)),
        ("approvers", tool.approvers.as_ref().map(serde_spanned::Spanned::span)),
    ] {
        if let Some(span) = span.filter(|_| !are_asked) {
            note(span, format!("writes of this tool need no approval: {key} is for tier = \"approve\""));
        }
    }
    if let Some(count) = tool.approvals.as_ref().filter(|count| !(1..=MAX_APPROVALS).contains(count.get_ref())) {
        note(count.span(), format!("approvals is 1 to {MAX_APPROVALS}"));
    }
    if let Some(role) = &tool.approvers
        && !(1..=LONGEST_ROLE).contains(&role.get_ref().len())
    {
        note(role.span(), format!("approvers is the name of a role, of 1 to {LONGEST_ROLE} bytes"));
    }
}

/// Checks a tool whose calls need agreement. Its parameters are stored and shown until a person decides, so none may
/// be sensitive.
fn approval(parsed: &ParsedTool<'_>, tool: &ToolDeclaration, diagnostics: &mut Diagnostics) {
    if tool.needs_agreement().is_none() {
        return;
    }
    for param in tool.param.iter().filter(|param| param.sensitive) {
        let message = format!(
            "parameter {}: a proposal keeps its parameters until somebody agrees, and shows them: a sensitive one is for \
             tools of tier auto without a rule that requires agreement",
            param.name.get_ref()
        );
        diagnostics.0.push(parsed.diagnostic(param.name.span(), message));
    }
}

pub(crate) fn names(parsed_tools: &[ParsedTool<'_>], reserved: &[&str], diagnostics: &mut Diagnostics) {
    let mut first: HashMap<&str, &ParsedTool<'_>> = HashMap::new();
    for parsed in parsed_tools {
        let Some(tool) = &parsed.tool else { continue };
        let (name, span) = (tool.name.get_ref().as_str(), tool.name.span());
        if name.is_empty() {
            diagnostics.0.push(parsed.diagnostic(span, "a tool needs a name, such as name = \"like_tweet\""));
            continue;
        }
        if !is_name(name, 64, "_-") {
            let message = "clients reject this name: use 1 to 64 of the characters a-z A-Z 0-9 _ -";
            diagnostics.0.push(parsed.diagnostic(span.clone(), message));
        }
        if reserved.contains(&name) {
            diagnostics.0.push(parsed.diagnostic(span.clone(), "this is the name of a built-in tool: choose another"));
        }
        match first.get(name) {
            Some(other) => {
                let at = other.tool.as_ref().map_or(0..0, |tool| tool.name.span());
                let message = format!("two tools have this name; the other is declared at {}", other.locate(at));
                diagnostics.0.push(parsed.diagnostic(span, message));
            }
            None => {
                first.insert(name, parsed);
            }
        }
    }
}
