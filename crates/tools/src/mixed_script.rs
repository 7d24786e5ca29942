//! Warnings about words in parameters that mix scripts.

use manifest::ToolSpec;
use serde_json::{Map, Value};
use types::{escaped, mixed_words};

/// A sentence for each word in the parameters that mixes scripts. Texts of sensitive parameters are not shown.
pub(crate) fn warnings(spec: &ToolSpec, params: &Map<String, Value>) -> Vec<String> {
    let mut found = Vec::new();
    for (name, value) in params {
        let sensitive = spec.param(name).is_some_and(|param| param.sensitive);
        look(name, value, sensitive, &mut found);
    }
    found
}

fn look(place: &str, value: &Value, sensitive: bool, found: &mut Vec<String>) {
    match value {
        Value::String(text) => {
            for word in mixed_words(text) {
                let shown = if sensitive {
                    String::new()
                } else {
                    format!(": \"{}\" in \"{}\"", word.escaped(), escaped(text))
                };
                found.push(format!(
                    "parameter \"{place}\" mixes {} in one word{shown}; it may look like another text",
                    word.letters()
                ));
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                look(&format!("{place}.{index}"), item, sensitive, found);
            }
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                look(&format!("{place}.{name}"), field, sensitive, found);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_that_look_like_others_are_found_and_shown_in_escaped_form() {
        let mut found = Vec::new();
        look("email", &Value::from("to \u{430}dmin@x.test"), false, &mut found);
        assert_eq!(
            found,
            ["parameter \"email\" mixes Cyrillic and Latin letters in one word: \"\\u{430}dmin\" in \
              \"to \\u{430}dmin@x.test\"; it may look like another text"]
        );
        found.clear();
        look("names", &serde_json::json!(["plain", {"a": "p\u{3bf}st"}]), true, &mut found);
        assert_eq!(
            found,
            ["parameter \"names.1.a\" mixes Latin and Greek letters in one word; it may look like another text"]
        );
    }
}
