//! Checks a manifest's settings of the server: its built-in tools, and its instructions for agents.

use std::collections::{BTreeMap, HashMap};
use std::ops::RangeInclusive;

use serde_spanned::Spanned;

use crate::file::BuiltinDeclaration;
use crate::parse::ParsedBuiltin;
use crate::{BuiltinTool, Diagnostic, Diagnostics, Location, QueryDefaults, Source};

/// The maximum length of the instructions of one manifest, in characters, since every client reads them first.
const MAX_INSTRUCTIONS: usize = 4000;

/// The only built-in tool whose defaults a manifest can set.
const QUERY_DATABASE: &str = "query_database";

/// The allowed values of `row_limit` and `max_result_bytes`. The server's configuration may limit them further.
const ROW_LIMITS: RangeInclusive<u32> = 1..=100_000;
const RESULT_BYTES: RangeInclusive<u32> = 1024..=16_777_216;

/// The settings of each built-in tool. `known` has the names of the tools.
pub(crate) fn builtin(
    parsed_builtins: &[ParsedBuiltin<'_>],
    known: &[&str],
    diagnostics: &mut Diagnostics,
) -> BTreeMap<String, BuiltinTool> {
    let mut first: HashMap<&str, Location> = HashMap::new();
    let mut tools = BTreeMap::new();
    for ParsedBuiltin { source, name, span, builtin } in parsed_builtins {
        let mut note = |offset: usize, message: String| {
            diagnostics.0.push(Diagnostic { at: source.locate(offset), tool: Some(name.clone()), message });
        };
        if !known.contains(&name.as_str()) {
            note(span.start, format!("there is no such built-in tool; there are {}", known.join(", ")));
        }
        if let Some(other) = first.get(name.as_str()) {
            note(span.start, format!("two manifests speak of this built-in tool; the other one does at {other}"));
        } else {
            first.insert(name, source.locate(span.start));
        }
        for (key, text) in [("title", &builtin.title), ("description", &builtin.description)] {
            if let Some(text) = text.as_ref().filter(|text| text.get_ref().trim().is_empty()) {
                note(text.span().start, format!("{key} is empty: leave it out to keep the tool's own"));
            }
        }
        let given = |text: &Option<Spanned<String>>| text.as_ref().map(|text| text.get_ref().trim().to_owned());
        let disabled = builtin.enabled.as_ref().is_some_and(|enabled| !enabled.get_ref());
        let (title, description) = (given(&builtin.title), given(&builtin.description));
        let query = query_defaults(name, builtin, &mut note);
        tools.insert(name.clone(), BuiltinTool { disabled, title, description, query });
    }
    tools
}

/// The defaults of `query_database`. In another tool they are a mistake.
fn query_defaults(name: &str, declared: &BuiltinDeclaration, note: &mut impl FnMut(usize, String)) -> QueryDefaults {
    let BuiltinDeclaration { row_limit, max_result_bytes, row_format, .. } = declared;
    let starts = [
        ("row_limit", row_limit.as_ref().map(Spanned::span)),
        ("max_result_bytes", max_result_bytes.as_ref().map(Spanned::span)),
        ("row_format", row_format.as_ref().map(Spanned::span)),
    ];
    if name != QUERY_DATABASE {
        for (key, span) in starts {
            if let Some(span) = span {
                note(span.start, format!("{key} is a default of {QUERY_DATABASE} only"));
            }
        }
        return QueryDefaults::default();
    }
    let mut bounded = |key: &str, value: &Option<Spanned<u32>>, bounds: RangeInclusive<u32>| {
        let value = value.as_ref()?;
        if !bounds.contains(value.get_ref()) {
            note(value.span().start, format!("{key} is {} to {}", bounds.start(), bounds.end()));
        }
        Some(*value.get_ref())
    };
    QueryDefaults {
        row_limit: bounded("row_limit", row_limit, ROW_LIMITS),
        max_bytes: bounded("max_result_bytes", max_result_bytes, RESULT_BYTES),
        row_format: row_format.as_ref().map(|format| *format.get_ref()),
    }
}

pub(crate) fn instructions(texts: &[(&Source, Spanned<String>)], diagnostics: &mut Diagnostics) -> Vec<String> {
    let trimmed = texts.iter().map(|(source, text)| {
        let trimmed = text.get_ref().trim();
        if trimmed.is_empty() || trimmed.chars().count() > MAX_INSTRUCTIONS {
            let message = format!("instructions are 1 to {MAX_INSTRUCTIONS} characters");
            diagnostics.0.push(Diagnostic { at: source.locate(text.span().start), tool: None, message });
        }
        trimmed.to_owned()
    });
    trimmed.collect()
}
