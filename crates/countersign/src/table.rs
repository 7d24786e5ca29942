//! Stored values on a terminal. Whoever wrote a value may have put anything into it: no control character of theirs reaches
//! the terminal (attack AU11), and no line of theirs looks like one of ours.

use serde_json::Value;
use types::visible;

use crate::terminal;

/// JSON on one line, the same value to the letter: hidden characters can only stand in strings, where an escape means
/// the same.
pub(crate) fn json_line(value: &Value) -> String {
    visible(&value.to_string())
}

/// JSON on several lines, for people.
pub(crate) fn json_lines(value: &Value) -> Vec<String> {
    let pretty = serde_json::to_string_pretty(value).unwrap_or_else(|_| value.to_string());
    pretty.lines().map(visible).collect()
}

/// A value in a table: a string without its quotes, nothing for null.
pub(crate) fn cell(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::String(text)) => visible(text),
        Some(other) => json_line(other),
    }
}

/// How wide the headings of fields stand.
const HEADING: usize = 16;

/// A heading with its value beside it: on several lines where it has several parts, and nothing at all where there is no
/// value.
pub(crate) fn field(heading: &str, value: Option<&Value>) -> Vec<String> {
    match value {
        None | Some(Value::Null) => Vec::new(),
        Some(value @ (Value::Object(_) | Value::Array(_))) => beside(heading, json_lines(value)),
        Some(value) => beside(heading, [cell(Some(value))]),
    }
}

/// How much of large values is shown.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shown {
    /// All of them.
    pub(crate) full: bool,
    /// What fits beside a heading on the terminal; `None` if standard output is none.
    pub(crate) width: Option<usize>,
}

impl Shown {
    /// On standard output.
    pub(crate) fn new(full: bool) -> Self {
        Self { full, width: terminal::width().map(|width| width.saturating_sub(HEADING + 1)) }
    }

    /// As [`field`], and of a value of many lines the first ones, unless all are asked for.
    pub(crate) fn field(self, heading: &str, value: Option<&Value>) -> Vec<String> {
        const MOST: usize = 40;
        const FIRST: usize = 8;
        let mut lines = field(heading, value);
        if !self.full && lines.len() > MOST {
            let more = lines.len() - FIRST;
            lines.truncate(FIRST);
            lines.extend(beside("", [format!("and {more} more lines: --full shows all of them")]));
        }
        lines
    }
}

/// Lines beside a heading, which stands at the first.
pub(crate) fn beside(heading: &str, lines: impl IntoIterator<Item = String>) -> Vec<String> {
    let line = |(index, line)| format!("{:<HEADING$} {line}", if index == 0 { heading } else { "" });
    lines.into_iter().enumerate().map(line).collect()
}

/// RFC 3339 to the second: for people that is enough.
pub(crate) fn to_the_second(time: &str) -> String {
    time.split_once('.').map_or_else(|| time.to_owned(), |(seconds, _)| format!("{seconds}Z"))
}

/// At most so many characters, with a mark where something is missing.
fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

/// The rows without the columns in which no row but the heading says anything.
pub(crate) fn without_empty_columns(rows: Vec<Vec<String>>) -> Vec<Vec<String>> {
    let columns = rows.first().map_or(0, Vec::len);
    let says = |column| rows.iter().skip(1).filter_map(|row| row.get(column)).any(|text| text != "-");
    let kept: Vec<bool> = (0..columns).map(says).collect();
    let keep = |row: Vec<String>| row.into_iter().zip(&kept).filter(|(_, kept)| **kept).map(|(text, _)| text).collect();
    rows.into_iter().map(keep).collect()
}

/// A JSON object as `name=value name=value`, for a list, without the values that are `implied`; what is no object, or was cut, is
/// shown as it is.
pub(crate) fn assignments(json: &str, implied: Option<&Value>) -> String {
    let Ok(Value::Object(object)) = serde_json::from_str::<Value>(json) else { return visible(json) };
    let said = object.iter().filter(|(_, value)| Some(*value) != implied);
    let assignments: Vec<String> =
        said.map(|(name, value)| format!("{}={}", visible(name), json_line(value))).collect();
    assignments.join(" ")
}

/// How a column stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Alignment {
    Left,
    Right,
}

/// Lines with aligned columns, the first row as heading. Each line is cut to fit into `width`, so what matters most stands
/// left, and names that somebody else chose are cut to 24 characters. Without a width nothing is cut.
pub(crate) fn table(sides: &[Alignment], rows: &[Vec<String>], width: Option<usize>) -> Vec<String> {
    const WIDEST: usize = 24;
    let last = rows.first().map_or(0, Vec::len).saturating_sub(1);
    let widths: Vec<usize> = (0..sides.len())
        .map(|column| rows.iter().filter_map(|row| row.get(column)).map(|text| text.chars().count()).max().unwrap_or(0))
        .map(|widest| if width.is_some() { widest.min(WIDEST) } else { widest })
        .collect();
    let line = |row: &Vec<String>| {
        let mut line = String::new();
        for (column, ((text, &width), side)) in row.iter().zip(&widths).zip(sides).enumerate() {
            match (side, column == last) {
                (Alignment::Right, _) => line.push_str(&format!("{:>width$}", cut(text, width))),
                (Alignment::Left, true) => line.push_str(text),
                (Alignment::Left, false) => line.push_str(&format!("{:<width$}", cut(text, width))),
            }
            if column != last {
                line.push_str("  ");
            }
        }
        width.map_or_else(|| line.clone(), |width| cut(&line, width))
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_stored_value_controls_the_terminal() {
        // AU11
        let hostile = "x\n{\"level\":\"INFO\"}\u{1b}[2K\u{9b}2K\u{7f}\u{202e}\u{200b}\u{2028}\u{e0041}é😀\\";
        let line = visible(hostile);
        assert_eq!(line, "x\\n{\"level\":\"INFO\"}\\u001b[2K\\u009b2K\\u007f\\u202e\\u200b\\u2028\\udb40\\udc41é😀\\");
        let value = Value::String(hostile.to_owned());
        let json = json_line(&value);
        assert_eq!(visible(&json), json, "nothing is hidden in it");
        assert_eq!(serde_json::from_str::<Value>(&json).unwrap(), value, "the same value to the letter");
    }

    #[test]
    fn columns_are_aligned_and_a_line_is_cut_to_fit() {
        let rows =
            [["a", "ms", "what"], ["long", "7", "x y z and so on and on"]].map(|row| row.map(str::to_owned).to_vec());
        let sides = [Alignment::Left, Alignment::Right, Alignment::Left];
        assert_eq!(table(&sides, &rows, Some(22)), ["a     ms  what", "long   7  x y z and s…"]);
        assert_eq!(table(&sides, &rows, None)[1], "long   7  x y z and so on and on");
    }
}
