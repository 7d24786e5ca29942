//! One line of input to a [`Command`] (agent-cli.md, "Commands"). Strict: a key that nobody knows is an error, not passed
//! over, since it may be a misspelt `read_only`.
//!
//! To add a command: a variant, a line in [`COMMANDS`] and in `command`, and its keys.

mod object;
mod patch;
mod strict_json;

use std::fmt;
use std::time::Duration;

use pg::{IsolationLevel, TransactionOptions};
use serde::Deserializer;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde_json::Value;
use types::quoted;

use object::Object;

use crate::config::Patch;
use crate::error::{CliError, ErrorCode};
use crate::options::Options;
use crate::redaction;

/// The longest line, without its end, in bytes.
pub const MAX_LINE_BYTES: usize = 1 << 20;
/// The longest statement, in bytes.
pub const MAX_SQL_BYTES: usize = 1 << 20;
/// The most parameters: what PostgreSQL takes.
pub const MAX_PARAMS: usize = 65_535;
/// The longest id or name of a session, in bytes: it is repeated in every event.
pub const MAX_NAME_BYTES: usize = 1024;
/// A transaction of which nothing is said.
pub const DEFAULT_BEGIN: TransactionOptions =
    TransactionOptions { read_only: true, isolation: None, timeout: Duration::from_secs(60) };

/// The words of `code`.
const COMMANDS: [&str; 8] = ["query", "cancel", "config", "ping", "close", "begin", "commit", "rollback"];

/// What a line asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Run a statement.
    Query(Box<QueryCommand>),
    /// Stop the request of this id.
    Cancel {
        /// Whose.
        id: String,
    },
    /// Change the configuration and show it.
    Config(Box<Patch>),
    /// Are you there?
    Ping,
    /// Finish what is in flight, and end.
    Close,
    /// Open a transaction that the queries of its session then share.
    Begin {
        /// Of this command.
        id: String,
        /// Where; `None` is the default session.
        session: Option<String>,
        /// What it is.
        begin: TransactionOptions,
    },
    /// Commit the session's transaction.
    Commit {
        /// Of this command.
        id: String,
        /// Where.
        session: Option<String>,
    },
    /// Roll the session's transaction back.
    Rollback {
        /// Of this command.
        id: String,
        /// Where.
        session: Option<String>,
    },
}

/// A statement to run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueryCommand {
    /// Of this command.
    pub id: String,
    /// Where; `None` is the default session.
    pub session: Option<String>,
    /// One statement.
    pub sql: String,
    /// `$1`, `$2`, ..; numbers have every digit.
    pub params: Vec<Value>,
    /// How.
    pub options: Options,
}

/// Why a line is no command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestError {
    /// The line's id, if it has one that is a string.
    pub id: Option<String>,
    /// What is wrong.
    pub problem: CliError,
    /// What it may have been a part of.
    pub meant: AffectedTransactions,
}

/// Which transaction a line that is no command may have been meant for: the rest of it must not be committed without the line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AffectedTransactions {
    /// None.
    ForNone,
    /// That of this session; `None` is the default session.
    ForSession {
        /// Which.
        session: Option<String>,
        /// Whether it was to open it.
        is_begin: bool,
    },
    /// Nobody knows.
    ForAny,
}

impl AffectedTransactions {
    fn by(line: &serde_json::Map<String, Value>) -> Self {
        let code = line.get("code").and_then(Value::as_str).unwrap_or_default();
        match line.get("session") {
            // A commit that is refused commits nothing, and the others are no part of a transaction.
            _ if ["cancel", "config", "ping", "close", "commit", "rollback"].contains(&code) => Self::ForNone,
            None | Some(Value::Null) => Self::ForSession { session: None, is_begin: code == "begin" },
            Some(Value::String(session)) => {
                Self::ForSession { session: Some(session.clone()), is_begin: code == "begin" }
            }
            Some(_) => Self::ForAny,
        }
    }
}

impl RequestError {
    /// A line over [`MAX_LINE_BYTES`].
    pub(crate) fn too_long() -> Self {
        let problem = CliError::invalid(format!("the line is longer than {MAX_LINE_BYTES} bytes"));
        let problem = problem.hint("give large values as parameters, in several statements");
        Self { id: None, problem, meant: AffectedTransactions::ForAny }
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.problem.fmt(f)
    }
}

/// Reads a line that is not blank, without its end.
///
/// # Errors
/// [`RequestError`] with the first thing that is wrong. It quotes keys and names, never a value.
pub fn parse(line: &[u8]) -> Result<Command, Box<RequestError>> {
    if line.len() > MAX_LINE_BYTES {
        return Err(Box::new(RequestError::too_long()));
    }
    let mut meant = AffectedTransactions::ForAny;
    let mut checked = || {
        std::str::from_utf8(line).map_err(|_| CliError::invalid("the line is not UTF-8"))?;
        strict_json::check(line)?;
        match serde_json::from_slice(line) {
            Ok(Value::Object(object)) => {
                meant = AffectedTransactions::by(&object);
                command(Object::new("the command", object))
            }
            Ok(_) => Err(CliError::invalid("the line is no JSON object: a command is {\"code\":\"query\",..}")),
            Err(error) => Err(strict_json::no_json(&error)),
        }
    };
    let command: Result<Command, CliError> = checked();
    command.map_err(|problem| Box::new(RequestError { id: id_of(line), problem, meant }))
}

/// Returns the id of a rejected line, also of one that is not valid JSON after its id.
fn id_of(line: &[u8]) -> Option<String> {
    let mut id = None;
    // An error after the id does not matter: the line has been rejected already.
    let _ = serde_json::Deserializer::from_slice(line).deserialize_map(IdVisitor(&mut id));
    id.filter(|id| id.len() <= MAX_NAME_BYTES)
}

/// Stores the first `id` of an object as soon as it has been read.
struct IdVisitor<'a>(&'a mut Option<String>);

impl<'de> Visitor<'de> for IdVisitor<'_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            if key == "id" && self.0.is_none() {
                *self.0 = map.next_value::<Value>()?.as_str().map(str::to_owned);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

fn command(mut line: Object) -> Result<Command, CliError> {
    let code = line.required_text("code")?;
    let command = match code.as_str() {
        "query" => {
            line.allow(&["code", "id", "session", "sql", "params", "options"])?;
            Command::Query(Box::new(query(&mut line)?))
        }
        "cancel" => {
            line.allow(&["code", "id"])?;
            Command::Cancel { id: name(line.required_text("id")?, "id")? }
        }
        "config" => Command::Config(Box::new(patch::read(&mut line)?)),
        "ping" | "close" => {
            line.allow(&["code"])?;
            if code == "ping" { Command::Ping } else { Command::Close }
        }
        "begin" => {
            line.allow(&["code", "id", "session", "options"])?;
            begin(&mut line)?
        }
        "commit" | "rollback" => {
            line.allow(&["code", "id", "session"])?;
            let (id, session) = (name(line.required_text("id")?, "id")?, session(&mut line)?);
            if code == "commit" { Command::Commit { id, session } } else { Command::Rollback { id, session } }
        }
        other => {
            let known = COMMANDS.join(", ");
            return Err(CliError::invalid(format!("there is no command {}; code is one of {known}", quoted(other))));
        }
    };
    Ok(command)
}

fn query(line: &mut Object) -> Result<QueryCommand, CliError> {
    let id = name(line.required_text("id")?, "id")?;
    let session = session(line)?;
    let sql = line.required_text("sql")?;
    check_sql(&sql)?;
    let params = match line.optional("params") {
        None => Vec::new(),
        Some(Value::Array(params)) => params,
        Some(other) => return Err(not_params(&other)),
    };
    check_params(params.len())?;
    let options = match line.object("options")? {
        Some(mut options) => read_options(&mut options)?,
        None => Options::default(),
    };
    Ok(QueryCommand { id, session, sql, params, options })
}

fn not_params(value: &Value) -> CliError {
    let message = format!("params is {}; it is an array: the value of $1, then of $2, ..", object::kind(value));
    CliError::new(ErrorCode::InvalidParams, message)
}

/// Whether PostgreSQL can be given so many.
pub(crate) fn check_params(count: usize) -> Result<(), CliError> {
    if count <= MAX_PARAMS {
        return Ok(());
    }
    let message = format!("there are {count} parameters; a statement takes {MAX_PARAMS} at most");
    Err(CliError::invalid(message).hint("give many values as one array: = any($1)"))
}

/// Whether the text can be sent to PostgreSQL at all.
pub(crate) fn check_sql(sql: &str) -> Result<(), CliError> {
    if sql.len() > MAX_SQL_BYTES {
        return Err(CliError::invalid(format!("sql is longer than {MAX_SQL_BYTES} bytes")));
    }
    if sql.contains('\0') {
        return Err(CliError::invalid("sql holds U+0000, which PostgreSQL cannot read"));
    }
    Ok(())
}

fn read_options(options: &mut Object) -> Result<Options, CliError> {
    options.allow(&[
        "stream_rows",
        "batch_rows",
        "batch_bytes",
        "read_only",
        "statement_timeout_ms",
        "lock_timeout_ms",
        "inline_max_rows",
        "inline_max_bytes",
    ])?;
    Ok(Options {
        stream_rows: options.truth("stream_rows")?,
        batch_rows: options.bounded("batch_rows")?,
        batch_bytes: options.bounded("batch_bytes")?,
        read_only: options.truth("read_only")?,
        statement_timeout_ms: options.bounded("statement_timeout_ms")?,
        lock_timeout_ms: options.bounded("lock_timeout_ms")?,
        inline_max_rows: options.bounded("inline_max_rows")?,
        inline_max_bytes: options.bounded("inline_max_bytes")?,
    })
}

fn begin(line: &mut Object) -> Result<Command, CliError> {
    let (id, session) = (name(line.required_text("id")?, "id")?, session(line)?);
    let mut begin = DEFAULT_BEGIN;
    if let Some(mut options) = line.object("options")? {
        options.allow(&["read_only", "isolation_level", "transaction_timeout_ms"])?;
        begin.read_only = options.truth("read_only")?.unwrap_or(begin.read_only);
        begin.isolation = options.text("isolation_level")?.map(|level| isolation(&level)).transpose()?;
        begin.timeout = options.bounded("transaction_timeout_ms")?.map_or(begin.timeout, Duration::from_millis);
    }
    Ok(Command::Begin { id, session, begin })
}

fn isolation(level: &str) -> Result<IsolationLevel, CliError> {
    let found = IsolationLevel::ALL.into_iter().find(|known| known.as_str() == level);
    let known = IsolationLevel::ALL.map(IsolationLevel::as_str).join(", ");
    found.ok_or_else(|| {
        CliError::invalid(format!("there is no isolation_level {}; it is one of {known}", quoted(level)))
    })
}

fn session(line: &mut Object) -> Result<Option<String>, CliError> {
    line.text("session")?.map(|session| session_name(session, "session")).transpose()
}

/// A name that may be shown.
fn session_name(text: String, key: &str) -> Result<String, CliError> {
    if redaction::may_hold_a_password(&text) {
        let problem = CliError::invalid(format!("{key} is or holds a connection string"));
        return Err(problem.hint("a config command names a session and says where it connects to"));
    }
    name(text, key)
}

/// An id or a name that can be repeated in every event.
fn name(text: String, key: &str) -> Result<String, CliError> {
    if text.is_empty() || text.len() > MAX_NAME_BYTES {
        return Err(CliError::invalid(format!("{key} has {} bytes; it has 1 to {MAX_NAME_BYTES}", text.len())));
    }
    Ok(text)
}

#[cfg(test)]
mod tests;
