//! The effects of a write for people, one line for each row.

use serde_json::Value;
use types::{ChangeKind, ColumnEffect, Columns, Effects, RowEffect, visible};

use crate::terminal::table::json_line;

/// Maximum length of a value in a line, in characters.
const LONGEST: usize = 60;

/// Lines such as `shop.orders id=7: status open -> paid`, in the order of the changes. `full` truncates no value.
pub(crate) fn lines(effects: &Effects<Value>, full: bool) -> Vec<String> {
    let line =
        |row: &RowEffect<Value>| format!("{} {}: {}", visible(&row.table), key(row.key.as_ref()), change(row, full));
    let mut lines: Vec<String> = effects.rows.iter().map(line).collect();
    let more = effects.count.saturating_sub(effects.rows.len() as u64);
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    lines
}

/// `status open -> paid, note - -> sent`; `added, with status open`; `removed, with status open`.
pub(crate) fn change(row: &RowEffect<Value>, full: bool) -> String {
    let text = |value: &Value| value.as_str().map_or_else(|| "-".to_owned(), |text| short(text, full));
    let column = |(name, effect): (&String, &ColumnEffect<Value>)| {
        let name = visible(name);
        match effect {
            ColumnEffect::Changed { before, after } => format!("{name} {} -> {}", text(before), text(after)),
            ColumnEffect::Whole(value) => format!("{name} {}", text(value)),
        }
    };
    let columns = row.columns.iter().map(column).collect::<Vec<_>>().join(", ");
    let more = match (row.is_cut, row.has_sensitive_changes) {
        (true, _) => " (too long to be shown)",
        (_, true) => " (and sensitive columns)",
        _ => "",
    };
    match row.change {
        ChangeKind::Insert | ChangeKind::Delete => format!("{}, with {columns}{more}", row.change.past()),
        ChangeKind::Update => format!("{columns}{more}"),
    }
}

/// The key of a row: `id=7, line=2`. Empty for a table without a key.
pub(crate) fn key(key: Option<&Columns<Value>>) -> String {
    let Some(key) = key else { return "without a key".to_owned() };
    let part = |(name, value): (&String, &Value)| {
        let value = value.as_str().map_or_else(|| json_line(value), visible);
        format!("{}={value}", visible(name))
    };
    key.iter().map(part).collect::<Vec<_>>().join(", ")
}

/// The text or, unless `full`, its beginning.
pub(crate) fn short(text: &str, full: bool) -> String {
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
        let effects = serde_json::from_value(json!({"count": 4, "rows": [
            {"table": "shop.orders", "key": {"id": 7}, "change": "update", "columns": {"status": {"before": "open", "after": null}}},
            {"table": "shop.item", "key": {"order_id": 7, "line": 2}, "change": "delete", "columns": {"name": "a\nb"}},
            {"table": "shop.log", "key": null, "change": "insert", "columns": {"note": "x".repeat(70)}},
        ]}))
        .unwrap();
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
        let effects = serde_json::from_str(include_str!("../../../../tests/golden/review/effects.json")).unwrap();
        let said = lines(&effects, true).join("\n") + "\n";
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(
                concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/review/effects.terminal.txt"),
                &said,
            )
            .unwrap();
        }
        assert_eq!(said, include_str!("../../../../tests/golden/review/effects.terminal.txt"));
    }
}
