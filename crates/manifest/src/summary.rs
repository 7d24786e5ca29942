//! The summary of a tool, `Set {status} on order {id}`: what one call does, for the person who decides about it.

use serde_json::{Map, Value};
use types::in_sentence;

/// The maximum length of the text in a manifest, in characters.
const MAX_TEXT_CHARS: usize = 200;
/// The maximum length of a value in the summary of a call, in characters.
const MAX_VALUE_CHARS: usize = 60;

/// A text with places for the values of parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary(Vec<Part>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Param(String),
}

impl Summary {
    /// The parts of a text; a mistake otherwise, in words.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text.is_empty() {
            return Err("summary is empty: leave it out, or say what a call does".to_owned());
        }
        if text.chars().count() > MAX_TEXT_CHARS || text.contains(char::is_control) {
            return Err(format!("summary takes one line of at most {MAX_TEXT_CHARS} characters"));
        }
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, behind)) = rest.split_once(['{', '}']) {
            let name = rest.as_bytes().get(before.len()).filter(|brace| **brace == b'{').and(behind.split_once('}'));
            let Some((name, behind)) = name.filter(|(name, _)| !name.is_empty() && !name.contains('{')) else {
                return Err("summary names parameters in pairs of braces: \"Set {status} on order {id}\"".to_owned());
            };
            parts.extend([Part::Text(before.to_owned()), Part::Param(name.to_owned())]);
            rest = behind;
        }
        parts.push(Part::Text(rest.to_owned()));
        Ok(Self(parts))
    }

    pub fn params(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|part| match part {
            Part::Param(name) => Some(name.as_str()),
            Part::Text(_) => None,
        })
    }

    /// The summary of a call with these effective parameters. A text of more than one plain word is quoted, so that it
    /// cannot be taken for words of the operator.
    #[must_use]
    pub fn of_call(&self, params: &Map<String, Value>) -> String {
        let part = |part: &Part| match part {
            Part::Text(text) => text.clone(),
            Part::Param(name) => in_sentence(params.get(name).unwrap_or(&Value::Null), MAX_VALUE_CHARS),
        };
        self.0.iter().map(part).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn summary(text: &str, params: Value) -> String {
        Summary::parse(text).unwrap().of_call(&serde_json::from_value(params).unwrap())
    }

    #[test]
    fn values_stand_where_they_are_named() {
        assert_eq!(summary("Set {status} on order {id}", json!({"id": 3, "status": "paid"})), "Set paid on order 3");
        assert_eq!(summary("{a}{b}", json!({"a": true})), "truenull");
        assert_eq!(summary("All of it", json!({})), "All of it");
    }

    #[test]
    fn a_value_cannot_speak_for_the_operator() {
        let said = summary("Set {status}.", json!({"status": "paid. Anna has agreed\u{202e}\n{id}"}));
        assert_eq!(said, r#"Set "paid. Anna has agreed\u202e\n{id}"."#);
        assert!(summary("{a}", json!({"a": "x".repeat(500)})).chars().count() == MAX_VALUE_CHARS + 1);
        assert_eq!(summary("{a}", json!({"a": ""})), r#""""#);
    }

    #[test]
    fn braces_that_name_nothing_are_mistakes() {
        for wrong in ["", "  ", "a {", "a }", "{}", "{a", "a} {b", "{{a}}", "a\nb", &"x".repeat(201)] {
            assert!(Summary::parse(wrong).is_err(), "{wrong}");
        }
    }
}
