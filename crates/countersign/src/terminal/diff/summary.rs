//! A summary of many rows: the changed columns with the ranges of their values, and a table of the first rows.

use review::row_diff::{RowChange, RowDiff, column_pairs, columns};
use serde_json::Value;

use crate::terminal::table::{cell, json_line, table};

/// Maximum number of rows in a table.
const MAX_ROWS: usize = 20;

/// The lines below the counts.
pub(super) fn lines(diff: &RowDiff<'_>, width: Option<usize>) -> Vec<String> {
    let changed = diff.changes.iter().filter_map(|change| match *change {
        RowChange::Changed(before, after) => Some((before, after)),
        _ => None,
    });
    let changed: Vec<(&Value, &Value)> = changed.collect();
    let mut lines = if changed.is_empty() { Vec::new() } else { of_changed(&changed, &diff.key, width) };
    lines.extend(of_rows("gone", &diff.removed(), width));
    lines.extend(of_rows("new", &diff.added(), width));
    lines
}

fn of_changed(changed: &[(&Value, &Value)], key: &[String], width: Option<usize>) -> Vec<String> {
    let mut names: Vec<(&str, usize)> = Vec::new();
    for (before, after) in changed {
        for (name, _, _) in column_pairs(before, after).into_iter().filter(|(_, old, new)| old != new) {
            match names.iter_mut().find(|(known, _)| *known == name) {
                Some((_, count)) => *count += 1,
                None => names.push((name, 1)),
            }
        }
    }
    let mut lines = Vec::new();
    for key in key {
        let keys: Vec<&Value> = changed.iter().filter_map(|(before, _)| before.get(key)).collect();
        lines.push(format!("{} {}", types::visible(key), range(&keys)));
    }
    for (name, count) in &names {
        let of = |row: &Value| row.get(*name).cloned().unwrap_or(Value::Null);
        let pairs = changed.iter().filter(|(before, after)| of(before) != of(after));
        let (old, new): (Vec<Value>, Vec<Value>) = pairs.map(|(before, after)| (of(before), of(after))).unzip();
        let range = |values: &[Value]| range(&values.iter().collect::<Vec<_>>());
        lines.push(format!("{} in {count} rows: {} -> {}", types::visible(name), range(&old), range(&new)));
    }
    let is_key = |name: &str| key.iter().any(|column| column == name);
    let shown: Vec<&str> = names.iter().map(|(name, _)| *name).filter(|name| !is_key(name)).collect();
    let heading = key.iter().map(String::as_str).chain(shown.iter().copied()).map(types::visible).collect();
    let row = |(before, after): &(&Value, &Value)| {
        let pair = |name: &str| match (before.get(name), after.get(name)) {
            (old, new) if old == new => cell(old),
            (old, new) => format!("{} -> {}", cell(old), cell(new)),
        };
        key.iter().map(String::as_str).chain(shown.iter().copied()).map(pair).collect()
    };
    lines.push("changed:".to_owned());
    lines.extend(of_table(heading, changed.iter().map(row).collect(), width));
    lines
}

/// Rows of one image only.
fn of_rows(what: &str, rows: &[&Value], width: Option<usize>) -> Vec<String> {
    let Some(first) = rows.first() else { return Vec::new() };
    let names: Vec<&str> = columns(first).map(|(name, _)| name).collect();
    let mut lines: Vec<String> = names
        .iter()
        .map(|name| {
            let values: Vec<&Value> = rows.iter().filter_map(|row| row.get(*name)).collect();
            format!("{} {}", types::visible(name), range(&values))
        })
        .collect();
    lines.push(format!("{what}:"));
    let row = |row: &&Value| names.iter().map(|name| cell(row.get(*name))).collect();
    lines.extend(of_table(
        names.iter().map(|name| types::visible(name)).collect(),
        rows.iter().map(row).collect(),
        width,
    ));
    lines
}

fn of_table(heading: Vec<String>, rows: Vec<Vec<String>>, width: Option<usize>) -> Vec<String> {
    const INDENT: usize = 2;
    let more = rows.len().saturating_sub(MAX_ROWS);
    let rows: Vec<_> = std::iter::once(heading).chain(rows.into_iter().take(MAX_ROWS)).collect();
    let width = width.map(|width| width.saturating_sub(INDENT));
    let mut lines: Vec<String> =
        table(&rows, width).iter().map(|line| format!("{:INDENT$}{}", "", line.trim_end())).collect();
    if more > 0 {
        lines.push(format!("  and {more} more rows: --full shows all of them"));
    }
    lines
}

/// The only value, or the smallest and the largest number, or the number of distinct values.
fn range(values: &[&Value]) -> String {
    const WIDEST: usize = 60;
    let Some(first) = values.first() else { return "nothing".to_owned() };
    if values.iter().all(|value| value == first) {
        let text = json_line(first);
        return if text.chars().count() <= WIDEST {
            text
        } else {
            format!("one value of {} characters", text.chars().count())
        };
    }
    let numbers: Option<Vec<(f64, &Value)>> = values.iter().map(|value| Some((value.as_f64()?, *value))).collect();
    if let Some(numbers) = numbers {
        let least = numbers.iter().min_by(|one, other| one.0.total_cmp(&other.0));
        let most = numbers.iter().max_by(|one, other| one.0.total_cmp(&other.0));
        if let (Some((_, least)), Some((_, most))) = (least, most) {
            return format!("{least} to {most}");
        }
    }
    let different: std::collections::BTreeSet<String> = values.iter().map(|value| value.to_string()).collect();
    format!("{} different values", different.len())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::terminal::Style;

    fn shown(before: &[Value], after: &[Value], full: bool) -> Vec<String> {
        super::super::lines(&json!(before), &json!(after), &[], full, Some(80), &Style::plain())
    }

    #[test]
    fn many_rows_are_summed_up_and_a_table_shows_the_first() {
        let package =
            |id: u32, price: u32| json!({"package_id": id, "title": "Spare\u{1b}", "price": price, "is_active": true});
        let before: Vec<Value> = (1..=80).map(|id| package(id, id * 10)).collect();
        let after: Vec<Value> = (1..=80).map(|id| package(id, id * 11)).collect();
        let lines = shown(&before, &after, false);
        assert_eq!(
            lines[..4],
            ["80 changed", "package_id 1 to 80", "price in 80 rows: 10 to 800 -> 11 to 880", "changed:"]
        );
        assert_eq!(lines[4..6], ["  package_id  price", "           1  10 -> 11"]);
        assert_eq!(lines.last().unwrap(), "  and 60 more rows: --full shows all of them");
        assert!(lines.len() < 40, "{lines:#?}");
        assert!(shown(&before, &after, true).len() > 400, "all of them, if they are asked for");

        let gone = shown(&before, &[], false);
        assert_eq!(gone[..4], ["80 gone", "package_id 1 to 80", "title \"Spare\\u001b\"", "price 10 to 800"]);
        assert!(gone.iter().all(|line| !line.contains('\u{1b}')), "{gone:#?}");
    }

    #[test]
    fn few_rows_are_shown_whole() {
        let rows: Vec<Value> = (1..=5).map(|id| json!({"id": id, "a": 1})).collect();
        assert_eq!(shown(&rows, &[], false), shown(&rows, &[], true));
    }
}
