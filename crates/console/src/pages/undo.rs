//! Undo: of one write, and plans of many writes.

use std::sync::Arc;

use askama::Template;
use axum::Form;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use ledger::console::ConsolePerson;
use ledger::operator::{Operator, UndoError, UndoOutcome, UndoProgress};
use ledger::plans::{PlanMode, Selection, StoredPlan};
use serde::Deserialize;
use serde_json::Value;
use types::{CorrelationId, IdPrefix, visible};

use super::record;
use super::records::{RecordLine, record_line};
use crate::conflicts::{self, Conflict};
use crate::message::{self, render};
use crate::session::LoggedIn;
use crate::state::{Console, ConsoleOperator, RecordMasks};
use crate::text::{Fact, rows};

/// A plan with more rows is carried out in parts.
const MOST_ROWS: u64 = 10_000;

/// The most writes that the page of a plan lists.
const MOST_LISTED: usize = 100;

#[derive(Template)]
#[template(path = "undo.html")]
struct SelectionPage<'a> {
    person: Option<&'a str>,
    why_not: Option<&'static str>,
    problem: Option<String>,
    form: &'a SelectionForm,
}

/// The writes to undo, as the form has them.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct SelectionForm {
    account: String,
    actor: String,
    session: String,
    client: String,
    tool: String,
    table: String,
    from: String,
    to: String,
    mode: String,
}

#[derive(Template)]
#[template(path = "undo_one.html")]
struct OnePage<'a> {
    person: Option<&'a str>,
    id: String,
    rows: String,
    counted: String,
    conflicts: Vec<Conflict>,
    more: usize,
}

#[derive(Template)]
#[template(path = "undo_plan.html")]
struct PlanPage<'a> {
    person: Option<&'a str>,
    id: String,
    digest: String,
    facts: Vec<Fact>,
    writes: Vec<RecordLine>,
    write_count: usize,
    parts: usize,
    counted: String,
    conflicts: Vec<Conflict>,
    more: usize,
    is_ready: bool,
}

#[derive(Deserialize)]
pub(crate) struct RunForm {
    /// What the page has shown.
    digest: String,
}

pub(crate) async fn ask(LoggedIn(person): LoggedIn, State(console): State<Arc<Console>>) -> Response {
    let form = SelectionForm { from: "24h".to_owned(), to: "0h".to_owned(), ..SelectionForm::default() };
    let why_not = operator(&console, &person).err();
    render(&SelectionPage { person: Some(&person.name), why_not, problem: None, form: &form })
}

/// Makes and stores a plan; the rows are compared, and nothing is changed.
pub(crate) async fn plan(
    LoggedIn(person): LoggedIn,
    State(console): State<Arc<Console>>,
    Form(form): Form<SelectionForm>,
) -> Response {
    let operator = match operator(&console, &person) {
        Ok(operator) => operator,
        Err(why_not) => return forbidden(why_not),
    };
    let mode = match form.mode.as_str() {
        "skip" => PlanMode::Skip,
        "cascade" => PlanMode::Cascade,
        _ => PlanMode::Strict,
    };
    match operator.undo.plan(&form.selection(), mode, MOST_ROWS, &person.name).await {
        Ok((_, plan)) => Redirect::to(&format!("/undo/{}", plan.plan_id)).into_response(),
        // 22007, 22008: a time that PostgreSQL does not read.
        Err(UndoError::Database(error)) if matches!(sqlstate(&error), Some("22007" | "22008" | "22023")) => {
            let problem = error.server_error().map(|error| format!("{}.", visible(&error.message)));
            let page = SelectionPage { person: Some(&person.name), why_not: None, problem, form: &form };
            (StatusCode::BAD_REQUEST, render(&page)).into_response()
        }
        Err(error) => failed(&error),
    }
}

pub(crate) async fn show(
    LoggedIn(person): LoggedIn,
    State(console): State<Arc<Console>>,
    Path(id): Path<String>,
) -> Response {
    let operator = match operator(&console, &person) {
        Ok(operator) => operator,
        Err(why_not) => return forbidden(why_not),
    };
    let plan = match find(&operator.undo, &id).await {
        Ok(plan) => plan,
        Err(refusal) => return refusal,
    };
    let ids: Vec<CorrelationId> = write_ids(&plan.report).take(MOST_LISTED).collect();
    let found = async { Ok::<_, ledger::read::Error>((console.audit.some(&ids).await?, console.masks().await?)) };
    match found.await {
        Ok((writes, masks)) => {
            let writes = writes.into_iter().map(|write| record_line(&masks.apply(write))).collect();
            render(&plan_page(&person, plan, writes, &masks))
        }
        Err(error) => message::unavailable(&error),
    }
}

fn write_ids(report: &Value) -> impl Iterator<Item = CorrelationId> {
    let writes = report.get("writes").and_then(Value::as_array).into_iter().flatten();
    writes.filter_map(|write| CorrelationId::parse(write.as_str()?))
}

/// Carries out what the page has shown, or nothing.
pub(crate) async fn run(
    LoggedIn(person): LoggedIn,
    State(console): State<Arc<Console>>,
    Path(id): Path<String>,
    Form(form): Form<RunForm>,
) -> Response {
    let undo = match operator(&console, &person) {
        Ok(operator) => operator.undo.clone(),
        Err(why_not) => return forbidden(why_not),
    };
    let plan = match find(&undo, &id).await {
        Ok(plan) => plan,
        Err(refusal) => return refusal,
    };
    if plan.digest != form.digest || !plan.is_ready {
        let text = "The page shows another plan than this, or one with conflicts. Nothing was changed.";
        return message::page(StatusCode::CONFLICT, "Not done", text);
    }
    tracing::info!(person = person.name, plan = plan.plan_id, "an undo plan is carried out");
    // It goes on if the browser goes away.
    let running = tokio::spawn(async move { run_parts(&undo, &plan, &person.name).await });
    running.await.unwrap_or_else(|error| message::unavailable(&error))
}

async fn run_parts(undo: &Operator, plan: &StoredPlan, person: &str) -> Response {
    let (mut undone, mut before, mut receipts) = (0, 0, Vec::new());
    for part in &plan.parts {
        match undo.run_part(plan, part, person).await {
            Ok(UndoProgress::Before) => before += 1,
            Ok(UndoProgress::Stale) => {
                let text = format!(
                    "{} Other rows would be changed now than the plan has shown. Make another plan.",
                    so_far(undone, &receipts)
                );
                return message::page(StatusCode::CONFLICT, "The plan is stale", &text);
            }
            Ok(UndoProgress::Done(UndoOutcome::Undone { correlation_id, rows, .. })) => {
                undone += rows;
                receipts.push(correlation_id);
            }
            Ok(UndoProgress::Done(UndoOutcome::WouldUndo { .. })) => {}
            Ok(UndoProgress::Done(UndoOutcome::Conflicts { conflicts, .. })) => {
                let text = format!("{} In the way: {}.", so_far(undone, &receipts), conflicts::counted(&conflicts));
                return message::page(StatusCode::CONFLICT, "Conflicts", &text);
            }
            Err(error) if receipts.is_empty() => return failed(&error),
            Err(error) => {
                let text = format!(
                    "{} Run the plan again to go on. {}.",
                    so_far(undone, &receipts),
                    visible(&error.to_string())
                );
                return message::page(StatusCode::CONFLICT, "The plan was interrupted", &text);
            }
        }
    }
    match receipts.as_slice() {
        [only] => Redirect::to(&format!("/records/{only}")).into_response(),
        [] if before > 0 => message::page(
            StatusCode::CONFLICT,
            "Undone before",
            "The plan was carried out before. Nothing was changed now.",
        ),
        _ => message::page(StatusCode::OK, "Undone", &so_far(undone, &receipts)),
    }
}

fn so_far(undone: u64, receipts: &[CorrelationId]) -> String {
    if receipts.is_empty() {
        return "Nothing was changed.".to_owned();
    }
    let ids: Vec<String> = receipts.iter().map(ToString::to_string).collect();
    format!("{} are as before the writes, by the undo {}.", rows(undone), ids.join(", "))
}

/// What the undo of one write would do.
pub(crate) async fn try_one(
    LoggedIn(person): LoggedIn,
    State(console): State<Arc<Console>>,
    Path(id): Path<String>,
) -> Response {
    let operator = match operator(&console, &person) {
        Ok(operator) => operator,
        Err(why_not) => return forbidden(why_not),
    };
    let Some(id) = CorrelationId::parse(&id) else { return record::unknown() };
    match operator.undo.try_undo(&[id], &person.name).await {
        Ok(outcome) => one_page(&console, &person, id, outcome).await,
        Err(error) => failed(&error),
    }
}

/// Undoes one write, if its rows are as it left them.
pub(crate) async fn undo_one(
    LoggedIn(person): LoggedIn,
    State(console): State<Arc<Console>>,
    Path(id): Path<String>,
) -> Response {
    let undo = match operator(&console, &person) {
        Ok(operator) => operator.undo.clone(),
        Err(why_not) => return forbidden(why_not),
    };
    let Some(id) = CorrelationId::parse(&id) else { return record::unknown() };
    tracing::info!(person = person.name, write = %id, "a write is undone");
    let running = tokio::spawn(async move {
        match undo.undo(id, &person.name).await {
            Ok(outcome) => one_page(&console, &person, id, outcome).await,
            Err(error) => failed(&error),
        }
    });
    running.await.unwrap_or_else(|error| message::unavailable(&error))
}

async fn one_page(console: &Console, person: &ConsolePerson, id: CorrelationId, outcome: UndoOutcome) -> Response {
    let (count, conflicts) = match outcome {
        UndoOutcome::Undone { correlation_id, .. } => {
            return Redirect::to(&format!("/records/{correlation_id}")).into_response();
        }
        UndoOutcome::WouldUndo { rows } => (rows, Vec::new()),
        UndoOutcome::Conflicts { conflicts, rows, .. } => (rows, conflicts),
    };
    let masks = match console.masks().await {
        Ok(masks) => masks,
        Err(error) => return message::unavailable(&error),
    };
    let conflicts = masks.conflicts(conflicts);
    let status = if conflicts.is_empty() { StatusCode::OK } else { StatusCode::CONFLICT };
    let page = OnePage {
        person: Some(&person.name),
        id: id.to_string(),
        rows: rows(count),
        counted: conflicts::counted(&conflicts),
        more: conflicts.len().saturating_sub(conflicts::MOST),
        conflicts: conflicts::list(&conflicts),
    };
    (status, render(&page)).into_response()
}

fn plan_page<'a>(
    person: &'a ConsolePerson,
    plan: StoredPlan,
    writes: Vec<RecordLine>,
    masks: &RecordMasks,
) -> PlanPage<'a> {
    let list = |name: &str| plan.report.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let conflicts = masks.conflicts(list("conflicts").to_vec());
    PlanPage {
        person: Some(&person.name),
        facts: plan_facts(&plan),
        writes,
        write_count: list("writes").len(),
        parts: plan.parts.len(),
        counted: conflicts::counted(&conflicts),
        conflicts: conflicts::list(&conflicts),
        more: conflicts.len().saturating_sub(conflicts::MOST),
        is_ready: plan.is_ready,
        id: plan.plan_id,
        digest: plan.digest,
    }
}

/// What was selected, and what was found.
fn plan_facts(plan: &StoredPlan) -> Vec<Fact> {
    let selected = |(name, key): (&'static str, &str)| {
        let value = plan.selection.get(key).and_then(Value::as_str)?;
        Some(if matches!(key, "from" | "to") { Fact::time(name, value) } else { Fact::text(name, visible(value)) })
    };
    let count = |name: &str| plan.report.get(name).and_then(Value::as_array).map_or(0, Vec::len);
    let mut writes = count("writes").to_string();
    if count("added") > 0 {
        writes += &format!(", {} of them added because they came later on the same rows", count("added"));
    }
    if count("left_out") > 0 {
        writes += &format!("; {} left out because of conflicts", count("left_out"));
    }
    let changes = rows(plan.report.get("rows").and_then(Value::as_u64).unwrap_or_default());
    let found = [Fact::text("Writes", writes), Fact::text("Changes", changes), Fact::id("Digest", plan.digest.clone())];
    SELECTED.into_iter().filter_map(selected).chain(found).collect()
}

/// The names of a selection for people, and in the plan.
const SELECTED: [(&str, &str); 8] = [
    ("Account", "account"),
    ("Actor", "actor"),
    ("Session", "session"),
    ("Client", "client"),
    ("Tool", "tool"),
    ("Table", "table"),
    ("From", "from"),
    ("Until", "to"),
];

impl SelectionForm {
    fn selection(&self) -> Selection {
        let text = |text: &str| Some(text.trim().to_owned()).filter(|text| !text.is_empty());
        Selection {
            account: text(&self.account),
            actor: text(&self.actor),
            session: text(&self.session),
            client: text(&self.client),
            tool: text(&self.tool),
            table: text(&self.table),
            from: text(&self.from).unwrap_or_else(|| "24h".to_owned()),
            to: text(&self.to).unwrap_or_else(|| "0h".to_owned()),
        }
    }
}

/// What changes data for this person, or the reason why nothing does.
pub(super) fn operator<'a>(console: &'a Console, person: &ConsolePerson) -> Result<&'a ConsoleOperator, &'static str> {
    if !person.role.may_undo() {
        return Err("Only operators undo writes and freeze accounts: you have another role.");
    }
    let missing = "This console has no login that undoes and freezes: --operator-url names one with the role countersign_operator.";
    console.operator.as_ref().ok_or(missing)
}

pub(super) fn forbidden(why_not: &str) -> Response {
    message::page(StatusCode::FORBIDDEN, "Not done", &format!("{why_not} Nothing was changed."))
}

async fn find(undo: &Operator, id: &str) -> Result<StoredPlan, Response> {
    let unknown = || message::page(StatusCode::NOT_FOUND, "Not found", "There is no plan of this id.");
    let id = CorrelationId::parse(id).and_then(|id| IdPrefix::parse(&id.to_string())).ok_or_else(unknown)?;
    let found = undo.stored_plans(&id).await.map_err(|error| failed(&error))?;
    found.into_iter().next().ok_or_else(unknown)
}

fn sqlstate(error: &ledger::read::Error) -> Option<&str> {
    error.server_error().map(|error| error.sqlstate.as_str())
}

fn failed(error: &UndoError) -> Response {
    match error {
        UndoError::Database(error) if sqlstate(error) == Some("42501") => {
            tracing::warn!(%error, "the login of --operator-url lacks a right");
            let text = "The console's login for undo has no right to a table of the write, or is no operator. Nothing was changed.";
            message::page(StatusCode::FORBIDDEN, "Not permitted", text)
        }
        UndoError::Database(error) => message::unavailable(error),
        error => message::page(StatusCode::CONFLICT, "Not done", &format!("{}.", visible(&error.to_string()))),
    }
}
