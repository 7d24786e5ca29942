//! The parts of a JSON document that change, by the path of their keys: of `{"mail": {"daily": true}}` in the column
//! `settings`, `settings.mail.daily`.

use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::io::{Result, Write};

/// The maximum number of parts. A document in which more changes is shown whole.
const MAX_PARTS: usize = 20;

/// A changed part: its path, and its values before and after. `None` if there is no value.
pub(super) type Part = (String, Option<Value>, Option<Value>);

/// The changed parts of a column; `None` if they do not say how it changes, or are too many.
pub(super) fn parts(column: &str, before: &Value, after: &Value) -> Option<Vec<Part>> {
    let mut found = Vec::new();
    differences(column, object(before)?.as_ref(), object(after)?.as_ref(), &mut found);
    (1..=MAX_PARTS).contains(&found.len()).then_some(found)
}

fn differences(path: &str, before: &Map<String, Value>, after: &Map<String, Value>, found: &mut Vec<Part>) {
    let new = after.keys().filter(|key| !before.contains_key(*key));
    for key in before.keys().chain(new) {
        let path = format!("{path}.{}", step(key));
        match (before.get(key), after.get(key)) {
            (before, after) if before == after => {}
            (Some(Value::Object(before)), Some(Value::Object(after))) => differences(&path, before, after, found),
            (before, after) => {
                let kind = match (before, after) {
                    (None, _) => " (added)",
                    (_, None) => " (removed)",
                    _ => "",
                };
                found.push((path + kind, before.cloned(), after.cloned()));
            }
        }
    }
}

fn step(key: &str) -> String {
    let is_plain = !key.is_empty() && key.chars().all(|character| character.is_alphanumeric() || character == '_');
    if is_plain { key.to_owned() } else { Value::from(key).to_string() }
}

/// The object of a value. The ledger records columns as text: it is an object if it is written exactly as PostgreSQL
/// writes `jsonb`. The order of keys and the spaces of another text may change as well.
fn object(value: &Value) -> Option<Cow<'_, Map<String, Value>>> {
    match value {
        Value::Object(object) => Some(Cow::Borrowed(object)),
        Value::String(text) if text.starts_with('{') => match serde_json::from_str(text) {
            Ok(Value::Object(object)) => {
                (is_sorted(&object) && spelled(&object)? == *text).then_some(Cow::Owned(object))
            }
            _ => None,
        },
        _ => None,
    }
}

/// Whether keys have the order of `jsonb`: the shorter ones first.
fn is_sorted(object: &Map<String, Value>) -> bool {
    object.keys().is_sorted_by_key(|key| (key.len(), key.as_str()))
        && object.values().all(|value| match value {
            Value::Object(object) => is_sorted(object),
            Value::Array(values) => values.iter().filter_map(Value::as_object).all(is_sorted),
            _ => true,
        })
}

/// The text of `jsonb`.
fn spelled(object: &Map<String, Value>) -> Option<String> {
    let mut text = Vec::new();
    object.serialize(&mut Serializer::with_formatter(&mut text, Jsonb)).ok()?;
    String::from_utf8(text).ok()
}

/// Spaces behind commas and colons.
struct Jsonb;

impl Formatter for Jsonb {
    fn begin_array_value<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> Result<()> {
        writer.write_all(b": ")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn paths(before: &Value, after: &Value) -> Option<Vec<String>> {
        let shown = |value: Option<Value>| value.map_or_else(|| "-".to_owned(), |value| value.to_string());
        let line = |(path, before, after): Part| format!("{path}: {} > {}", shown(before), shown(after));
        Some(parts("c", before, after)?.into_iter().map(line).collect())
    }

    #[test]
    fn only_the_parts_that_change_are_named() {
        let before = json!({"a": 1, "b": {"c": [1, 2], "d e": null}, "gone": "x"});
        let after = json!({"a": 1, "b": {"c": [1, 3], "d e": false}, "new": {"x": 1}});
        let expected = [
            "c.b.c: [1,2] > [1,3]",
            "c.b.\"d e\": null > false",
            "c.gone (removed): \"x\" > -",
            "c.new (added): - > {\"x\":1}",
        ];
        assert_eq!(paths(&before, &after).unwrap(), expected);
    }

    #[test]
    fn a_text_has_parts_if_it_is_as_jsonb_writes_it() {
        let old = json!(r#"{"a": [1, {"b": "\u001f\u20ac"}], "bb": 1.50}"#.replace("\\u20ac", "\u{20ac}"));
        let new = json!(r#"{"a": [1, {"b": "\u001f\u20ac"}], "bb": 1.5}"#.replace("\\u20ac", "\u{20ac}"));
        assert_eq!(paths(&old, &new).unwrap(), ["c.bb: 1.50 > 1.5"]);
        for other in [
            r#"{"a":1, "b": 3}"#,
            r#"{"b": 3, "a": 1}"#,
            r#"{"bb": 1, "a": 3}"#,
            r#"{"a": 1, "a": 2, "b": 3}"#,
            r#"{"a": 1, "b": {"dd": 1, "c": 2}}"#,
            r#"{"a": 1, "b": 3} "#,
            r#"{"a": 1, "b": 3"#,
            "[1]",
        ] {
            assert_eq!(paths(&json!(r#"{"a": 1, "b": 2}"#), &json!(other)), None, "{other}");
        }
    }

    #[test]
    fn a_document_that_changes_everywhere_is_shown_whole() {
        let of = |value: u32| Value::from_iter((0..=MAX_PARTS).map(|n| (format!("k{n}"), json!(value))));
        assert_eq!(paths(&of(1), &of(2)), None);
    }
}
