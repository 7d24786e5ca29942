//! Writes JSON as a person would: with the file's own indentation, and lists of texts on one line.

use serde_json::Value;

/// How the members of a file are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Style {
    pub(super) line_break: &'static str,
    /// One level of indentation.
    pub(super) unit: String,
}

impl Style {
    /// The text of a value. With `indent`, on several lines that begin there; otherwise on one line.
    pub(super) fn write(&self, value: &Value, indent: Option<&str>) -> String {
        let mut text = String::new();
        self.push(&mut text, value, indent);
        text
    }

    pub(super) fn member(&self, key: &str, value: &Value, indent: Option<&str>) -> String {
        format!("{}: {}", Value::from(key), self.write(value, indent))
    }

    fn push(&self, text: &mut String, value: &Value, indent: Option<&str>) {
        match value {
            Value::Object(members) => {
                let members = members.iter().map(|(key, value)| (format!("{}: ", Value::from(key.as_str())), value));
                self.push_all(text, ['{', '}'], members.collect(), indent);
            }
            Value::Array(elements) => {
                let has_lines = elements.iter().any(|element| element.is_object() || element.is_array());
                let elements = elements.iter().map(|element| (String::new(), element)).collect();
                self.push_all(text, ['[', ']'], elements, indent.filter(|_| has_lines));
            }
            scalar => text.push_str(&scalar.to_string()),
        }
    }

    fn push_all(
        &self,
        text: &mut String,
        [open, close]: [char; 2],
        members: Vec<(String, &Value)>,
        indent: Option<&str>,
    ) {
        let indent = indent.filter(|_| !members.is_empty());
        let inner = indent.map(|indent| format!("{indent}{}", self.unit));
        text.push(open);
        for (number, (key, value)) in members.into_iter().enumerate() {
            match &inner {
                Some(inner) => {
                    text.push_str(if number > 0 { "," } else { "" });
                    text.push_str(self.line_break);
                    text.push_str(inner);
                }
                None => text.push_str(if number > 0 { ", " } else { "" }),
            }
            text.push_str(&key);
            self.push(text, value, inner.as_deref());
        }
        if let Some(indent) = indent {
            text.push_str(self.line_break);
            text.push_str(indent);
        }
        text.push(close);
    }
}
