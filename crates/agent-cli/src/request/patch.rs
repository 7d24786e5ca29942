//! The fields of a `config` command.

use serde_json::Value;

use super::object::{Object, kind};
use super::session_name;
use crate::config::{FieldPatch, Patch};
use crate::error::CliError;
use crate::log::LogFilters;
use types::quoted;

/// The longest value of a session's field, in bytes: the configuration is shown as a whole.
const MAX_FIELD_BYTES: usize = 8192;

pub(super) fn read(line: &mut Object) -> Result<Patch, CliError> {
    line.allow(&[
        "code",
        "default_session",
        "sessions",
        "inline_max_rows",
        "inline_max_bytes",
        "statement_timeout_ms",
        "lock_timeout_ms",
        "log",
    ])?;
    Ok(Patch {
        default_session: line.text("default_session")?.map(|name| session_name(name, "default_session")).transpose()?,
        sessions: match line.object("sessions")? {
            Some(sessions) => read_sessions(sessions)?,
            None => Vec::new(),
        },
        inline_max_rows: line.bounded("inline_max_rows")?,
        inline_max_bytes: line.bounded("inline_max_bytes")?,
        statement_timeout_ms: line.bounded("statement_timeout_ms")?,
        lock_timeout_ms: line.bounded("lock_timeout_ms")?,
        log: line.optional("log").map(|words| read_filters(&words)).transpose()?,
    })
}

fn read_sessions(sessions: Object) -> Result<Vec<(String, Vec<FieldPatch>)>, CliError> {
    let read = |(session, fields): (String, Value)| {
        let session = session_name(session, "the name of a session")?;
        let place = format!("session {}", quoted(&session));
        let Value::Object(fields) = fields else {
            return Err(CliError::invalid(format!("{place} is {}; it is an object", kind(&fields))));
        };
        let fields = read_fields(&mut Object::new(place, fields))?;
        Ok((session, fields))
    };
    sessions.into_fields().into_iter().map(read).collect()
}

fn read_fields(fields: &mut Object) -> Result<Vec<FieldPatch>, CliError> {
    fields.allow(&["dsn_secret", "conninfo_secret", "host", "port", "user", "dbname", "password_secret"])?;
    let patches = [
        fields.secret_or_null("dsn_secret")?.map(FieldPatch::DsnSecret),
        fields.secret_or_null("conninfo_secret")?.map(FieldPatch::ConninfoSecret),
        fields.text_or_null("host")?.map(FieldPatch::Host),
        fields.port_or_null("port")?.map(FieldPatch::Port),
        fields.text_or_null("user")?.map(FieldPatch::User),
        fields.text_or_null("dbname")?.map(FieldPatch::Dbname),
        fields.secret_or_null("password_secret")?.map(FieldPatch::PasswordSecret),
    ];
    let patches: Vec<FieldPatch> = patches.into_iter().flatten().collect();
    patches.iter().try_for_each(check_text)?;
    Ok(patches)
}

/// A text that can be sent to a server and shown again.
fn check_text(patch: &FieldPatch) -> Result<(), CliError> {
    let (key, text) = match patch {
        FieldPatch::DsnSecret(secret) => ("dsn_secret", secret.as_ref().map(types::Secret::expose)),
        FieldPatch::ConninfoSecret(secret) => ("conninfo_secret", secret.as_ref().map(types::Secret::expose)),
        FieldPatch::Host(text) => ("host", text.as_deref()),
        FieldPatch::User(text) => ("user", text.as_deref()),
        FieldPatch::Dbname(text) => ("dbname", text.as_deref()),
        FieldPatch::PasswordSecret(secret) => ("password_secret", secret.as_ref().map(types::Secret::expose)),
        FieldPatch::Port(_) => return Ok(()),
    };
    let text = text.unwrap_or_default();
    if text.len() > MAX_FIELD_BYTES {
        return Err(CliError::invalid(format!("{key} is longer than {MAX_FIELD_BYTES} bytes")));
    }
    if text.contains('\0') {
        return Err(CliError::invalid(format!("{key} holds U+0000, which no connection can be given")));
    }
    Ok(())
}

fn read_filters(words: &Value) -> Result<LogFilters, CliError> {
    let wrong = || CliError::invalid("log is an array of strings, such as [\"query\", \"startup\"]");
    let words = words.as_array().ok_or_else(wrong)?;
    let words: Option<Vec<&str>> = words.iter().map(Value::as_str).collect();
    LogFilters::new(words.ok_or_else(wrong)?)
}
