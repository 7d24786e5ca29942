//! The rows of a preview, for the page.

use ledger::proposals::Preview;
use review::row_diff::{RowChange, RowDiff, column_pairs, columns};
use serde_json::Value;
use types::{ColumnEffect, Columns, Effects, RowEffect, visible};

use crate::text::LongText;

/// The maximum number of rows that are shown.
const MAX_ROWS: usize = 100;

/// The maximum number of unchanged columns that are shown among the changed ones.
const MAX_UNCHANGED_CELLS: usize = 8;

/// A row before and after the write.
pub(crate) struct Row {
    /// `+` added, `-` removed, `~` changed, `=` as before.
    pub(crate) sign: char,
    /// The meaning of the sign.
    pub(crate) word: &'static str,
    pub(crate) cells: Vec<Cell>,
    /// The unchanged columns of a changed row, if there are many.
    pub(crate) same: Vec<Cell>,
}

pub(crate) struct Cell {
    pub(crate) column: String,
    pub(crate) before: Option<LongText>,
    pub(crate) after: Option<LongText>,
    pub(crate) is_changed: bool,
}

/// The rows of a preview, and the number of rows that are not shown.
pub(crate) fn of_preview(preview: &Preview) -> (Vec<Row>, usize) {
    let none = Value::Array(Vec::new());
    let (before, after) = (preview.before.as_ref().unwrap_or(&none), preview.after.as_ref().unwrap_or(&none));
    of(before, after, &preview.row_key)
}

/// The rows of two images, and the number of rows that are not shown.
pub(crate) fn of(before: &Value, after: &Value, row_key: &[String]) -> (Vec<Row>, usize) {
    let diff = RowDiff::new(before, after, row_key);
    let rows = diff.changes.iter().take(MAX_ROWS).map(|change| row(change, &diff.key)).collect();
    (rows, diff.changes.len().saturating_sub(MAX_ROWS))
}

fn row(change: &RowChange<'_>, key: &[String]) -> Row {
    let text = |value: &Value| LongText::new(shown(value));
    let one = |row: &Value, is_before: bool, is_after: bool| {
        columns(row)
            .map(|(name, value)| Cell {
                column: visible(name),
                before: is_before.then(|| text(value)),
                after: is_after.then(|| text(value)),
                is_changed: is_before != is_after,
            })
            .collect()
    };
    let whole = |sign, word, cells| Row { sign, word, cells, same: Vec::new() };
    match change {
        RowChange::Unchanged(row) => whole('=', "as before", one(row, true, true)),
        RowChange::Removed(row) => whole('\u{2212}', "removed", one(row, true, false)),
        RowChange::Added(row) => whole('+', "added", one(row, false, true)),
        RowChange::Changed(before, after) => changed(before, after, key),
    }
}

/// A changed row. The key of a wide row is shown among the changed columns.
fn changed(before: &Value, after: &Value, key: &[String]) -> Row {
    let keys: Vec<String> = key.iter().map(|column| visible(column)).collect();
    let cells = column_pairs(before, after).into_iter().map(|(name, old, new)| {
        let (before, after) = match (old.map(shown), new.map(shown)) {
            (Some(old), Some(new)) => {
                let [old, new] = LongText::pair(old, new);
                (Some(old), Some(new))
            }
            (old, new) => (old.map(LongText::new), new.map(LongText::new)),
        };
        Cell { column: visible(name), before, after, is_changed: old != new }
    });
    let cells: Vec<Cell> = cells.collect();
    let is_long = cells.iter().filter(|cell| !cell.is_changed).count() > MAX_UNCHANGED_CELLS;
    let (cells, same) = cells.into_iter().partition(|cell| cell.is_changed || !is_long || keys.contains(&cell.column));
    Row { sign: '~', word: "changed", cells, same }
}

/// A changed row of a tracked table.
pub(crate) struct Effect {
    pub(crate) table: String,
    pub(crate) key: String,
    pub(crate) change: &'static str,
    pub(crate) columns: String,
}

pub(crate) fn effects_of(effects: &Effects<Value>) -> Vec<Effect> {
    effects.rows.iter().map(effect).collect()
}

pub(crate) fn effect(row: &RowEffect<Value>) -> Effect {
    let columns = row.columns.iter().map(|(name, effect)| format!("{}: {}", visible(name), effect_value(effect)));
    let columns = columns.collect::<Vec<_>>().join(", ");
    let columns = match (row.is_cut, row.has_sensitive_changes) {
        (true, _) => "too long to be shown".to_owned(),
        (_, true) if columns.is_empty() => "sensitive columns".to_owned(),
        (_, true) => format!("{columns}, and sensitive columns"),
        _ => columns,
    };
    Effect { table: visible(&row.table), key: key(row.key.as_ref()), change: row.change.past(), columns }
}

/// The key of a row: `id = 7`.
pub(crate) fn key(key: Option<&Columns<Value>>) -> String {
    let parts = key.into_iter().flatten().map(|(name, part)| format!("{} = {}", visible(name), shown(part)));
    parts.collect::<Vec<_>>().join(", ")
}

/// A value, or its old and new version.
fn effect_value(effect: &ColumnEffect<Value>) -> String {
    match effect {
        ColumnEffect::Whole(value) => shown(value),
        ColumnEffect::Changed { before, after } => format!("{} \u{2192} {}", shown(before), shown(after)),
    }
}

/// A value as people read it: text without quotes, everything else as JSON.
pub(crate) fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => visible(text),
        Value::Null => "null".to_owned(),
        other => visible(&other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_wide_row_shows_its_key_and_what_changes_and_folds_the_rest() {
        let wide = |value: u32| {
            let columns = (0..500).map(|n| (format!("c{n:03}"), json!(if n == 250 { value } else { n })));
            json!([columns.collect::<serde_json::Map<_, _>>()])
        };
        let (rows, more) = of(&wide(1), &wide(2), &["c007".to_owned()]);
        let [row] = rows.as_slice() else { panic!("{} rows", rows.len()) };
        let columns: Vec<&str> = row.cells.iter().map(|cell| cell.column.as_str()).collect();
        assert_eq!((columns, row.same.len(), more), (vec!["c007", "c250"], 498, 0));
    }

    #[test]
    fn a_narrow_row_shows_all_of_itself() {
        let (rows, _) =
            of(&json!([{"id": 1, "a": 1, "b": 1}]), &json!([{"id": 1, "a": 2, "b": 1}]), &["id".to_owned()]);
        let changed: Vec<bool> = rows[0].cells.iter().map(|cell| cell.is_changed).collect();
        assert_eq!((changed, rows[0].same.len()), (vec![false, true, false], 0));
    }

    #[test]
    fn the_console_says_the_same_of_every_kind_of_change() {
        let effects = serde_json::from_str(include_str!("../../../tests/golden/review/effects.json")).unwrap();
        let line = |one: Effect| format!("{} | {} | {} | {}\n", one.table, one.key, one.change, one.columns);
        let said: String = effects_of(&effects).into_iter().map(line).collect();
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(
                concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/review/effects.console.txt"),
                &said,
            )
            .unwrap();
        }
        assert_eq!(said, include_str!("../../../tests/golden/review/effects.console.txt"));
    }
}
