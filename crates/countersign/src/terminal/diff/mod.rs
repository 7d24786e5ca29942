//! The rows before and after a write on the reviewer's terminal. A few rows are shown with all their values. More rows
//! are summarised (`summary`), unless the reviewer asks for all of them. [`RowDiff`] pairs the rows.

mod summary;

use review::row_diff::{RowChange, RowDiff, column_pairs, columns};
use serde_json::Value;

use crate::terminal::Style;
use crate::terminal::table::json_line;

/// Maximum number of lines of rows that are shown without --full.
const MAX_LINES: usize = 60;

/// The rows with all their values if they fit in [`MAX_LINES`] or `full` is set; otherwise a summary. `row_key` has
/// the columns of the table's key, if it is known. `width` is that of the terminal, in characters.
pub(crate) fn lines(
    before: &Value,
    after: &Value,
    row_key: &[String],
    full: bool,
    width: Option<usize>,
    style: &Style,
) -> Vec<String> {
    let diff = RowDiff::new(before, after, row_key);
    let whole = whole(&diff, style);
    if full || whole.len() <= MAX_LINES {
        return whole;
    }
    let counts = whole.into_iter().take(1);
    counts.chain(summary::lines(&diff, width)).collect()
}

/// The counts, then a heading for each row with a line for each column.
fn whole(diff: &RowDiff<'_>, style: &Style) -> Vec<String> {
    let (removed, added, unchanged) = (diff.removed().len(), diff.added().len(), diff.unchanged());
    let changed = diff.changes.len() - removed - added - unchanged;
    let counts = [(changed, "changed"), (removed, "gone"), (added, "new"), (unchanged, "as before")];
    let counts: Vec<String> =
        counts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
    let mut lines = vec![if counts.is_empty() { "none".to_owned() } else { counts.join(", ") }];
    for change in &diff.changes {
        let (heading, mark, row) = match change {
            RowChange::Unchanged(row) => ("as before", "  ", row),
            RowChange::Removed(row) => ("gone", "- ", row),
            RowChange::Added(row) => ("new", "+ ", row),
            RowChange::Changed(before, after) => {
                push(&mut lines, "changed", &marked(before, after), style);
                continue;
            }
        };
        let values: Vec<_> = columns(row).map(|(name, value)| (mark, name, value)).collect();
        push(&mut lines, heading, &values, style);
    }
    lines
}

fn push(lines: &mut Vec<String>, heading: &str, values: &[(&str, &str, &Value)], style: &Style) {
    let width = values.iter().map(|(_, name, _)| types::visible(name).chars().count()).max().unwrap_or_default();
    lines.push(format!("{heading}:"));
    for (mark, name, value) in values {
        let line = format!("  {mark}{:<width$}  {}", types::visible(name), json_line(value));
        lines.push(match *mark {
            "- " => style.bad(&line),
            "+ " => style.good(&line),
            _ => line,
        });
    }
}

/// The lines of a changed row: an equal column once, a changed one twice.
fn marked<'a>(before: &'a Value, after: &'a Value) -> Vec<(&'static str, &'a str, &'a Value)> {
    let lines = column_pairs(before, after).into_iter().flat_map(|(name, old, new)| match (old, new) {
        (Some(value), new) if new == old => [Some(("  ", name, value)), None],
        (old, new) => [old.map(|old| ("- ", name, old)), new.map(|new| ("+ ", name, new))],
    });
    lines.flatten().collect()
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
