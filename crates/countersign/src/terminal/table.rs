//! Stored values on a terminal. A value may contain any character: control characters are escaped, and a value cannot
//! imitate a line of the program.
//!
//! comfy-table 8.0.1 would save about 20 lines for three crates, and at 80 columns it leaves 8 characters to the
//! description in `proposals list`.

use review::CallText;
use serde_json::{Map, Value};
use types::{ClientInfo, visible};

use crate::terminal;

/// JSON on one line. Hidden characters are escaped; they occur only in strings, so the value is the same.
pub(crate) fn json_line(value: &Value) -> String {
    visible(&value.to_string())
}

pub(crate) fn json_lines(value: &Value) -> Vec<String> {
    let pretty = serde_json::to_string_pretty(value).unwrap_or_else(|_| value.to_string());
    pretty.lines().map(visible).collect()
}

/// A value in a table: a string without quotes, and nothing for null.
pub(crate) fn cell(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::String(text)) => visible(text),
        Some(other) => json_line(other),
    }
}

/// A text in a table; a dash if there is none.
pub(crate) fn or_dash(text: Option<&str>) -> String {
    text.map_or_else(|| "-".to_owned(), visible)
}

/// The name and the version of a client, and its session.
pub(crate) fn client_cells(client: Option<&ClientInfo>) -> [String; 2] {
    let text = |member: fn(&ClientInfo) -> &Option<String>| client.and_then(|client| member(client).as_deref());
    let version = text(|client| &client.version).map(|version| format!(" {}", visible(version))).unwrap_or_default();
    [format!("{}{version}", or_dash(text(|client| &client.name))), or_dash(text(|client| &client.session_id))]
}

/// Width of the headings of fields, in characters.
const HEADING: usize = 16;

/// A heading with its value beside it, on several lines if the value is an object or an array. No lines for null.
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
    /// Whether values are shown completely.
    pub(crate) full: bool,
    /// Characters that fit beside a heading; `None` if standard output is not a terminal.
    pub(crate) width: Option<usize>,
}

impl Shown {
    /// Takes the width of the terminal.
    pub(crate) fn new(full: bool) -> Self {
        Self { full, width: terminal::width().map(|width| width.saturating_sub(HEADING + 1)) }
    }

    /// The parameters of a call; a statement as text, with its values below.
    pub(crate) fn call(self, params: &Map<String, Value>) -> Vec<String> {
        let call = CallText::from(params);
        if call.statement.is_empty() {
            return self.field("parameters", Some(&Value::Object(params.clone())));
        }
        let value = |(name, value): &(String, &Value)| format!("{name} = {}", json_line(value));
        let values = beside("parameters", call.params.iter().map(value));
        [self.first_lines(beside("statement", call.statement)), self.first_lines(values)].concat()
    }

    /// Like [`field`], but shows only the first lines of a long value, unless `full` is set.
    pub(crate) fn field(self, heading: &str, value: Option<&Value>) -> Vec<String> {
        self.first_lines(field(heading, value))
    }

    fn first_lines(self, mut lines: Vec<String>) -> Vec<String> {
        const MAX_LINES: usize = 40;
        const FIRST: usize = 8;
        if !self.full && lines.len() > MAX_LINES {
            let more = lines.len() - FIRST;
            lines.truncate(FIRST);
            lines.extend(beside("", [format!("and {more} more lines: --full shows all of them")]));
        }
        lines
    }
}

/// Lines beside a heading, which is on the first line.
pub(crate) fn beside(heading: &str, lines: impl IntoIterator<Item = String>) -> Vec<String> {
    let line = |(index, line)| format!("{:<HEADING$} {line}", if index == 0 { heading } else { "" });
    lines.into_iter().enumerate().map(line).collect()
}

/// Cuts an RFC 3339 time to whole seconds.
pub(crate) fn to_the_second(time: &str) -> String {
    time.split_once('.').map_or_else(|| time.to_owned(), |(seconds, _)| format!("{seconds}Z"))
}

/// Cuts the text to `width` characters, with `…` at the end if it is longer.
pub(crate) fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

/// The rows without those columns that are empty in every row except the heading.
pub(crate) fn without_empty_columns(rows: Vec<Vec<String>>) -> Vec<Vec<String>> {
    let columns = rows.first().map_or(0, Vec::len);
    let says = |column| rows.iter().skip(1).filter_map(|row| row.get(column)).any(|text| text != "-");
    let kept: Vec<bool> = (0..columns).map(says).collect();
    let keep = |row: Vec<String>| row.into_iter().zip(&kept).filter(|(_, kept)| **kept).map(|(text, _)| text).collect();
    rows.into_iter().map(keep).collect()
}

/// The parameters of a call as `name=value name=value`, without the values that equal `implied`; a statement as text.
/// What is not a JSON object is returned unchanged, with hidden characters escaped.
pub(crate) fn assignments(json: &str, implied: Option<&Value>) -> String {
    let Ok(Value::Object(object)) = serde_json::from_str::<Value>(json) else { return visible(json) };
    let call = CallText::new(object.iter().filter(|(_, value)| Some(*value) != implied));
    if !call.statement.is_empty() {
        return call.line(usize::MAX);
    }
    call.params.iter().map(|(name, value)| format!("{name}={}", json_line(value))).collect::<Vec<_>>().join(" ")
}

/// The rows of a table below their heading.
pub(crate) fn with_heading<const N: usize>(
    heading: [&str; N],
    rows: impl IntoIterator<Item = Vec<String>>,
) -> Vec<Vec<String>> {
    std::iter::once(heading.map(str::to_owned).to_vec()).chain(rows).collect()
}

/// Lines with aligned columns; the first row is the heading. Numbers are aligned right. With a `width`, each line is
/// cut to `width`, and a column has at most 24 characters, except the last one.
pub(crate) fn table(rows: &[Vec<String>], width: Option<usize>) -> Vec<String> {
    const WIDEST: usize = 24;
    let columns = rows.first().map_or(0, Vec::len);
    let shape = |column: usize| {
        let texts = || rows.iter().filter_map(|row| row.get(column));
        let widest = texts().map(|text| text.chars().count()).max().unwrap_or(0);
        let is_number = |text: &String| text.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'-'));
        let is_right = texts().skip(1).all(is_number) && texts().skip(1).any(|text| text != "-");
        (if width.is_some() { widest.min(WIDEST) } else { widest }, is_right)
    };
    let shapes: Vec<(usize, bool)> = (0..columns).map(shape).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&shapes).enumerate().map(|(column, (text, &(width, is_right)))| {
            match (is_right, column + 1 == columns) {
                (true, _) => format!("{:>width$}", cut(text, width)),
                (false, true) => text.clone(),
                (false, false) => format!("{:<width$}", cut(text, width)),
            }
        });
        let line = cells.collect::<Vec<_>>().join("  ");
        width.map_or_else(|| line.clone(), |width| cut(&line, width))
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_stored_value_controls_the_terminal() {
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
        assert_eq!(table(&rows, Some(22)), ["a     ms  what", "long   7  x y z and s…"]);
        assert_eq!(table(&rows, None)[1], "long   7  x y z and so on and on");
    }
}
