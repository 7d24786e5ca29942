//! The conflict report: a summary, and a block for each conflict.

use serde_json::{Map, Value};
use types::visible;

use crate::effects::{conflict_columns, key};
use crate::table::to_the_second;

/// The conflict codes of docs/internals/ledger.md, with the words of the summary and the way out.
const CODES: [(&str, &str, &str); 14] = [
    ("changed_since", "changed since", "undo the later change first, or write what the row should be now"),
    ("deleted_since", "deleted since", "undo the deletion first"),
    ("key_taken", "whose key is taken", "remove or renumber the row that has the key now"),
    (
        "needed_by",
        "needed by later writes",
        "undo those as well (--mode cascade), or leave the write out (--mode skip)",
    ),
    ("referenced", "that others refer to", "remove what refers to the row first"),
    ("parent_missing", "whose parent is missing", "bring the parent back first"),
    ("constraint", "against a constraint", "see which rows violate it"),
    ("schema_changed", "of a table whose columns have changed", "write what the row should be now"),
    (
        "image_missing",
        "without an image",
        "call the undo tool that the write names (countersign audit show), if it names one",
    ),
    (
        "side_effects",
        "changed otherwise by a trigger or a foreign key",
        "declare the column as --maintained, if a trigger sets it",
    ),
    ("not_permitted", "not permitted", "grant the login what the write needed"),
    ("already_reversed", "undone before", "to have the write back, undo that undo"),
    ("irreversible", "that cannot be undone", "only a success on tables with a key can be undone"),
    ("in_doubt", "in doubt", "wait until the write has ended"),
];

/// `1 row`, `3 rows`.
pub(super) fn rows(count: u64) -> String {
    format!("{count} row{}", if count == 1 { "" } else { "s" })
}

/// `1 row is`, `3 rows are`.
pub(super) fn are(count: u64) -> String {
    format!("{} {}", rows(count), if count == 1 { "is" } else { "are" })
}

/// The report on an undo that is refused.
pub(super) fn lines(subject: &str, conflicts: &[Value], all: u64) -> Vec<String> {
    let mut lines = vec![format!("Nothing was changed: {subject} cannot be undone as it is."), summary(conflicts, all)];
    lines.extend(conflicts.iter().filter_map(Value::as_object).flat_map(block));
    lines
}

/// `3 rows: 1 clean, 1 changed since, 1 deleted since`.
pub(super) fn summary(conflicts: &[Value], all: u64) -> String {
    let is = |conflict: &Value, code: &str| conflict.get("code").and_then(Value::as_str) == Some(code);
    let clean = all.saturating_sub(conflicts.len() as u64);
    let counted = CODES.iter().filter_map(|(code, words, _)| {
        let count = conflicts.iter().filter(|conflict| is(conflict, code)).count();
        (count > 0).then(|| format!("{count} {words}"))
    });
    let parts: Vec<String> = std::iter::once(format!("{clean} clean")).chain(counted).collect();
    format!("{}: {}", rows(all), parts.join(", "))
}

fn block(conflict: &Map<String, Value>) -> Vec<String> {
    let text = |name: &str| conflict.get(name).and_then(Value::as_str).map(visible);
    let code = text("code").unwrap_or_default();
    let place = text("table").map(|table| format!("  {table} {}", key(conflict.get("key")))).unwrap_or_default();
    let mut lines = vec![String::new(), format!("{code}{place}")];
    lines.extend(text("message").map(|message| format!("  {message}")));
    lines.extend(conflict_columns(conflict).into_iter().map(|line| format!("  {line}")));
    lines.extend(conflict.get("write").and_then(write).map(|write| format!("  write: {write}")));
    lines.extend(conflict.get("changed_by").and_then(changed_by).map(|by| format!("  changed by: {by}")));
    let way_out = CODES.iter().find(|(known, ..)| *known == code).map(|(_, _, way_out)| *way_out);
    lines.extend(way_out.map(|way_out| format!("  way out: {way_out}")));
    lines
}

/// `304511b1-1878-4eba-9bb8-0630b1ac11da set_status, 2026-11-22T09:14:03Z, actor anna`.
fn write(write: &Value) -> Option<String> {
    let text = |name: &str| write.get(name).and_then(Value::as_str).map(visible);
    let mut parts = vec![format!("{} {}", text("correlation_id")?, text("tool_name").unwrap_or_default())];
    parts.extend(text("completed_at").map(|time| to_the_second(&time)));
    parts.extend(text("account_id").filter(|account| account != "default").map(|account| format!("account {account}")));
    parts.extend(text("actor").map(|actor| format!("actor {actor}")));
    Some(parts.join(", "))
}

fn changed_by(by: &Value) -> Option<String> {
    if let Some(write) = write(by) {
        return Some(write);
    }
    let text = |name: &str| by.get(name).and_then(Value::as_str).map(visible);
    let at = text("at").map(|at| format!(", {at}")).unwrap_or_default();
    text("outside").map(|origin| format!("{origin}{at}"))
}
