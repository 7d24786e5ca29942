//! Events as text: `json` (one line each), `yaml` (one document each) and `plain` (one line of `key=value` each).
//!
//! In yaml and plain, a unit in the name of a number moves to its value: `duration_ms: 16` becomes `duration: 16ms`.
//! Rows and parameters are never changed, whatever their names are. The crate `agent-first-data` needs a newer Rust
//! than this workspace.

use serde_json::{Map, Value};

use crate::events::{Event, Rows};

/// Format of events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Output {
    /// One JSON object per line.
    #[default]
    Json,
    /// One YAML document per event.
    Yaml,
    /// One line of `key=value` per event.
    Plain,
}

/// Suffixes of names, and the units that replace them.
const UNITS: [(&str, &str); 3] = [("_ms", "ms"), ("_s", "s"), ("_bytes", "B")];

/// YAML accepts keys of up to 1024 characters without a `?` before them.
const MAX_SIMPLE_KEY: usize = 1000;

/// The fields with data of the caller, which are not formatted.
const DATA: [&str; 3] = ["rows", "params", "columns"];

impl Output {
    /// The event with the end of its line or document.
    #[must_use]
    pub fn render(self, event: &Event) -> Vec<u8> {
        let rows = event.rows().map_or("[]", Rows::json);
        if self == Self::Json {
            return line(event, rows);
        }
        let Ok(Value::Object(mut fields)) = serde_json::to_value(event) else { return Vec::new() };
        if let Some(field) = fields.get_mut(ROWS) {
            *field = serde_json::from_str(rows).unwrap_or_else(|_| Value::from(rows));
        }
        let mut text = String::new();
        if self == Self::Yaml {
            text.push_str("---\n");
            push_mapping(&mut text, &fields, 0, true);
        } else {
            push_plain(&mut text, "", &fields);
            text.push('\n');
        }
        text.into_bytes()
    }
}

/// The field of the rows, in its serialized form.
const ROWS: &str = "rows";
const NO_ROWS: &[u8] = br#""rows":[]"#;

/// The event as a line. The text of the rows is inserted unchanged: it is most of the line, and is JSON already.
fn line(event: &Event, rows: &str) -> Vec<u8> {
    let around = serde_json::to_vec(event).unwrap_or_default();
    // No other part looks like this: quotes in strings are escaped.
    let found = around.windows(NO_ROWS.len()).position(|part| part == NO_ROWS);
    let (before, behind) = match found {
        Some(start) => around.split_at(start + NO_ROWS.len() - 2),
        None => (around.as_slice(), &[][..]),
    };
    let mut line = Vec::with_capacity(around.len() + rows.len());
    line.extend_from_slice(before);
    if let Some(behind) = behind.strip_prefix(b"[]") {
        line.extend_from_slice(rows.as_bytes());
        line.extend_from_slice(behind);
    }
    line.push(b'\n');
    line
}

/// The name and value to show: `("duration", "16ms")`; `None` if the name has no unit.
fn with_unit(name: &str, value: &Value) -> Option<(String, String)> {
    let Value::Number(number) = value else { return None };
    let (ending, unit) = UNITS.iter().find(|(ending, _)| name.ends_with(ending))?;
    Some((name.strip_suffix(ending)?.to_owned(), format!("{number}{unit}")))
}

fn push_mapping(text: &mut String, fields: &Map<String, Value>, depth: usize, is_formatted: bool) {
    for (name, value) in fields {
        text.push_str(&"  ".repeat(depth));
        if let Some((name, value)) = with_unit(name, value).filter(|_| is_formatted) {
            text.push_str(&format!("{}: {value}\n", scalar_text(&name)));
            continue;
        }
        let key = scalar_text(name);
        if key.len() > MAX_SIMPLE_KEY {
            text.push_str(&format!("? {key}\n{}:", "  ".repeat(depth)));
        } else {
            text.push_str(&format!("{key}:"));
        }
        push_node(text, value, depth, is_formatted && !DATA.contains(&name.as_str()));
    }
}

/// Appends the text after `key:` or `-`.
fn push_node(text: &mut String, value: &Value, depth: usize, is_formatted: bool) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            text.push('\n');
            push_mapping(text, fields, depth + 1, is_formatted);
        }
        Value::Array(items) if !items.is_empty() => {
            text.push('\n');
            for item in items {
                text.push_str(&"  ".repeat(depth + 1));
                text.push('-');
                push_node(text, item, depth + 1, is_formatted);
            }
        }
        Value::Object(_) => text.push_str(" {}\n"),
        Value::Array(_) => text.push_str(" []\n"),
        Value::String(string) => text.push_str(&format!(" {}\n", scalar_text(string))),
        other => text.push_str(&format!(" {other}\n")),
    }
}

/// A string that YAML parses as the same string: plain if it cannot be mistaken for another type, otherwise in double
/// quotes.
fn scalar_text(string: &str) -> String {
    let is_word = string.starts_with(|first: char| first.is_ascii_alphabetic())
        && string.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
        && !matches!(
            string.to_ascii_lowercase().as_str(),
            "y" | "n" | "yes" | "no" | "on" | "off" | "true" | "false" | "null" | "nan" | "inf"
        );
    if is_word { string.to_owned() } else { in_quotes(string) }
}

/// The string in double quotes, in a form that both JSON and YAML accept. Unprintable characters are escaped.
fn in_quotes(string: &str) -> String {
    let mut quoted = String::from("\"");
    for character in string.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            hidden if is_unprintable(hidden) => quoted.push_str(&format!("\\u{:04x}", u32::from(hidden))),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

/// Whether YAML requires the character to be escaped (YAML 1.2, `c-printable`), or would parse it as a line break.
fn is_unprintable(character: char) -> bool {
    character.is_control() || matches!(character, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}

fn push_plain(text: &mut String, above: &str, fields: &Map<String, Value>) {
    for (name, value) in fields {
        let (name, value) = match (with_unit(name, value), value) {
            (Some(shown), _) => shown,
            (None, Value::Object(inner)) if !inner.is_empty() => {
                push_plain(text, &format!("{above}{}.", plain_word(name)), inner);
                continue;
            }
            (None, Value::String(string)) => (name.clone(), plain_word(string)),
            // Rows and other data are written as quoted JSON, since a space would look like the end of the value.
            (None, other) => (name.clone(), plain_word(&other.to_string())),
        };
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(&format!("{above}{}={value}", plain_word(&name)));
    }
}

fn plain_word(word: &str) -> String {
    let is_plain = !word.is_empty()
        && word.chars().all(|character| !matches!(character, ' ' | '"' | '=' | '\\') && !is_unprintable(character));
    if is_plain { word.to_owned() } else { in_quotes(word) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::{ColumnName, ResultEvent, Trace};

    fn result(rows: &str) -> Event {
        Event::Result(Box::new(ResultEvent {
            id: "q 1".into(),
            session: "default".into(),
            command_tag: "ROWS 1".into(),
            columns: vec![ColumnName { name: "wait_ms".into(), type_name: "int4".into() }],
            rows: Rows::from_json(rows.into()),
            row_count: 1,
            correlation_id: None,
            is_commit: false,
            trace: Trace { duration_ms: 16, row_count: Some(1), payload_bytes: Some(7) },
        }))
    }

    fn rendered(form: Output, rows: &str) -> String {
        String::from_utf8(form.render(&result(rows))).unwrap()
    }

    #[test]
    fn json_is_one_line_in_the_order_of_the_document_and_rows_are_as_they_came() {
        let rows = r#"[{"wait_ms":1.10,"api_key_secret":"x"}]"#;
        let expected = format!(
            r#"{{"code":"result","id":"q 1","session":"default","command_tag":"ROWS 1","columns":[{{"name":"wait_ms","type":"int4"}}],"rows":{rows},"row_count":1,"trace":{{"duration_ms":16,"row_count":1,"payload_bytes":7}}}}"#
        );
        assert_eq!(rendered(Output::Json, rows), format!("{expected}\n"));
        // A value of the type json may have line breaks between its tokens.
        assert_eq!(rendered(Output::Json, "[{\"a\":{\r\n\"b\":1}}]").matches('\n').count(), 1);
    }

    #[test]
    fn yaml_bears_units_and_leaves_rows_alone() {
        let expected = r#"---
code: result
id: "q 1"
session: default
command_tag: "ROWS 1"
columns:
  -
    name: wait_ms
    type: int4
rows:
  -
    wait_ms: 5
    api_key_secret: "no"
    "a b": "1"
    "n": null
    deep:
      -
        - 1
        - []
row_count: 1
trace:
  duration: 16ms
  row_count: 1
  payload: 7B
"#;
        let rows = r#"[{"wait_ms":5,"api_key_secret":"no","a b":"1","n":null,"deep":[[1,[]]]}]"#;
        assert_eq!(rendered(Output::Yaml, rows), expected);
    }

    #[test]
    fn plain_is_one_line_and_leaves_rows_alone() {
        let expected = r#"code=result id="q 1" session=default command_tag="ROWS 1" columns="[{\"name\":\"wait_ms\",\"type\":\"int4\"}]" rows="[{\"wait_ms\":5,\"x\":\"a b\"}]" row_count=1 trace.duration=16ms trace.row_count=1 trace.payload=7B"#;
        assert_eq!(rendered(Output::Plain, r#"[{"wait_ms":5,"x":"a b"}]"#), format!("{expected}\n"));
    }
}
