//! Checks of the statements of a tool against the database: result columns, referenced objects, locks.

use std::ops::Range;

use types::{ReferencedObjects, RemotePart, StatementShape};

use crate::Diagnostics;
use crate::file::ToolDeclaration;
use crate::infer::InferredTypes;
use crate::parse::ParsedTool;

/// The schema of the ledger. No tool may use it.
const LEDGER_SCHEMA: &str = "countersign";

pub(super) fn check(
    parsed: &ParsedTool<'_>,
    tool: &ToolDeclaration,
    inferred: &InferredTypes,
    diagnostics: &mut Diagnostics,
) {
    result(parsed, tool, inferred, diagnostics);
    referenced_objects(parsed, tool, inferred, diagnostics);
    remote_parts(parsed, tool, inferred, diagnostics);
    approval(parsed, tool, inferred, diagnostics);
}

/// Checks that no statement references the ledger, and that only the statements of a write change rows.
fn referenced_objects(
    parsed: &ParsedTool<'_>,
    tool: &ToolDeclaration,
    inferred: &InferredTypes,
    diagnostics: &mut Diagnostics,
) {
    let whole = tool.sql.span();
    let texts = tool.sql.get_ref().texts.iter();
    let spans = texts.map(|(_, span)| span.clone().unwrap_or_else(|| whole.clone()));
    for (statement, span) in inferred.statements.iter().zip(spans) {
        let key = if tool.is(false) { Some("a read changes nothing") } else { None };
        check_statement(parsed, tool, ("sql", key), &statement.shape, span, diagnostics);
    }
    for (key, why, declared, statement) in [
        ("before", "before only looks", &tool.before, &inferred.before),
        ("after", "after only looks", &tool.after, &inferred.after),
    ] {
        if let (Some(declared), Some(statement)) = (declared, statement) {
            check_statement(parsed, tool, (key, Some(why)), &statement.shape, declared.span(), diagnostics);
        }
    }
}

/// Checks that no other server executes a part of a write. That server may commit although the local transaction does
/// not; then the outcome of the call would be unknown, and a repeated call would write twice.
fn remote_parts(
    parsed: &ParsedTool<'_>,
    tool: &ToolDeclaration,
    inferred: &InferredTypes,
    diagnostics: &mut Diagnostics,
) {
    if !tool.is(true) {
        return;
    }
    let whole = tool.sql.span();
    let spans = tool.sql.get_ref().texts.iter().map(|(_, span)| span.clone().unwrap_or_else(|| whole.clone()));
    for (statement, span) in inferred.statements.iter().zip(spans) {
        let ReferencedObjects::Planned { remote, .. } = &statement.shape.referenced_objects else { continue };
        for part in remote {
            let what = match part {
                RemotePart::ForeignTable { schema, table } => {
                    format!("writes {schema}.{table}, a foreign table, in sessions of another database")
                }
                RemotePart::DistributedTable { schema, table } => {
                    format!("writes {schema}.{table}, a table of Citus, in sessions of its own")
                }
                RemotePart::Distributed => "is executed by Citus in sessions of its own".to_owned(),
            };
            let message = format!(
                "sql {what}: they may commit although this one does not, so a call could not tell its outcome, and a \
                 repeated call could write twice; write tables of this database only"
            );
            diagnostics.0.push(parsed.diagnostic(span.clone(), message));
        }
    }
}

/// Checks one statement. `looks` is the reason why it must not change anything, if there is one.
fn check_statement(
    parsed: &ParsedTool<'_>,
    tool: &ToolDeclaration,
    (key, looks): (&str, Option<&str>),
    shape: &StatementShape,
    span: Range<usize>,
    diagnostics: &mut Diagnostics,
) {
    match &shape.referenced_objects {
        ReferencedObjects::Planned { schemas, .. } if schemas.iter().any(|schema| schema == LEDGER_SCHEMA) => {
            let message = format!(
                "{key} touches schema {LEDGER_SCHEMA}, which is the ledger: only the server itself writes it, and \
                 get_recent_mutations and get_mutation_detail read it"
            );
            diagnostics.0.push(parsed.diagnostic(span, message));
        }
        // A statement without result columns is reported as another mistake.
        ReferencedObjects::Planned { changes: true, .. } if shape.columns.is_some() => {
            if let Some(why) = looks {
                diagnostics.0.push(parsed.diagnostic(span, format!("{why}, and this statement changes rows")));
            }
        }
        ReferencedObjects::Unplanned(why) if tool.is(true) => {
            let message = format!(
                "{key}: PostgreSQL makes no plan for this as the server's role, so what it touches is not known: {why}"
            );
            diagnostics.0.push(parsed.diagnostic(span, message));
        }
        // Missing privileges are reported once for all statements (`missing_privileges.rs`).
        ReferencedObjects::Forbidden(_) | ReferencedObjects::Planned { .. } | ReferencedObjects::Unplanned(_) => {}
    }
}

/// Checks the result of a tool, and the queries `before` and `after`.
fn result(parsed: &ParsedTool<'_>, tool: &ToolDeclaration, inferred: &InferredTypes, diagnostics: &mut Diagnostics) {
    if inferred.result().is_some_and(returns_nothing) {
        let last = tool.sql.get_ref().texts.last().and_then(|(_, span)| span.clone());
        let span = last.unwrap_or_else(|| tool.sql.span());
        if tool.is(true) {
            let message = "the last statement of a write returns what it did: add RETURNING";
            diagnostics.0.push(parsed.diagnostic(span, message));
        } else if tool.is(false) {
            diagnostics
                .0
                .push(parsed.diagnostic(span, "a read returns rows, and this statement has no result columns"));
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
            diagnostics.0.push(parsed.diagnostic(declared.span(), message));
        }
    }
}

fn returns_nothing(shape: &StatementShape) -> bool {
    shape.columns.as_ref().is_none_or(Vec::is_empty)
}

/// Checks that the preview of a tool that needs agreement shows the rows that the write overwrites, and that `before`
/// locks them.
fn approval(parsed: &ParsedTool<'_>, tool: &ToolDeclaration, inferred: &InferredTypes, diagnostics: &mut Diagnostics) {
    let Some(agreement) = tool.needs_agreement() else { return };
    let overwrites =
        |objects: &ReferencedObjects| matches!(objects, ReferencedObjects::Planned { overwrites: true, .. });
    if tool.lacks("before", tool.before.is_none())
        && inferred.statements.iter().any(|statement| overwrites(&statement.shape.referenced_objects))
    {
        let message = "a write that needs agreement and updates or deletes rows needs before (select .. for update), or nobody \
                       could see what they agree to";
        diagnostics.0.push(parsed.diagnostic(agreement, message));
    }
    let (Some(declared), Some(before)) = (&tool.before, &inferred.before) else { return };
    // A `before` that changes rows or returns no columns was reported already.
    let looks = before.shape.columns.as_ref().is_some_and(|columns| !columns.is_empty());
    if looks
        && matches!(before.shape.referenced_objects, ReferencedObjects::Planned { changes: false, locks: false, .. })
    {
        let message = "before does not lock the rows that it shows, so they could change between the comparison with what \
                       was agreed to and the write: add for update, or for no key update";
        diagnostics.0.push(parsed.diagnostic(declared.span(), message));
    }
}
