//! The records of writes of all accounts.

use std::str::FromStr;
use std::sync::Arc;

use askama::Template;
use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use ledger::audit::{PlannedWrite, RecordFilter, RowError};
use ledger::{RecordStatus, TimeRangeError};
use review::sentences::short_id;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use types::{TimeError, visible};

use super::record::error;
use crate::message::{self, render};
use crate::session::LoggedIn;
use crate::state::Console;
use crate::text::{optional, proposer, query_string, shown};

/// The number of records on a page.
const PAGE: u32 = 50;

/// The number of records that an export reads at once, and the maximum number of records in an export.
const EXPORT_PAGE: u32 = 500;
const MAX_EXPORTED: usize = 100_000;

/// The states of records, for the filter.
const STATUSES: [&str; 4] = ["success", "failure", "pending", "duplicate"];

/// The ages for the filter, and their labels. A URL may have any other time.
const AGES: [(&str, &str); 4] =
    [("1h", "last hour"), ("24h", "last day"), ("7d", "last 7 days"), ("30d", "last 30 days")];

/// The filter of a page, as query parameters.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct RecordQuery {
    pub(crate) tool: String,
    pub(crate) status: String,
    pub(crate) account: String,
    pub(crate) actor: String,
    pub(crate) session: String,
    pub(crate) table: String,
    /// A point in time.
    pub(crate) since: String,
    /// Records before this one: the id of the last record of a page.
    pub(crate) before: String,
}

#[derive(Template)]
#[template(path = "records.html")]
struct Page<'a> {
    person: Option<&'a str>,
    query: &'a RecordQuery,
    lines: Vec<RecordLine>,
    older: Option<String>,
    export: String,
    problem: Option<String>,
}

pub(crate) struct RecordLine {
    pub(crate) id: String,
    pub(crate) short_id: String,
    pub(crate) tool: String,
    pub(crate) status: String,
    pub(crate) at: String,
    pub(crate) by: String,
    /// The parameters that were given.
    pub(crate) what: String,
    /// The reason of the agent.
    pub(crate) why: Option<String>,
    pub(crate) error: Option<String>,
}

impl RecordQuery {
    fn fields(&self) -> [(&'static str, Option<String>); 7] {
        [
            ("tool", Some(self.tool.clone())),
            ("status", Some(self.status.clone())),
            ("account", Some(self.account.clone())),
            ("actor", Some(self.actor.clone())),
            ("session", Some(self.session.clone())),
            ("table", Some(self.table.clone())),
            ("since", Some(self.since.clone())),
        ]
    }

    fn is_set(&self) -> bool {
        self.fields().iter().any(|(_, value)| value.as_ref().is_some_and(|value| !value.is_empty()))
    }

    /// Whether the filter begins at a time that its menu does not offer.
    fn has_other_time(&self) -> bool {
        !self.since.is_empty() && AGES.iter().all(|(age, _)| *age != self.since)
    }

    fn with_before(&self, before: Option<String>) -> String {
        query_string(self.fields().into_iter().chain([("before", before)]))
    }

    async fn filter(&self, console: &Console, limit: u32) -> Result<RecordFilter, FilterError> {
        let text = |text: &str| Some(text.trim().to_owned()).filter(|text| !text.is_empty());
        let status = match text(&self.status) {
            None => None,
            Some(status) => Some(RecordStatus::parse(&status).ok_or(FilterError::Status(status))?),
        };
        let row = match text(&self.table) {
            Some(table) => Some(console.records.tracked_row(&table, &[]).await?),
            None => None,
        };
        Ok(RecordFilter {
            limit,
            tool_name: text(&self.tool),
            status,
            account_id: text(&self.account),
            actor: text(&self.actor),
            session: text(&self.session),
            time: console.records.time_range(text(&self.since).map(|since| since.parse()).transpose()?, None).await?,
            row,
            before: number("before", text(&self.before))?,
        })
    }
}

fn number<N: FromStr>(name: &'static str, value: Option<String>) -> Result<Option<N>, FilterError> {
    let Some(value) = value else { return Ok(None) };
    value.parse().map(Some).map_err(|_| FilterError::NotANumber { name, value })
}

#[derive(Debug, thiserror::Error)]
enum FilterError {
    #[error("the state is one of success, failure, pending and duplicate, not \"{0}\"")]
    Status(String),
    #[error("{name} is a number, not \"{value}\"")]
    NotANumber { name: &'static str, value: String },
    #[error(transparent)]
    Time(#[from] TimeError),
    #[error(transparent)]
    Range(#[from] TimeRangeError),
    #[error(transparent)]
    Table(#[from] RowError),
}

impl FilterError {
    fn into_response(self) -> Response {
        match self {
            Self::Table(RowError::Database(error)) | Self::Range(TimeRangeError::Database(error)) => {
                message::unavailable(&error)
            }
            error => message::page(StatusCode::BAD_REQUEST, "The filter cannot be used", &sentence(&error)),
        }
    }
}

fn sentence(error: &FilterError) -> String {
    format!("{}.", visible(&error.to_string()))
}

pub(crate) async fn list(
    LoggedIn(person): LoggedIn,
    State(console): State<Arc<Console>>,
    Query(query): Query<RecordQuery>,
) -> Response {
    let mut page = Page {
        person: Some(&person.name),
        query: &query,
        lines: Vec::new(),
        older: None,
        export: String::new(),
        problem: None,
    };
    let filter = match query.filter(&console, PAGE + 1).await {
        Ok(filter) => filter,
        Err(FilterError::Table(RowError::Database(error))) => return message::unavailable(&error),
        // The form is shown again, so that the person can correct it.
        Err(error) => {
            page.problem = Some(sentence(&error));
            return (StatusCode::BAD_REQUEST, render(&page)).into_response();
        }
    };
    let mut records = match console.records.list(&filter).await {
        Ok(found) => found,
        Err(error) => return message::unavailable(&error),
    };
    let is_cut = records.len() > PAGE as usize;
    records.truncate(PAGE as usize);
    let last = records.last().and_then(|record| record.id).filter(|_| is_cut);
    page.older = last.map(|id| query.with_before(Some(id.to_string())));
    page.export = query.with_before(None);
    page.lines = records.iter().map(line).collect();
    render(&page)
}

/// The records as JSON, one per line, the newest first.
pub(crate) async fn export(
    LoggedIn(_): LoggedIn,
    State(console): State<Arc<Console>>,
    Query(query): Query<RecordQuery>,
) -> Response {
    let filter = match query.filter(&console, EXPORT_PAGE).await {
        Ok(filter) => filter,
        Err(error) => return error.into_response(),
    };
    let lines = stream::try_unfold((console, filter, 0), |(console, filter, written)| {
        async move {
            if written >= MAX_EXPORTED {
                return Ok(None);
            }
            let records = console.records.list(&filter).await?;
            // Writes in flight have no id and come first.
            let Some(before) = records.last().map(|last| last.id) else {
                return Ok(None);
            };
            let written = if before.is_some() { written + records.len() } else { MAX_EXPORTED };
            let text: String = records.iter().map(|record| format!("{}\n", json!(record))).collect();
            Ok::<_, ledger::read::Error>(Some((text, (console, RecordFilter { before, ..filter }, written))))
        }
    });
    let headers = [
        (header::CONTENT_TYPE, "application/jsonl; charset=utf-8"),
        (header::CONTENT_DISPOSITION, "attachment; filename=\"records.jsonl\""),
    ];
    (headers, Body::from_stream(lines)).into_response()
}

fn line(record: &ledger::audit::RecordLine) -> RecordLine {
    let id = record.correlation_id.to_string();
    let params = record.params_summary.as_deref().unwrap_or_default();
    RecordLine {
        short_id: short_id(&id),
        id,
        tool: visible(&record.tool_name),
        status: if record.is_reversed { "reversed".to_owned() } else { visible(&record.status) },
        at: record.created_at.clone(),
        by: proposer(record.actor.as_deref(), &record.account_id),
        what: params_in_words(params),
        why: optional(&record.reason),
        error: error(record.error_code.as_ref(), record.error_message.as_ref()),
    }
}

pub(crate) fn planned_line(write: &PlannedWrite) -> RecordLine {
    let id = write.correlation_id.to_string();
    RecordLine {
        short_id: short_id(&id),
        id,
        tool: visible(&write.tool_name),
        status: String::new(),
        at: write.completed_at.clone().unwrap_or_default(),
        by: proposer(write.actor.as_deref(), &write.account_id),
        what: params_in_words(write.params_summary.as_deref().unwrap_or_default()),
        why: None,
        error: None,
    }
}

/// The parameters in words: `tweet_id: 26`. A text that was truncated is not a JSON object and stays as it is.
fn params_in_words(summary: &str) -> String {
    match serde_json::from_str::<Map<String, Value>>(&visible(summary)) {
        Ok(params) => {
            let given = params.iter().filter(|(_, value)| !value.is_null());
            let pairs = given.map(|(name, value)| format!("{}: {}", visible(name), shown(value)));
            pairs.collect::<Vec<_>>().join(", ")
        }
        Err(_) => visible(summary),
    }
}
