//! `countersign audit show`: a record and the records that it is tied to.

use serde_json::{Map, Value};

use super::args::ShowArgs;
use super::open;
use crate::settings::Settings;
use crate::terminal::say;
use crate::text;
use crate::text::{beside, cell, json_line};

/// What is shown, in this order: the heading and the column. What is null is left out.
const FIELDS: [(&str, &str); 24] = [
    ("correlation id", "correlation_id"),
    ("record", "id"),
    ("status", "status"),
    ("tool", "tool_name"),
    ("account", "account_id"),
    ("actor", "actor"),
    ("made at", "created_at"),
    ("completed at", "completed_at"),
    ("elapsed ms", "elapsed_ms"),
    ("idempotency key", "idempotency_key"),
    ("fingerprint", "params_hash"),
    ("transaction", "exec_xid"),
    ("error code", "error_code"),
    ("SQLSTATE", "error_sqlstate"),
    ("error", "error_message"),
    ("rows affected", "rows_affected"),
    ("duplicate of", "duplicate_of"),
    ("sealed in entry", "seal_entry"),
    ("parameters", "params"),
    ("before", "before_image"),
    ("after", "after_image"),
    ("result", "result"),
    ("undo", "rollback_action"),
    ("approval", "approval"),
];

pub(crate) async fn run(arguments: ShowArgs, settings: &Settings) -> anyhow::Result<()> {
    let found = open(settings).await?.show(arguments.correlation_id).await?;
    let record = found.ok_or_else(|| {
        anyhow::anyhow!(
            "no record has the correlation id {}: this ledger never gave it out, or the record was pruned",
            arguments.correlation_id
        )
    })?;
    if arguments.json {
        say(&json_line(&Value::Object(record)));
        return Ok(());
    }
    for (heading, column) in FIELDS {
        field(heading, record.get(column));
    }
    chain(&record);
    Ok(())
}

fn field(heading: &str, value: Option<&Value>) {
    text::field(heading, value).iter().for_each(|line| say(line));
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
        beside("reversed by", [by]).iter().for_each(|line| say(line));
    }
    let duplicates = items("first_duplicates");
    for duplicate in &duplicates {
        field("duplicated by", Some(duplicate));
    }
    let more =
        record.get("duplicates").and_then(Value::as_u64).unwrap_or_default().saturating_sub(duplicates.len() as u64);
    if more > 0 {
        beside("", [format!("and {more} more")]).iter().for_each(|line| say(line));
    }
}
