//! `countersign schema show`, and what `apply` shows before it asks.

use ledger::schema_changes::{
    BlockedStatements, Impact, ImpactOptions, SchemaChange, SchemaChangeStatus, SchemaChanges,
};
use review::sentences::count;
use schema_change::{Finding, SchemaChangeStep, SchemaChangeText};
use serde::Serialize;
use types::visible;

use super::args::ShowArgs;
use super::{find, open};
use crate::settings::DatabaseSettings;
use crate::terminal::table::beside;
use crate::terminal::{Style, print_json, print_line, print_lines};

/// The JSON form.
#[derive(Serialize)]
struct ShownChange<'a> {
    #[serde(flatten)]
    change: &'a SchemaChange,
    /// What keeps the text from being carried out.
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<String>,
    findings: &'a [Finding],
    #[serde(skip_serializing_if = "Option::is_none")]
    impact: Option<&'a Impact>,
    /// Why it could not be tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_tried: Option<&'a str>,
}

pub(super) async fn run(arguments: &ShowArgs, settings: &DatabaseSettings) -> anyhow::Result<()> {
    let changes = open(settings).await?.schema_changes();
    let change = find(&changes, &arguments.id).await??;
    let text = SchemaChangeText::parse(&change.sql);
    let waits = change.status == SchemaChangeStatus::Pending;
    let tried = match &text {
        Ok(text) if arguments.is_tried && waits => Some(tried(&changes, text, &arguments.trial.options()).await),
        _ => None,
    };
    if arguments.json {
        print_json(ShownChange {
            change: &change,
            refused: text.as_ref().err().map(ToString::to_string),
            findings: text.as_ref().map(SchemaChangeText::findings).unwrap_or_default(),
            impact: tried.as_ref().and_then(|tried| tried.as_ref().ok()),
            not_tried: tried.as_ref().and_then(|tried| tried.as_ref().err()).map(String::as_str),
        });
        return Ok(());
    }
    print(&change);
    match text {
        Ok(text) => {
            print_text(&text, Some(&change));
            if tried.is_none() && waits {
                print_lines(beside("not tried", ["--try runs it in your login, and rolls it back".to_owned()]));
            }
            print_trial(tried.as_ref());
        }
        Err(error) => print_lines(beside("refused", [visible(&error.to_string())])),
    }
    Ok(())
}

pub(super) async fn tried(
    changes: &SchemaChanges,
    text: &SchemaChangeText,
    options: &ImpactOptions,
) -> Result<Impact, String> {
    changes.try_out(text, options).await.map_err(|error| error.to_string())
}

/// Prints what is on record.
pub(super) fn print(change: &SchemaChange) {
    let text = |heading: &str, text: &str| beside(heading, [visible(text)]);
    let optional = |heading: &str, value: Option<&str>| value.map(|value| text(heading, value)).unwrap_or_default();
    let decided = match (&change.decided_by, &change.decided_login, &change.decided_at) {
        (Some(by), Some(login), Some(at)) => Some(format!("{at} by {by}, login {login}")),
        _ => None,
    };
    let parts: [Vec<String>; 13] = [
        text("schema change", &change.change_id.to_string()),
        beside("state", [Style::of_stdout().bold(change.status.as_str())]),
        text("reason", &change.reason),
        text("account", change.account_id.as_str()),
        optional("proposed by", change.actor.as_deref()),
        text("proposed at", &change.created_at),
        text("until", &change.expires_at),
        text("digest", &change.digest),
        optional("decided", decided.as_deref()),
        optional("no end", change.without_end().as_deref()),
        optional("because", change.decision_reason.as_deref()),
        optional("error", change.error_message.as_deref()),
        optional("ended at", change.completed_at.as_deref()),
    ];
    print_lines(parts.iter().flatten());
}

/// Prints the statements and what is known of them; how far they are of a change that is stored.
pub(super) fn print_text(text: &SchemaChangeText, change: Option<&SchemaChange>) {
    for step in text.steps() {
        print_lines(beside(&format!("step {}", step.number), step_lines(step, change)));
    }
    for finding in text.findings() {
        let help = finding.help.as_deref().map(|help| format!(" {help}")).unwrap_or_default();
        let line = format!("line {}: {}{help} ({})", finding.line, finding.message, finding.rule);
        print_lines(beside("linter", [visible(&line)]));
    }
}

/// Prints what a trial has shown.
pub(super) fn print_trial(tried: Option<&Result<Impact, String>>) {
    match tried {
        Some(Ok(impact)) => print_lines(impact_lines(impact, &Style::of_stdout())),
        Some(Err(reason)) => print_lines(beside("not tried", [visible(reason)])),
        None => {}
    }
}

fn step_lines(step: &SchemaChangeStep, change: Option<&SchemaChange>) -> Vec<String> {
    let kind = if step.is_alone { "alone, outside of a transaction" } else { "in one transaction" };
    let state = change.map(|change| format!(": {}", change.step_state(step))).unwrap_or_default();
    let lines = step.source.trim().lines().map(visible);
    std::iter::once(format!("{kind}{state}")).chain(lines.map(|line| format!("  {line}"))).collect()
}

/// The impact as lines of a heading and a sentence.
fn impact_lines(impact: &Impact, style: &Style) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(failed) = &impact.failed {
        let code = failed.sqlstate.as_ref().map(|code| format!(" (SQLSTATE {code})")).unwrap_or_default();
        let text = format!("line {}: {}{code}", failed.line, failed.message);
        lines.extend(beside("fails", [style.bad(&visible(&text))]));
    }
    for lock in &impact.locks {
        let blocks = match lock.blocks {
            BlockedStatements::Definitions => "blocks other changes of definitions, and VACUUM",
            BlockedStatements::Writes => "blocks writes",
            BlockedStatements::ReadsAndWrites => "blocks reads and writes",
        };
        lines.extend(beside("locks", [format!("{}: {} {blocks}", visible(&lock.relation), lock.mode)]));
    }
    for one in &impact.rewritten {
        lines.extend(beside("rewrites", [style.bad(&format!("{} ({})", visible(&one.relation), bytes(one.bytes)))]));
    }
    for one in &impact.scanned {
        let rows = count(one.rows, "row");
        lines.extend(beside("scans", [format!("{}: {rows} ({})", visible(&one.table), bytes(one.bytes))]));
    }
    lines.extend(impact.dropped.iter().flat_map(|one| beside("drops", [style.bad(&visible(one))])));
    for one in &impact.notices {
        let text = format!("line {}: {}", one.line, one.message);
        let texts = text.lines().chain(one.detail.iter().flat_map(|detail| detail.lines()));
        lines.extend(beside("notice", texts.map(visible)));
    }
    for one in &impact.untried {
        lines.extend(beside("not tried", [format!("line {}: {}", one.line, visible(&one.sql))]));
    }
    lines.extend(beside("tried", ["now, and rolled back".to_owned()]));
    lines
}

fn bytes(bytes: u64) -> String {
    match bytes {
        0..=9_999 => format!("{bytes} bytes"),
        10_000..=9_999_999 => format!("{} kB", bytes / 1000),
        _ => format!("{} MB", bytes / 1_000_000),
    }
}

/// A line between what is on record and what was tried.
pub(super) fn gap() {
    print_line("");
}
