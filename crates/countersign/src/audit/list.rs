//! `countersign audit list`.

use std::time::SystemTime;

use ledger::audit::RecordFilter;
use serde_json::{Map, Value};

use super::args::ListArgs;
use super::masks;
use super::open;
use crate::ago::ago;
use crate::os_user::decided_by;
use crate::settings::Settings;
use crate::short_id::short;
use crate::table::{assignments, cell, json_line, table, to_the_second, without_empty_columns};
use crate::terminal::{print_line, width};

pub(crate) async fn run(arguments: ListArgs, settings: &Settings) -> anyhow::Result<()> {
    let audit = open(settings).await?;
    let row = match &arguments.table {
        Some(table) => {
            let key = arguments.key.as_ref().map(|key| key.0.as_slice()).unwrap_or_default();
            Some(audit.tracked_row(table, key).await?)
        }
        None => None,
    };
    let query = RecordFilter {
        limit: arguments.limit,
        tool_name: arguments.tool,
        status: arguments.status.map(Into::into),
        account_id: arguments.account,
        actor: arguments.actor,
        session: arguments.session,
        time: audit.time_range(arguments.since, arguments.until).await?,
        row,
        before: None,
    };
    let records = masks::reader(audit, settings)?.list(&query).await?;
    if arguments.json {
        for record in records {
            print_line(&json_line(&Value::Object(record)));
        }
    } else if records.is_empty() {
        print_line("No records.");
    } else if arguments.wide {
        wide(&records).iter().for_each(|line| print_line(line));
    } else {
        narrow(&records, width()).iter().for_each(|line| print_line(line));
    }
    Ok(())
}

fn narrow(records: &[Map<String, Value>], width: Option<usize>) -> Vec<String> {
    let heading = ["ID", "WHEN", "STATUS", "TOOL", "ACCOUNT", "ACTOR", "APPROVED BY", "WHAT"].map(str::to_owned);
    let now = SystemTime::now();
    let row = |record: &Map<String, Value>| {
        let text = |column: &str| cell(record.get(column));
        // Most ledgers have only the default account.
        let account = text("account_id");
        vec![
            short(&text("correlation_id")),
            ago(&text("created_at"), now),
            status(record),
            text("tool_name"),
            if account == "default" { "-".to_owned() } else { account },
            text("actor"),
            approver(record),
            what(record),
        ]
    };
    let rows = std::iter::once(heading.to_vec()).chain(records.iter().map(row)).collect();
    table(&without_empty_columns(rows), width)
}

fn wide(records: &[Map<String, Value>]) -> Vec<String> {
    let heading = [
        "MADE AT",
        "STATUS",
        "CORRELATION ID",
        "TOOL",
        "ACCOUNT",
        "ACTOR",
        "APPROVED BY",
        "CLIENT",
        "SESSION",
        "MS",
        "WHAT",
    ];
    let row = |record: &Map<String, Value>| {
        let text = |column: &str| cell(record.get(column));
        let client = |field: &str| record.get("client").and_then(|client| client.get(field));
        let version = client("version").map(|version| format!(" {}", cell(Some(version)))).unwrap_or_default();
        vec![
            to_the_second(&text("created_at")),
            status(record),
            text("correlation_id"),
            text("tool_name"),
            text("account_id"),
            text("actor"),
            approver(record),
            format!("{}{version}", cell(client("name"))),
            cell(client("session_id")),
            text("elapsed_ms"),
            what(record),
        ]
    };
    let rows: Vec<_> = std::iter::once(heading.map(str::to_owned).to_vec()).chain(records.iter().map(row)).collect();
    table(&rows, None)
}

/// Status of the record; `reversed` if later writes have undone it.
fn status(record: &Map<String, Value>) -> String {
    match record.get("is_reversed") {
        Some(Value::Bool(true)) => "reversed".to_owned(),
        _ => cell(record.get("status")),
    }
}

fn approver(record: &Map<String, Value>) -> String {
    let approval = |field: &str| record.get("approval")?.get(field)?.as_str();
    approval("decided_by").map_or_else(
        || "-".to_owned(),
        |who| decided_by(who, approval("decided_login"), approval("decided_via")).short(),
    )
}

/// The parameters, after the error code if the write failed.
fn what(record: &Map<String, Value>) -> String {
    let summary = record.get("params_summary").and_then(Value::as_str).unwrap_or_default();
    // The server adds the account, which has its own column.
    let params = assignments(summary, record.get("account_id"));
    match record.get("error_code").and_then(Value::as_str) {
        Some(code) => format!("{}: {params}", types::visible(code)),
        None => params,
    }
}
