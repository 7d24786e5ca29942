//! The records of writes of all accounts.

use askama::Template;
use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use ledger::audit::{LedgerNames, PlannedWrite, RecordFilter, RecordList, RowError};
use ledger::{RecordStatus, TimeRangeError};
use review::sentences::short_id;
use serde_json::{Map, Value, json};
use types::{Moment, TimeError, quoted, visible};

use super::record::error;
use super::search_line::{SearchKey, SearchLine, SearchLineError};
use crate::database::ConsoleDatabase;
use crate::frame::Frame;
use crate::message::{self, PageResult, render};
use crate::session::LoggedIn;
use crate::state::DatabaseState;
use crate::text::{optional, params, proposer, query_string};

/// The number of records on a page.
const PAGE: u32 = 50;

/// The number of records that are searched for those of a page.
const MAX_SEARCHED: u32 = 20_000;

/// The number of records that an export reads at once, and the maximum number of records in an export.
const EXPORT_PAGE: u32 = 500;
const MAX_EXPORTED: usize = 100_000;

/// The ages that the filter suggests.
const AGES: [&str; 4] = ["1h", "24h", "7d", "30d"];

/// The query of the page: its search line, and the last record of the page before. Each part of the line may have a
/// parameter of its own.
#[derive(Debug, Clone, Default)]
pub(crate) struct RecordQuery {
    line: SearchLine,
    /// Records before this one.
    older_than: Option<i64>,
}

#[derive(Template)]
#[template(path = "records.html")]
struct Page<'a> {
    frame: Frame<'a>,
    /// The search line, as it is given.
    line: &'a str,
    suggestions: Vec<String>,
    lines: Vec<RecordLine>,
    older: Option<String>,
    /// Whether only some records were searched.
    is_partial: bool,
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
    /// Reads the parameters of an address. Those that no filter has are ignored.
    fn parse(given: &[(String, String)]) -> Result<Self, FilterError> {
        let mut query = Self::default();
        for (name, value) in given {
            match (name.as_str(), SearchKey::parse(name)) {
                ("q", _) => query.line = SearchLine::parse(value)?,
                ("before", _) => query.older_than = Some(value.parse().map_err(|_| FilterError::Id(value.clone()))?),
                (_, Some(key)) => query.line.add(key, value.trim().to_owned())?,
                (_, None) => {}
            }
        }
        Ok(query)
    }

    fn with_before(&self, before: Option<String>) -> String {
        query_string([("q", Some(self.line.to_string())), ("before", before)])
    }

    async fn filter(
        &self,
        database: &ConsoleDatabase,
        limit: u32,
        max_searched: u32,
    ) -> Result<RecordFilter, FilterError> {
        let text = |key| self.line.get(key).map(str::to_owned);
        let time = |key: SearchKey| {
            let time = self.line.get(key).map(str::parse::<Moment>).transpose();
            time.map_err(|error| FilterError::Time { key: key.as_str(), error })
        };
        let status = self
            .line
            .get(SearchKey::Status)
            .map(|status| RecordStatus::parse(status).ok_or_else(|| FilterError::Status(status.to_owned())));
        let row = match self.line.get(SearchKey::Table) {
            Some(table) => Some(database.records.tracked_row(table, &[]).await?),
            None => None,
        };
        let (since, before) = (time(SearchKey::Since)?, time(SearchKey::Before)?);
        Ok(RecordFilter {
            limit,
            tool_name: text(SearchKey::Tool),
            status: status.transpose()?,
            account_id: text(SearchKey::Account),
            actor: text(SearchKey::Actor),
            session: text(SearchKey::Session),
            time: database.records.time_range(since, before).await?,
            row,
            before: self.older_than,
            max_searched,
        })
    }

    /// Lines with one more part.
    fn suggestions(&self, names: &LedgerNames) -> Vec<String> {
        let named = |key: SearchKey| -> Vec<&str> {
            match key {
                SearchKey::Tool => names.tools.iter().map(String::as_str).collect(),
                SearchKey::Account => names.accounts.iter().map(String::as_str).collect(),
                SearchKey::Actor => names.actors.iter().map(String::as_str).collect(),
                SearchKey::Table => names.tables.iter().map(String::as_str).collect(),
                SearchKey::Status => RecordStatus::ALL.map(RecordStatus::as_str).to_vec(),
                SearchKey::Since => AGES.to_vec(),
                SearchKey::Session | SearchKey::Before => Vec::new(),
            }
        };
        let of = |key| named(key).into_iter().filter_map(move |value| self.line.with(key, value)).collect::<Vec<_>>();
        SearchKey::ALL.into_iter().flat_map(of).collect()
    }
}

#[derive(Debug, thiserror::Error)]
enum FilterError {
    #[error(transparent)]
    Line(#[from] SearchLineError),
    #[error("status: is one of success, failure, pending and duplicate, not {}", quoted(.0))]
    Status(String),
    #[error("before is the number of a record, not {}", quoted(.0))]
    Id(String),
    #[error("{key}: {error}")]
    Time { key: &'static str, error: TimeError },
    #[error(transparent)]
    Range(#[from] TimeRangeError),
    #[error("table: {0}")]
    Table(#[from] RowError),
}

/// What is wrong, and the keys that a line may have.
fn sentences(error: &FilterError) -> String {
    let keys = SearchKey::ALL.map(SearchKey::as_str).join(", ");
    format!("{}. The keys are {keys}.", visible(&error.to_string()))
}

pub(crate) async fn list(
    LoggedIn(person): LoggedIn,
    State(state): State<DatabaseState>,
    Query(given): Query<Vec<(String, String)>>,
) -> PageResult {
    let query = RecordQuery::parse(&given);
    let line = match &query {
        Ok(query) => query.line.to_string(),
        Err(_) => given.iter().find(|(name, _)| name == "q").map(|(_, line)| line.clone()).unwrap_or_default(),
    };
    let names = state.database.records.names().await?;
    let mut page = Page {
        frame: state.frame(&person),
        line: &line,
        suggestions: query.as_ref().map(|query| query.suggestions(&names)).unwrap_or_default(),
        lines: Vec::new(),
        older: None,
        is_partial: false,
        export: String::new(),
        problem: None,
    };
    let found = async {
        let query = query?;
        let filter = query.filter(&state.database, PAGE + 1, MAX_SEARCHED).await?;
        Ok((query, filter))
    };
    let (query, filter) = match found.await {
        Ok(found) => found,
        Err(error) => {
            return Ok(refused(error, |problem| {
                page.problem = Some(problem);
                render(&page)
            }));
        }
    };
    let RecordList { mut records, stopped_at } = state.database.records.list(&filter).await?;
    let is_cut = records.len() > PAGE as usize;
    records.truncate(PAGE as usize);
    let last = records.last().and_then(|record| record.id).filter(|_| is_cut);
    page.is_partial = stopped_at.is_some();
    page.older = last.or(stopped_at.map(|stopped| stopped.id)).map(|id| query.with_before(Some(id.to_string())));
    page.export = query.with_before(None);
    page.lines = records.iter().map(record_line).collect();
    Ok(render(&page))
}

/// The answer to a filter that cannot be used. `page` shows the line again, so that the person can correct it.
fn refused(error: FilterError, page: impl FnOnce(String) -> Response) -> Response {
    match error {
        FilterError::Table(RowError::Database(error)) | FilterError::Range(TimeRangeError::Database(error)) => {
            message::unavailable(&error)
        }
        error => (StatusCode::BAD_REQUEST, page(sentences(&error))).into_response(),
    }
}

/// The records as JSON, one per line, the newest first.
pub(crate) async fn export(
    LoggedIn(_): LoggedIn,
    State(state): State<DatabaseState>,
    Query(given): Query<Vec<(String, String)>>,
) -> Response {
    let filter = async { RecordQuery::parse(&given)?.filter(&state.database, EXPORT_PAGE, u32::MAX).await };
    let filter = match filter.await {
        Ok(filter) => filter,
        Err(error) => {
            let page = |problem: String| message::page(StatusCode::BAD_REQUEST, "The filter cannot be used", &problem);
            return refused(error, page);
        }
    };
    let lines = stream::try_unfold((state, filter, 0), |(state, filter, written)| {
        async move {
            if written >= MAX_EXPORTED {
                return Ok(None);
            }
            let records = state.database.records.list(&filter).await?.records;
            // Writes in flight have no id and come first.
            let Some(before) = records.last().map(|last| last.id) else {
                return Ok(None);
            };
            let written = if before.is_some() { written + records.len() } else { MAX_EXPORTED };
            let text: String = records.iter().map(|record| format!("{}\n", json!(record))).collect();
            Ok::<_, ledger::read::Error>(Some((text, (state, RecordFilter { before, ..filter }, written))))
        }
    });
    let headers = [
        (header::CONTENT_TYPE, "application/jsonl; charset=utf-8"),
        (header::CONTENT_DISPOSITION, "attachment; filename=\"records.jsonl\""),
    ];
    (headers, Body::from_stream(lines)).into_response()
}

fn record_line(record: &ledger::audit::RecordLine) -> RecordLine {
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

/// The parameters that were given. A text that was truncated is not a JSON object and stays as it is.
fn params_in_words(summary: &str) -> String {
    match serde_json::from_str::<Map<String, Value>>(summary) {
        Ok(given) => params(given.iter().filter(|(_, value)| !value.is_null())),
        Err(_) => visible(summary),
    }
}
