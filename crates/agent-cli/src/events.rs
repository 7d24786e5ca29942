//! Everything that the front ends say: one [`Event`] a line (agent-cli.md, "Events").
//!
//! To add an event: a variant, its struct with the fields in the order of the document, and a line in the golden files.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};
use serde_json::Value;
use types::Column;

use crate::config::Config;
use crate::error::{CliError, ErrorCode};
use crate::undelivered::Commit;

/// One line of output; `code` says which. What there is none of is absent, never null.
#[derive(Debug, Serialize)]
#[serde(tag = "code", rename_all = "snake_case")]
#[expect(missing_docs, reason = "the structs say it")]
pub enum Event {
    Result(Box<ResultEvent>),
    ResultStart(ResultStart),
    ResultRows(ResultRows),
    ResultEnd(Box<ResultEnd>),
    SqlError(Box<SqlError>),
    Error(Box<ErrorEvent>),
    Notice(Box<Notice>),
    Pong(Pong),
    Close(Close),
    Config(Box<Config>),
    Log(Box<Log>),
    DryRun(Box<DryRun>),
}

/// What a request took and gave.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Trace {
    /// From the acceptance of the request to this event.
    pub duration_ms: u64,
    /// Rows returned or, by a statement that returns none, touched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub row_count: Option<u64>,
    /// The rows as JSON, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload_bytes: Option<u64>,
}

/// A result column.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ColumnName {
    /// Unique within the result.
    pub name: String,
    /// What PostgreSQL calls its type.
    #[serde(rename = "type")]
    pub type_name: String,
}

impl From<&Column> for ColumnName {
    fn from(column: &Column) -> Self {
        Self { name: column.name.clone(), type_name: column.ty.name.clone() }
    }
}

/// A JSON array of rows, each an object by column name. Kept as text, on one line; none by default. As a field of an event it is
/// an empty array: [`crate::output::Output`] puts the text in its place.
#[derive(Debug, Default)]
pub struct Rows(Option<String>);

impl Rows {
    /// From the text of an array (`pg::QueryEvent::Rows`).
    #[must_use]
    pub fn from_json(json: String) -> Self {
        // Between two tokens, where a value of the type json may have one, a line break means nothing. Within a string
        // there is none.
        let has_breaks = [b'\n', b'\r'].iter().any(|byte| json.as_bytes().contains(byte));
        Self(Some(if has_breaks { json.replace(['\n', '\r'], " ") } else { json }))
    }

    /// The text of the array.
    #[must_use]
    pub fn json(&self) -> &str {
        self.0.as_deref().unwrap_or("[]")
    }
}

impl Serialize for Rows {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(std::iter::empty::<()>())
    }
}

/// A whole result. Terminal.
#[derive(Debug, Serialize)]
pub struct ResultEvent {
    /// Of the request.
    pub id: String,
    /// Where it ran.
    pub session: String,
    /// `ROWS n`, or PostgreSQL's own words for a statement that returns none.
    pub command_tag: String,
    /// Empty for a statement that returns none.
    pub columns: Vec<ColumnName>,
    /// All of them.
    pub rows: Rows,
    /// How many were returned or, by a statement that returns none, touched.
    pub row_count: u64,
    /// The receipt of a write that the ledger has recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    /// Whether it tells of a COMMIT; not shown.
    #[serde(skip)]
    pub is_commit: bool,
    /// What it took.
    pub trace: Trace,
}

/// The beginning of a streamed result.
#[derive(Debug, Serialize)]
pub struct ResultStart {
    /// Of the request.
    pub id: String,
    /// Where it runs.
    pub session: String,
    /// At least one, save for a query that selects nothing.
    pub columns: Vec<ColumnName>,
}

/// Some rows of a streamed result.
#[derive(Debug, Serialize)]
pub struct ResultRows {
    /// Of the request.
    pub id: String,
    /// At least one.
    pub rows: Rows,
    /// How many.
    pub rows_batch_count: u64,
}

/// The end of a streamed result. Terminal.
#[derive(Debug, Serialize)]
pub struct ResultEnd {
    /// Of the request.
    pub id: String,
    /// Where it ran.
    pub session: String,
    /// `ROWS n`.
    pub command_tag: String,
    /// The receipt of a write that the ledger has recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    /// Whether it tells of a COMMIT; not shown.
    #[serde(skip)]
    pub is_commit: bool,
    /// All that it gave.
    pub trace: Trace,
}

/// What PostgreSQL refused. Terminal.
#[derive(Debug, Serialize)]
pub struct SqlError {
    /// Of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Where it ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// SQLSTATE.
    pub sqlstate: String,
    /// PostgreSQL's words.
    pub message: String,
    /// DETAIL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// HINT.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Where in the statement, in characters from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<String>,
    /// What it took.
    pub trace: Trace,
}

/// What went wrong outside PostgreSQL. Terminal if it has the id of a request in flight.
#[derive(Debug, Serialize)]
pub struct ErrorEvent {
    /// Of the request, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// For programs.
    pub error_code: ErrorCode,
    /// A sentence.
    pub error: String,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Whether the same may go well the next time.
    pub retryable: bool,
    /// The receipt of a write whose outcome only the ledger knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    /// What it took.
    pub trace: Trace,
}

/// A notice that PostgreSQL raised, or one of ours about a session.
#[derive(Debug, Serialize)]
pub struct Notice {
    /// Of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Where it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// `NOTICE`, `WARNING`, ..
    pub severity: String,
    /// SQLSTATE.
    pub sqlstate: String,
    /// A sentence.
    pub message: String,
    /// DETAIL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// HINT.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// When.
    pub trace: Trace,
}

/// The answer to `ping`.
#[derive(Debug, Serialize)]
pub struct Pong {
    /// How the process is.
    pub trace: PongTrace,
}

/// How the process is.
#[derive(Debug, Serialize)]
pub struct PongTrace {
    /// Since its start.
    pub uptime_s: u64,
    /// Requests with an id (`query`, `begin`, `commit`, `rollback`) that were accepted so far.
    pub requests_total: u64,
    /// Of these, the ones without a terminal event.
    pub in_flight: u64,
}

/// The last event of a pipe.
#[derive(Debug, Serialize)]
pub struct Close {
    /// `shutdown`.
    pub message: &'static str,
    /// What it was.
    pub trace: CloseTrace,
}

/// What the process has been.
#[derive(Debug, Serialize)]
pub struct CloseTrace {
    /// Since its start.
    pub uptime_s: u64,
    /// Requests with an id that were accepted.
    pub requests_total: u64,
}

/// What somebody asked to be told of (`log` of the configuration).
#[derive(Debug, Default, Serialize)]
pub struct Log {
    /// `startup`, `query.result`, `query.error`, `query.sql_error`.
    pub event: &'static str,
    /// Of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// Where it ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Of an `error`, or the SQLSTATE of an `sql_error`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_code: Option<String>,
    /// Of a result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command_tag: Option<String>,
    /// How this process was started; `startup` only.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub startup: Option<Box<Startup>>,
    /// What it took.
    pub trace: Trace,
}

/// How this process was started. Secrets are `***`.
#[derive(Debug, Clone, Serialize)]
pub struct Startup {
    /// Of countersign.
    pub version: &'static str,
    /// As it was called.
    pub argv: Vec<String>,
    /// What was understood of it.
    pub args: Value,
    /// The configuration at the beginning.
    pub config: Config,
    /// The variables that have a say: `COUNTERSIGN_*`, `PG*` and `DATABASE_URL`.
    pub env: BTreeMap<String, String>,
}

/// What a statement takes and gives. It did not run. Terminal.
#[derive(Debug, Serialize)]
pub struct DryRun {
    /// The statement.
    pub sql: String,
    /// The parameters that were given.
    pub params: Vec<Value>,
    /// What PostgreSQL calls the type of each parameter that it takes.
    pub param_types: Vec<String>,
    /// Empty for a statement that returns none.
    pub columns: Vec<ColumnName>,
    /// Where it would run.
    pub session: String,
    /// What it took.
    pub trace: Trace,
}

impl Event {
    /// An `error`.
    #[must_use]
    pub fn error(id: Option<String>, problem: CliError, duration_ms: u64) -> Self {
        let CliError { code, message, hint, retryable } = problem;
        let trace = Trace { duration_ms, ..Trace::default() };
        let event = ErrorEvent { id, error_code: code, error: message, hint, retryable, correlation_id: None, trace };
        Self::Error(Box::new(event))
    }

    /// The rows in it; `None` for an event that has none.
    #[must_use]
    pub fn rows(&self) -> Option<&Rows> {
        match self {
            Self::Result(it) => Some(&it.rows),
            Self::ResultRows(it) => Some(&it.rows),
            _ => None,
        }
    }

    /// Whether nothing follows for its request.
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        matches!(self, Self::Result(_) | Self::ResultEnd(_) | Self::SqlError(_) | Self::Error(_) | Self::DryRun(_))
    }

    /// Whether it says that something went wrong.
    #[must_use]
    pub fn is_failure(&self) -> bool {
        matches!(self, Self::SqlError(_) | Self::Error(_))
    }

    /// The commit that it tells of, if it does: one that has happened or, after `commit_outcome_unknown`, may have.
    pub(crate) fn commit(&self) -> Option<Commit> {
        let (id, command_tag, correlation_id) = match self {
            Self::Result(it) if it.is_commit => (&it.id, Some(&it.command_tag), &it.correlation_id),
            Self::ResultEnd(it) if it.is_commit => (&it.id, Some(&it.command_tag), &it.correlation_id),
            Self::Error(it) if it.error_code == ErrorCode::CommitOutcomeUnknown => {
                (it.id.as_ref()?, None, &it.correlation_id)
            }
            _ => return None,
        };
        let (id, command_tag, correlation_id) = (id.clone(), command_tag.cloned(), correlation_id.clone());
        Some(Commit { id, command_tag, correlation_id })
    }

    /// The event as `log` tells of it; `None` if it does not.
    #[must_use]
    pub fn as_log(&self, id: Option<&str>, session: &str) -> Option<Log> {
        let request_id = id.map(str::to_owned);
        let log = Log { request_id, session: Some(session.to_owned()), ..Log::default() };
        Some(match self {
            Self::Result(it) => {
                Log { event: "query.result", command_tag: Some(it.command_tag.clone()), trace: it.trace, ..log }
            }
            Self::ResultEnd(it) => {
                Log { event: "query.result", command_tag: Some(it.command_tag.clone()), trace: it.trace, ..log }
            }
            Self::SqlError(it) => {
                Log { event: "query.sql_error", error_code: Some(it.sqlstate.clone()), trace: it.trace, ..log }
            }
            Self::Error(it) => {
                Log { event: "query.error", error_code: Some(it.error_code.to_string()), trace: it.trace, ..log }
            }
            _ => return None,
        })
    }
}
