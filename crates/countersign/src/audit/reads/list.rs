//! `countersign audit reads list`.

use std::time::SystemTime;

use ledger::audit::ReadFilter;
use serde_json::{Map, Value};

use super::args::ReadsListArgs;
use super::permitted;
use crate::ago::ago;
use crate::audit::open;
use crate::settings::Settings;
use crate::table::{cell, json_line, table, to_the_second, without_empty_columns};
use crate::terminal::{print_line, width};

pub(super) async fn run(arguments: ReadsListArgs, settings: &Settings) -> anyhow::Result<()> {
    let audit = open(settings).await?;
    let filter = ReadFilter {
        limit: arguments.limit,
        tool_name: arguments.tool,
        account_id: arguments.account,
        actor: arguments.actor,
        session: arguments.session,
        time: audit.time_range(arguments.since, arguments.until).await?,
        table: arguments.table,
        outcome: arguments.outcome,
    };
    let reads = permitted(audit.list_reads(&filter).await)?;
    if arguments.json {
        reads.into_iter().for_each(|read| print_line(&json_line(&Value::Object(read))));
    } else if reads.is_empty() {
        print_line("No reads are logged.");
    } else if arguments.wide {
        wide(&reads).iter().for_each(|line| print_line(line));
    } else {
        narrow(&reads, width()).iter().for_each(|line| print_line(line));
    }
    Ok(())
}

fn narrow(reads: &[Map<String, Value>], width: Option<usize>) -> Vec<String> {
    let heading = ["WHEN", "OUTCOME", "TOOL", "ACCOUNT", "ACTOR", "ROWS", "MS", "WHAT"].map(str::to_owned);
    let now = SystemTime::now();
    let row = |read: &Map<String, Value>| {
        let text = |column: &str| cell(read.get(column));
        // Most ledgers have only the default account.
        let account = text("account_id");
        vec![
            ago(&text("read_at"), now),
            text("outcome"),
            text("tool_name"),
            if account == "default" { "-".to_owned() } else { account },
            actor(read),
            text("row_count"),
            milliseconds(read),
            what(read),
        ]
    };
    let rows = std::iter::once(heading.to_vec()).chain(reads.iter().map(row)).collect();
    table(&without_empty_columns(rows), width)
}

fn wide(reads: &[Map<String, Value>]) -> Vec<String> {
    let heading = [
        "READ AT",
        "OUTCOME",
        "TOOL",
        "ACCOUNT",
        "ACTOR",
        "CLIENT",
        "SESSION",
        "ROWS",
        "BYTES",
        "TRUNCATED",
        "MS",
        "FINGERPRINT",
        "WHAT",
        "TEXT",
    ];
    let row = |read: &Map<String, Value>| {
        let text = |column: &str| cell(read.get(column));
        let client = |field: &str| cell(read.get("client").and_then(|client| client.get(field)));
        let version = client("version");
        let name = if version == "-" { client("name") } else { format!("{} {version}", client("name")) };
        vec![
            to_the_second(&text("read_at")),
            text("outcome"),
            text("tool_name"),
            text("account_id"),
            actor(read),
            name,
            client("session_id"),
            text("row_count"),
            text("row_bytes"),
            if read.get("is_truncated") == Some(&Value::Bool(true)) { "yes".to_owned() } else { "-".to_owned() },
            milliseconds(read),
            text("fingerprint"),
            what(read),
            text("query"),
        ]
    };
    let rows = std::iter::once(heading.map(str::to_owned).to_vec()).chain(reads.iter().map(row)).collect();
    table(&without_empty_columns(rows), None)
}

/// The actor; for removed days the person.
fn actor(read: &Map<String, Value>) -> String {
    cell(read.get("actor"))
}

fn milliseconds(read: &Map<String, Value>) -> String {
    let duration = read.get("duration_us").and_then(Value::as_u64);
    duration.map_or_else(|| "-".to_owned(), |us| format!("{}.{}", us / 1000, us % 1000 / 100))
}

/// The tables that were read; or what is missing in the log.
fn what(read: &Map<String, Value>) -> String {
    let between = || {
        let [first, last] = ["first_at", "last_at"].map(|column| to_the_second(&cell(read.get(column))));
        format!("{first} to {last}")
    };
    let entries = cell(read.get("entries"));
    match read.get("outcome").and_then(Value::as_str) {
        Some("lost") if read.get("tool_name").is_none_or(Value::is_null) => {
            format!("{entries} reads that began {} are not logged", between())
        }
        Some("pruned") => format!("{entries} rows of {} were removed", between()),
        _ => match read.get("tables").and_then(Value::as_array) {
            None => "-".to_owned(),
            Some(tables) if tables.is_empty() => "no table".to_owned(),
            Some(tables) => tables.iter().map(|table| cell(Some(table))).collect::<Vec<_>>().join(" "),
        },
    }
}
