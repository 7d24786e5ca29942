//! What can be wrong with a manifest, one concern a file. A check notes its mistakes and never stops the others.

mod agreement;
mod builtin;
mod declaration;
mod denied;
mod executor;
mod names;
mod params;
mod referenced_objects;
mod result;
mod schema;
mod undo;
mod warnings;

use types::Principal;

pub(crate) use builtin::{builtin, instructions};
pub(crate) use denied::{Denied, INSUFFICIENT_PRIVILEGE};
pub(crate) use names::names;
pub(crate) use undo::undo;
pub(crate) use warnings::warnings;

use crate::compile::Inferred;
use crate::read::Draft;
use crate::{Mistakes, ValueSource};

/// Checks what a tool's declaration alone says.
pub(crate) fn declaration(draft: &Draft<'_>, executors: &[&str], mistakes: &mut Mistakes) {
    let Some(tool) = &draft.tool else { return };
    declaration::check(draft, tool, mistakes);
    executor::check(draft, tool, executors, mistakes);
    agreement::check(draft, tool, mistakes);
    params::check(draft, tool, mistakes);
    undo::check_form(draft, tool, mistakes);
}

/// Checks a tool against what the database says of it.
pub(crate) fn against_database(draft: &Draft<'_>, inferred: &Inferred, mistakes: &mut Mistakes) {
    let Some(tool) = &draft.tool else { return };
    params::check_types(draft, tool, inferred, mistakes);
    result::check(draft, tool, inferred, mistakes);
    referenced_objects::check(draft, tool, inferred, mistakes);
    agreement::check_reach(draft, tool, inferred, mistakes);
}

/// The field of the principal that `from` names, if there is such a one.
pub(crate) fn principal_field(from: &str) -> Option<&str> {
    from.strip_prefix("principal.").filter(|field| Principal::FIELDS.contains(field))
}

/// `param.x`, `result.x` or `before.x`.
pub(crate) fn value_source(text: &str) -> Option<ValueSource> {
    let (kind, name) = text.split_once('.').filter(|(_, name)| !name.is_empty())?;
    match kind {
        "param" => Some(ValueSource::Param(name.to_owned())),
        "result" => Some(ValueSource::Result(name.to_owned())),
        "before" => Some(ValueSource::Before(name.to_owned())),
        _ => None,
    }
}

/// Whether the text is one of these characters, `length` times at most.
fn is_name(text: &str, length: usize, also: &str) -> bool {
    !text.is_empty() && text.len() <= length && text.chars().all(|c| c.is_ascii_alphanumeric() || also.contains(c))
}
