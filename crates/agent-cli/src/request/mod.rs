//! Parses a line of input into a [`Command`] (agent-cli.md, "Commands"). An unknown key is an error, since it may be
//! a misspelt `read_only`.
//!
//! To add a command: a variant, a line in `COMMANDS` and in `command`, and a struct of its keys in `fields`.

mod fields;

use std::time::Duration;

use pg::{IsolationLevel, TransactionOptions};
use serde_json::{Map, Value};
use types::{IdScanner, StrictJsonError, quoted};

use fields::{BeginFields, CancelFields, EndFields, NoFields, QueryFields};

use crate::config::Patch;
use crate::error::{CliError, EventErrorCode};
use crate::options::Options;
use crate::redaction;

/// Maximum length of a line without its end, in bytes.
pub const MAX_LINE_BYTES: usize = 1 << 20;
/// Maximum length of a statement, in bytes.
pub const MAX_SQL_BYTES: usize = 1 << 20;
/// Maximum number of parameters: the limit of PostgreSQL's protocol.
pub const MAX_PARAMS: usize = 65_535;
/// Maximum length of an id or a session name, in bytes: every event repeats it.
pub const MAX_NAME_BYTES: usize = 1024;
/// Maximum length of an id as JSON, in bytes: a byte of text may be written as six.
pub(crate) const MAX_ID_BYTES: usize = 6 * MAX_NAME_BYTES;
/// Maximum number of JSON values in a line. It is enough for [`MAX_PARAMS`] parameters; a fractional number counts as
/// two.
const MAX_VALUES: usize = 2 * MAX_PARAMS + 1000;
const MANY_VALUES_HINT: &str = "give many values as one array: = any($1)";
/// Options of a transaction whose `begin` has none.
pub const DEFAULT_BEGIN: TransactionOptions =
    TransactionOptions { read_only: true, isolation: None, timeout: Duration::from_secs(60) };

/// Values of `code`.
const COMMANDS: [&str; 8] = ["query", "cancel", "config", "ping", "close", "begin", "commit", "rollback"];

/// One command of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    Query(Box<QueryCommand>),
    Cancel {
        id: String,
    },
    /// Change the configuration and show it.
    Config(Box<Patch>),
    /// Report counters.
    Ping,
    /// Wait for the requests in flight, then end.
    Close,
    /// Open a transaction that the queries of its session then share.
    Begin {
        id: String,
        /// Session name; `None` is the default session.
        session: Option<String>,
        begin: TransactionOptions,
    },
    /// Commit the session's transaction.
    Commit {
        id: String,
        session: Option<String>,
    },
    /// Roll the session's transaction back.
    Rollback {
        id: String,
        session: Option<String>,
    },
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueryCommand {
    pub id: String,
    /// Session name; `None` is the default session.
    pub session: Option<String>,
    /// SQL text of one statement.
    pub sql: String,
    /// Values of `$1`, `$2`, ..; numbers keep every digit.
    pub params: Vec<Value>,
    pub options: Options,
}

/// The reason why a line was rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct RequestError {
    /// Id of the line, if it is a string.
    pub id: Option<String>,
    pub problem: CliError,
    /// Transactions that must not be committed without this line.
    pub affected: AffectedTransactions,
}

/// The transactions that a rejected line may belong to. Without the line, their other statements must not be
/// committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AffectedTransactions {
    /// No transaction.
    ForNone,
    /// The transaction of one session.
    ForSession {
        /// Session name; `None` is the default session.
        session: Option<String>,
        /// Whether the line was to open the transaction.
        is_begin: bool,
    },
    /// Unknown: any open transaction.
    ForAny,
}

impl AffectedTransactions {
    fn by(line: &serde_json::Map<String, Value>) -> Self {
        let code = line.get("code").and_then(Value::as_str).unwrap_or_default();
        match line.get("session") {
            // A rejected commit commits nothing. The other commands do not belong to a transaction.
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
    pub(crate) fn too_long(id: Option<String>) -> Self {
        let problem = CliError::invalid(format!("the line is longer than {MAX_LINE_BYTES} bytes"));
        let problem = problem.hint("give large values as parameters, in several statements");
        Self { id, problem, affected: AffectedTransactions::ForAny }
    }
}

/// Parses a line that is not blank, without its end.
///
/// # Errors
/// [`RequestError`] for the first problem. It quotes keys and names, never a value.
pub fn parse(line: &[u8]) -> Result<Command, Box<RequestError>> {
    if line.len() > MAX_LINE_BYTES {
        return Err(Box::new(RequestError::too_long(id_of(line))));
    }
    let mut affected = AffectedTransactions::ForAny;
    let mut checked = || {
        std::str::from_utf8(line).map_err(|_| CliError::invalid("the line is not UTF-8"))?;
        types::check_strict_json(line, MAX_VALUES).map_err(|error| match error {
            StrictJsonError::InvalidJson(error) => not_json(&error),
            StrictJsonError::RepeatedKey(_) => CliError::invalid(error.to_string()),
            StrictJsonError::TooManyValues(max) => {
                let problem = CliError::invalid(format!("the line contains more than {max} JSON values"));
                problem.hint(MANY_VALUES_HINT)
            }
        })?;
        match serde_json::from_slice(line) {
            Ok(Value::Object(object)) => {
                affected = AffectedTransactions::by(&object);
                command(object)
            }
            Ok(_) => Err(CliError::invalid("expected a JSON object: a command is {\"code\":\"query\",..}")),
            Err(error) => Err(not_json(&error)),
        }
    };
    let command: Result<Command, CliError> = checked();
    command.map_err(|problem| Box::new(RequestError { id: id_of(line), problem, affected }))
}

/// serde_json's message quotes nothing of a text that is not valid JSON, so it may be shown.
fn not_json(error: &serde_json::Error) -> CliError {
    CliError::invalid(format!("line is not valid JSON: {error}"))
}

/// The id of a rejected line, even if the line is not valid JSON.
fn id_of(line: &[u8]) -> Option<String> {
    let mut scanner = IdScanner::new(MAX_ID_BYTES);
    scanner.read(line);
    name_of(scanner.id())
}

/// The id, if it is a string of an allowed length.
pub(crate) fn name_of(id: Option<Value>) -> Option<String> {
    let id = id?.as_str().map(str::to_owned);
    id.filter(|id| id.len() <= MAX_NAME_BYTES)
}

fn command(mut line: Map<String, Value>) -> Result<Command, CliError> {
    const PLACE: &str = "the command";
    let code = match line.shift_remove("code") {
        Some(Value::String(code)) => code,
        None | Some(Value::Null) => return Err(CliError::invalid("there is no code in the command")),
        Some(_) => return Err(CliError::invalid("code in the command must be a string")),
    };
    let command = match code.as_str() {
        "query" => Command::Query(Box::new(query(fields::read(PLACE, line)?)?)),
        "cancel" => {
            let CancelFields { id } = fields::read(PLACE, line)?;
            Command::Cancel { id: check_name(id, "id")? }
        }
        "config" => Command::Config(Box::new(fields::read_patch(line)?)),
        "ping" | "close" => {
            let NoFields {} = fields::read(PLACE, line)?;
            if code == "ping" { Command::Ping } else { Command::Close }
        }
        "begin" => begin(fields::read(PLACE, line)?)?,
        "commit" | "rollback" => {
            let EndFields { id, session } = fields::read(PLACE, line)?;
            let (id, session) = (check_name(id, "id")?, check_session(session)?);
            if code == "commit" { Command::Commit { id, session } } else { Command::Rollback { id, session } }
        }
        other => {
            let known = COMMANDS.join(", ");
            return Err(CliError::invalid(format!("there is no command {}; code is one of {known}", quoted(other))));
        }
    };
    Ok(command)
}

fn query(fields: QueryFields) -> Result<QueryCommand, CliError> {
    let (id, session) = (check_name(fields.id, "id")?, check_session(fields.session)?);
    check_sql(&fields.sql)?;
    let params = match fields.params {
        None => Vec::new(),
        Some(Value::Array(params)) => params,
        Some(_) => {
            let message = "params must be an array: the value of $1, then of $2, ..";
            return Err(CliError::new(EventErrorCode::InvalidParams, message));
        }
    };
    check_params(params.len())?;
    Ok(QueryCommand { id, session, sql: fields.sql, params, options: fields::read_options(fields.options)? })
}

pub(crate) fn check_params(count: usize) -> Result<(), CliError> {
    if count <= MAX_PARAMS {
        return Ok(());
    }
    let message = format!("there are {count} parameters; a statement takes {MAX_PARAMS} at most");
    Err(CliError::invalid(message).hint(MANY_VALUES_HINT))
}

/// Checks that PostgreSQL can read the text.
pub(crate) fn check_sql(sql: &str) -> Result<(), CliError> {
    if sql.len() > MAX_SQL_BYTES {
        return Err(CliError::invalid(format!("sql is longer than {MAX_SQL_BYTES} bytes")));
    }
    if sql.contains('\0') {
        return Err(CliError::invalid("sql contains U+0000, which PostgreSQL cannot read"));
    }
    Ok(())
}

fn begin(fields: BeginFields) -> Result<Command, CliError> {
    let (id, session) = (check_name(fields.id, "id")?, check_session(fields.session)?);
    let options = fields::read_begin_options(fields.options)?;
    let begin = TransactionOptions {
        read_only: options.read_only.unwrap_or(DEFAULT_BEGIN.read_only),
        isolation: options.isolation_level.map(|level| isolation(&level)).transpose()?,
        timeout: options.transaction_timeout_ms.map_or(DEFAULT_BEGIN.timeout, Duration::from_millis),
    };
    Ok(Command::Begin { id, session, begin })
}

fn isolation(level: &str) -> Result<IsolationLevel, CliError> {
    let known = IsolationLevel::ALL.map(IsolationLevel::as_str).join(", ");
    IsolationLevel::parse(level).ok_or_else(|| {
        CliError::invalid(format!("there is no isolation_level {}; it is one of {known}", quoted(level)))
    })
}

fn check_session(session: Option<String>) -> Result<Option<String>, CliError> {
    session.map(|session| check_session_name(session, "session")).transpose()
}

/// Checks that a session's name can be shown: a connection string may contain a password.
fn check_session_name(text: String, key: &str) -> Result<String, CliError> {
    if redaction::may_hold_a_password(&text) {
        let problem = CliError::invalid(format!("{key} is or contains a connection string"));
        return Err(problem.hint("name the session and set its connection with a config command"));
    }
    check_name(text, key)
}

/// Checks the length of an id or a name: every event repeats it.
fn check_name(text: String, key: &str) -> Result<String, CliError> {
    if text.is_empty() || text.len() > MAX_NAME_BYTES {
        return Err(CliError::invalid(format!("{key} has {} bytes; it has 1 to {MAX_NAME_BYTES}", text.len())));
    }
    Ok(text)
}

#[cfg(test)]
mod tests;
