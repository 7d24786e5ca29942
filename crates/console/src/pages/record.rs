//! A record: the write, its account, its approval, and its place in the log.

use askama::Template;
use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use ledger::RecordStatus;
use ledger::audit::{ProveError, Record, RecordApproval};
use ledger::console::ConsolePerson;
use review::{CallText, Summary, decided_by};
use serde_json::Value;
use types::{CorrelationId, visible};

use crate::frame::Frame;
use crate::message::{self, PageResult, render};
use crate::rows::{RowsQuery, ShownRows, Table, tables};
use crate::session::LoggedIn;
use crate::state::DatabaseState;
use crate::text::{Fact, LongText, SqlText, client, context, optional, proposer, shown};

#[derive(Template)]
#[template(path = "record.html")]
struct Page<'a> {
    frame: Frame<'a>,
    id: String,
    tool: String,
    status: String,
    facts: Vec<Fact>,
    by: String,
    at: Option<String>,
    error: Option<String>,
    reason: Option<String>,
    sql: Option<SqlText>,
    params: Vec<(String, LongText)>,
    tables: Vec<Table>,
    shown_rows: ShownRows,
    chain: Vec<Fact>,
    approval: Vec<Fact>,
    undo: String,
    has_proof: bool,
    may_undo: bool,
}

pub(crate) async fn show(
    LoggedIn(person): LoggedIn,
    State(state): State<DatabaseState>,
    Path(id): Path<String>,
    Query(query): Query<RowsQuery>,
) -> PageResult {
    let id = CorrelationId::parse(&id).ok_or_else(unknown)?;
    let record = state.database.records.show(id).await?.ok_or_else(unknown)?;
    Ok(render(&page(&state, &person, &record, query.into())))
}

/// The proof that the log has the record, in the form that `countersign audit verify --proof` accepts.
pub(crate) async fn prove(
    LoggedIn(_): LoggedIn,
    State(state): State<DatabaseState>,
    Path(id): Path<String>,
) -> Response {
    let Some(id) = CorrelationId::parse(&id) else { return unknown() };
    match state.database.records.prove(id).await {
        Ok(proof) => {
            let headers = [
                (header::CONTENT_TYPE, "text/plain; charset=utf-8".to_owned()),
                (header::CONTENT_DISPOSITION, format!("attachment; filename=\"{id}.tlog-proof\"")),
            ];
            (headers, proof).into_response()
        }
        Err(ProveError::Database(error)) => message::unavailable(&error),
        Err(ProveError::Unknown(_)) => unknown(),
        Err(error) => message::page(StatusCode::CONFLICT, "There is no proof", &format!("{error}.")),
    }
}

pub(crate) fn unknown() -> Response {
    let text = "There is no record of this id. It was never given out, or it was pruned.";
    message::page(StatusCode::NOT_FOUND, "Not found", text)
}

fn page<'a>(state: &'a DatabaseState, person: &'a ConsolePerson, record: &Record, shown_rows: ShownRows) -> Page<'a> {
    let is_success = record.status == RecordStatus::Success.as_str();
    let has_effects = record.effects.get().is_some();
    let params = record.params.as_ref().and_then(Value::as_object);
    let sql = params.and_then(|params| SqlText::new(&CallText::from(params)));
    let others = params.into_iter().flatten().filter(|_| sql.is_none());
    Page {
        frame: state.frame(person),
        id: record.correlation_id.to_string(),
        tool: visible(&record.tool_name),
        by: proposer(record.actor.as_deref(), &record.account_id),
        at: record.completed_at.clone().or_else(|| Some(record.created_at.clone())),
        error: error(record.error_code.as_ref(), record.error_message.as_ref()),
        reason: optional(&record.reason),
        facts: facts(record),
        params: others.filter_map(pair).collect(),
        sql,
        tables: tables(&Summary::of_record(record), shown_rows),
        shown_rows,
        chain: chain(state, record),
        approval: record.approval().map(|one| approval(state, one)).unwrap_or_default(),
        undo: review::sentences::undo(record),
        has_proof: record.log_entry.is_some(),
        may_undo: is_success && has_effects && person.role.may_undo() && state.database.operator.is_some(),
        status: visible(&record.status),
    }
}

/// A parameter; `None` if it was not given.
fn pair((name, value): (&String, &Value)) -> Option<(String, LongText)> {
    (!value.is_null()).then(|| (visible(name), LongText::new(shown(value))))
}

/// `db_error: the value is too long`.
pub(super) fn error(code: Option<&String>, message: Option<&String>) -> Option<String> {
    let message = message.map(|message| format!(": {}", visible(message))).unwrap_or_default();
    Some(format!("{}{message}", visible(code?)))
}

fn facts(record: &Record) -> Vec<Fact> {
    let number = |number: Option<i64>| number.map(|number| number.to_string());
    [
        client(record.client.as_ref()).map(|name| Fact::text("Client", name)),
        record.client.as_ref().and_then(|client| optional(&client.session_id)).map(|id| Fact::id("Session", id)),
        Some(Fact::time("Made at", record.created_at.clone())),
        record.completed_at.clone().map(|time| Fact::time("Completed at", time)),
        number(record.rows_affected).map(|rows| Fact::text("Rows", rows)),
        record.error_detail.as_ref().map(|detail| Fact::text("Cause", shown(detail))),
        optional(&record.idempotency_key).map(|key| Fact::id("Idempotency key", key)),
        optional(&record.exec_xid).map(|xid| Fact::text("Transaction", xid)),
        number(record.log_entry).map(|entry| Fact::text("Entry in the log", entry)),
        Some(Fact::id("Correlation id", record.correlation_id.to_string())),
    ]
    .into_iter()
    .flatten()
    .chain(context(record.caller_context.as_ref()))
    .collect()
}

/// The records that this one is linked to.
fn chain(state: &DatabaseState, record: &Record) -> Vec<Fact> {
    let to = |name: &'static str, id: &CorrelationId| {
        Fact::link(name, state.database.path(format_args!("/records/{id}")), id.to_string())
    };
    let reverses = record.reverses.iter().flatten().map(|id| to("Undoes", id));
    let reversed = record.undo_calls.iter().flatten().filter_map(|call| call.reversed_by.as_ref());
    let reversed = reversed.map(|id| to("Undone by", id));
    let original = record.duplicate_of.iter().map(|id| to("Repeats", id));
    let duplicates = record.first_duplicates.iter().flatten().map(|id| to("Repeated by", id));
    reverses.chain(reversed).chain(original).chain(duplicates).collect()
}

fn approval(state: &DatabaseState, approval: RecordApproval) -> Vec<Fact> {
    let text = |name: &'static str, text: &Option<String>| optional(text).map(|text| Fact::text(name, text));
    let (login, via) = (approval.decided_login.as_deref(), approval.decided_via.as_deref());
    let by = approval.decided_by.as_deref().map(|by| decided_by(by, login, via).to_string());
    [
        by.map(|by| Fact::text("Decided by", by)),
        text("Via", &approval.decided_via),
        approval.decided_at.as_ref().map(|at| Fact::time("Decided at", visible(at))),
        approval
            .proposal_id
            .map(|id| Fact::link("Proposal", state.database.path(format_args!("/proposals/{id}")), id.to_string())),
    ]
    .into_iter()
    .flatten()
    .collect()
}
