//! Events of the front ends: one [`Event`] per line of output (agent-cli.md, "Events").
//!
//! To add an event: a variant, its struct with the fields in the order of the document, and a line in the golden files.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};
use serde_json::Value;
use tokio::time::Instant;
use types::Column;

use crate::config::Config;
use crate::error::{CliError, EventErrorCode};
use crate::undelivered::Commit;

/// A request, for the events that belong to it.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) id: String,
    pub(crate) session: String,
    pub(crate) started: Instant,
}

impl Request {
    pub(crate) fn trace(&self) -> Trace {
        let elapsed = self.started.elapsed().as_millis();
        Trace { duration_ms: u64::try_from(elapsed).unwrap_or(u64::MAX), ..Trace::default() }
    }

    /// The terminal event of the request, if it has failed for this reason.
    pub(crate) fn failed(&self, problem: CliError) -> Event {
        Event::error(Some(self.id.clone()), problem, self.trace().duration_ms)
    }

    pub(crate) fn cancelled(&self) -> Event {
        self.failed(CliError::new(EventErrorCode::Cancelled, "the query was cancelled"))
    }

    /// The terminal event after a panic.
    pub(crate) fn defect(&self) -> Event {
        self.failed(CliError::new(EventErrorCode::InternalError, "the query ended by a defect of countersign"))
    }
}

/// One line of output, identified by `code`. Absent fields are left out, never null.
#[derive(Debug, Serialize)]
#[serde(tag = "code", rename_all = "snake_case")]
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

/// The cost and the result size of a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Trace {
    /// Time from the acceptance of the request to this event.
    pub duration_ms: u64,
    /// Number of rows returned or, by a statement that returns none, affected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub row_count: Option<u64>,
    /// Size of the rows as JSON, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload_bytes: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ColumnName {
    /// Name, unique within the result.
    pub name: String,
    /// PostgreSQL's name of its type.
    #[serde(rename = "type")]
    pub type_name: String,
}

impl From<&Column> for ColumnName {
    fn from(column: &Column) -> Self {
        Self { name: column.name.clone(), type_name: column.ty.name.clone() }
    }
}

/// A JSON array of rows, each an object by column name. The array is kept as one line of text, and is empty by
/// default. As a field of an event it serialises as an empty array, which [`crate::output::Output`] replaces with the
/// text.
#[derive(Debug, Default)]
pub struct Rows(Option<String>);

impl Rows {
    /// Creates rows from the text of an array (`pg::QueryEvent::Rows`).
    #[must_use]
    pub fn from_json(json: String) -> Self {
        // A line break between two tokens of a json value has no meaning, and strings contain none.
        let has_breaks = [b'\n', b'\r'].iter().any(|byte| json.as_bytes().contains(byte));
        Self(Some(if has_breaks { json.replace(['\n', '\r'], " ") } else { json }))
    }

    /// Returns the text of the array.
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

/// A complete result. Terminal.
#[derive(Debug, Serialize)]
pub struct ResultEvent {
    pub id: String,
    pub session: String,
    /// `ROWS n`, or PostgreSQL's command tag for a statement that returns no rows.
    pub command_tag: String,
    /// Columns; empty for a statement that returns no rows.
    pub columns: Vec<ColumnName>,
    pub rows: Rows,
    /// The number of rows that were returned or, by a statement that returns none, changed.
    pub row_count: u64,
    /// The correlation id of a write that the ledger has recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    /// Whether the event reports a COMMIT. Not serialised.
    #[serde(skip)]
    pub is_commit: bool,
    pub trace: Trace,
}

/// The beginning of a streamed result.
#[derive(Debug, Serialize)]
pub struct ResultStart {
    pub id: String,
    pub session: String,
    /// Columns: at least one, unless the query selects nothing.
    pub columns: Vec<ColumnName>,
}

/// A batch of rows of a streamed result.
#[derive(Debug, Serialize)]
pub struct ResultRows {
    pub id: String,
    /// Rows of the batch: at least one.
    pub rows: Rows,
    pub rows_batch_count: u64,
}

/// The end of a streamed result. Terminal.
#[derive(Debug, Serialize)]
pub struct ResultEnd {
    pub id: String,
    pub session: String,
    /// Command tag: `ROWS n`.
    pub command_tag: String,
    /// The correlation id of a write that the ledger has recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    /// Whether the event reports a COMMIT. Not serialised.
    #[serde(skip)]
    pub is_commit: bool,
    /// Duration and counts of the whole result.
    pub trace: Trace,
}

/// An error of PostgreSQL. Terminal.
#[derive(Debug, Serialize)]
pub struct SqlError {
    pub id: String,
    pub session: String,
    pub sqlstate: String,
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The position in the statement, in characters from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<String>,
    pub trace: Trace,
}

/// An error outside of PostgreSQL. Terminal if it has the id of a request in flight.
#[derive(Debug, Serialize)]
pub struct ErrorEvent {
    /// The id of the request, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    pub error_code: EventErrorCode,
    pub error: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Whether a retry may succeed.
    pub retryable: bool,
    /// The correlation id of a write whose outcome only the ledger knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    pub trace: Trace,
}

/// A notice of PostgreSQL, or one of this program about a session.
#[derive(Debug, Serialize)]
pub struct Notice {
    /// The id of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    pub session: String,
    /// `NOTICE`, `WARNING`, ..
    pub severity: String,
    pub sqlstate: String,
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Duration of the request so far; zero without a request.
    pub trace: Trace,
}

/// The response to `ping`.
#[derive(Debug, Serialize)]
pub struct Pong {
    pub trace: PongTrace,
}

#[derive(Debug, Serialize)]
pub struct PongTrace {
    /// Seconds since the start of the process.
    pub uptime_s: u64,
    /// Number of requests with an id (`query`, `begin`, `commit`, `rollback`) accepted so far.
    pub requests_total: u64,
    /// The number of these without a terminal event.
    pub in_flight: u64,
}

/// The last event of a pipe.
#[derive(Debug, Serialize)]
pub struct Close {
    /// The text `shutdown`.
    pub message: &'static str,
    pub trace: CloseTrace,
}

#[derive(Debug, Serialize)]
pub struct CloseTrace {
    /// Seconds since the start of the process.
    pub uptime_s: u64,
    /// Number of accepted requests with an id.
    pub requests_total: u64,
}

/// An event that the `log` setting requests.
#[derive(Debug, Default, Serialize)]
pub struct Log {
    /// Name of the event: `startup`, `query.result`, `query.error` or `query.sql_error`.
    pub event: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The code of an `error`, or the SQLSTATE of an `sql_error`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_code: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command_tag: Option<String>,
    /// The invocation of this process; `startup` only.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub startup: Option<Box<Startup>>,
    pub trace: Trace,
}

/// The invocation of this process. Secrets are `***`.
#[derive(Debug, Clone, Serialize)]
pub struct Startup {
    pub version: &'static str,
    pub argv: Vec<String>,
    pub args: Value,
    pub config: Config,
    /// Environment variables that have an effect: `COUNTERSIGN_*`, `PG*` and `DATABASE_URL`.
    pub env: BTreeMap<String, String>,
}

/// The parameters and columns of a statement, which did not run. Terminal.
#[derive(Debug, Serialize)]
pub struct DryRun {
    pub sql: String,
    pub params: Vec<Value>,
    /// PostgreSQL's names of the types of its parameters.
    pub param_types: Vec<String>,
    /// Columns; empty for a statement that returns no rows.
    pub columns: Vec<ColumnName>,
    pub session: String,
    pub trace: Trace,
}

impl Event {
    #[must_use]
    pub fn error(id: Option<String>, problem: CliError, duration_ms: u64) -> Self {
        let CliError { code, message, hint, retryable } = problem;
        let trace = Trace { duration_ms, ..Trace::default() };
        let event = ErrorEvent { id, error_code: code, error: message, hint, retryable, correlation_id: None, trace };
        Self::Error(Box::new(event))
    }

    /// Returns the rows of the event; `None` if it has none.
    #[must_use]
    pub fn rows(&self) -> Option<&Rows> {
        match self {
            Self::Result(it) => Some(&it.rows),
            Self::ResultRows(it) => Some(&it.rows),
            _ => None,
        }
    }

    /// Returns whether this is the last event of its request.
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        matches!(self, Self::Result(_) | Self::ResultEnd(_) | Self::SqlError(_) | Self::Error(_) | Self::DryRun(_))
    }

    /// Returns whether the event reports an error.
    #[must_use]
    pub fn is_failure(&self) -> bool {
        matches!(self, Self::SqlError(_) | Self::Error(_))
    }

    /// The commit that the event reports. After `commit_outcome_unknown` the commit may not have happened.
    pub(crate) fn commit(&self) -> Option<Commit> {
        let (id, command_tag, correlation_id) = match self {
            Self::Result(it) if it.is_commit => (&it.id, Some(&it.command_tag), &it.correlation_id),
            Self::ResultEnd(it) if it.is_commit => (&it.id, Some(&it.command_tag), &it.correlation_id),
            Self::Error(it) if it.error_code == EventErrorCode::CommitOutcomeUnknown => {
                (it.id.as_ref()?, None, &it.correlation_id)
            }
            _ => return None,
        };
        let (id, command_tag, correlation_id) = (id.clone(), command_tag.cloned(), correlation_id.clone());
        Some(Commit { id, command_tag, correlation_id })
    }

    /// The event in the form of `log`; `None` if `log` does not report it.
    #[must_use]
    pub fn as_log(&self, id: Option<&str>, session: &str) -> Option<Log> {
        let (event, command_tag, error_code, trace) = match self {
            Self::Result(it) => ("query.result", Some(it.command_tag.clone()), None, it.trace),
            Self::ResultEnd(it) => ("query.result", Some(it.command_tag.clone()), None, it.trace),
            Self::SqlError(it) => ("query.sql_error", None, Some(it.sqlstate.clone()), it.trace),
            Self::Error(it) => ("query.error", None, Some(it.error_code.to_string()), it.trace),
            _ => return None,
        };
        let (request_id, session) = (id.map(str::to_owned), Some(session.to_owned()));
        Some(Log { event, request_id, session, error_code, command_tag, startup: None, trace })
    }
}
