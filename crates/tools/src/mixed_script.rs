//! Warnings about words in parameters that mix scripts.

use ledger::WriteCall;
use serde_json::Value;
use types::{escaped, mixed_words};

/// The maximum number of warnings. A statement may have any number of such words.
const MAX_WARNINGS: usize = 20;

/// The length of the text that is shown around a word, in characters.
const MAX_TEXT_CHARS: usize = 200;

/// A sentence for each word in the parameters that mixes scripts. Texts of sensitive parameters are not shown.
pub(crate) fn warnings(write: &WriteCall) -> Vec<String> {
    let mut found = Vec::new();
    for (name, value) in &write.request.params {
        look(name, value, write.redaction.is_sensitive(name), &mut found);
    }
    if found.len() > MAX_WARNINGS {
        found.truncate(MAX_WARNINGS);
        found.push("more words mix letters of several scripts".to_owned());
    }
    found
}

fn look(place: &str, value: &Value, sensitive: bool, found: &mut Vec<String>) {
    match value {
        Value::String(text) => {
            let start: String = text.chars().take(MAX_TEXT_CHARS).collect();
            let end = if start.len() < text.len() { "…" } else { "" };
            for word in mixed_words(text).take(MAX_WARNINGS + 1) {
                let shown = if sensitive {
                    String::new()
                } else {
                    format!(": \"{}\" in \"{}{end}\"", word.escaped(), escaped(&start))
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
