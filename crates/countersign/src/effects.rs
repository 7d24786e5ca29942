//! Effects of a write for people: one line for each row.

use serde_json::{Map, Value};
use types::visible;

use crate::table::json_line;

/// Maximum length of a value in a line, in characters.
const LONGEST: usize = 60;

/// `shop.orders id=7: status open -> paid`, the rows in the order in which they were changed; `full` cuts no value.
pub(crate) fn lines(effects: &Value, full: bool) -> Vec<String> {
    let rows = effects.get("rows").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let mut lines: Vec<String> = rows.iter().map(|row| line(row, full)).collect();
    let count = effects.get("count").and_then(Value::as_u64).unwrap_or_default();
    let more = count.saturating_sub(rows.len() as u64);
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    lines
}

fn line(row: &Value, full: bool) -> String {
    let text = |name: &str| row.get(name).and_then(Value::as_str).map(visible).unwrap_or_default();
    format!("{} {}: {}", text("table"), key(row.get("key")), change(row, full))
}

/// `status open -> paid, note - -> sent`; `added, with status open`; `removed, with status open`.
pub(crate) fn change(row: &Value, full: bool) -> String {
    let columns = row.get("columns").and_then(Value::as_object);
    let said =
        |value: Option<&Value>| value.and_then(Value::as_str).map_or_else(|| "-".to_owned(), |text| short(text, full));
    let each = |format: &dyn Fn(&str, &Value) -> String| {
        let columns = columns.into_iter().flatten().map(|(name, value)| format(&visible(name), value));
        columns.collect::<Vec<_>>().join(", ")
    };
    let is = |flag: &str| row.get(flag) == Some(&Value::Bool(true));
    let more = match (is("is_cut"), is("has_sensitive_changes")) {
        (true, _) => " (too long to be shown)",
        (_, true) => " (and sensitive columns)",
        _ => "",
    };
    let said = match row.get("change").and_then(Value::as_str) {
        Some("insert") => format!("added, with {}", each(&|name, value| format!("{name} {}", said(Some(value))))),
        Some("delete") => format!("removed, with {}", each(&|name, value| format!("{name} {}", said(Some(value))))),
        _ => each(&|name, value| format!("{name} {} -> {}", said(value.get("before")), said(value.get("after")))),
    };
    format!("{said}{more}")
}

/// `id=7, line=2`; a table without a key has none.
pub(crate) fn key(key: Option<&Value>) -> String {
    let Some(key) = key.and_then(Value::as_object) else { return "without a key".to_owned() };
    let part = |(name, value): (&String, &Value)| {
        let value = value.as_str().map_or_else(|| json_line(value), visible);
        format!("{}={value}", visible(name))
    };
    key.iter().map(part).collect::<Vec<_>>().join(", ")
}

/// The columns that differ in a conflict: `status: to restore open, left paid, now sent`.
pub(crate) fn conflict_columns(conflict: &Map<String, Value>) -> Vec<String> {
    let columns = conflict.get("columns").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let value = |column: &Value, name: &str| {
        column.get(name).and_then(Value::as_str).map_or_else(|| "-".to_owned(), |text| short(text, false))
    };
    let line = |column: &Value| {
        let name = column.get("name").and_then(Value::as_str).map(visible).unwrap_or_default();
        let left =
            if column.get("left").is_some() { format!(", left {}", value(column, "left")) } else { String::new() };
        format!("{name}: to restore {}{left}, now {}", value(column, "to_restore"), value(column, "now"))
    };
    columns.iter().map(line).collect()
}

fn short(text: &str, full: bool) -> String {
    if full || text.chars().count() <= LONGEST {
        return visible(text);
    }
    let beginning: String = text.chars().take(LONGEST).collect();
    format!("{}… ({} characters)", visible(&beginning), text.chars().count())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_row_is_a_line_by_table_and_key() {
        let effects = json!({"count": 4, "rows": [
            {"table": "shop.orders", "key": {"id": 7}, "change": "update", "columns": {"status": {"before": "open", "after": null}}},
            {"table": "shop.item", "key": {"order_id": 7, "line": 2}, "change": "delete", "columns": {"name": "a\nb"}},
            {"table": "shop.log", "key": null, "change": "insert", "columns": {"note": "x".repeat(70)}},
        ]});
        let long = format!("shop.log without a key: added, with note {}… (70 characters)", "x".repeat(60));
        let expected = [
            "shop.orders id=7: status open -> -",
            "shop.item order_id=7, line=2: removed, with name a\\nb",
            &long,
            "and 1 more",
        ];
        assert_eq!(lines(&effects, false), expected);
    }

    #[test]
    fn the_terminal_says_the_same_of_every_kind_of_change() {
        let effects = serde_json::from_str(include_str!("../../../tests/golden/review/effects.json")).unwrap();
        let said = lines(&effects, true).join("\n") + "\n";
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(
                concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/review/effects.terminal.txt"),
                &said,
            )
            .unwrap();
        }
        assert_eq!(said, include_str!("../../../tests/golden/review/effects.terminal.txt"));
    }
}
