//! The rows of a write on a terminal: one block for each table and kind, with the changed columns only.

use review::sentences::short_id;
use review::summary::{ChangedBy, ChangedColumn, ChangedRow, RowGroup, RowOrigin};
use review::{Summary, TextPart, word_diff};
use serde_json::Value;
use types::{ChangeKind, visible};

use crate::terminal::Style;
use crate::terminal::effects::short;
use crate::terminal::table::{Shown, cell, json_line, table};

/// The number of rows of a table, and of columns of a single row, that are shown without --full.
const MAX_ROWS: usize = 8;
const MAX_COLUMNS: usize = 20;

/// The length from which the words of two texts are compared, in characters.
const COMPARED: usize = 60;

/// The blocks: for each a title, what its columns become, and its rows.
pub(crate) fn lines(summary: &Summary, shown: Shown, style: &Style) -> Vec<String> {
    let mut lines: Vec<String> = summary.groups.iter().flat_map(|group| block(group, shown, style)).collect();
    if summary.unchanged > 0 {
        lines.push(format!("{} as before", review::sentences::rows(summary.unchanged as u64)));
    }
    lines
}

fn block(group: &RowGroup, shown: Shown, style: &Style) -> Vec<String> {
    let origin = match group.origin {
        RowOrigin::Statement => "",
        RowOrigin::Further => ", further rows",
        RowOrigin::Tool => ", as the tool reads them",
        RowOrigin::Since => ", as it was shown -> as it is now",
        RowOrigin::Instead => ", as it was shown -> what would happen now",
    };
    let mark = match group.change {
        ChangeKind::Insert => style.good("+"),
        ChangeKind::Delete => style.bad("-"),
        ChangeKind::Update => "~".to_owned(),
    };
    let mut lines = vec![format!("{mark} {}{origin}", group.title())];
    let most = if shown.full { usize::MAX } else { MAX_ROWS };
    match group.rows.as_slice() {
        [] => {}
        [row] => lines.extend(single(row, shown.full)),
        rows => {
            lines.extend(group.columns().iter().map(|column| format!("  {column}")));
            let listed = rows.get(..most.min(rows.len())).unwrap_or_default();
            if shown.full && listed.iter().any(is_cut_in_a_table) {
                lines.extend(listed.iter().flat_map(|row| single(row, true)));
            } else {
                let width = shown.width.filter(|_| !shown.full).map(|width| width.saturating_sub(2));
                lines.extend(of_table(listed, width).iter().map(|line| format!("  {}", line.trim_end())));
            }
        }
    }
    let more = group.rows.len().saturating_sub(most);
    if more > 0 {
        lines.push(format!("  and {more} more rows: --full shows all of them"));
    }
    if group.unlisted() > 0 {
        lines.push(format!("  and {} that are counted and not listed", group.unlisted()));
    }
    lines
}

/// A single row: its key, and a line for each column.
fn single(row: &ChangedRow, full: bool) -> Vec<String> {
    let width = row.columns.iter().map(|column| visible(&column.name).chars().count()).max().unwrap_or_default();
    let line = |column: &ChangedColumn| format!("  {:<width$}  {}", visible(&column.name), value(column, full));
    let most = if full { usize::MAX } else { MAX_COLUMNS };
    let key = key(row);
    let key = (!key.is_empty()).then(|| format!("  {key}"));
    let mut lines: Vec<String> = key.into_iter().chain(row.columns.iter().take(most).map(line)).collect();
    let more = row.columns.len().saturating_sub(most);
    if more > 0 {
        lines.push(format!("  and {more} more columns: --full shows all of them"));
    }
    if full {
        lines.extend(
            row.same.iter().map(|(name, value)| format!("  as before: {} {}", visible(name), json_line(value))),
        );
    } else if !row.same.is_empty() {
        lines.push(format!("  and {} columns as before", row.same.len()));
    }
    lines.extend(note(row).map(|note| format!("  {note}")));
    lines.extend(row.changed_by.as_ref().map(|by| format!("  changed by: {}", changed_by(by))));
    lines
}

/// Whether a table of several rows shows a value of the row only in part.
fn is_cut_in_a_table(row: &ChangedRow) -> bool {
    row.columns.iter().any(|column| value(column, false) != value(column, true))
}

fn of_table(rows: &[ChangedRow], width: Option<usize>) -> Vec<String> {
    let mut names: Vec<&str> = Vec::new();
    for column in rows.iter().flat_map(|row| &row.columns) {
        if !names.contains(&column.name.as_str()) {
            names.push(&column.name);
        }
    }
    let has_key = rows.iter().any(|row| !row.key.is_empty());
    let is_changed = rows.iter().any(|row| row.changed_by.is_some());
    let heading = has_key.then(|| "row".to_owned()).into_iter().chain(names.iter().map(|name| visible(name)));
    let heading = heading.chain(is_changed.then(|| "changed by".to_owned()));
    let line = |row: &ChangedRow| {
        let of = |name: &&str| row.columns.iter().find(|column| column.name == **name);
        let cells = names.iter().map(|name| of(name).map_or_else(|| "-".to_owned(), |column| value(column, false)));
        let first = [key(row)].into_iter().chain(note(row).map(str::to_owned)).collect::<Vec<_>>().join(", ");
        let by = is_changed.then(|| row.changed_by.as_ref().map_or_else(String::new, changed_by));
        has_key.then_some(first).into_iter().chain(cells).chain(by).collect::<Vec<_>>()
    };
    let lines: Vec<Vec<String>> = std::iter::once(heading.collect()).chain(rows.iter().map(line)).collect();
    table(&lines, width)
}

fn key(row: &ChangedRow) -> String {
    let part = |(name, value): &(String, Value)| format!("{}={}", visible(name), cell(Some(value)));
    row.labelled(row.key.iter().map(part).collect::<Vec<_>>().join(", "))
}

/// The writer, and the beginning of the record's id.
fn changed_by(by: &ChangedBy) -> String {
    let record = by.record().map(|id| format!(" ({})", short_id(&id.to_string()))).unwrap_or_default();
    format!("{}{record}", by.words())
}

const fn note(row: &ChangedRow) -> Option<&'static str> {
    match (row.is_cut, row.has_sensitive_changes) {
        (true, _) => Some("too long to be shown"),
        (_, true) => Some("sensitive columns change"),
        _ => None,
    }
}

/// `open -> paid`, the only value, or the words of long texts that change.
fn value(column: &ChangedColumn, full: bool) -> String {
    let is_long = |text: &str| text.chars().nth(COMPARED).is_some();
    let text = |value: &Value| match value {
        Value::String(text) => short(text, full),
        value => short(&value.to_string(), full),
    };
    match (&column.before, &column.after) {
        (Some(Value::String(old)), Some(Value::String(new))) if !full && is_long(old) && is_long(new) => {
            word_diff(old, new).iter().map(part).collect()
        }
        (Some(old), Some(new)) => format!("{} -> {}", text(old), text(new)),
        (old, new) => old.as_ref().or(new.as_ref()).map(text).unwrap_or_default(),
    }
}

fn part(part: &TextPart) -> String {
    match part {
        TextPart::Same(text) => visible(text),
        TextPart::Removed(text) => format!("[-{}-]", visible(text)),
        TextPart::Added(text) => format!("{{+{}+}}", visible(text)),
        TextPart::Skipped(count) => format!("…({count} characters)…"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shown(before: &[Value], after: &[Value], full: bool) -> Vec<String> {
        let summary = Summary::of_images(Some(&json!(before)), Some(&json!(after)), None);
        lines(&summary, Shown { full, width: Some(80) }, &Style::plain())
    }

    #[test]
    fn many_rows_are_one_screen_and_full_shows_all() {
        let package = |id: u32, price: u32| json!({"id": id, "title": "Spare\u{1b}", "price": price});
        let before: Vec<Value> = (1..=80).map(|id| package(id, id * 10)).collect();
        let after: Vec<Value> = (1..=80).map(|id| package(id, id * 11)).collect();
        let lines = shown(&before, &after, false);
        assert_eq!(
            lines[..4],
            [
                "~ update 80 rows",
                "  price: 80 rows change, 10 to 800 become 11 to 880",
                "  row   price",
                "  id=1  10 -> 11"
            ]
        );
        assert_eq!(lines.last().unwrap(), "  and 72 more rows: --full shows all of them");
        assert!(lines.len() <= 12 && shown(&before, &after, true).len() > 80, "{lines:#?}");
        let gone = shown(&before, &[], false);
        assert_eq!(gone[..2], ["- delete 80 rows", "  id  title        price"]);
        assert!(gone.iter().all(|line| !line.contains('\u{1b}')), "{gone:#?}");
    }

    #[test]
    fn a_single_row_has_a_line_for_each_changed_column() {
        let photo = |id: u32, position: u32| json!({"package": 1, "photo": id, "position": position});
        let lines = shown(&[photo(1, 1), photo(2, 2), photo(3, 3)], &[photo(2, 1), photo(3, 3)], false);
        let expected = [
            "- delete 1 row",
            "  photo=1",
            "  package   1",
            "  position  1",
            "~ update 1 row",
            "  photo=2",
            "  position  2 -> 1",
            "  and 1 columns as before",
            "1 row as before",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn a_long_text_shows_the_words_that_change() {
        let text = |word: &str| json!({"id": 1, "body": format!("{}{word}\n{}", "The patient rests. ".repeat(30), "He is well. ".repeat(30))});
        let lines = shown(&[text("old")], &[text("new\u{202e}")], false);
        assert!(lines[2].contains("[-old-]{+new+}") || lines[2].contains("{+new"), "{lines:#?}");
        assert!(lines[2].contains("\\u202e") && lines[2].chars().count() < 600, "{lines:#?}");
    }
}
