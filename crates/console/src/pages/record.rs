//! A record: what was written, for whom, with whose approval, and its place in the log.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use ledger::audit::ProveError;
use ledger::console::ConsolePerson;
use serde_json::{Map, Value};
use types::{CorrelationId, Effects};

use crate::message::{self, render};
use crate::rows::{self, Effect, Row, shown};
use crate::session::LoggedIn;
use crate::state::Console;
use crate::text::{Fact, LongText, field, proposer};

#[derive(Template)]
#[template(path = "record.html")]
struct Page<'a> {
    person: Option<&'a str>,
    id: String,
    tool: String,
    status: String,
    facts: Vec<Fact>,
    by: String,
    at: Option<String>,
    error: Option<String>,
    params: Vec<(String, LongText)>,
    rows: Vec<Row>,
    more_rows: usize,
    effects: Vec<Effect>,
    more_effects: u64,
    chain: Vec<Fact>,
    approval: Vec<Fact>,
    undo: String,
    has_proof: bool,
    may_undo: bool,
}

pub(crate) async fn show(
    LoggedIn(person): LoggedIn,
    State(console): State<Arc<Console>>,
    Path(id): Path<String>,
) -> Response {
    let Some(id) = CorrelationId::parse(&id) else { return unknown() };
    match console.records.show(id).await {
        Ok(Some(record)) => render(&page(&console, &person, id, &record)),
        Ok(None) => unknown(),
        Err(error) => message::unavailable(&error),
    }
}

/// The proof that the log has the record, as `countersign audit verify --proof` takes it.
pub(crate) async fn prove(
    LoggedIn(_): LoggedIn,
    State(console): State<Arc<Console>>,
    Path(id): Path<String>,
) -> Response {
    let Some(id) = CorrelationId::parse(&id) else { return unknown() };
    match console.records.prove(id).await {
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

fn page<'a>(console: &Console, person: &'a ConsolePerson, id: CorrelationId, record: &Map<String, Value>) -> Page<'a> {
    let of = |name: &str| record.get(name).filter(|value| !value.is_null());
    let none = Value::Array(Vec::new());
    let (rows, more_rows) = match (of("before_image"), of("after_image")) {
        (None, None) => (Vec::new(), 0),
        (before, after) => rows::of(before.unwrap_or(&none), after.unwrap_or(&none), &[]),
    };
    let effects = of("effects").and_then(|effects| serde_json::from_value::<Effects<Value>>(effects.clone()).ok());
    let count = effects.as_ref().map_or(0, |effects| effects.count);
    let effects = effects.as_ref().map(rows::effects_of).unwrap_or_default();
    let status = field(record, "status").unwrap_or_default();
    let rollback = |name: &str| of("rollback_action").and_then(|rollback| rollback.get(name));
    let is_reversible = rollback("reversible") == Some(&Value::Bool(true));
    let has_effects = !effects.is_empty();
    Page {
        person: Some(&person.name),
        id: id.to_string(),
        tool: field(record, "tool_name").unwrap_or_default(),
        by: proposer(raw(record, "actor"), raw(record, "account_id").unwrap_or_default()),
        at: field(record, "completed_at").or_else(|| field(record, "created_at")),
        error: error(record),
        facts: facts(record),
        params: of("params").and_then(Value::as_object).into_iter().flatten().map(pair).collect(),
        rows,
        more_rows,
        more_effects: count.saturating_sub(effects.len() as u64),
        effects,
        chain: chain(record),
        approval: of("approval").and_then(Value::as_object).map(approval).unwrap_or_default(),
        undo: match (status.as_str(), is_reversible) {
            ("success", true) => "It can be undone, as long as its rows are as it left them.".to_owned(),
            ("success", false) => {
                let note = rollback("note").and_then(Value::as_str).map(types::visible).unwrap_or_default();
                format!("It cannot be undone. {note}")
            }
            _ => "It has written nothing.".to_owned(),
        },
        has_proof: of("log_entry").is_some(),
        may_undo: status == "success" && has_effects && person.role.may_undo() && console.operator.is_some(),
        status,
    }
}

fn pair((name, value): (&String, &Value)) -> (String, LongText) {
    (types::visible(name), LongText::new(shown(value)))
}

/// The text of a column, as it is.
fn raw<'r>(record: &'r Map<String, Value>, column: &str) -> Option<&'r str> {
    record.get(column).and_then(Value::as_str)
}

/// `db_error: the value is too long`.
fn error(record: &Map<String, Value>) -> Option<String> {
    let code = field(record, "error_code")?;
    let message = field(record, "error_message").map(|message| format!(": {message}")).unwrap_or_default();
    Some(format!("{code}{message}"))
}

fn facts(record: &Map<String, Value>) -> Vec<Fact> {
    let text = |name: &'static str, column: &str| field(record, column).map(|text| Fact::text(name, text));
    let time = |name: &'static str, column: &str| field(record, column).map(|time| Fact::time(name, time));
    let id = |name: &'static str, column: &str| field(record, column).map(|id| Fact::id(name, id));
    let client = |name: &str| record.get("client")?.get(name)?.as_str().map(types::visible);
    let client_name = client("name")
        .map(|name| client("version").map_or_else(|| name.clone(), |version| format!("{name} {version}")));
    [
        client_name.map(|name| Fact::text("Client", name)),
        client("session_id").map(|id| Fact::id("Session", id)),
        time("Made at", "created_at"),
        time("Completed at", "completed_at"),
        text("Rows", "rows_affected"),
        text("Cause", "error_detail"),
        id("Idempotency key", "idempotency_key"),
        text("Transaction", "exec_xid"),
        text("Entry in the log", "log_entry"),
        id("Correlation id", "correlation_id"),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The records that this one is tied to.
fn chain(record: &Map<String, Value>) -> Vec<Fact> {
    let items = |column: &str| record.get(column).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let to = |name: &'static str, id: &Value| {
        let id = CorrelationId::parse(id.as_str()?)?.to_string();
        Some(Fact::link(name, format!("/records/{id}"), id))
    };
    let reverses = items("reverses").iter().filter_map(|id| to("Undoes", id));
    let reversed = items("undo_calls").iter().filter_map(|call| to("Undone by", call.get("reversed_by")?));
    let duplicates = items("first_duplicates").iter().filter_map(|id| to("Repeated by", id));
    let original = record.get("duplicate_of").and_then(|id| to("Repeats", id));
    reverses.chain(reversed).chain(original).chain(duplicates).collect()
}

fn approval(approval: &Map<String, Value>) -> Vec<Fact> {
    let text = |name: &'static str, column: &str| field(approval, column).map(|text| Fact::text(name, text));
    let proposal = approval.get("proposal_id").and_then(Value::as_str).and_then(types::ProposalId::parse);
    [
        text("Decided by", "decided_by"),
        text("Login", "decided_login"),
        text("Via", "decided_via"),
        field(approval, "decided_at").map(|at| Fact::time("Decided at", at)),
        proposal.map(|id| Fact::link("Proposal", format!("/proposals/{id}"), id.to_string())),
    ]
    .into_iter()
    .flatten()
    .collect()
}
