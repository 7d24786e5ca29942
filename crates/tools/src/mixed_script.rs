//! Words that mix scripts: `аdmin` with a Cyrillic `а` looks like another word (Unicode Technical Standard 39,
//! section 5).
//!
//! The crate unicode-security 0.1.3 cannot be used. It judges identifiers, but parameters are texts: it gives `µm`
//! and `x²` the worst level. It also does not name the scripts.

use manifest::ToolSpec;
use serde_json::{Map, Value};
use unicode_script::{Script, UnicodeScript};

/// Scripts that one language mixes, also with Latin letters (UTS 39, "highly restrictive").
const WRITTEN_TOGETHER: [&[Script]; 3] = [
    &[Script::Latin, Script::Han, Script::Hiragana, Script::Katakana],
    &[Script::Latin, Script::Han, Script::Bopomofo],
    &[Script::Latin, Script::Han, Script::Hangul],
];

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
            for word in text.split(|c: char| !c.is_alphanumeric()) {
                let scripts = scripts(word);
                if is_suspicious(&scripts) {
                    let names: Vec<&str> = scripts.iter().map(|script| script.full_name()).collect();
                    let shown = if sensitive {
                        String::new()
                    } else {
                        format!(": \"{}\" in \"{}\"", escaped(word), escaped(text))
                    };
                    found.push(format!(
                        "parameter \"{place}\" mixes {} letters in one word{shown}; it may look like another text",
                        names.join(" and ")
                    ));
                }
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

/// The scripts of a word's letters in their order. Digits and marks belong to every script.
fn scripts(word: &str) -> Vec<Script> {
    let mut scripts = Vec::new();
    for script in word.chars().map(|c| c.script()) {
        if !matches!(script, Script::Common | Script::Inherited | Script::Unknown) && !scripts.contains(&script) {
            scripts.push(script);
        }
    }
    scripts
}

fn is_suspicious(scripts: &[Script]) -> bool {
    scripts.len() > 1 && !WRITTEN_TOGETHER.iter().any(|together| scripts.iter().all(|script| together.contains(script)))
}

/// Escapes all characters except ASCII as `\u{..}`.
fn escaped(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_ascii() && !c.is_ascii_control() { c.to_string() } else { c.escape_unicode().to_string() })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_one_script_and_of_one_language_are_fine() {
        for fine in [
            "admin@x.test",
            "привет мир",
            "hello мир",
            "東京タワーのTシャツ",
            "naïve café 10µm",
            "한국어 2026",
            "αβγ",
            "😀a",
        ] {
            assert!(!fine.split(|c: char| !c.is_alphanumeric()).any(|word| is_suspicious(&scripts(word))), "{fine}");
        }
    }

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
