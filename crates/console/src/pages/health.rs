//! The findings of `countersign doctor`.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use review::{Finding, FindingLevel};

use crate::frame::Frame;
use crate::message::render;
use crate::session::LoggedIn;
use crate::state::DatabaseState;

#[derive(Template)]
#[template(path = "health.html")]
struct Page<'a> {
    frame: Frame<'a>,
    problems: usize,
    warnings: usize,
    findings: Vec<Finding>,
}

pub(crate) async fn show(LoggedIn(person): LoggedIn, State(state): State<DatabaseState>) -> Response {
    let findings = state.database.health.findings().await;
    let count = |level: FindingLevel| findings.iter().filter(|finding| finding.level == level).count();
    render(&Page {
        frame: state.frame(&person),
        problems: count(FindingLevel::Problem),
        warnings: count(FindingLevel::Warning),
        findings,
    })
}
