//! Undo of one write, and of many writes by a plan.

use std::collections::BTreeMap;

use askama::Template;
use axum::Form;
use axum::extract::{FromRequestParts, Path, Query, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Redirect, Response};
use ledger::Freezes;
use ledger::console::ConsolePerson;
use ledger::operator::{Operator, UndoError, UndoOutcome, UndoProgress};
use ledger::plans::{PlanMode, PlanReport, PlanRequest, PlanRows, PlanScope, StoredPlan};
use ledger::read::Error;
use ledger::undo::NotRestored;
use review::sentences::{self, rows};
use review::{LoginMasks, Summary};
use serde::Deserialize;
use serde_json::Value;
use types::{Conflict, ConflictKind, CorrelationId, IdPrefix, Moment, TimeError, visible};

use super::record;
use super::records::{RecordLine, planned_line};
use crate::conflicts::{self, ShownConflict};
use crate::database::{ConsoleDatabase, ConsoleOperator};
use crate::frame::Frame;
use crate::message::{self, ErrorPage, PageResult, render};
use crate::rows::{RowsQuery, ShownRows, Table, key, tables};
use crate::session::LoggedIn;
use crate::state::DatabaseState;
use crate::text::sentence;

/// The number of rows above which a plan runs in several transactions.
const MAX_ROWS: u64 = 10_000;

/// The maximum number of writes, and of rows, that the page of a plan lists. It counts the others.
const MAX_LISTED: usize = 100;
const MAX_LISTED_ROWS: u32 = 10_000;

const NOT_UNDONE: &str = "Not undone: sequences, NOTIFY, what left the database, and tables that are not tracked.";

#[derive(Template)]
#[template(path = "undo.html")]
struct SelectionPage<'a> {
    frame: Frame<'a>,
    why_not: Option<&'static str>,
    problem: Option<String>,
    form: &'a SelectionForm,
}

/// The writes to undo, as form fields.
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
    frame: Frame<'a>,
    id: String,
    rows: String,
    tables: Vec<Table>,
    shown_rows: ShownRows,
    /// The columns that do not become what they were.
    set_again: Option<String>,
    not_restored: Vec<NotRestored>,
    counted: String,
    conflicts: Vec<ShownConflict>,
    more: usize,
}

#[derive(Template)]
#[template(path = "undo_plan.html")]
struct PlanPage<'a> {
    frame: Frame<'a>,
    id: String,
    digest: String,
    /// The selection: `Tool set_status`.
    selected: Vec<Selected>,
    from: String,
    to: String,
    /// `Undoing 2 writes changes 3 rows.`
    headline: String,
    /// The columns that do not become what they were.
    set_again: Option<String>,
    writes: Vec<RecordLine>,
    write_count: usize,
    left_out: Vec<LeftOut>,
    more_left_out: usize,
    tables: Vec<Table>,
    shown_rows: ShownRows,
    parts: usize,
    counted: String,
    conflicts: Vec<ShownConflict>,
    more: usize,
    is_ready: bool,
}

struct Selected {
    name: &'static str,
    text: String,
}

pub(crate) struct LeftOut {
    pub(crate) id: String,
    pub(crate) tool: String,
    pub(crate) why: String,
}

#[derive(Deserialize)]
pub(crate) struct RunForm {
    /// The digest of the plan that the page has shown.
    digest: String,
}

/// The form, with the fields of the address.
pub(crate) async fn ask(
    LoggedIn(person): LoggedIn,
    State(state): State<DatabaseState>,
    Query(mut form): Query<SelectionForm>,
) -> Response {
    for (field, usual) in [(&mut form.from, "24h"), (&mut form.to, "now")] {
        if field.is_empty() {
            usual.clone_into(field);
        }
    }
    let why_not = operator(&state.database, &person).err();
    render(&SelectionPage { frame: state.frame(&person), why_not, problem: None, form: &form })
}

/// Makes and stores a plan. Compares rows but changes nothing.
pub(crate) async fn plan(
    OperatorSession { person, undo, .. }: OperatorSession,
    State(state): State<DatabaseState>,
    Form(form): Form<SelectionForm>,
) -> PageResult {
    let problem = |problem: String| {
        let problem = Some(sentence(&visible(&problem)));
        let page = SelectionPage { frame: state.frame(&person), why_not: None, problem, form: &form };
        (StatusCode::BAD_REQUEST, render(&page)).into_response()
    };
    let request = match form.request() {
        Ok(request) => request,
        Err(error) => return Ok(problem(error.to_string())),
    };
    match undo.plan(&request, MAX_ROWS, &person.name).await {
        Ok((_, plan)) => Ok(Redirect::to(&state.database.path(format_args!("/undo/{}", plan.plan_id))).into_response()),
        Err(UndoError::Selection(error)) => Ok(problem(error.to_string())),
        Err(error) => Err(error.into()),
    }
}

pub(crate) async fn show(
    OperatorSession { person, undo, .. }: OperatorSession,
    State(state): State<DatabaseState>,
    Path(id): Path<String>,
    Query(query): Query<RowsQuery>,
) -> PageResult {
    let plan = find(&undo, &id).await?;
    let rows = undo.rows(&plan.report.writes, &plan.report.not_restored, Some(MAX_LISTED_ROWS)).await?;
    let ids: Vec<CorrelationId> = plan.report.writes.iter().copied().take(MAX_LISTED).collect();
    let writes = state.database.records.some(&ids).await?.iter().map(planned_line).collect();
    let masks = state.database.records.masks().await?;
    Ok(render(&plan_page(&state, &person, plan, writes, (rows, query.into()), &masks)))
}

/// Runs exactly the plan that the page has shown.
pub(crate) async fn run(
    OperatorSession { person, undo, .. }: OperatorSession,
    State(state): State<DatabaseState>,
    Path(id): Path<String>,
    Form(form): Form<RunForm>,
) -> PageResult {
    let plan = find(&undo, &id).await?;
    if plan.digest != form.digest || !plan.report.is_ready {
        let text = "The page shows another plan than this, or one with conflicts. Nothing was changed.";
        return Ok(message::page(StatusCode::CONFLICT, "Not done", text));
    }
    tracing::info!(person = person.name, plan = plan.plan_id, "executing an undo plan");
    // The undo continues if the browser disconnects.
    let running = tokio::spawn(async move { run_parts(&state, &undo, &plan, &person.name).await });
    running.await.unwrap_or_else(|error| Err(message::unavailable(&error).into()))
}

async fn run_parts(state: &DatabaseState, undo: &Operator, plan: &StoredPlan, person: &str) -> PageResult {
    let (mut undone, mut before, mut receipts) = (0, 0, Vec::new());
    for part in &plan.parts {
        match undo.run_part(plan, part, person).await {
            Ok(UndoProgress::Before) => before += 1,
            Ok(UndoProgress::Stale) => {
                let text = format!(
                    "{} Other rows would be changed now than the plan has shown. Make another plan.",
                    so_far(undone, &receipts)
                );
                return Ok(message::page(StatusCode::CONFLICT, "The plan is stale", &text));
            }
            Ok(UndoProgress::Done(UndoOutcome::Undone { correlation_id, rows, .. })) => {
                undone += rows;
                receipts.push(correlation_id);
            }
            Ok(UndoProgress::Done(UndoOutcome::WouldUndo { .. })) => {}
            Ok(UndoProgress::Done(UndoOutcome::Conflicts { conflicts, .. })) => {
                let text =
                    format!("{} In the way: {}.", so_far(undone, &receipts), ConflictKind::counted_words(&conflicts));
                return Ok(message::page(StatusCode::CONFLICT, "Conflicts", &text));
            }
            Err(error) if receipts.is_empty() => return Err(error.into()),
            Err(error) => {
                let text = format!(
                    "{} Run the plan again to go on. {}.",
                    so_far(undone, &receipts),
                    visible(&error.to_string())
                );
                return Ok(message::page(StatusCode::CONFLICT, "The plan was interrupted", &text));
            }
        }
    }
    Ok(match receipts.as_slice() {
        [only] => Redirect::to(&state.database.path(format_args!("/records/{only}"))).into_response(),
        [] if before > 0 => message::page(
            StatusCode::CONFLICT,
            "Undone before",
            "The plan was executed before. Nothing was changed now.",
        ),
        _ => message::page(StatusCode::OK, "Undone", &so_far(undone, &receipts)),
    })
}

fn so_far(undone: u64, receipts: &[CorrelationId]) -> String {
    if receipts.is_empty() {
        return "Nothing was changed.".to_owned();
    }
    let ids: Vec<String> = receipts.iter().map(ToString::to_string).collect();
    format!("{} are as before the writes, by the undo {}.", rows(undone), ids.join(", "))
}

/// Shows what the undo of one write would do.
pub(crate) async fn try_one(
    OperatorSession { person, undo, .. }: OperatorSession,
    State(state): State<DatabaseState>,
    Path(id): Path<String>,
    Query(query): Query<RowsQuery>,
) -> PageResult {
    let Some(id) = CorrelationId::parse(&id) else { return Ok(record::unknown()) };
    let outcome = undo.try_undo(&[id], &person.name).await?;
    let rows = match &outcome {
        UndoOutcome::WouldUndo { not_restored, .. } => undo.rows(&[id], not_restored, Some(MAX_LISTED_ROWS)).await?,
        UndoOutcome::Undone { .. } | UndoOutcome::Conflicts { .. } => PlanRows::default(),
    };
    one_page(&state, &person, id, outcome, (rows, query.into())).await
}

/// Undoes one write, if its rows are unchanged since.
pub(crate) async fn undo_one(
    OperatorSession { person, undo, .. }: OperatorSession,
    State(state): State<DatabaseState>,
    Path(id): Path<String>,
) -> PageResult {
    let Some(id) = CorrelationId::parse(&id) else { return Ok(record::unknown()) };
    tracing::info!(person = person.name, write = %id, "a write is undone");
    let running = tokio::spawn(async move {
        let outcome = undo.undo(id, &person.name).await?;
        one_page(&state, &person, id, outcome, (PlanRows::default(), ShownRows::First)).await
    });
    running.await.unwrap_or_else(|error| Err(message::unavailable(&error).into()))
}

async fn one_page(
    state: &DatabaseState,
    person: &ConsolePerson,
    id: CorrelationId,
    outcome: UndoOutcome,
    (rows_of_undo, shown_rows): (PlanRows, ShownRows),
) -> PageResult {
    let (count, conflicts, not_restored, set_again) = match outcome {
        UndoOutcome::Undone { correlation_id, .. } => {
            return Ok(Redirect::to(&state.database.path(format_args!("/records/{correlation_id}"))).into_response());
        }
        UndoOutcome::WouldUndo { rows, not_restored, set_again } => (rows, Vec::new(), not_restored, set_again),
        UndoOutcome::Conflicts { conflicts, rows, .. } => (rows, conflicts, Vec::new(), BTreeMap::new()),
    };
    let masks = state.database.records.masks().await?;
    let conflicts = masks.conflicts(conflicts);
    let effects = rows_of_undo.effects.map(|effects| masks.effects(effects));
    let status = if conflicts.is_empty() { StatusCode::OK } else { StatusCode::CONFLICT };
    let page = OnePage {
        frame: state.frame(person),
        id: id.to_string(),
        rows: rows(count),
        tables: tables(&Summary::of_plan(effects, &rows_of_undo.summary, &set_again), shown_rows),
        shown_rows,
        set_again: sentences::set_again(&set_again),
        not_restored,
        counted: ConflictKind::counted_words(&conflicts),
        more: conflicts.len().saturating_sub(conflicts::MAX_CONFLICTS),
        conflicts: conflicts::list(&conflicts),
    };
    Ok((status, render(&page)).into_response())
}

fn plan_page<'a>(
    state: &'a DatabaseState,
    person: &'a ConsolePerson,
    plan: StoredPlan,
    writes: Vec<RecordLine>,
    (rows, shown_rows): (PlanRows, ShownRows),
    masks: &LoginMasks,
) -> PlanPage<'a> {
    let conflicts = masks.conflicts(plan.report.conflicts.clone());
    let left_out = masks.conflicts(plan.report.left_out.clone());
    let effects = rows.effects.map(|effects| masks.effects(effects));
    PlanPage {
        frame: state.frame(person),
        selected: selected(&plan.selection.scope),
        headline: headline(&plan.report),
        set_again: sentences::set_again(&plan.report.set_again),
        from: plan.selection.from,
        to: plan.selection.to,
        writes,
        write_count: plan.report.writes.len(),
        left_out: left_out.iter().take(MAX_LISTED).map(left_out_write).collect(),
        more_left_out: left_out.len().saturating_sub(MAX_LISTED),
        tables: tables(&Summary::of_plan(effects, &rows.summary, &plan.report.set_again), shown_rows),
        shown_rows,
        parts: plan.parts.len(),
        counted: ConflictKind::counted_words(&conflicts),
        conflicts: conflicts::list(&conflicts),
        more: conflicts.len().saturating_sub(conflicts::MAX_CONFLICTS),
        is_ready: plan.report.is_ready,
        id: plan.plan_id,
        digest: plan.digest,
    }
}

pub(crate) fn left_out_write(conflict: &Conflict<Value>) -> LeftOut {
    let place = conflict
        .table
        .get()
        .map(|table| format!(", {} {}", visible(table), key(conflict.key.get().into_iter().flatten())));
    let message = conflict.message.get().map(|message| format!(": {}", visible(message))).unwrap_or_default();
    let tool = conflict.write.get().and_then(|write| write.tool_name.get());
    LeftOut {
        id: conflict.write_id().map(|id| id.to_string()).unwrap_or_default(),
        tool: tool.map(|tool| visible(tool)).unwrap_or_default(),
        why: format!("{}{}{message}", conflict.kind.words(), place.unwrap_or_default().trim_end()),
    }
}

/// The selection of the plan, without its time.
fn selected(scope: &PlanScope) -> Vec<Selected> {
    let named = [
        ("Account", &scope.account),
        ("Actor", &scope.actor),
        ("Session", &scope.session),
        ("Client", &scope.client),
        ("Tool", &scope.tool),
        ("Table", &scope.table),
    ];
    named.into_iter().filter_map(|(name, value)| Some(Selected { name, text: visible(value.as_ref()?) })).collect()
}

fn headline(report: &PlanReport) -> String {
    let writes = |count: usize| sentences::count(count as u64, "write");
    let mut headline = format!("The undo of {} changes {}.", writes(report.writes.len()), sentences::rows(report.rows));
    let (added, left_out) = (report.added.len(), report.left_out.len());
    if added > 0 {
        headline += &format!(" {added} of them came later on the same rows, and were not selected.");
    }
    if left_out > 0 {
        headline += &format!(" {} left out.", writes(left_out));
    }
    for kept in &report.not_restored {
        headline += &format!(" Stays: {kept}.");
    }
    headline
}

impl SelectionForm {
    fn request(&self) -> Result<PlanRequest, TimeError> {
        let text = |text: &str| Some(text.trim().to_owned()).filter(|text| !text.is_empty());
        let time = |text: &str, default: &str| if text.trim().is_empty() { default } else { text }.parse::<Moment>();
        Ok(PlanRequest {
            scope: PlanScope {
                account: text(&self.account),
                actor: text(&self.actor),
                session: text(&self.session),
                client: text(&self.client),
                tool: text(&self.tool),
                table: text(&self.table),
            },
            from: time(&self.from, "24h")?,
            to: time(&self.to, "now")?,
            mode: PlanMode::parse(&self.mode).unwrap_or_default(),
        })
    }
}

/// The operator behind a request, and the handles that change data for them. Other people are refused.
pub(crate) struct OperatorSession {
    pub(super) person: ConsolePerson,
    pub(super) undo: Operator,
    pub(super) freezes: Freezes,
}

impl FromRequestParts<DatabaseState> for OperatorSession {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &DatabaseState) -> Result<Self, Response> {
        let LoggedIn(person) = LoggedIn::from_request_parts(parts, state).await?;
        let ConsoleOperator { undo, freezes } = operator(&state.database, &person).map_err(forbidden)?.clone();
        Ok(Self { person, undo, freezes })
    }
}

/// The operator's handle for this person, or the reason why the person cannot change data.
pub(super) fn operator<'a>(
    database: &'a ConsoleDatabase,
    person: &ConsolePerson,
) -> Result<&'a ConsoleOperator, &'static str> {
    if !person.role.may_undo() {
        return Err("Only operators undo writes and freeze accounts: you have another role.");
    }
    let missing = "This console has no login that undoes and freezes here: operator_url (--operator-url) names one with the role countersign_operator.";
    database.operator.as_ref().ok_or(missing)
}

pub(super) fn forbidden(why_not: &str) -> Response {
    message::page(StatusCode::FORBIDDEN, "Not done", &format!("{why_not} Nothing was changed."))
}

async fn find(undo: &Operator, id: &str) -> PageResult<StoredPlan> {
    let unknown = || message::page(StatusCode::NOT_FOUND, "Not found", "There is no plan of this id.");
    let id = CorrelationId::parse(id).and_then(|id| IdPrefix::parse(&id.to_string())).ok_or_else(unknown)?;
    Ok(undo.stored_plans(&id).await?.into_iter().next().ok_or_else(unknown)?)
}

impl From<UndoError> for ErrorPage {
    fn from(error: UndoError) -> Self {
        Self::from(match error {
            UndoError::Database(error) if lacks_privilege(&error) => {
                tracing::warn!(%error, "the login of operator_url lacks a right");
                let text = "The console's login for undo has no right to a table of the write, or is no operator. \
                            Nothing was changed.";
                message::page(StatusCode::FORBIDDEN, "Not permitted", text)
            }
            UndoError::Database(error) => message::unavailable(&error),
            error => message::page(StatusCode::CONFLICT, "Not done", &format!("{}.", visible(&error.to_string()))),
        })
    }
}

pub(super) fn lacks_privilege(error: &Error) -> bool {
    error.server_error().is_some_and(|error| error.sqlstate == "42501")
}
