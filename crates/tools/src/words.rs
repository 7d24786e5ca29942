//! What people are told of a write that waits for them. The sentences are the server's; whatever comes from the agent or
//! from the database stands in them as JSON, with nothing hidden in it (attack AP09).

use contract::visible;
use ledger::proposals::{Preview, Proposal};
use serde_json::{Map, Value};

/// The longest value that is shown whole in a sentence, in characters.
const VALUE: usize = 200;
/// The longest row.
const ROW: usize = 600;
/// How many rows are shown.
const ROWS: usize = 5;

/// One paragraph: what would happen, to how many rows, and whether it can be taken back.
pub(crate) fn description(title: &str, params: &Map<String, Value>, preview: &Preview) -> String {
    let params: Vec<String> = params.iter().map(|(name, value)| format!("{name} {}", cut(value, VALUE))).collect();
    let with = if params.is_empty() { String::new() } else { format!(" with {}", params.join(", ")) };
    format!("{}{with}. {} {}", visible(title), touches(preview), undo(preview))
}

/// What a client's user is asked.
pub(crate) fn question(title: &str, proposal: &Proposal) -> String {
    let preview = &proposal.preview;
    let mut lines = vec![format!("{} ({})?", visible(title), proposal.tool_name), String::new()];
    lines.extend(proposal.params.iter().map(|(name, value)| format!("{name}: {}", cut(value, ROW))));
    lines.extend([String::new(), touches(preview)]);
    rows(&mut lines, "Before", preview.before.as_ref());
    rows(&mut lines, "After", preview.after.as_ref());
    if preview.before.is_none() && preview.after.is_none() {
        rows(&mut lines, "Result", Some(&preview.result));
    }
    if !preview.generated.is_empty() {
        lines.push(format!("Made when it is written: {}.", preview.generated.join(", ")));
    }
    lines.extend([String::new(), undo(preview)]);
    lines.extend(preview.warnings.iter().map(|warning| format!("Warning: {}", visible(warning))));
    lines.push(format!("Nothing is written unless you accept. This offer ends at {}.", proposal.expires_at));
    lines.join("\n")
}

fn touches(preview: &Preview) -> String {
    match preview.rows_affected {
        Some(1) => "It would touch 1 row.".to_owned(),
        Some(count) => format!("It would touch {count} rows."),
        None => "It was not tried, so how many rows it would touch is not known.".to_owned(),
    }
}

fn undo(preview: &Preview) -> String {
    let rollback = &preview.rollback;
    let how = match (&rollback.undo_tool, rollback.reversible) {
        (Some(tool), true) => format!("It can be undone with {tool}."),
        (None, true) => "There would be nothing to undo.".to_owned(),
        (_, false) => "It cannot be undone.".to_owned(),
    };
    if rollback.note.is_empty() { how } else { format!("{how} {}", visible(&rollback.note)) }
}

fn rows(lines: &mut Vec<String>, heading: &str, image: Option<&Value>) {
    let Some(image) = image else { return };
    let rows: Vec<&Value> = image.as_array().map_or_else(|| vec![image], |rows| rows.iter().collect());
    if rows.is_empty() {
        lines.push(format!("{heading}: no row"));
    }
    for row in rows.iter().take(ROWS) {
        lines.push(format!("{heading}: {}", cut(row, ROW)));
    }
    if rows.len() > ROWS {
        lines.push(format!("{heading}: and {} more rows", rows.len() - ROWS));
    }
}

/// A value as JSON on one line, not longer than this.
fn cut(value: &Value, characters: usize) -> String {
    let text = visible(&value.to_string());
    match text.char_indices().nth(characters) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    }
}
