//! The checks of a manifest, one file for each concern. A check reports its mistakes and does not stop the others.

mod builtin;
mod declaration;
mod param_schema;
mod params;
mod policy;
mod set_clause;
mod statements;
mod undo;
mod warnings;

pub(crate) use builtin::{builtin, instructions};
pub(crate) use declaration::names;
pub(crate) use undo::undo;
pub(crate) use warnings::warnings;

use crate::Diagnostics;
use crate::infer::InferredTypes;
use crate::parse::ParsedTool;

/// Runs the checks that need only the declaration of a tool.
pub(crate) fn declaration(parsed: &ParsedTool<'_>, executors: &[&str], diagnostics: &mut Diagnostics) {
    let Some(tool) = &parsed.tool else { return };
    declaration::check(parsed, tool, executors, diagnostics);
    params::check(parsed, tool, diagnostics);
    set_clause::check(parsed, tool, diagnostics);
    policy::check(parsed, tool, diagnostics);
    undo::check_form(parsed, tool, diagnostics);
}

/// Runs the checks of a tool that need the description of the database.
pub(crate) fn against_database(parsed: &ParsedTool<'_>, inferred: &InferredTypes, diagnostics: &mut Diagnostics) {
    let Some(tool) = &parsed.tool else { return };
    params::check_types(parsed, tool, inferred, diagnostics);
    statements::check(parsed, tool, inferred, diagnostics);
}

/// Returns whether the text consists of ASCII letters and digits and the characters in `also`, and has 1 to `length`
/// of them.
fn is_name(text: &str, length: usize, also: &str) -> bool {
    !text.is_empty() && text.len() <= length && text.chars().all(|c| c.is_ascii_alphanumeric() || also.contains(c))
}
