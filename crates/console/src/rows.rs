//! The rows of a write, for the pages: one table for each table and kind.

use review::summary::{ChangedColumn, ChangedRow, RowGroup, RowOrigin};
use review::{Summary, sentences};
use serde::Deserialize;
use serde_json::Value;
use types::{ChangeKind, ColumnEffect, CorrelationId, RowEffect, visible};

use crate::text::{LongText, Words, shown};

/// The number of rows that a table shows first, and on each page of all rows.
const FIRST_ROWS: usize = 20;
const PAGE_ROWS: usize = 500;

/// The number of rows that are shown first with their columns below each other.
const FIRST_WIDE_ROWS: usize = 3;

/// The maximum number of columns of a table with several rows. The others are shown below each other.
const MAX_COLUMNS: usize = 8;

/// The maximum number of values in a fold with unchanged columns.
const MAX_UNCHANGED: usize = 2000;

/// The rows that a page shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ShownRows {
    First,
    /// All rows, from this one on.
    Page(usize),
}

/// The rows of one table that change in the same way.
pub(crate) struct Table {
    /// `Update 3 rows of shop.orders`.
    pub(crate) title: String,
    /// `+` inserted, `-` deleted, `~` updated.
    pub(crate) sign: char,
    /// What changes the rows, if it is not the write itself.
    pub(crate) origin: Option<&'static str>,
    /// What the columns become, in sentences.
    pub(crate) columns: Vec<String>,
    /// The names of the changed columns; empty if the columns are below each other.
    pub(crate) heading: Vec<String>,
    pub(crate) rows: Vec<Row>,
    /// The number of rows before those that are shown, and after them.
    pub(crate) before: usize,
    pub(crate) after: usize,
    /// The number of rows that the ledger has not listed.
    pub(crate) unlisted: u64,
    pub(crate) unchanged: Vec<Unchanged>,
}

pub(crate) struct Row {
    /// `id = 7 "Sunset"`.
    pub(crate) key: String,
    /// As many cells as the heading has names, or a cell for each column of the row.
    pub(crate) cells: Vec<Cell>,
    pub(crate) note: Option<&'static str>,
    /// Who changed the row since it was shown, and the record of the write.
    pub(crate) changed_by: Option<(String, Option<CorrelationId>)>,
}

pub(crate) struct Cell {
    pub(crate) column: String,
    pub(crate) value: CellValue,
}

pub(crate) enum CellValue {
    /// The row does not change in this column.
    Nothing,
    /// The value before and after the write; `None` if there is none.
    Change { before: Option<LongText>, after: Option<LongText> },
    /// The difference of two long texts.
    Words(Words),
}

pub(crate) struct Unchanged {
    pub(crate) key: String,
    pub(crate) values: Vec<(String, LongText)>,
}

/// The query of a page with rows.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct RowsQuery {
    /// `all` for all rows.
    rows: String,
    from: usize,
}

impl From<RowsQuery> for ShownRows {
    fn from(query: RowsQuery) -> Self {
        if query.rows == "all" { Self::Page(query.from) } else { Self::First }
    }
}

impl ShownRows {
    fn range(self, count: usize) -> std::ops::Range<usize> {
        match self {
            Self::First => 0..count.min(FIRST_ROWS),
            Self::Page(from) => from.min(count)..from.saturating_add(PAGE_ROWS).min(count),
        }
    }

    /// The first row of the next page.
    pub(crate) fn next(self) -> usize {
        if let Self::Page(from) = self { from.saturating_add(PAGE_ROWS) } else { 0 }
    }
}

pub(crate) fn tables(summary: &Summary, shown: ShownRows) -> Vec<Table> {
    summary.groups.iter().map(|group| table(group, shown)).collect()
}

fn table(group: &RowGroup, shown: ShownRows) -> Table {
    let mut range = shown.range(group.rows.len());
    let rows = group.rows.get(range.clone()).unwrap_or_default();
    let mut names: Vec<&str> = Vec::new();
    for column in rows.iter().flat_map(|row| &row.columns) {
        if !names.contains(&column.name.as_str()) {
            names.push(&column.name);
        }
        if names.len() > MAX_COLUMNS {
            break;
        }
    }
    let is_wide = names.len() > MAX_COLUMNS;
    if is_wide || rows.len() == 1 {
        names.clear();
    }
    if is_wide && shown == ShownRows::First {
        range.end = range.end.min(FIRST_WIDE_ROWS);
    }
    let (before, after) = (range.start, group.rows.len() - range.end);
    let rows = group.rows.get(range).unwrap_or_default();
    Table {
        title: sentences::capitalized(&group.title()),
        sign: match group.change {
            ChangeKind::Insert => '+',
            ChangeKind::Delete => '\u{2212}',
            ChangeKind::Update => '~',
        },
        origin: match group.origin {
            RowOrigin::Statement => None,
            RowOrigin::Further => Some("further rows"),
            RowOrigin::Tool => Some("as the tool reads them"),
            RowOrigin::Since => Some("as it was shown, and as it is now"),
            RowOrigin::Instead => Some("as it was shown, and what would happen now"),
        },
        columns: if rows.len() > 1 { group.columns() } else { Vec::new() },
        rows: rows.iter().map(|row| Row::new(row, &names)).collect(),
        heading: names.into_iter().map(visible).collect(),
        before,
        after,
        unlisted: group.unlisted(),
        unchanged: unchanged(rows),
    }
}

fn unchanged(rows: &[ChangedRow]) -> Vec<Unchanged> {
    let most = MAX_UNCHANGED / rows.len().max(1);
    let of = |row: &ChangedRow| Unchanged {
        key: name(row),
        values: row.same.iter().take(most).map(|(name, value)| (visible(name), LongText::new(shown(value)))).collect(),
    };
    rows.iter().filter(|row| !row.same.is_empty()).map(of).collect()
}

impl Row {
    fn new(row: &ChangedRow, names: &[&str]) -> Self {
        let cell = |name: &str| row.columns.iter().find(|column| column.name == name).map_or(CellValue::Nothing, value);
        let cells = match names {
            [] => {
                row.columns.iter().map(|column| Cell { column: visible(&column.name), value: value(column) }).collect()
            }
            names => names.iter().map(|name| Cell { column: visible(name), value: cell(name) }).collect(),
        };
        let note = match (row.is_cut, row.has_sensitive_changes) {
            (true, _) => Some("too long to be shown"),
            (_, true) => Some("sensitive columns change"),
            _ => None,
        };
        let changed_by = row.changed_by.as_ref().map(|by| (by.words(), by.record()));
        Self { key: name(row), cells, note, changed_by }
    }
}

fn value(column: &ChangedColumn) -> CellValue {
    match (&column.before, &column.after) {
        (Some(Value::String(before)), Some(Value::String(after))) if Words::is_for(before, after) => {
            CellValue::Words(Words::new(before, after))
        }
        (before, after) => {
            let text = |value: &Option<Value>| value.as_ref().map(|value| LongText::new(shown(value)));
            CellValue::Change { before: text(before), after: text(after) }
        }
    }
}

/// The change of a row of a tracked table.
pub(crate) struct Effect {
    pub(crate) change: &'static str,
    pub(crate) columns: String,
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
    Effect { change: row.change.past(), columns }
}

/// The key of a row, and the text by which people recognize it: `id = 7 "Sunset"`.
fn name(row: &ChangedRow) -> String {
    row.labelled(key(row.key.iter().map(|(name, part)| (name, part))))
}

/// The key of a row: `id = 7`.
pub(crate) fn key<'a>(key: impl IntoIterator<Item = (&'a String, &'a Value)>) -> String {
    let parts = key.into_iter().map(|(name, part)| format!("{} = {}", visible(name), shown(part)));
    parts.collect::<Vec<_>>().join(", ")
}

/// A value, or its old and new version.
fn effect_value(effect: &ColumnEffect<Value>) -> String {
    match effect {
        ColumnEffect::Whole(value) => shown(value),
        ColumnEffect::Changed { before, after } => format!("{} \u{2192} {}", shown(before), shown(after)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(before: Value, after: Value) -> Vec<Table> {
        let preview = json!({"rows_affected": 1, "result": {}, "before": before, "after": after, "row_key": ["id"],
            "rollback": types::Rollback::irreversible("")});
        tables(&Summary::new(&serde_json::from_value(preview).unwrap()), ShownRows::First)
    }

    #[test]
    fn a_wide_row_shows_its_key_and_what_changes_and_folds_the_rest() {
        let wide = |value: u32| {
            let columns = (0..500).map(|n| (format!("c{n:03}"), json!(if n == 250 { value } else { n })));
            let id = std::iter::once(("id".to_owned(), json!(1)));
            json!([id.chain(columns).collect::<serde_json::Map<_, _>>()])
        };
        let tables = of(wide(1), wide(2));
        let [table] = tables.as_slice() else { panic!("{} tables", tables.len()) };
        let columns: Vec<&str> = table.rows[0].cells.iter().map(|cell| cell.column.as_str()).collect();
        assert_eq!((columns, table.unchanged[0].values.len()), (vec!["c250"], 499));
        assert_eq!((table.rows[0].key.as_str(), table.title.as_str()), ("id = 1", "Update 1 row"));
    }

    #[test]
    fn many_rows_have_only_the_changed_columns_and_the_first_are_shown() {
        let rows = |value: u32| json!((0..80).map(|id| json!({"id": id, "a": value, "b": 1})).collect::<Vec<_>>());
        let tables = of(rows(1), rows(2));
        let [table] = tables.as_slice() else { panic!("{} tables", tables.len()) };
        assert_eq!((table.heading.as_slice(), table.rows.len(), table.after), (&["a".to_owned()][..], 20, 60));
        assert_eq!(table.columns, ["a: 80 rows become 2 (80 were 1)"]);
        assert_eq!(ShownRows::Page(500).range(700), 500..700);
        assert_eq!(ShownRows::Page(usize::MAX).range(7), 7..7);
    }

    #[test]
    fn the_console_says_the_same_of_every_kind_of_change() {
        let effects: types::Effects<Value> =
            serde_json::from_str(include_str!("../../../tests/golden/review/effects.json")).unwrap();
        let line = |one: Effect| format!("{} | {}\n", one.change, one.columns);
        let said: String = effects.rows.iter().map(effect).map(line).collect();
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
