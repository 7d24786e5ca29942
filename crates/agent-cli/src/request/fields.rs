//! Fields of the JSON objects in a command, read by serde. An unknown key is an error. `null` means that a key is
//! absent, except in a session of a `config` command, where it clears the field.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use types::quoted;

use super::check_session_name;
use crate::config::Patch;
use crate::connection::{ConnectionFields, ConnectionPatch};
use crate::error::CliError;
use crate::log::LogFilters;
use crate::options::{Options, in_bounds};

/// Maximum length of a session's field, in bytes: `config` shows all of them in one event.
const MAX_FIELD_BYTES: usize = 8192;

/// The keys of a command without keys other than `code`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NoFields {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CancelFields {
    pub(super) id: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct QueryFields {
    pub(super) id: String,
    pub(super) session: Option<String>,
    pub(super) sql: String,
    pub(super) params: Option<Value>,
    pub(super) options: Option<Map<String, Value>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BeginFields {
    pub(super) id: String,
    pub(super) session: Option<String>,
    pub(super) options: Option<Map<String, Value>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BeginOptions {
    pub(super) read_only: Option<bool>,
    pub(super) isolation_level: Option<String>,
    pub(super) transaction_timeout_ms: Option<u64>,
}

/// Keys of `commit` and `rollback`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EndFields {
    pub(super) id: String,
    pub(super) session: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ConfigFields {
    default_session: Option<String>,
    sessions: Option<Map<String, Value>>,
    inline_max_rows: Option<u64>,
    inline_max_bytes: Option<u64>,
    statement_timeout_ms: Option<u64>,
    lock_timeout_ms: Option<u64>,
    log: Option<Vec<String>>,
}

/// Reads the keys of an object. Messages call the object `place`.
///
/// # Errors
/// The first invalid key. The message quotes keys but never a value, so serde's own text is not used directly.
pub(super) fn read<T: DeserializeOwned>(place: &str, object: Map<String, Value>) -> Result<T, CliError> {
    serde_path_to_error::deserialize(Value::Object(object)).map_err(|error| {
        let (key, text) = (error.path().to_string(), error.inner().to_string());
        let expected = text.rsplit_once("expected ").map(|(_, expected)| expected);
        CliError::invalid(if let Some(missing) = text.strip_prefix("missing field ") {
            format!("there is no {} in {place}", missing.trim_matches('`'))
        } else if text.starts_with("unknown field") {
            let known = expected.map_or_else(|| "`code`".to_owned(), |known| known.replace("one of ", ""));
            format!("there is no key {} in {place}; known keys: {}", quoted(&key), known.replace('`', ""))
        } else {
            match expected {
                Some("a map") => format!("{key} in {place} must be an object"),
                Some("a sequence") => format!("{key} in {place} must be an array"),
                Some("a boolean") => format!("{key} in {place} must be true or false"),
                Some("a string") => format!("{key} in {place} must be a string"),
                _ if key == "port" => format!("{key} in {place} must be a number from 1 to 65535"),
                _ => format!("{key} in {place} must be a whole number from 0 on"),
            }
        })
    })
}

pub(super) fn read_options(options: Option<Map<String, Value>>) -> Result<Options, CliError> {
    let options: Options = read("options", options.unwrap_or_default())?;
    options.check()?;
    Ok(options)
}

pub(super) fn read_begin_options(options: Option<Map<String, Value>>) -> Result<BeginOptions, CliError> {
    let options: BeginOptions = read("options", options.unwrap_or_default())?;
    options.transaction_timeout_ms.map_or(Ok(()), |timeout| in_bounds("transaction_timeout_ms", timeout))?;
    Ok(options)
}

pub(super) fn read_patch(line: Map<String, Value>) -> Result<Patch, CliError> {
    let fields: ConfigFields = read("the command", line)?;
    let defaults = Options {
        inline_max_rows: fields.inline_max_rows,
        inline_max_bytes: fields.inline_max_bytes,
        statement_timeout_ms: fields.statement_timeout_ms,
        lock_timeout_ms: fields.lock_timeout_ms,
        ..Options::default()
    };
    defaults.check()?;
    Ok(Patch {
        default_session: fields.default_session.map(|name| check_session_name(name, "default_session")).transpose()?,
        sessions: fields.sessions.unwrap_or_default().into_iter().map(read_session).collect::<Result<_, _>>()?,
        defaults,
        log: fields.log.map(|words| LogFilters::new(words.iter().map(String::as_str))).transpose()?,
    })
}

fn read_session((name, fields): (String, Value)) -> Result<(String, ConnectionPatch), CliError> {
    let name = check_session_name(name, "the name of a session")?;
    let place = format!("session {}", quoted(&name));
    let Value::Object(fields) = fields else {
        return Err(CliError::invalid(format!("{place} must be an object")));
    };
    let patch: ConnectionPatch = read(&place, fields)?;
    let mut given = ConnectionFields::default();
    given.patch(patch.clone());
    for (key, text) in given.entries() {
        check_text(key, text.unwrap_or_default())?;
    }
    Ok((name, patch))
}

/// Checks that a text can be sent to a server and shown in an event.
fn check_text(key: &str, text: &str) -> Result<(), CliError> {
    if text.len() > MAX_FIELD_BYTES {
        return Err(CliError::invalid(format!("{key} is longer than {MAX_FIELD_BYTES} bytes")));
    }
    if text.contains('\0') {
        return Err(CliError::invalid(format!("{key} contains U+0000, which a connection parameter cannot contain")));
    }
    Ok(())
}
