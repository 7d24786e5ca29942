//! `countersign audit show`: a record and the records that it is tied to.

use serde_json::{Map, Value};

use super::args::ShowArgs;
use super::masks;
use super::{find, open, unknown};
use crate::settings::Settings;
use crate::table;
use crate::table::{Shown, beside, cell, json_line};
use crate::terminal::{Style, print_line};
use crate::{diff, effects};

/// The shown fields in order: the heading and the column. Fields with null are left out.
const FIELDS: [(&str, &str); 26] = [
    ("correlation id", "correlation_id"),
    ("record", "id"),
    ("status", "status"),
    ("tool", "tool_name"),
    ("account", "account_id"),
    ("actor", "actor"),
    ("client", "client"),
    ("made at", "created_at"),
    ("completed at", "completed_at"),
    ("elapsed ms", "elapsed_ms"),
    ("idempotency key", "idempotency_key"),
    ("fingerprint", "params_hash"),
    ("transaction", "exec_xid"),
    ("error code", "error_code"),
    ("SQLSTATE", "error_sqlstate"),
    ("error", "error_message"),
    ("cause", "error_detail"),
    ("rows affected", "rows_affected"),
    ("duplicate of", "duplicate_of"),
    ("entry in the log", "log_entry"),
    ("parameters", "params"),
    ("changed rows", "effects"),
    ("rows", "before_image"),
    ("result", "result"),
    ("undo", "rollback_action"),
    ("approval", "approval"),
];

pub(crate) async fn run(arguments: ShowArgs, settings: &Settings) -> anyhow::Result<()> {
    let audit = open(settings).await?;
    let prefix = &arguments.correlation_id;
    let id = find(&audit, prefix).await?;
    let record = masks::reader(audit, settings)?.show(id).await?.ok_or_else(|| unknown(prefix))?;
    if arguments.json {
        print_line(&json_line(&Value::Object(record)));
        return Ok(());
    }
    let shown = Shown::new(arguments.full);
    for (heading, column) in FIELDS {
        let lines = match column {
            "before_image" => rows(&record, shown),
            "effects" => {
                let effects = record.get("effects").filter(|effects| !effects.is_null()).cloned();
                let effects = effects.map(serde_json::from_value).transpose()?;
                effects.map(|effects| beside(heading, effects::lines(&effects, shown.full))).unwrap_or_default()
            }
            "client" => client(&record),
            _ => shown.field(heading, record.get(column)),
        };
        lines.iter().for_each(|line| print_line(line));
    }
    chain(&record);
    Ok(())
}

/// The rows that the write found and left, where its tool looked at them.
fn rows(record: &Map<String, Value>, shown: Shown) -> Vec<String> {
    let image = |column: &str| record.get(column).filter(|image| !image.is_null());
    match (image("before_image"), image("after_image")) {
        (Some(before), Some(after)) => {
            beside("rows", diff::lines(before, after, &[], shown.full, shown.width, &Style::of_stdout()))
        }
        (before, after) => [shown.field("before", before), shown.field("after", after)].concat(),
    }
}

/// The client of the call.
fn client(record: &Map<String, Value>) -> Vec<String> {
    let of = |field: &str| record.get("client").and_then(|client| client.get(field));
    let name = of("name").map(|name| {
        let version = of("version").map(|version| format!(" {}", cell(Some(version)))).unwrap_or_default();
        Value::String(format!("{}{version}", cell(Some(name))))
    });
    [("client", name.as_ref()), ("session", of("session_id")), ("trace", of("trace_id"))]
        .into_iter()
        .flat_map(|(heading, value)| table::field(heading, value))
        .collect()
}

fn field(heading: &str, value: Option<&Value>) {
    table::field(heading, value).iter().for_each(|line| print_line(line));
}

/// The records that point here, and those that this one points to.
fn chain(record: &Map<String, Value>) {
    let items = |column: &str| record.get(column).and_then(Value::as_array).cloned().unwrap_or_default();
    for reversed in items("reverses") {
        field("reverses", Some(&reversed));
    }
    for call in items("undo_calls") {
        let tool = cell(call.get("tool_name"));
        let by = call.get("reversed_by").filter(|by| !by.is_null());
        let by = by.map_or_else(
            || format!("nothing yet: no {tool} call was made"),
            |by| format!("{} ({tool})", cell(Some(by))),
        );
        beside("reversed by", [by]).iter().for_each(|line| print_line(line));
    }
    let duplicates = items("first_duplicates");
    for duplicate in &duplicates {
        field("duplicated by", Some(duplicate));
    }
    let more =
        record.get("duplicates").and_then(Value::as_u64).unwrap_or_default().saturating_sub(duplicates.len() as u64);
    if more > 0 {
        beside("", [format!("and {more} more")]).iter().for_each(|line| print_line(line));
    }
}
