//! The input schema of a tool as clients get it. The server enforces more than clients' converters and models' vendors
//! accept (docs/setup/client-behaviour.md).
//!
//! Vertex AI and the Gemini API are reported to refuse the whole request otherwise (not tried on them). A client that
//! checks arguments against the list sends digits as text.

use serde_json::{Map, Value, json};
use types::Scalar;

use super::types::{digits, scalar_words};

/// What clients do not accept, and the server enforces all the same.
const ADDITIONAL: &str = "additionalProperties";

/// The only format that Gemini's API takes.
const DATE_TIME: &str = "date-time";

/// The schema without `additionalProperties`, formats and null alternatives, and with one type for a number that may be
/// its digits. Nothing stands beside `anyOf`: Vertex AI refuses the whole request otherwise.
#[must_use]
pub fn listed(schema: &Map<String, Value>) -> Map<String, Value> {
    if let Some((number, pattern)) = digits(schema) {
        return digits_alone(schema, number, pattern);
    }
    let mut listed: Map<String, Value> =
        schema.iter().filter_map(|(key, part)| Some((key.clone(), listed_part(key, part)?))).collect();
    let scalar = match schema.get("format").and_then(Value::as_str) {
        Some("date") => Some(Scalar::Date),
        Some("uuid") => Some(Scalar::Uuid),
        _ => None,
    };
    if let Some(scalar) = scalar {
        describe(&mut listed, &format!("A {}", scalar_words(scalar, "")));
    }
    if let Some(Value::Array(alternatives)) = listed.shift_remove("anyOf") {
        return beside_nothing(listed, alternatives);
    }
    listed
}

/// The part of a schema under a keyword, if clients get it.
fn listed_part(key: &str, part: &Value) -> Option<Value> {
    let inner = |part: &Value| part.as_object().map_or_else(|| part.clone(), |part| Value::Object(listed(part)));
    match (key, part) {
        (ADDITIONAL, _) => None,
        ("format", format) if format != DATE_TIME => None,
        ("properties", Value::Object(all)) => {
            Some(Value::Object(all.iter().map(|(name, part)| (name.clone(), inner(part))).collect()))
        }
        ("items", part) => Some(inner(part)),
        ("anyOf", Value::Array(all)) => {
            let is_null = |part: &&Value| part.get("type").is_some_and(|kind| kind == "null");
            Some(all.iter().filter(|part| !is_null(part)).map(inner).collect())
        }
        (_, part) => Some(part.clone()),
    }
}

/// Alternatives without siblings: the description is that of the first one.
fn beside_nothing(mut siblings: Map<String, Value>, mut alternatives: Vec<Value>) -> Map<String, Value> {
    if let [Value::Object(only)] = alternatives.as_mut_slice() {
        only.extend(siblings);
        return std::mem::take(only);
    }
    let description = siblings.shift_remove("description");
    if let (Some(description), Some(Value::Object(first))) = (description, alternatives.first_mut()) {
        first.insert("description".to_owned(), description);
    }
    Map::from_iter([("anyOf".to_owned(), Value::Array(alternatives))])
}

/// A number as the text of its digits. Its limits are words.
fn digits_alone(schema: &Map<String, Value>, number: &Map<String, Value>, pattern: &str) -> Map<String, Value> {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let mut listed = Map::from_iter([("type".to_owned(), json!("string"))]);
    match number.get("enum").and_then(Value::as_array) {
        Some(all) => listed.insert("enum".to_owned(), all.iter().map(text).collect()),
        None => listed.insert("pattern".to_owned(), pattern.into()),
    };
    listed.extend(schema.iter().filter(|(key, _)| *key != "anyOf").map(|(key, part)| (key.clone(), part.clone())));
    if let Some(default) = listed.get_mut("default") {
        *default = text(default).into();
    }
    let limit = |key: &str, words: &str| number.get(key).map(|limit| format!("{words} {limit}"));
    let limits = [limit("minimum", "At least"), limit("maximum", "At most")].into_iter().flatten();
    for limit in limits {
        describe(&mut listed, &limit);
    }
    listed
}

/// Adds a sentence to the description.
fn describe(schema: &mut Map<String, Value>, sentence: &str) {
    let before = schema.get("description").and_then(Value::as_str).map(str::trim_end).unwrap_or_default();
    let end = if before.is_empty() || before.ends_with(['.', '!', '?', ')']) { "" } else { "." };
    let space = if before.is_empty() { "" } else { " " };
    let all = format!("{before}{end}{space}{sentence}.");
    schema.insert("description".to_owned(), all.into());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(schema: Value) -> Value {
        let Value::Object(schema) = schema else { panic!("no object") };
        Value::Object(listed(&schema))
    }

    #[test]
    fn a_number_that_may_be_its_digits_is_a_text_with_a_pattern() {
        let alternatives =
            json!([{"type": "integer", "minimum": 1, "maximum": 9}, {"type": "string", "pattern": "^-?[0-9]+$"}]);
        assert_eq!(
            of(json!({"anyOf": alternatives, "description": "Which", "default": 5})).to_string(),
            r#"{"type":"string","pattern":"^-?[0-9]+$","description":"Which. At least 1. At most 9.","default":"5"}"#
        );
        let alternatives = json!([{"type": "integer", "enum": [1, 2]}, {"type": "string", "pattern": "^-?[0-9]+$"}]);
        let schema = json!({"type": "array", "items": {"anyOf": alternatives}});
        assert_eq!(of(schema).to_string(), r#"{"type":"array","items":{"type":"string","enum":["1","2"]}}"#);
    }

    #[test]
    fn nothing_stands_beside_alternatives_and_none_is_null() {
        let any = json!({"anyOf": [{"type": "string"}, {"type": "number"}, {"type": "null"}], "description": "It.", "default": 1});
        let schema = json!({"type": "object", "properties": {"anyOf": any, "n": {"anyOf": [{"type": "string"}, {"type": "null"}], "description": "N."}}});
        assert_eq!(
            of(schema)["properties"].to_string(),
            r#"{"anyOf":{"anyOf":[{"type":"string","description":"It."},{"type":"number"}]},"n":{"type":"string","description":"N."}}"#
        );
    }

    #[test]
    fn formats_are_words() {
        for (format, text) in [
            ("date-time", r#"{"type":"string","format":"date-time","description":"When."}"#),
            ("date", r#"{"type":"string","description":"When. A date such as 2026-01-31."}"#),
            ("email", r#"{"type":"string","description":"When."}"#),
        ] {
            let schema =
                json!({"type": "string", "format": format, "additionalProperties": false, "description": "When."});
            assert_eq!(of(schema).to_string(), text);
        }
    }
}
