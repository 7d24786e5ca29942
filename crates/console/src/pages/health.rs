//! The findings of `countersign doctor`.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use review::{Finding, FindingLevel};

use crate::message::render;
use crate::session::LoggedIn;
use crate::state::Console;

#[derive(Template)]
#[template(path = "health.html")]
struct Page<'a> {
    person: Option<&'a str>,
    problems: usize,
    warnings: usize,
    findings: Vec<Finding>,
}

pub(crate) async fn show(LoggedIn(person): LoggedIn, State(console): State<Arc<Console>>) -> Response {
    let findings = console.health.findings().await;
    let count = |level: FindingLevel| findings.iter().filter(|finding| finding.level == level).count();
    render(&Page {
        person: Some(&person.name),
        problems: count(FindingLevel::Problem),
        warnings: count(FindingLevel::Warning),
        findings,
    })
}
