//! One schema change: its text, what a linter finds, and how far it is. The console has no rights on tables, so it can
//! neither try nor carry it out.

use askama::Template;
use axum::extract::{Path, State};
use axum::response::IntoResponse;
use ledger::schema_changes::{SchemaChange, SchemaChangeStatus, not_found};
use schema_change::SchemaChangeText;
use types::{SchemaChangeId, visible};

use crate::frame::Frame;
use crate::message::{PageResult, render};
use crate::session::LoggedIn;
use crate::state::DatabaseState;
use crate::text::proposer;

#[derive(Template)]
#[template(path = "schema_change.html")]
struct Page<'a> {
    frame: Frame<'a>,
    change: &'a SchemaChange,
    by: String,
    /// The text line by line, in which nothing is hidden.
    sql: Vec<String>,
    /// The line, what is advised, and the rule.
    findings: Vec<String>,
    steps: Vec<StepLine>,
    waits: bool,
    without_end: Option<String>,
}

struct StepLine {
    number: u32,
    kind: &'static str,
    state: &'static str,
}

pub(crate) async fn show(
    LoggedIn(person): LoggedIn,
    State(state): State<DatabaseState>,
    Path(id): Path<String>,
) -> PageResult {
    let id = SchemaChangeId::parse(&id).ok_or_else(not_found)?;
    let change = state.database.schema_changes.get(None, id).await?.ok_or_else(not_found)?;
    let sql = change.sql.clone();
    let text = tokio::task::spawn_blocking(move || SchemaChangeText::parse(&sql).ok()).await.ok().flatten();
    let findings = text.iter().flat_map(SchemaChangeText::findings);
    let findings = findings.map(|one| visible(&format!("line {}: {} ({})", one.line, one.message, one.rule)));
    let steps = text.iter().flat_map(SchemaChangeText::steps).map(|step| StepLine {
        number: step.number,
        kind: if step.is_alone { "alone, outside of a transaction" } else { "in one transaction" },
        state: change.step_state(step),
    });
    let page = Page {
        frame: state.frame(&person),
        by: proposer(change.actor.as_deref(), change.account_id.as_str()),
        sql: change.sql.lines().map(visible).collect(),
        findings: findings.collect(),
        steps: steps.collect(),
        waits: change.status == SchemaChangeStatus::Pending,
        without_end: change.without_end().map(|end| visible(&end)),
        change: &change,
    };
    Ok(render(&page).into_response())
}
