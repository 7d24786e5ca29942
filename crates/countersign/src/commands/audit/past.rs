//! `countersign audit table`, and `audit row --at`: rows as they were, and what of them is not known.

use serde_json::Value;
use types::{PastRow, PastRows, visible};

use super::args::TableArgs;
use super::masks;
use super::open;
use crate::settings::DatabaseSettings;
use crate::terminal::effects::{key, short};
use crate::terminal::{print_json, print_lines};

pub(super) async fn table(arguments: TableArgs, settings: &DatabaseSettings) -> anyhow::Result<()> {
    let records = masks::reader(open(settings).await?, settings)?;
    let table = records.tracked_row(&arguments.table, &[]).await?;
    let rows = records.past(&table, arguments.at, &arguments.conditions, arguments.limit).await?;
    print(&rows, arguments.full, arguments.json);
    Ok(())
}

pub(super) fn print(rows: &PastRows<Value>, full: bool, is_json: bool) {
    if is_json {
        print_json(rows);
    } else {
        print_lines(lines(rows, full));
    }
}

/// A heading, a line for each row, and what is not known.
fn lines(past: &PastRows<Value>, full: bool) -> Vec<String> {
    let mut lines = vec![format!("{} at {}:", visible(&past.table), past.at)];
    lines.extend(past.rows.iter().map(|row| format!("  {}", line(row, full))));
    lines.extend(past.unknown_rows.iter().map(|of| format!("  {}: {}", key(Some(of)), PastRows::<Value>::UNKNOWN_ROW)));
    if past.rows.is_empty() && past.unknown_rows.is_empty() {
        lines.push("  no row".to_owned());
    }
    if past.is_cut {
        lines.push("There are more: give --limit, or --where.".to_owned());
    }
    lines.extend(past.notes());
    lines
}

/// `id=7: status open, note -`, without the columns of the key.
fn line(row: &PastRow<Value>, full: bool) -> String {
    let text = |value: &Value| value.as_str().map_or_else(|| "-".to_owned(), |text| short(text, full));
    let others = row.columns.iter().filter(|(name, _)| !row.key.contains_key(*name));
    let columns: Vec<String> = others.map(|(name, value)| format!("{} {}", visible(name), text(value))).collect();
    format!("{}: {}", key(Some(&row.key)), columns.join(", "))
}
