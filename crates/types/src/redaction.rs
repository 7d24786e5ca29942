//! Replaces the values of sensitive parameters wherever they would be stored or shown.

use std::collections::HashSet;

use serde_json::{Map, Value};

/// The replacement of a sensitive value.
pub const REDACTED: &str = "[redacted]";

/// A shorter sensitive text is replaced only where it is the whole value, because it may be part of any other text.
const LEAST_PART_BYTES: usize = 4;

/// The sensitive values of one call. The operator marks parameters; their values are replaced by name and by value.
///
/// By value means that three kinds of values match: a string or key that equals a sensitive one, or contains one of
/// at least 4 bytes; a number that equals a sensitive one; and an array or object that equals a sensitive one as a
/// whole. Case is ignored, since PostgreSQL changes the case of some values (a UUID). Booleans and null never match.
/// Values that PostgreSQL derives (a hash, another date format) are not recognized.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Redaction {
    names: Vec<String>,
    /// Arrays and objects, which match only as a whole.
    wholes: Vec<Value>,
    numbers: Vec<String>,
    /// In lower case, the longest first. Each text is here as it is, and as it is escaped within JSON or a quoted SQL
    /// literal.
    texts: Vec<String>,
    /// Keys of objects that are never replaced, because they are names of the schema and not values of a call.
    kept_keys: HashSet<String>,
}

impl std::fmt::Debug for Redaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redaction").field("names", &self.names).finish_non_exhaustive()
    }
}

impl Redaction {
    /// The sensitive values of a call. `names` are the marked parameters, `params` all effective parameters.
    pub fn new<'a>(names: impl IntoIterator<Item = &'a str>, params: &Map<String, Value>) -> Self {
        let mut redaction = Self { names: names.into_iter().map(str::to_owned).collect(), ..Self::default() };
        redaction.kept_keys.extend(params.keys().cloned());
        for name in redaction.names.clone() {
            redaction.learn(params.get(&name).unwrap_or(&Value::Null));
        }
        redaction
    }

    /// The given values, whatever parameter or column they come from.
    #[must_use]
    pub fn of_values(values: &[Value]) -> Self {
        let mut redaction = Self::default();
        values.iter().for_each(|value| redaction.learn(value));
        redaction
    }

    /// Whether this is the name of a sensitive parameter.
    #[must_use]
    pub fn is_sensitive(&self, name: &str) -> bool {
        self.names.iter().any(|sensitive| sensitive == name)
    }

    /// Adds keys of objects that are never replaced. The names of the parameters are among them already.
    #[must_use]
    pub fn keeping_keys<'a>(mut self, keys: impl IntoIterator<Item = &'a str>) -> Self {
        self.kept_keys.extend(keys.into_iter().map(str::to_owned));
        self
    }

    /// Whether nothing is sensitive.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.names.is_empty() && self.texts.is_empty() && self.numbers.is_empty() && self.wholes.is_empty()
    }

    /// Adds the counterparts of sensitive values in row images: if a column is sensitive in the image before or
    /// after, its value in the other image is sensitive too.
    #[must_use]
    pub fn with_images(mut self, images: &[Option<&Value>]) -> Self {
        let rows =
            || images.iter().copied().flatten().filter_map(Value::as_array).flatten().filter_map(Value::as_object);
        let columns: Vec<String> = rows()
            .flat_map(|row| row.iter().filter(|(_, value)| self.value(value) != **value).map(|(name, _)| name.clone()))
            .collect();
        let replaced: Vec<Value> =
            rows().flat_map(|row| columns.iter().filter_map(|name| row.get(name)).cloned()).collect();
        replaced.iter().for_each(|value| self.learn(value));
        self
    }

    fn learn(&mut self, value: &Value) {
        match value {
            Value::Null | Value::Bool(_) => {}
            Value::Number(number) => self.numbers.push(number.to_string()),
            Value::String(text) => {
                let quoted = value.to_string();
                let within_json = quoted.get(1..quoted.len() - 1).unwrap_or_default().to_owned();
                for form in [text.clone(), within_json, text.replace('\'', "''"), text.replace('"', "\"\"")] {
                    let form = form.to_lowercase();
                    if !form.is_empty() && !self.texts.contains(&form) {
                        self.texts.push(form);
                    }
                }
                self.texts.sort_by_key(|text| std::cmp::Reverse(text.len()));
            }
            Value::Array(items) => {
                self.wholes.push(value.clone());
                items.iter().for_each(|item| self.learn(item));
            }
            Value::Object(fields) => {
                self.wholes.push(value.clone());
                fields.values().for_each(|field| self.learn(field));
            }
        }
    }

    /// The effective parameters as they may be stored. Sensitive parameters are replaced by name, and their values
    /// wherever else they occur.
    #[must_use]
    pub fn params(&self, params: &Map<String, Value>) -> Map<String, Value> {
        let kept = |(name, value): (&String, &Value)| {
            let value = match value {
                Value::Null => Value::Null,
                _ if self.is_sensitive(name) => REDACTED.into(),
                other => self.value(other),
            };
            (name.clone(), value)
        };
        params.iter().map(kept).collect()
    }

    /// The value with sensitive values replaced.
    #[must_use]
    pub fn value(&self, value: &Value) -> Value {
        if self.is_empty() {
            return value.clone();
        }
        match value {
            Value::Array(_) | Value::Object(_) if self.wholes.contains(value) => REDACTED.into(),
            Value::Array(items) => items.iter().map(|item| self.value(item)).collect(),
            Value::Object(fields) => Value::Object(self.fields(fields)),
            Value::String(text) if self.holds(text) => REDACTED.into(),
            Value::Number(number) if self.is_sensitive_number(&number.to_string()) => REDACTED.into(),
            other => other.clone(),
        }
    }

    /// A text, or the replacement if the text contains a sensitive value.
    #[must_use]
    pub fn whole_text(&self, text: String) -> String {
        if self.holds(&text) { REDACTED.to_owned() } else { text }
    }

    /// The fields of an object. If several keys are redacted, the results get different keys, so that no field is
    /// lost.
    fn fields(&self, fields: &Map<String, Value>) -> Map<String, Value> {
        let mut kept = Map::new();
        for (name, field) in fields {
            let mut key = name.clone();
            if self.holds(name) && !self.kept_keys.contains(name) {
                let numbered = (2..).map(|number| format!("{REDACTED} {number}"));
                let mut free = std::iter::once(REDACTED.to_owned()).chain(numbered);
                key = free.find(|key| !kept.contains_key(key)).unwrap_or_default();
            }
            kept.insert(key, self.value(field));
        }
        kept
    }

    fn holds(&self, text: &str) -> bool {
        let lower = text.to_lowercase();
        let found = |part: &String| *part == lower || (part.len() >= LEAST_PART_BYTES && lower.contains(part.as_str()));
        self.texts.iter().chain(&self.numbers).any(found)
    }

    fn is_sensitive_number(&self, number: &str) -> bool {
        let same = |known: &String| {
            let values = (known.parse::<f64>(), number.parse::<f64>());
            known == number || matches!(values, (Ok(known), Ok(number)) if known.to_bits() == number.to_bits())
        };
        self.numbers.iter().chain(&self.texts).any(same)
    }

    /// Replaces every sensitive value in a message; values of fewer than 4 bytes only where they are quoted.
    #[must_use]
    pub fn text(&self, text: &str) -> String {
        let mut message = text.to_owned();
        for part in self.texts.iter().chain(&self.numbers) {
            if part.len() >= LEAST_PART_BYTES {
                message = replaced(&message, part, REDACTED);
            } else {
                for quote in ['"', '\''] {
                    let quoted = format!("{quote}{part}{quote}");
                    message = replaced(&message, &quoted, &format!("{quote}{REDACTED}{quote}"));
                }
            }
        }
        message
    }
}

/// Replaces `part`, which is in lower case, and ignores the case of `text`.
fn replaced(text: &str, part: &str, by: &str) -> String {
    let lower = text.to_lowercase();
    if !lower.contains(part) {
        return text.to_owned();
    }
    if lower.len() != text.len() {
        // Lower-casing changed the length, so byte offsets do not match. A message in lower case is better than one
        // with a sensitive value.
        return lower.replace(part, by);
    }
    let mut out = String::with_capacity(text.len());
    let mut end = 0;
    for (start, found) in lower.match_indices(part) {
        let Some(between) = text.get(end..start) else { return lower.replace(part, by) };
        out.push_str(between);
        out.push_str(by);
        end = start + found.len();
    }
    out.push_str(text.get(end..).unwrap_or_default());
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn redaction(secret: Value) -> Redaction {
        Redaction::new(["secret"], json!({"secret": secret, "id": 7}).as_object().unwrap())
    }

    #[test]
    fn parameters_are_redacted_by_name_and_elsewhere_by_value() {
        let params = json!({"secret": true, "id": 7, "note": "x"});
        let redaction = Redaction::new(["secret"], params.as_object().unwrap());
        assert_eq!(
            Value::Object(redaction.params(params.as_object().unwrap())),
            json!({"secret": REDACTED, "id": 7, "note": "x"})
        );
        let none = json!({"secret": null});
        assert_eq!(Value::Object(redaction.params(none.as_object().unwrap())), none);
    }

    #[test]
    fn strings_are_found_whole_and_from_four_bytes_on_within_others() {
        for (secret, value, kept) in [
            (
                json!("hunter2"),
                json!({"a": ["my hunter2!", "HUNTER2", "hunter"]}),
                json!({"a": [REDACTED, REDACTED, "hunter"]}),
            ),
            (json!("abc"), json!(["abc", "abcd"]), json!([REDACTED, "abcd"])),
            (json!("a\"b'c\n"), json!([r#"{"x": "a\"b'c\n"}"#, "('a\"b''c\n')"]), json!([REDACTED, REDACTED])),
            (
                json!(["one1", "two2"]),
                json!(["one1", ["one1", "two2"], "x two2"]),
                json!([REDACTED, REDACTED, REDACTED]),
            ),
            (json!({"k": "v", "n": 1}), json!([{"n": 1, "k": "v"}, {"k": "v"}]), json!([REDACTED, {"k": REDACTED}])),
            (json!("1234"), json!([1234, 12345]), json!([REDACTED, 12345])),
            (json!(true), json!([true, "true"]), json!([true, "true"])),
            (
                json!("hunter2"),
                json!({"hunter2": 1, "my Hunter2": {"x": 2}, "id": 3}),
                json!({REDACTED: 1, "[redacted] 2": {"x": 2}, "id": 3}),
            ),
            // The names of the call's parameters are never replaced.
            (json!("id"), json!({"id": "id"}), json!({"id": REDACTED})),
        ] {
            assert_eq!(redaction(secret).value(&value), kept, "{value}");
        }
    }

    #[test]
    fn numbers_are_found_whatever_their_spelling() {
        assert_eq!(redaction(json!(1.5)).value(&json!([1.5, "1.5", 15])), json!([REDACTED, REDACTED, 15]));
        let exact: Value = serde_json::from_str("[1.500, 15e-1, 9007199254740993]").unwrap();
        assert_eq!(redaction(json!(1.5)).value(&exact)[2], exact[2]);
        assert_eq!(redaction(json!(1.5)).value(&exact)[0], REDACTED);
    }

    #[test]
    fn messages_lose_the_value_and_nothing_else() {
        let long = redaction(json!("Hunter2"));
        assert_eq!(long.text("invalid \"hunter2\" for X"), "invalid \"[redacted]\" for X");
        let short = redaction(json!("is"));
        assert_eq!(short.text("this is \"is\""), "this is \"[redacted]\"");
        assert_eq!(
            redaction(json!(70000)).text("value \"70000\" is out of range"),
            "value \"[redacted]\" is out of range"
        );
        assert_eq!(long.text("İ hunter2"), "i\u{307} [redacted]");
    }

    #[test]
    fn what_a_sensitive_value_replaced_is_sensitive_too() {
        let (before, after) = (json!([{"id": 7, "token": "old-token"}]), json!([{"id": 7, "token": "new-token"}]));
        let redaction = redaction(json!("new-token")).with_images(&[Some(&before), Some(&after), None]);
        assert_eq!(redaction.value(&before), json!([{"id": 7, "token": REDACTED}]));
        assert_eq!(redaction.value(&json!({"was": "old-token"})), json!({"was": REDACTED}));
    }

    #[test]
    fn debug_output_has_names_only() {
        assert!(!format!("{:?}", redaction(json!("hunter2"))).contains("hunter2"));
    }
}
