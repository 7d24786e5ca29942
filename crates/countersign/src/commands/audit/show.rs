//! `countersign audit show`: a record and the records that are linked to it.

use ledger::audit::Record;
use review::Summary;
use serde_json::{Value, json};
use types::ClientInfo;

use super::args::ShowArgs;
use super::masks;
use super::{find, open, unknown};
use crate::settings::DatabaseSettings;
use crate::terminal::effects;
use crate::terminal::rows;
use crate::terminal::table;
use crate::terminal::table::{Shown, beside, or_dash};
use crate::terminal::{Style, print_json, print_lines};

pub(crate) async fn run(arguments: ShowArgs, settings: &DatabaseSettings) -> anyhow::Result<()> {
    let audit = open(settings).await?;
    let prefix = &arguments.correlation_id;
    let id = find(&audit, prefix).await?;
    let record = masks::reader(audit, settings)?.show(id).await?.ok_or_else(|| unknown(prefix))?;
    if arguments.json {
        print_json(record);
        return Ok(());
    }
    let shown = Shown::new(arguments.full);
    print_lines(lines(&record, shown));
    chain(&record);
    Ok(())
}

/// The fields of the record in order. Null fields are left out.
fn lines(record: &Record, shown: Shown) -> Vec<String> {
    let text = |heading: &str, text: &str| table::field(heading, Some(&text.into()));
    let optional = |heading: &str, text: &Option<String>| table::field(heading, Some(&json!(text)));
    let number = |heading: &str, number: Option<i64>| table::field(heading, Some(&json!(number)));
    let json = |heading: &str, value: &Option<Value>| shown.field(heading, value.as_ref());
    let context = record.caller_context.clone().unwrap_or_default();
    let effects = record.effects.get().map(|effects| beside("changed rows", effects::lines(effects, shown.full)));
    [
        text("correlation id", &record.correlation_id.to_string()),
        number("record", record.id),
        text("status", &record.status),
        text("tool", &record.tool_name),
        text("account", &record.account_id),
        optional("actor", &record.actor),
        optional("role", &context.role.as_ref().map(|role| role.as_str().to_owned())),
        optional("claims", &context.claims_text()),
        client(record.client.clone().unwrap_or_default()),
        optional("reason", &record.reason),
        text("made at", &record.created_at),
        optional("completed at", &record.completed_at),
        number("elapsed ms", record.elapsed_ms),
        optional("idempotency key", &record.idempotency_key),
        optional("fingerprint", &record.params_hash),
        optional("transaction", &record.exec_xid),
        optional("error code", &record.error_code),
        optional("SQLSTATE", &record.error_sqlstate),
        optional("error", &record.error_message),
        json("cause", &record.error_detail),
        number("rows affected", record.rows_affected),
        optional("duplicate of", &record.duplicate_of.map(|id| id.to_string())),
        number("entry in the log", record.log_entry),
        match &record.params {
            Some(Value::Object(params)) => shown.call(params),
            params => json("parameters", params),
        },
        effects.unwrap_or_default(),
        row_lines(record, shown),
        json("result", &record.result),
        json("receipt", &record.rollback_action),
        text("undo", &review::sentences::undo(record)),
        json("approval", &record.approval),
    ]
    .concat()
}

/// The rows before and after the write, if its tool recorded them.
fn row_lines(record: &Record, shown: Shown) -> Vec<String> {
    let summary = Summary::of_images(record.before_image.as_ref(), record.after_image.as_ref(), None);
    beside("rows", rows::lines(&summary, shown, &Style::of_stdout()))
}

fn client(client: ClientInfo) -> Vec<String> {
    let version = client.version.map(|version| format!(" {version}")).unwrap_or_default();
    let name = client.name.map(|name| format!("{name}{version}"));
    let fields = [("client", name), ("session", client.session_id), ("trace", client.trace_id)];
    fields.into_iter().flat_map(|(heading, value)| table::field(heading, value.map(Value::from).as_ref())).collect()
}

/// Prints the records that refer to this one, and those that it refers to.
fn chain(record: &Record) {
    let tell = |heading: &str, text: String| print_lines(beside(heading, [text]));
    for reversed in record.reverses.iter().flatten() {
        tell("reverses", reversed.to_string());
    }
    for call in record.undo_calls.iter().flatten() {
        let tool = or_dash(call.tool_name.as_deref());
        let by = call.reversed_by;
        tell(
            "reversed by",
            by.map_or_else(|| format!("nothing yet: no {tool} call was made"), |by| format!("{by} ({tool})")),
        );
    }
    let duplicates = record.first_duplicates.as_deref().unwrap_or_default();
    for duplicate in duplicates {
        tell("duplicated by", duplicate.to_string());
    }
    let more = record.duplicates.saturating_sub(duplicates.len() as u64);
    if more > 0 {
        tell("", format!("and {more} more"));
    }
}
