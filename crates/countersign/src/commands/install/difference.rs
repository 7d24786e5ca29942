//! The difference of two entries, without secrets: an entry of another server may contain secrets in any place.

use std::collections::BTreeSet;

use serde_json::Value;
use types::visible;

const HIDDEN: &str = "***";

/// The members whose values are usually secrets.
const SECRET_MEMBERS: [&str; 7] =
    ["env", "envs", "environment", "headers", "http_headers", "env_http_headers", "oauth"];

/// The words in option names that indicate a secret value.
const SECRET_WORDS: [&str; 6] = ["key", "token", "secret", "password", "url", "auth"];

/// The lines of the members that differ: the present ones with `-`, the new ones with `+`.
pub(super) fn lines(old: &Value, new: &Value) -> Vec<String> {
    let members =
        |value: &Value| value.as_object().into_iter().flat_map(|value| value.keys().cloned()).collect::<Vec<_>>();
    let keys: BTreeSet<String> = members(old).into_iter().chain(members(new)).collect();
    if keys.is_empty() {
        return vec![format!("  - {}", shown("", old)), format!("  + {}", shown("", new))];
    }
    let mut lines = Vec::new();
    for key in keys {
        let (old, new) = (old.get(&key), new.get(&key));
        if old == new {
            continue;
        }
        let line = |sign: char, value: &Value| format!("  {sign} {}: {}", visible(&key), shown(&key, value));
        lines.extend(old.map(|old| line('-', old)));
        lines.extend(new.map(|new| line('+', new)));
    }
    lines
}

fn shown(key: &str, value: &Value) -> String {
    visible(&masked(key, value).to_string())
}

fn masked(key: &str, value: &Value) -> Value {
    if SECRET_MEMBERS.contains(&key) {
        return match value {
            Value::Object(members) => members.keys().map(|key| (key.clone(), Value::from(HIDDEN))).collect(),
            _ => Value::from(HIDDEN),
        };
    }
    match value {
        Value::String(text) => Value::from(without_password(text)),
        Value::Array(elements) => {
            let mut hides = false;
            let masked = elements.iter().map(|element| {
                let hidden = std::mem::replace(&mut hides, element.as_str().is_some_and(is_secret_option));
                if hidden { Value::from(HIDDEN) } else { masked("", element) }
            });
            masked.collect()
        }
        Value::Object(members) => members.iter().map(|(key, value)| (key.clone(), masked(key, value))).collect(),
        other => other.clone(),
    }
}

/// Whether the text is an option such as `--api-key`, whose secret is the next argument. An option that names a file
/// with the secret is not one.
fn is_secret_option(text: &str) -> bool {
    let name = text.to_ascii_lowercase();
    text.starts_with('-') && !text.contains('=') && !name.ends_with("-file") && contains_secret_word(&name)
}

fn contains_secret_word(name: &str) -> bool {
    SECRET_WORDS.iter().any(|word| name.contains(word))
}

/// A text with a possible password removed.
fn without_password(text: &str) -> String {
    let option = text.split_once('=').filter(|(name, _)| contains_secret_word(&name.to_ascii_lowercase()));
    if let Some((name, _)) = option {
        return format!("{name}={HIDDEN}");
    }
    match text.split_once("://") {
        Some((scheme, rest)) if rest.contains('@') => format!("{scheme}://{HIDDEN}"),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_difference_names_what_differs_and_shows_no_secret() {
        let old = json!({
            "command": "npx", "type": "stdio", "env": {"DATABASE_URL": "postgresql://me:hunter2@h/d"},
            "args": ["--api-key", "hunter2", "--token=hunter2", "postgresql://me:hunter2@h/d", "password=hunter2 host=h"],
        });
        let new =
            json!({"command": "/bin/countersign", "type": "stdio", "args": ["serve", "--database-url-file", "/f"]});
        let lines = lines(&old, &new);
        assert_eq!(
            lines,
            [
                r#"  - args: ["--api-key","***","--token=***","postgresql://***","password=***"]"#,
                r#"  + args: ["serve","--database-url-file","/f"]"#,
                r#"  - command: "npx""#,
                r#"  + command: "/bin/countersign""#,
                r#"  - env: {"DATABASE_URL":"***"}"#,
            ]
        );
        assert_eq!(super::lines(&json!("a"), &json!(1)), [r#"  - "a""#, "  + 1"]);
    }
}
