//! The call of a write as people read it: the text of an SQL statement with its lines, and the values of its `$1`, `$2`
//! beside it. The parameters of other calls have their names.

use serde_json::{Map, Value};
use types::{beginning, in_sentence, visible};

#[derive(Debug, Clone, PartialEq)]
pub struct CallText<'a> {
    /// The lines of the SQL statement, with hidden characters made visible; empty if the call has none.
    pub statement: Vec<String>,
    /// The other parameters by name; of a statement `$1`, `$2` and so on.
    pub params: Vec<(String, &'a Value)>,
}

impl<'a> CallText<'a> {
    /// `execute_sql` and the command line store a statement as `sql`, and its values as `params`.
    pub fn new(given: impl IntoIterator<Item = (&'a String, &'a Value)>) -> Self {
        let given: Vec<(&String, &Value)> = given.into_iter().collect();
        let is_of_statement = given.iter().all(|(name, _)| matches!(name.as_str(), "sql" | "params"));
        let sql = given.iter().filter(|_| is_of_statement).find(|(name, _)| *name == "sql");
        let Some(sql) = sql.and_then(|(_, value)| value.as_str()) else {
            let params = given.into_iter().map(|(name, value)| (visible(name), value)).collect();
            return Self { statement: Vec::new(), params };
        };
        let params = match given.iter().find(|(name, _)| *name == "params") {
            Some((_, Value::Array(values))) => {
                values.iter().enumerate().map(|(at, value)| (format!("${}", at + 1), value)).collect()
            }
            other => other.into_iter().map(|(name, value)| (visible(name), *value)).collect(),
        };
        // A tab at the beginning of a line is an indentation, and hides nothing.
        let line = |line: &str| {
            let text = line.trim_end_matches('\r').trim_start_matches('\t');
            let tabs = line.len() - line.trim_start_matches('\t').len();
            format!("{}{}", "    ".repeat(tabs), visible(text))
        };
        Self { statement: sql.trim().split('\n').map(line).collect(), params }
    }

    /// The statement on one line of at most this many characters, in quotes that SQL does not use: `“select 1”`.
    #[must_use]
    pub fn quoted(&self, characters: usize) -> Option<String> {
        let lines: Vec<&str> = self.statement.iter().map(|line| line.trim()).collect();
        let text = lines.join(" \u{21b5} ").replace('\u{201c}', "\\u201c").replace('\u{201d}', "\\u201d");
        (!lines.is_empty()).then(|| format!("\u{201c}{}\u{201d}", beginning(&text, characters)))
    }

    /// The parameters on one line, each cut to this many characters: `package_id: 3, title: "A week"`.
    #[must_use]
    pub fn values(&self, characters: usize) -> String {
        let value = |(name, value): &(String, &Value)| format!("{name}: {}", in_sentence(value, characters));
        self.params.iter().map(value).collect::<Vec<_>>().join(", ")
    }

    /// The call on one line of about this many characters.
    #[must_use]
    pub fn line(&self, characters: usize) -> String {
        let values = Some(self.values(characters)).filter(|values| !values.is_empty());
        let parts: Vec<String> = self.quoted(characters).into_iter().chain(values).collect();
        beginning(&parts.join(", "), characters)
    }
}

impl<'a> From<&'a Map<String, Value>> for CallText<'a> {
    fn from(params: &'a Map<String, Value>) -> Self {
        Self::new(params)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_statement_is_text_with_its_lines_and_its_values_beside_it() {
        let call = json!({"sql": "update \"Crm\".\"Account\"\n\tset name = $1\u{202e}\r\nwhere id = $2\n", "params": ["Ada", 8]});
        let call = CallText::from(call.as_object().unwrap());
        let lines = ["update \"Crm\".\"Account\"", "    set name = $1\\u202e", "where id = $2"];
        assert_eq!(call.statement, lines);
        assert_eq!(call.params, [("$1".to_owned(), &json!("Ada")), ("$2".to_owned(), &json!(8))]);
        let line = "\u{201c}update \"Crm\".\"Account\" \u{21b5} set name = $1\\u202e \u{21b5} where id = $2\u{201d}, $1: Ada, $2: 8";
        assert_eq!(call.line(160), line);
        assert_eq!(call.quoted(30).unwrap(), "\u{201c}update \"Crm\".\"Account\" \u{21b5} set n…\u{201d}");
    }

    #[test]
    fn a_text_cannot_look_like_what_is_around_it() {
        let of = |call: Value| CallText::from(call.as_object().unwrap()).line(160);
        assert_eq!(of(json!({"sql": "select '\u{201d}, $1: 5'"})), "\u{201c}select '\\u201d, $1: 5'\u{201d}");
        assert_eq!(of(json!({"id": 3, "note": "1, id: 4\n"})), r#"id: 3, note: "1, id: 4\n""#);
        // A tool of a manifest with other parameters has no statement.
        assert_eq!(of(json!({"sql": "x", "id": 3})), "sql: x, id: 3");
        assert_eq!(of(json!({"note": "x".repeat(500)})).chars().count(), 161);
    }
}
