//! Adds and removes members of an object or an array in a JSON text.

use std::ops::Range;

use super::edit::{Splice, indentation, line_start};
use super::json_style::Style;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Comment {
    pub(super) range: Range<usize>,
    /// Whether it ends with its line.
    pub(super) is_line: bool,
}

/// An object or an array, and the text around its members.
pub(super) struct Container<'a> {
    pub(super) text: &'a str,
    /// The text between the brackets.
    pub(super) inside: Range<usize>,
    pub(super) members: Vec<Range<usize>>,
    /// All commas of the text, in order.
    pub(super) commas: &'a [usize],
    /// All comments of the text, in order.
    pub(super) comments: &'a [Comment],
}

impl Container<'_> {
    fn slice(&self, range: Range<usize>) -> &str {
        self.text.get(range).unwrap_or_default()
    }

    fn comma_after(&self, number: usize) -> Option<usize> {
        let start = self.members.get(number)?.end;
        let end = self.members.get(number + 1).map_or(self.inside.end, |next| next.start);
        self.commas.iter().copied().find(|comma| (start..end).contains(comma))
    }

    /// Adds a member at the end. `write` receives the indentation of the member's line, or `None` if the member is
    /// written on a shared line.
    pub(super) fn add(&self, style: &Style, write: impl Fn(Option<&str>) -> String) -> Vec<Splice> {
        match self.members.last() {
            Some(last) => self.add_after(last, style, &write),
            None => vec![self.add_first(style, &write)],
        }
    }

    fn add_first(&self, style: &Style, write: &dyn Fn(Option<&str>) -> String) -> Splice {
        let line = line_start(self.text, self.inside.start);
        let blank = |c: &char| matches!(c, ' ' | '\t');
        let base: String = self.slice(line..self.inside.start).chars().take_while(blank).collect();
        let indent = format!("{base}{}", style.unit);
        let member = format!("{}{indent}{}", style.line_break, write(Some(&indent)));
        let mut comments = self.comments.iter().filter(|comment| self.inside.contains(&comment.range.start));
        match comments.next_back() {
            Some(last) => Splice::insert(last.range.end, member),
            None => Splice { range: self.inside.clone(), text: format!("{member}{}{base}", style.line_break) },
        }
    }

    fn add_after(&self, last: &Range<usize>, style: &Style, write: &dyn Fn(Option<&str>) -> String) -> Vec<Splice> {
        let comma = self.comma_after(self.members.len() - 1);
        let end = comma.map_or(last.end, |comma| comma + 1);
        // If the file has trailing commas, the new member gets one too.
        let closing = if comma.is_some() { "," } else { "" };
        let (at, member) = match indentation(self.text, last.start) {
            Some(indent) => {
                (self.after_comments(end), format!("{}{indent}{}{closing}", style.line_break, write(Some(indent))))
            }
            None => {
                let first = self.comma_after(0).and_then(|comma| self.text.get(comma + 1..));
                let is_dense =
                    self.members.len() > 1 && first.is_some_and(|rest| !rest.starts_with(char::is_whitespace));
                (end, format!("{}{}{closing}", if is_dense { "" } else { " " }, write(None)))
            }
        };
        let comma = comma.is_none().then(|| Splice::insert(last.end, ","));
        comma.into_iter().chain([Splice::insert(at, member)]).collect()
    }

    /// The end of the comments that begin on the line of an offset.
    fn after_comments(&self, start: usize) -> usize {
        let is_blank = |text: &str| text.chars().all(|c| matches!(c, ' ' | '\t'));
        let after = self.comments.iter().filter(|comment| (start..self.inside.end).contains(&comment.range.start));
        after.fold(
            start,
            |at, comment| if is_blank(self.slice(at..comment.range.start)) { comment.range.end } else { at },
        )
    }

    /// Removes a member with its line, and the comma that belonged to it.
    pub(super) fn remove(&self, number: usize) -> Vec<Splice> {
        let Some(member) = self.members.get(number).cloned() else { return Vec::new() };
        let comma = self.comma_after(number);
        let end = comma
            .filter(|comma| self.slice(member.end..*comma).trim().is_empty())
            .map_or(member.end, |comma| comma + 1);
        let is_alone = self.members.len() == 1
            && self.slice(self.inside.start..member.start).trim().is_empty()
            && self.slice(end..self.inside.end).trim().is_empty();
        if is_alone {
            return vec![Splice::remove(self.inside.clone())];
        }
        let mut splices = Vec::new();
        if comma.is_none() && number > 0 {
            splices.extend(self.comma_after(number - 1).map(|comma| Splice::remove(comma..comma + 1)));
        }
        splices.push(Splice::remove(self.lead(&member, end)..end));
        splices.extend(comma.filter(|comma| *comma >= end).map(|comma| Splice::remove(comma..comma + 1)));
        splices
    }

    /// The start of the text to remove before a member: its indentation and the line break before it.
    fn lead(&self, member: &Range<usize>, end: usize) -> usize {
        let before = self.slice(self.inside.start..member.start);
        let blank = before.trim_end_matches([' ', '\t']);
        let line = blank.strip_suffix("\r\n").or_else(|| blank.strip_suffix('\n'));
        let Some(line) = line else { return self.inside.start + blank.len() };
        let lead = self.inside.start + line.len();
        // If the line break were removed, the rest of the line would become part of the comment before it.
        let is_after_comment = self.comments.iter().any(|comment| comment.is_line && comment.range.end == lead);
        let rest = self.slice(end..self.text.len());
        let is_last_on_line = rest.trim_start_matches([' ', '\t', '\r']).starts_with('\n');
        if is_after_comment && !is_last_on_line { member.start } else { lead }
    }
}
