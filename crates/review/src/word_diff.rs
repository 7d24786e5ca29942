//! The words that differ between two versions of a long text, with what is around them.

use std::time::Duration;

use similar::{ChangeTag, TextDiff};

/// How long words are compared. Later, the rest of the texts counts as one difference.
const TIME_LIMIT: Duration = Duration::from_millis(100);

/// The part of equal text that is shown beside a difference: its lines, and its characters.
const CONTEXT_LINES: usize = 3;
const CONTEXT_CHARS: usize = 160;

/// The maximum length of one difference, in characters.
const MAX_CHARS: usize = 600;

const MAX_PARTS: usize = 60;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TextPart {
    Same(String),
    /// Only the old text has it.
    Removed(String),
    /// Only the new text has it.
    Added(String),
    /// This many characters are not shown.
    Skipped(usize),
}

/// The differences of two texts in their order.
#[must_use]
pub fn word_diff(old: &str, new: &str) -> Vec<TextPart> {
    let diff = TextDiff::configure().timeout(TIME_LIMIT).diff_words(old, new);
    let mut runs: Vec<(ChangeTag, String)> = Vec::new();
    for change in diff.iter_all_changes() {
        match runs.last_mut() {
            Some((tag, text)) if *tag == change.tag() => text.push_str(change.value()),
            _ => runs.push((change.tag(), change.value().to_owned())),
        }
    }
    let last = runs.len().saturating_sub(1);
    let mut parts = Vec::new();
    for (at, (tag, text)) in runs.into_iter().enumerate() {
        match tag {
            ChangeTag::Equal => shorten(&text, at > 0, at < last, &mut parts),
            ChangeTag::Delete => begin(text, TextPart::Removed, &mut parts),
            ChangeTag::Insert => begin(text, TextPart::Added, &mut parts),
        }
    }
    if parts.len() > MAX_PARTS {
        let rest = parts.split_off(MAX_PARTS);
        parts.push(TextPart::Skipped(rest.iter().map(TextPart::chars).sum()));
    }
    parts
}

impl TextPart {
    fn chars(&self) -> usize {
        match self {
            Self::Same(text) | Self::Removed(text) | Self::Added(text) => text.chars().count(),
            Self::Skipped(count) => *count,
        }
    }
}

/// The beginning of a difference.
fn begin(text: String, part: fn(String) -> TextPart, parts: &mut Vec<TextPart>) {
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => {
            let (start, rest) = text.split_at_checked(end).unwrap_or_default();
            parts.extend([part(start.to_owned()), TextPart::Skipped(rest.chars().count())]);
        }
        None => parts.push(part(text)),
    }
}

/// Equal text without its middle. `after` and `before` say whether a difference is on that side of it.
fn shorten(text: &str, after: bool, before: bool, parts: &mut Vec<TextPart>) {
    let head = if after { context(text.chars()) } else { 0 };
    let tail = if before { context(text.chars().rev()) } else { 0 };
    let count = text.chars().count();
    if head + tail >= count {
        parts.push(TextPart::Same(text.to_owned()));
        return;
    }
    let cut = |from: usize, count: usize| text.chars().skip(from).take(count).collect::<String>();
    if head > 0 {
        parts.push(TextPart::Same(cut(0, head)));
    }
    parts.push(TextPart::Skipped(count - head - tail));
    if tail > 0 {
        parts.push(TextPart::Same(cut(count - tail, tail)));
    }
}

/// The number of characters that are shown from one side.
fn context(characters: impl Iterator<Item = char>) -> usize {
    let mut lines = 0;
    let is_near = |character: &char| {
        lines += usize::from(*character == '\n');
        lines <= CONTEXT_LINES
    };
    characters.take(CONTEXT_CHARS).take_while(is_near).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_changed_word_is_marked_and_what_is_far_from_it_is_left_out() {
        let long = "The patient rests. ".repeat(300);
        let parts = word_diff(&format!("{long}He sleeps. {long}"), &format!("{long}She sleeps. {long}"));
        let [
            TextPart::Skipped(before),
            TextPart::Same(_),
            TextPart::Removed(old),
            TextPart::Added(new),
            TextPart::Same(next),
            TextPart::Skipped(_),
        ] = parts.as_slice()
        else {
            panic!("{parts:?}")
        };
        assert_eq!((*before, old.as_str(), new.as_str()), (long.len() - CONTEXT_CHARS, "He", "She"));
        assert!(next.starts_with(" sleeps."), "{next}");
        let lines = "a line\n".repeat(50);
        let parts = word_diff(&format!("{lines}old"), &format!("{lines}new"));
        assert_eq!(parts[1], TextPart::Same("a line\n".repeat(3)));
    }

    #[test]
    fn texts_of_any_length_take_a_bounded_time_and_place() {
        let text = |n: usize| (0..150_000).map(|at| format!("{} ", at * n % 7919)).collect::<String>();
        let parts = word_diff(&text(3), &text(5));
        assert!(parts.len() <= MAX_PARTS + 1);
        assert!(parts.iter().all(|part| matches!(part, TextPart::Skipped(_)) || part.chars() <= MAX_CHARS));
        assert_eq!(word_diff("", "new"), [TextPart::Added("new".to_owned())]);
    }
}
