//! Removes secrets from the invocation that `log` shows. Rows are never changed.

use std::collections::{BTreeMap, HashMap};

pub(crate) const STARS: &str = "***";

/// Parts of the names of variables whose values are secrets, or may contain one.
const SECRET_NAMES: [&str; 9] = ["SECRET", "PASSWORD", "PASSPHRASE", "TOKEN", "DSN", "CONNINFO", "URL", "URI", "KEY"];

/// Flags whose value is `N=value`, a parameter of the statement. psql writes `-v N=value`, or `-vN=value`.
const PARAMETER_FLAGS: [&str; 2] = ["--param", "-v"];

/// The kind of the argument after a flag.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Value {
    Plain,
    Secret,
    Parameter,
}

/// Returns the arguments with `***` for values of `--*-secret`, for parameters, and for every text that may contain a
/// password.
#[must_use]
pub(crate) fn argv(argv: &[String]) -> Vec<String> {
    let mut shown = Vec::with_capacity(argv.len());
    let mut value = Value::Plain;
    for argument in argv {
        shown.push(match (value, argument.split_once('=')) {
            (Value::Secret, _) => STARS.to_owned(),
            (Value::Parameter, _) => parameter(argument),
            (_, Some((flag, _))) if is_secret_flag(flag) => format!("{flag}={STARS}"),
            (_, Some(("--param", pair))) => format!("--param={}", parameter(pair)),
            (_, Some((flag, _))) if flag.starts_with("-v") => format!("{flag}={STARS}"),
            _ => without_password(argument),
        });
        value = match value {
            Value::Plain if is_secret_flag(argument) => Value::Secret,
            Value::Plain if PARAMETER_FLAGS.contains(&argument.as_str()) => Value::Parameter,
            _ => Value::Plain,
        };
    }
    shown
}

/// `N=***`. A text without a number is invalid, but is still treated as a value.
fn parameter(pair: &str) -> String {
    pair.split_once('=').map_or_else(|| STARS.to_owned(), |(number, _)| format!("{number}={STARS}"))
}

fn is_secret_flag(argument: &str) -> bool {
    argument.starts_with("--") && !argument.contains('=') && argument.ends_with("-secret")
}

/// The text, with everything from the start of a connection string on replaced by `***`.
#[must_use]
pub(crate) fn without_password(text: &str) -> String {
    let lower = text.to_ascii_lowercase();
    let words = ["postgres:/", "postgresql:/", "postgres//", "postgresql//", "password"];
    let from = words.iter().filter_map(|word| lower.find(word)).chain(user_info(text)).min();
    match from {
        // `password` alone may be a word of the SQL text. Followed by a value, it may be part of a connection string.
        Some(at) if lower.get(at..).is_some_and(|rest| rest.contains("//") || rest.contains(['=', '@'])) => {
            format!("{}{STARS}", text.get(..at).unwrap_or_default())
        }
        _ => text.to_owned(),
    }
}

/// The start of `user:password@`, if it occurs within one word, as in a URL with or without a scheme.
fn user_info(text: &str) -> Option<usize> {
    let mut start = 0;
    for word in text.split_inclusive(char::is_whitespace) {
        let before = word.rfind('@').and_then(|at| word.get(..at)).unwrap_or_default();
        let scheme = before.rfind("//").map_or(0, |at| at + 2);
        if before.get(scheme..).is_some_and(|user| user.contains(':')) {
            return Some(start + scheme);
        }
        start += word.len();
    }
    None
}

/// Whether a part of the text would be redacted.
#[must_use]
pub(crate) fn may_hold_a_password(text: &str) -> bool {
    without_password(text) != text
}

/// The variables that have an effect, `COUNTERSIGN_*`, `PG*` and `DATABASE_URL`, with secrets as `***`.
#[must_use]
pub(crate) fn env(env: &HashMap<String, String>) -> BTreeMap<String, String> {
    let has_a_say = |name: &str| name.starts_with("COUNTERSIGN_") || name.starts_with("PG") || name == "DATABASE_URL";
    let ours = env.iter().filter(|(name, _)| has_a_say(name));
    let shown = ours.map(|(name, value)| {
        let is_secret = SECRET_NAMES.iter().any(|part| name.contains(part));
        (name.clone(), if is_secret { STARS.to_owned() } else { without_password(value) })
    });
    shown.collect()
}

/// Redacts the secret arguments in a message of a parser, which may quote text that it could not parse.
#[must_use]
pub(crate) fn scrubbed(message: &str, argv: &[String]) -> String {
    let mut message = message.to_owned();
    for (argument, shown) in argv.iter().zip(self::argv(argv)) {
        if *argument != shown && !argument.is_empty() {
            message = message.replace(argument.as_str(), &shown);
            if let Some((_, value)) = argument.split_once('=').filter(|(_, value)| !value.is_empty()) {
                message = message.replace(value, STARS);
            }
        }
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_lose_their_secrets() {
        for (given, expected) in [
            ("--dsn-secret postgres://u:hunter2@h --host h", "--dsn-secret *** --host h"),
            ("--password-secret=hunter2 --sql x", "--password-secret=*** --sql x"),
            ("--password-secret --hunter2 --sql x", "--password-secret *** --sql x"),
            ("postgresql://u:hunter2@h/d -c x", "*** -c x"),
            ("-dpostgres://u:hunter2@h/d", "-d***"),
            ("-d host=h|password=hunter2", "-d host=h|***"),
            ("--sql select+password", "--sql select+password"),
            ("--some-new-secret hunter2", "--some-new-secret ***"),
            //
            ("--param 1=hunter2 --param 2=hunter2=x --sql x", "--param 1=*** --param 2=*** --sql x"),
            ("--param=1=hunter2 --sql x", "--param=1=*** --sql x"),
            ("--param hunter2 --param-null 2", "--param *** --param-null 2"),
            ("-v 1=hunter2 -v2=hunter2 -c x", "-v 1=*** -v2=*** -c x"),
            ("postgres//u:hunter2@h/db -c x", "*** -c x"),
            ("--sql-file postgresql:u:hunter2@h/db", "--sql-file ***"),
            ("-f mysql://u:hunter2@h/db", "-f mysql://***"),
            ("-h u:hunter2@h", "-h ***"),
            ("--sql-file ./reports/2026-01-01T10:00.sql", "--sql-file ./reports/2026-01-01T10:00.sql"),
            ("-U ann@example.com", "-U ann@example.com"),
        ] {
            let given: Vec<String> = given.split(' ').map(|word| word.replace('|', " ")).collect();
            assert_eq!(argv(&given).join(" ").replace("h password", "h|password"), expected.replace('|', " "));
        }
    }

    #[test]
    fn variables_lose_their_secrets_and_others_are_not_shown() {
        let given = [
            ("COUNTERSIGN_DSN_SECRET", "hunter2"),
            ("COUNTERSIGN_PASSWORD_SECRET", "hunter2"),
            ("COUNTERSIGN_HTTP_TOKEN", "hunter2"),
            ("COUNTERSIGN_READER", "postgres://u:hunter2@h"),
            ("COUNTERSIGN_HOST", "h"),
            ("PGPASSWORD", "hunter2"),
            ("DATABASE_URL", "hunter2"),
            ("PGOPTIONS", "-c x=1"),
            ("AWS_SECRET", "hunter2"),
        ];
        let given = given.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let shown = env(&given);
        assert!(!format!("{shown:?}").contains("hunter2") && !shown.contains_key("AWS_SECRET"), "{shown:?}");
        assert_eq!((shown["COUNTERSIGN_HOST"].as_str(), shown["PGOPTIONS"].as_str()), ("h", "-c x=1"));
    }
}
