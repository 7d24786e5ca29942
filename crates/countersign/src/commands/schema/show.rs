//! `countersign schema show`, and what `apply` shows before it asks.

use ledger::schema_changes::{
    BlockedStatements, CatalogDifference, Impact, ImpactOptions, ObjectChange, SchemaChange, SchemaChanges, SchemaStep,
    ToolImpact,
};
use review::sentences::count;
use schema_change::{Finding, SchemaChangeStep, SchemaChangeText};
use serde::Serialize;
use types::visible;

use super::args::ShowArgs;
use super::manifest_tools::ManifestTools;
use super::{find, open};
use crate::settings::DatabaseSettings;
use crate::terminal::table::beside;
use crate::terminal::{Style, print_json, print_line, print_lines};

/// The most objects that are listed.
const MAX_LISTED: usize = 50;

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
    let ledger = open(settings).await?;
    let changes = ledger.schema_changes();
    let change = find(&changes, &arguments.id).await??;
    let text = SchemaChangeText::parse(&change.sql);
    let options = (arguments.is_tried && change.status.is_open()).then(|| arguments.trial.options());
    let tried = match (&text, &options) {
        (Ok(text), Some(options)) if is_untouched(&change) => {
            Some(tried(&changes, text, options, &ManifestTools::new(settings, &ledger).await).await)
        }
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
            print_text(&text, &change.steps);
            if tried.is_none() && change.status.is_open() && is_untouched(&change) {
                print_lines(beside("not tried", ["--try runs it in your login, and rolls it back".to_owned()]));
            }
            print_trial(tried.as_ref());
        }
        Err(error) => print_lines(beside("refused", [visible(&error.to_string())])),
    }
    Ok(())
}

/// Whether no step of it is on record: what remains of another one is not tried alone.
pub(super) fn is_untouched(change: &SchemaChange) -> bool {
    change.steps.is_empty()
}

pub(super) async fn tried(
    changes: &SchemaChanges,
    text: &SchemaChangeText,
    options: &ImpactOptions,
    tools: &ManifestTools,
) -> Result<Impact, String> {
    changes.try_out(text, options, tools).await.map_err(|error| error.to_string())
}

/// Prints what is on record.
pub(super) fn print(change: &SchemaChange) {
    let text = |heading: &str, text: &str| beside(heading, [visible(text)]);
    let optional = |heading: &str, value: Option<&str>| value.map(|value| text(heading, value)).unwrap_or_default();
    let decided = match (&change.decided_by, &change.decided_login, &change.decided_at) {
        (Some(by), Some(login), Some(at)) => Some(format!("{at} by {by}, login {login}")),
        _ => None,
    };
    let parts: [Vec<String>; 12] = [
        text("schema change", &change.change_id.to_string()),
        beside("state", [Style::of_stdout().bold(change.status.as_str())]),
        text("reason", &change.reason),
        text("account", change.account_id.as_str()),
        optional("proposed by", change.actor.as_deref()),
        text("proposed at", &change.created_at),
        text("until", &change.expires_at),
        text("digest", &change.digest),
        optional("decided", decided.as_deref()),
        optional("because", change.decision_reason.as_deref()),
        optional("error", change.error_message.as_deref()),
        optional("ended at", change.completed_at.as_deref()),
    ];
    print_lines(parts.iter().flatten());
}

/// Prints the statements and what is known of them.
pub(super) fn print_text(text: &SchemaChangeText, steps: &[SchemaStep]) {
    for step in text.steps() {
        let record = steps.iter().find(|record| record.number == step.number);
        print_lines(beside(&format!("step {}", step.number), step_lines(step, record)));
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

fn step_lines(step: &SchemaChangeStep, record: Option<&SchemaStep>) -> Vec<String> {
    let kind = if step.is_alone { "alone, outside of a transaction" } else { "in one transaction" };
    let state = match record {
        None => String::new(),
        Some(SchemaStep { ended_at: Some(at), .. }) => format!("; ended {at}"),
        Some(SchemaStep { error: Some(error), .. }) => format!("; failed: {}", visible(error)),
        Some(SchemaStep { began_at, .. }) => format!("; begun {began_at}, and its end is not on record"),
    };
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
    for one in &impact.lost_undo {
        let because = match one.because.as_str() {
            "table" => "the table is dropped".to_owned(),
            "key" => "it gets another key".to_owned(),
            columns => format!("it loses {columns}"),
        };
        let text = format!("{} of {}, since {because}", count(one.writes, "recorded write"), one.table);
        lines.extend(beside("undo lost", [style.bad(&visible(&text))]));
    }
    lines.extend(tool_lines(&impact.tools, style));
    lines.extend(impact.objects.iter().take(MAX_LISTED).flat_map(object_lines));
    if impact.has_more_objects || impact.objects.len() > MAX_LISTED {
        lines.extend(beside("", ["and more: --json has up to 500".to_owned()]));
    }
    for one in &impact.untried {
        lines.extend(beside("not tried", [format!("line {}: {}", one.line, visible(&one.sql))]));
    }
    if let Some(inverse) = &impact.inverse {
        lines.extend(beside("inverse", inverse.statements.iter().map(|statement| visible(statement))));
        lines.extend(
            inverse
                .lost_values
                .iter()
                .flat_map(|lost| beside("", [format!("the values of {} are lost", visible(lost))])),
        );
    }
    lines.extend(beside("tried", ["now, and rolled back".to_owned()]));
    lines
}

/// The tools that would not compile any more, and of which that is not known.
fn tool_lines(tools: &ToolImpact, style: &Style) -> Vec<String> {
    let mut lines = Vec::new();
    for broken in &tools.broken {
        let text = format!("{}: {}", broken.tool, broken.reasons.join("; "));
        lines.extend(beside("breaks tool", [style.bad(&visible(&text))]));
    }
    let unknown = match (&tools.unknown_because, tools.not_compiled.as_slice()) {
        (Some(because), _) => Some(format!("not compared: {because}")),
        (None, []) => None,
        (None, names) => Some(format!("not compared, since this login cannot compile them now: {}", names.join(", "))),
    };
    if let Some(unknown) = unknown {
        lines.extend(beside("tools", [visible(&unknown)]));
    } else if tools.broken.is_empty() {
        lines.extend(beside("tools", [format!("{} compile as before", tools.compiled)]));
    }
    lines
}

fn object_lines(one: &CatalogDifference) -> Vec<String> {
    let cut = |text: &String| visible(&text.chars().take(200).collect::<String>());
    let mut text = format!("{} {}", one.kind, visible(&one.name));
    if let Some(name) = &one.renamed_to {
        text.push_str(&format!(", now {}", visible(name)));
    }
    match (one.change, &one.before, &one.after) {
        (ObjectChange::Changed, before, after) => {
            let of = |text: &Option<String>| text.as_ref().map_or_else(|| "nothing".to_owned(), cut);
            if before != after {
                text.push_str(&format!(": {} -> {}", of(before), of(after)));
            }
        }
        (_, Some(definition), _) | (_, None, Some(definition)) => text.push_str(&format!(": {}", cut(definition))),
        (_, None, None) => {}
    }
    beside(one.change.as_str(), [text])
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
