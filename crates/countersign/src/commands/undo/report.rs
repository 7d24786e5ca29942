//! The conflict report: a summary, and a block for each conflict.

use ledger::undo::NotRestored;
use review::Summary;
pub(super) use review::sentences::rows;
use serde_json::Value;
use types::{Conflict, ConflictColumn, ConflictKind, ConflictWrite, Member, RowChanger, visible};

use crate::terminal::effects::{key, short};
use crate::terminal::table::{Shown, to_the_second};
use crate::terminal::{Style, rows as row_lines};

/// `1 row is`, `3 rows are`.
pub(super) fn are(count: u64) -> String {
    format!("{} {}", rows(count), if count == 1 { "is" } else { "are" })
}

/// `Stays: 1 row of ob.queue, ..`.
pub(super) fn not_restored(tables: &[NotRestored]) -> impl Iterator<Item = String> {
    tables.iter().map(|kept| format!("Stays: {kept}"))
}

/// The rows that the undo changes.
pub(super) fn changes(summary: &Summary, full: bool) -> impl Iterator<Item = String> {
    let lines = row_lines::lines(summary, Shown::new(full), &Style::of_stdout());
    let heading = (!lines.is_empty()).then(|| "The undo changes these rows (now -> after):".to_owned());
    heading.into_iter().chain(lines.into_iter().map(|line| format!("  {line}")))
}

/// The report about a refused undo.
pub(super) fn lines(subject: &str, conflicts: &[Conflict<Value>], all: u64) -> Vec<String> {
    let mut lines = vec![format!("Nothing was changed: {subject} cannot be undone as it is."), summary(conflicts, all)];
    lines.extend(conflicts.iter().flat_map(block));
    lines
}

/// `3 rows: 1 clean, 1 row changed since, 1 row deleted since`.
pub(super) fn summary(conflicts: &[Conflict<Value>], all: u64) -> String {
    let clean = all.saturating_sub(conflicts.len() as u64);
    let separator = if conflicts.is_empty() { "" } else { ", " };
    format!("{}: {clean} clean{separator}{}", rows(all), ConflictKind::counted_words(conflicts))
}

fn block(conflict: &Conflict<Value>) -> Vec<String> {
    let place = conflict.table.get().map(|table| format!("  {} {}", visible(table), key(conflict.key.get())));
    let mut lines = vec![String::new(), format!("{}{}", conflict.kind.code(), place.unwrap_or_default())];
    lines.extend(conflict.message.get().map(|message| format!("  {}", visible(message))));
    lines.extend(conflict.columns.get().into_iter().flatten().map(column));
    lines.extend(conflict.write.get().map(|of| format!("  write: {}", write(of))));
    let changed_by = conflict.changed_by.get().and_then(changed_by);
    lines.extend(changed_by.map(|by| format!("  changed by: {by}")));
    lines.push(format!("  do: {}", conflict.kind.remedy()));
    lines
}

/// A column that differs: `status: to restore open, left paid, now sent`.
fn column(column: &ConflictColumn<Value>) -> String {
    let text = |value: &Member<Value>| {
        value.get().and_then(Value::as_str).map_or_else(|| "-".to_owned(), |text| short(text, false))
    };
    let left = if column.left.is_absent() { String::new() } else { format!(", left {}", text(&column.left)) };
    format!("  {}: to restore {}{left}, now {}", visible(&column.name), text(&column.to_restore), text(&column.now))
}

/// `304511b1-1878-4eba-9bb8-0630b1ac11da set_status, 2026-11-22T09:14:03Z, actor anna`.
fn write(write: &ConflictWrite) -> String {
    let text = |member: &Member<String>| member.get().map(|text| visible(text));
    let mut parts = vec![format!("{} {}", write.correlation_id, text(&write.tool_name).unwrap_or_default())];
    parts.extend(text(&write.completed_at).map(|time| to_the_second(&time)));
    let account = text(&write.account_id).filter(|account| account != "default");
    parts.extend(account.map(|account| format!("account {account}")));
    parts.extend(text(&write.actor).map(|actor| format!("actor {actor}")));
    parts.join(", ")
}

fn changed_by(by: &RowChanger) -> Option<String> {
    match by {
        RowChanger::Write(by) => Some(write(by)),
        RowChanger::Outside { outside, at } => {
            let at = at.get().map(|at| format!(", {}", visible(at))).unwrap_or_default();
            outside.as_ref().map(|origin| format!("{}{at}", visible(origin)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_terminal_says_the_same_of_every_kind_of_conflict() {
        let conflicts: Vec<Conflict<Value>> =
            serde_json::from_str(include_str!("../../../../../tests/golden/review/conflicts.json")).unwrap();
        let mut said = lines("the write 7", &conflicts, 20);
        said.push("\nLeft out, by a plan:".to_owned());
        said.extend(conflicts.iter().map(crate::commands::undo::plan::reason));
        let said = said.join("\n") + "\n";
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(
                concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/review/conflicts.terminal.txt"),
                &said,
            )
            .unwrap();
        }
        assert_eq!(said, include_str!("../../../../../tests/golden/review/conflicts.terminal.txt"));
    }
}
