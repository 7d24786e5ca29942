//! The conflict report: a summary, and a block for each conflict.

use ledger::undo::SetAgain;
use ledger::{CONFLICT_KINDS, ConflictKind};
use serde_json::{Map, Value};
use types::visible;

use crate::effects::{conflict_columns, key};
use crate::table::to_the_second;

/// `1 row`, `3 rows`.
pub(super) fn rows(count: u64) -> String {
    format!("{count} row{}", if count == 1 { "" } else { "s" })
}

/// `1 row is`, `3 rows are`.
pub(super) fn are(count: u64) -> String {
    format!("{} {}", rows(count), if count == 1 { "is" } else { "are" })
}

/// `But for what triggers set again: shop.orders updated_at, version`.
pub(super) fn set_again(set_again: &SetAgain) -> String {
    let of_table = |(table, columns): (&String, &Vec<String>)| visible(&format!("{table} {}", columns.join(", ")));
    format!(
        "But for what triggers set again: {}",
        set_again.columns.iter().map(of_table).collect::<Vec<_>>().join("; ")
    )
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
    let counted = CONFLICT_KINDS.iter().filter_map(|kind| {
        let count = conflicts.iter().filter(|conflict| is(conflict, kind.code)).count();
        (count > 0).then(|| format!("{count} {}", kind.words))
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
    lines.extend(ConflictKind::of(&code).map(|kind| format!("  do: {}", kind.remedy)));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_terminal_says_the_same_of_every_kind_of_conflict() {
        let conflicts: Vec<Value> =
            serde_json::from_str(include_str!("../../../../tests/golden/review/conflicts.json")).unwrap();
        let mut said = lines("the write 7", &conflicts, 20);
        said.push("\nLeft out, by a plan:".to_owned());
        said.extend(conflicts.iter().map(crate::undo::plan::reason));
        let said = said.join("\n") + "\n";
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(
                concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/review/conflicts.terminal.txt"),
                &said,
            )
            .unwrap();
        }
        assert_eq!(said, include_str!("../../../../tests/golden/review/conflicts.terminal.txt"));
    }
}
