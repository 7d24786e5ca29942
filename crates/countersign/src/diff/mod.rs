//! The rows before and after a write, side by side: what a reviewer looks at first. A few rows are shown with every value whole,
//! whatever they are paired by; a pairing only decides what stands beside what. Many rows are summed up (`summary`), unless all
//! of them are asked for.

mod summary;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::table::json_line;
use crate::terminal::Style;

/// What becomes of a row.
#[derive(Debug, PartialEq)]
enum Change<'a> {
    Same(&'a Value),
    Changed(&'a Value, &'a Value),
    Gone(&'a Value),
    New(&'a Value),
}

/// The most lines of rows that are shown without being asked for.
const MOST_LINES: usize = 60;

/// The rows with all their values if these are a few lines, or `full` asks for it; else a summary. `row_key` are the columns that
/// are known to tell rows apart, if any are. `width` is that of the terminal, if there is one.
pub(crate) fn lines(
    before: &Value,
    after: &Value,
    row_key: &[String],
    full: bool,
    width: Option<usize>,
    style: &Style,
) -> Vec<String> {
    let (before, after) = (rows(before), rows(after));
    let key = key(row_key, &before, &after);
    let changes = changes(&key, &before, &after);
    let whole = whole(&changes, style);
    if full || whole.len() <= MOST_LINES {
        return whole;
    }
    let counts = whole.into_iter().take(1);
    counts.chain(summary::lines(&changes, &key, width)).collect()
}

/// A heading for each row, and below it a line for each column.
fn whole(changes: &[Change<'_>], style: &Style) -> Vec<String> {
    let count = |wanted: fn(&Change<'_>) -> bool| changes.iter().filter(|change| wanted(change)).count();
    let counts = [
        (count(|change| matches!(change, Change::Changed(..))), "changed"),
        (count(|change| matches!(change, Change::Gone(_))), "gone"),
        (count(|change| matches!(change, Change::New(_))), "new"),
        (count(|change| matches!(change, Change::Same(_))), "as before"),
    ];
    let counts: Vec<String> =
        counts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
    let mut lines = vec![if counts.is_empty() { "none".to_owned() } else { counts.join(", ") }];
    for change in changes {
        match change {
            Change::Same(row) => {
                push(&mut lines, "as before", columns(row).map(|(name, value)| ("  ", name, value)), style)
            }
            Change::Gone(row) => push(&mut lines, "gone", columns(row).map(|(name, value)| ("- ", name, value)), style),
            Change::New(row) => push(&mut lines, "new", columns(row).map(|(name, value)| ("+ ", name, value)), style),
            Change::Changed(before, after) => push(&mut lines, "changed", both(before, after).into_iter(), style),
        }
    }
    lines
}

fn push<'a>(
    lines: &mut Vec<String>,
    heading: &str,
    values: impl Iterator<Item = (&'static str, &'a str, &'a Value)>,
    style: &Style,
) {
    let values: Vec<_> = values.collect();
    let width = values.iter().map(|(_, name, _)| types::visible(name).chars().count()).max().unwrap_or_default();
    lines.push(format!("{heading}:"));
    for (mark, name, value) in values {
        let line = format!("  {mark}{:<width$}  {}", types::visible(name), json_line(value));
        lines.push(match mark {
            "- " => style.bad(&line),
            "+ " => style.good(&line),
            _ => line,
        });
    }
}

/// The columns of two rows: what is the same once, what differs twice.
fn both<'a>(before: &'a Value, after: &'a Value) -> Vec<(&'static str, &'a str, &'a Value)> {
    let old: Vec<_> = columns(before).collect();
    let new: Vec<_> = columns(after).collect();
    let find =
        |row: &[(&'a str, &'a Value)], name: &str| row.iter().find(|(key, _)| *key == name).map(|(_, value)| *value);
    let mut lines = Vec::new();
    for (name, value) in &old {
        match find(&new, name) {
            Some(now) if now == *value => lines.push(("  ", *name, *value)),
            now => {
                lines.push(("- ", *name, *value));
                lines.extend(now.map(|now| ("+ ", *name, now)));
            }
        }
    }
    lines.extend(new.iter().filter(|(name, _)| find(&old, name).is_none()).map(|(name, value)| ("+ ", *name, *value)));
    lines
}

/// The columns of a row; what is no object is a column without a name.
fn columns(row: &Value) -> Box<dyn Iterator<Item = (&str, &Value)> + '_> {
    match row {
        Value::Object(object) => Box::new(object.iter().map(|(name, value)| (name.as_str(), value))),
        other => Box::new(std::iter::once(("", other))),
    }
}

fn rows(image: &Value) -> Vec<&Value> {
    image.as_array().map_or_else(|| vec![image], |rows| rows.iter().collect())
}

/// Rows that belong together, in the order of before, then those that are new.
fn changes<'a>(key: &[String], before: &[&'a Value], after: &[&'a Value]) -> Vec<Change<'a>> {
    let name = |row: &Value| match key {
        [] => row.to_string(),
        key => {
            let values: Vec<&Value> = key.iter().map(|column| row.get(column).unwrap_or(&Value::Null)).collect();
            json_line(&values.into_iter().cloned().collect())
        }
    };
    let mut left: BTreeMap<String, Vec<&'a Value>> = BTreeMap::new();
    for &row in after.iter().rev() {
        left.entry(name(row)).or_default().push(row);
    }
    let mut changes = Vec::new();
    for &row in before {
        changes.push(match left.get_mut(&name(row)).and_then(Vec::pop) {
            Some(now) if now == row => Change::Same(row),
            Some(now) => Change::Changed(row, now),
            None => Change::Gone(row),
        });
    }
    for &row in after {
        if let Some(waiting) = left.get_mut(&name(row)).filter(|waiting| !waiting.is_empty()) {
            waiting.remove(0);
            changes.push(Change::New(row));
        }
    }
    match (key, before, after) {
        // One row, and nothing of it says that it is another one.
        ([], [old], [new]) if old != new => vec![Change::Changed(old, new)],
        _ => changes,
    }
}

/// The columns that tell rows apart: those that are known to, or else the one that does so on both sides and that most rows of
/// both sides share.
fn key(row_key: &[String], before: &[&Value], after: &[&Value]) -> Vec<String> {
    let is_there = |row: &&Value| row_key.iter().all(|column| row.get(column).is_some());
    if !row_key.is_empty() && before.iter().chain(after).all(is_there) {
        return row_key.to_vec();
    }
    guessed_key(before, after).into_iter().collect()
}

fn guessed_key(before: &[&Value], after: &[&Value]) -> Option<String> {
    let first = before.first().and_then(|row| row.as_object())?;
    let values = |rows: &[&Value], name: &str| -> Option<BTreeSet<String>> {
        let values: Option<BTreeSet<String>> =
            rows.iter().map(|row| row.get(name).filter(|value| !value.is_null()).map(Value::to_string)).collect();
        values.filter(|values| values.len() == rows.len())
    };
    let mut best: Option<(usize, &str)> = None;
    for name in Map::keys(first) {
        let (Some(old), Some(new)) = (values(before, name), values(after, name)) else { continue };
        let shared = old.intersection(&new).count();
        if shared > best.map_or(0, |(most, _)| most) {
            best = Some((shared, name));
        }
    }
    best.map(|(_, name)| name.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shown(before: Value, after: Value) -> Vec<String> {
        lines(&before, &after, &[], false, None, &Style::plain())
    }

    #[test]
    fn rows_are_paired_by_the_column_that_tells_them_apart() {
        let photo = |id: u32, position: u32| json!({"package": 1, "photo": id, "position": position});
        let lines = shown(json!([photo(1, 1), photo(2, 2), photo(3, 3)]), json!([photo(2, 1), photo(3, 3)]));
        assert_eq!(
            lines,
            [
                "1 changed, 1 gone, 1 as before",
                "gone:",
                "  - package   1",
                "  - photo     1",
                "  - position  1",
                "changed:",
                "    package   1",
                "    photo     2",
                "  - position  2",
                "  + position  1",
                "as before:",
                "    package   1",
                "    photo     3",
                "    position  3",
            ]
        );
    }

    #[test]
    fn the_key_of_the_table_goes_before_what_looks_like_one() {
        let seat = |name: &str, row: u32, seat: u32| json!({"name": name, "row": row, "seat": seat});
        let (before, after) = ([seat("anna", 1, 1), seat("ben", 1, 2)], [seat("anna", 1, 2), seat("ben", 1, 1)]);
        let key = ["row", "seat"].map(str::to_owned);
        let lines = lines(&json!(before), &json!(after), &key, false, None, &Style::plain());
        assert_eq!(lines[..4], ["2 changed", "changed:", "  - name  \"anna\"", "  + name  \"ben\""], "{lines:?}");
    }

    #[test]
    fn a_single_row_is_compared_with_itself_also_if_all_of_it_changes() {
        let lines = shown(json!([{"title": "a\u{1b}[2K"}]), json!([{"title": "b", "price": 1.10}]));
        assert_eq!(
            lines,
            ["1 changed", "changed:", "  - title  \"a\\u001b[2K\"", "  + title  \"b\"", "  + price  1.1"]
        );
    }

    #[test]
    fn rows_that_nothing_tells_apart_are_all_shown() {
        let row = json!({"a": 1});
        let lines = shown(json!([row, row, {"a": 2}]), json!([row, {"a": 3}, {"a": 3}]));
        assert_eq!(lines[0], "2 gone, 2 new, 1 as before");
        assert_eq!(shown(json!([]), json!([row]))[0], "1 new");
        assert_eq!(shown(json!([row]), json!([]))[0], "1 gone");
        assert_eq!(shown(json!([]), json!([])), ["none"]);
    }

    #[test]
    fn what_is_no_row_is_shown_as_it_is() {
        assert_eq!(shown(json!("x"), json!(null)), ["1 changed", "changed:", "  -   \"x\"", "  +   null"]);
    }
}
