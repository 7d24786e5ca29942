//! The failures of reads for agents, and the marks of truncated results.

use std::borrow::Cow;
use std::time::Duration;

use read::{ReadError, TruncatedBy};
use schemars::JsonSchema;
use serde::Serialize;
use types::{ErrorCode, Failure, JsonText};

/// A page of rows, each a JSON object.
#[derive(Debug, Serialize)]
pub struct RowsPage {
    pub rows: JsonText,
    pub row_count: usize,
    /// Whether rows were left out.
    #[serde(flatten)]
    pub truncation: Truncation,
}

/// Whether rows were left out of an answer, and how to have them.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub struct Truncation {
    /// Whether there were more rows than are shown.
    truncated: bool,
    /// The limit that left rows out: `row_limit` or `max_bytes`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    truncated_by: Option<&'static str>,
    /// How to have the rest.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    hint: Option<Cow<'static, str>>,
}

impl Truncation {
    /// `hint` says how to have the rest of rows that were left out by this limit.
    pub fn new<H: Into<Cow<'static, str>>>(by: Option<TruncatedBy>, hint: impl FnOnce(TruncatedBy) -> H) -> Self {
        let name = |by| match by {
            TruncatedBy::RowLimit => "row_limit",
            TruncatedBy::MaxBytes => "max_bytes",
        };
        Self { truncated: by.is_some(), truncated_by: by.map(name), hint: by.map(|by| hint(by).into()) }
    }
}

/// PostgreSQL's message after pg_cancel_backend, if its messages are in English. Every other error with this SQLSTATE
/// is treated as a timeout.
const CANCELLED_BY_SOMEBODY: &str = "canceling statement due to user request";

const CHEAPER: &str = "The same query most likely takes as long again. explain_query shows its plan without running it: read fewer \
    rows (a condition on an indexed column), or aggregate less at once.";

/// The failure for an agent whose read failed.
pub fn read_failure(error: ReadError, timeout: Duration) -> Failure {
    const PREFIX: &str = "Database query failed: ";
    let timed_out = || {
        let after = match timeout.subsec_millis() {
            0 => format!("{} s", timeout.as_secs()),
            _ => format!("{} ms", timeout.as_millis()),
        };
        let failure = Failure::new(ErrorCode::Timeout, format!("{PREFIX}Query timed out after {after}"));
        Failure { retryable: false, ..failure }.hint(CHEAPER)
    };
    match error {
        ReadError::NoResultColumns | ReadError::Copy => not_read_only(),
        ReadError::WouldWrite(error) => {
            Failure { sqlstate: Some(error.sqlstate), detail: Some(error.message), ..not_read_only() }
        }
        ReadError::PlannedWrite(_) => Failure { detail: Some(error.to_string()), ..not_read_only() },
        ReadError::ForbiddenFunction { .. } => {
            Failure::new(ErrorCode::NotPermitted, format!("{PREFIX}{error}")).hint("Nothing was executed.")
        }
        ReadError::RefusedRelation { .. } => Failure::new(ErrorCode::NotPermitted, format!("{PREFIX}{error}")).hint(
            "Nothing was executed. get_recent_mutations and get_mutation_detail show the records of your own account.",
        ),
        ReadError::RefusedRole(role) => role.refused(),
        ReadError::Masked(error) => Failure::new(ErrorCode::NotPermitted, format!("{PREFIX}{error}"))
            .hint("Nothing was executed. describe_database says which columns are masked."),
        ReadError::Params(reason) => Failure::new(ErrorCode::InvalidParams, format!("{PREFIX}{reason}")),
        // The plan is too large: PostgreSQL's own error, or one in its form.
        ReadError::TooLarge(read::Error::Server(error)) => Failure {
            sqlstate: Some(error.sqlstate),
            hint: error.hint,
            ..Failure::new(ErrorCode::ResultTooLarge, format!("{PREFIX}{}", error.message))
        },
        ReadError::TooLarge(error) => Failure::new(ErrorCode::ResultTooLarge, format!("{PREFIX}{error}"))
            .hint("Select fewer or shorter columns, for example left(column, 200)."),
        ReadError::Database(read::Error::Server(error))
            if error.sqlstate == "57014" && error.message != CANCELLED_BY_SOMEBODY =>
        {
            timed_out()
        }
        ReadError::Database(read::Error::Server(error)) => {
            let is_forbidden = error.sqlstate == "42501";
            let code = if is_forbidden { ErrorCode::NotPermitted } else { ErrorCode::SqlError };
            let advice = "Who reads, the login or the role of the caller, has no right to this: describe_database lists what may be read.";
            Failure {
                retryable: error.is_retryable(),
                sqlstate: Some(error.sqlstate),
                detail: error.detail,
                hint: error.hint.or_else(|| is_forbidden.then(|| advice.to_owned())),
                position: error.position,
                ..Failure::new(code, format!("{PREFIX}{}", error.message))
            }
        }
        ReadError::Database(read::Error::Deadline) => timed_out(),
        ReadError::Database(error @ read::Error::PoolTimeout { .. }) => {
            Failure::new(ErrorCode::DatabaseUnavailable, format!("{PREFIX}{error}")).hint(
                "The query was not started: ask again when fewer run at once. The operator can raise read_sessions or query_timeout_ms.",
            )
        }
        ReadError::Database(ref lost @ read::Error::Connect(ref error)) => {
            read::outage::log(lost, "a read had no connection");
            Failure { message: format!("{PREFIX}{error}"), ..Failure::from(error) }
        }
        ReadError::Database(error) => {
            tracing::warn!(%error, "a read lost its connection");
            Failure::new(ErrorCode::DatabaseUnavailable, format!("{PREFIX}{error}"))
        }
    }
}

fn not_read_only() -> Failure {
    Failure::new(
        ErrorCode::NotReadOnly,
        "Only read-only queries are allowed (SELECT, WITH, EXPLAIN, SHOW, VALUES, TABLE)",
    )
    .hint("Nothing was executed. To write, call one of the write tools of this server.")
}

/// The failure for an agent if the ledger cannot be read.
pub fn ledger_failure(error: &read::Error) -> Failure {
    read::outage::log(error, "the ledger cannot be read");
    match error {
        read::Error::Connect(error) => error.into(),
        read::Error::PoolTimeout { .. } => Failure::new(ErrorCode::DatabaseUnavailable, error.to_string()),
        read::Error::Deadline => Failure::new(ErrorCode::Timeout, "the ledger did not answer in time"),
        _ => Failure::new(ErrorCode::DbError, "the ledger cannot be read"),
    }
}
