//! Edits of a text at certain places, and the result of editing a configuration file.

use std::ops::Range;

use serde_json::Value;

/// A range of a text and its replacement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Splice {
    pub(super) range: Range<usize>,
    pub(super) text: String,
}

impl Splice {
    pub(super) fn insert(at: usize, text: impl Into<String>) -> Self {
        Self { range: at..at, text: text.into() }
    }

    pub(super) fn remove(range: Range<usize>) -> Self {
        Self { range, text: String::new() }
    }
}

/// Where the line after the one of `at` begins, or the text ends.
pub(super) fn next_line_start(text: &str, at: usize) -> usize {
    text.get(at..).and_then(|rest| rest.find('\n')).map_or(text.len(), |newline| at + newline + 1)
}

/// The text with these splices applied. They must be in order and must not overlap.
pub(super) fn spliced(text: &str, splices: &[Splice]) -> String {
    let mut result = String::with_capacity(text.len());
    let mut at = 0;
    for Splice { range, text: new } in splices {
        result.push_str(text.get(at..range.start).unwrap_or_default());
        result.push_str(new);
        at = range.end;
    }
    result.push_str(text.get(at..).unwrap_or_default());
    result
}

/// Why a text cannot be edited: the offset in bytes, and the problem there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EditError {
    pub(super) at: usize,
    pub(super) message: String,
}

impl EditError {
    pub(super) fn new(at: usize, message: impl Into<String>) -> Self {
        Self { at, message: message.into() }
    }

    /// The new text does not parse to the expected content. It must never be written.
    pub(super) fn unsafe_edit() -> Self {
        Self::new(0, "the entry cannot be put into this file without changing something else: edit it by hand")
    }
}

/// The result of writing an entry into a text.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Put {
    /// The same entry is there already.
    Unchanged,
    Written(String),
    /// Another entry has this name.
    Differs(Value),
}

impl Put {
    /// What is to be done if there is an entry already; `None` if the new one replaces it.
    pub(super) fn beside(current: Value, value: &Value, replace: bool) -> Option<Self> {
        if current == *value { Some(Self::Unchanged) } else { (!replace).then_some(Self::Differs(current)) }
    }
}

pub(super) fn line_break(text: &str) -> &'static str {
    match text.find('\n').and_then(|at| text.get(..at)) {
        Some(before) if before.ends_with('\r') => "\r\n",
        _ => "\n",
    }
}

/// The start of the line of an offset.
pub(super) fn line_start(text: &str, at: usize) -> usize {
    text.get(..at).and_then(|before| before.rfind('\n')).map_or(0, |newline| newline + 1)
}

/// The text between the start of the line and an offset, if it is blank.
pub(super) fn indentation(text: &str, at: usize) -> Option<&str> {
    let before = text.get(line_start(text, at)..at)?;
    before.chars().all(|c| matches!(c, ' ' | '\t')).then_some(before)
}
