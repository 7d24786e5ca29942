//! Checks `sets`, `sets_null` and the position of `{set}` in a statement.

use std::ops::Range;

use serde_spanned::Spanned;

use crate::Diagnostics;
use crate::file::{ParamDeclaration, ToolDeclaration};
use crate::parse::ParsedTool;
use crate::set_clause::MARKER;
use crate::value::json;

pub(super) fn check(parsed: &ParsedTool<'_>, tool: &ToolDeclaration, diagnostics: &mut Diagnostics) {
    let mut note = |span: Range<usize>, message: &str| diagnostics.0.push(parsed.diagnostic(span, message));
    let setters = || tool.param.iter().filter_map(|param| Some((param, param.sets.as_ref()?)));
    for (param, sets) in setters() {
        if tool.is(false) {
            note(sets.span(), "a read changes nothing: sets is for writes");
        }
        if sets.get_ref().trim().is_empty() {
            note(sets.span(), "sets is an assignment, such as sets = \"note = $3\"");
        }
        if let Some(default) = &param.default {
            note(default.span(), "with a default every call would set the column: a parameter has sets or a default");
        }
    }
    let Some((_, first)) = setters().next() else {
        for param in tool.param.iter().filter(|param| param.names_null()) {
            note(param.name.span(), "no parameter has sets, so sets_null has nothing to name");
        }
        return;
    };
    let places: usize = tool.sql.get_ref().texts.iter().map(|(text, _)| text.matches(MARKER).count()).sum();
    match places {
        1 => {}
        0 if tool.lacks("sql", tool.sql.get_ref().texts.is_empty()) => {}
        0 => note(
            first.span(),
            "no statement has {set}, the place of the assignments: update shop.item set {set} where ..",
        ),
        _ => note(tool.sql.span(), "the statements of a tool have {set} once"),
    }
    let mut nulls = tool.param.iter().filter(|param| param.names_null());
    if let Some(param) = nulls.next() {
        for (span, message) in mistakes_of_nulls(tool, param) {
            note(span, &message);
        }
    }
    if let Some(second) = nulls.next() {
        note(second.name.span(), "one parameter of a tool has sets_null");
    }
}

/// The mistakes in the parameter that names columns to set to NULL.
fn mistakes_of_nulls(tool: &ToolDeclaration, param: &ParamDeclaration) -> Vec<(Range<usize>, String)> {
    let mut mistakes = Vec::new();
    let span = param.name.span();
    if param.is_required() || param.from.is_some() || param.default.is_some() || param.sets.is_some() {
        mistakes.push((span.clone(), "a parameter with sets_null is optional, and only names others".to_owned()));
    }
    let Some(names) = &param.one_of else {
        mistakes.push((span, "a parameter with sets_null has an enum: the parameters that it may name".to_owned()));
        return mistakes;
    };
    for name in names.get_ref() {
        let named = |it: &&ParamDeclaration| name.as_str() == Some(it.name.get_ref().as_str());
        let is_settable = |it: &ParamDeclaration| it.sets.is_some() && it.from.is_none() && !it.is_required();
        if !tool.param.iter().find(named).is_some_and(is_settable) {
            let message = format!("enum: {} is no optional parameter with sets", json(name));
            mistakes.push((Spanned::span(names), message));
        }
    }
    mistakes
}
