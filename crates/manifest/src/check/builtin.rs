//! The manifests' settings of the server: its built-in tools, and its instructions.

use std::collections::{BTreeMap, HashMap};

use serde_spanned::Spanned;

use crate::parse::ParsedBuiltin;
use crate::{BuiltinTool, Diagnostic, Diagnostics, Location, Source};

/// Maximum length of the instructions of one manifest, in characters: every client reads them first.
const MAX_INSTRUCTIONS: usize = 4000;

/// The settings of each built-in tool; `known` are their names.
pub(crate) fn builtin(
    parsed_tools: &[ParsedBuiltin<'_>],
    known: &[&str],
    diagnostics: &mut Diagnostics,
) -> BTreeMap<String, BuiltinTool> {
    let mut first: HashMap<&str, Location> = HashMap::new();
    let mut tools = BTreeMap::new();
    for ParsedBuiltin { source, name, span, builtin } in parsed_tools {
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
        tools.insert(name.clone(), BuiltinTool { disabled, title, description });
    }
    tools
}

/// Returns the instructions of all manifests, in order.
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
