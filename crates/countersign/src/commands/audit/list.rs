//! `countersign audit list`.

use std::time::SystemTime;

use ledger::audit::{RecordFilter, RecordLine};
use serde_json::{Value, json};
use types::visible;

use super::args::ListArgs;
use super::masks;
use super::open;
use crate::settings::Settings;
use crate::terminal::short_id::short;
use crate::terminal::table::{assignments, json_line, or_dash, table, to_the_second, without_empty_columns};
use crate::terminal::{print_line, width};
use review::ago::ago;
use review::decided_by;

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
        status: arguments.status,
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
            print_line(&json_line(&json!(record)));
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

fn narrow(records: &[RecordLine], width: Option<usize>) -> Vec<String> {
    let heading = ["ID", "WHEN", "STATUS", "TOOL", "ACCOUNT", "ACTOR", "APPROVED BY", "WHAT"].map(str::to_owned);
    let now = SystemTime::now();
    let row = |record: &RecordLine| {
        // Most ledgers have only the default account.
        let account = visible(&record.account_id);
        vec![
            short(&record.correlation_id.to_string()),
            ago(&record.created_at, now),
            status(record),
            visible(&record.tool_name),
            if account == "default" { "-".to_owned() } else { account },
            or_dash(record.actor.as_deref()),
            approver(record),
            what(record),
        ]
    };
    let rows = std::iter::once(heading.to_vec()).chain(records.iter().map(row)).collect();
    table(&without_empty_columns(rows), width)
}

fn wide(records: &[RecordLine]) -> Vec<String> {
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
        "REASON",
    ];
    let row = |record: &RecordLine| {
        let client = record.client.clone().unwrap_or_default();
        let version = client.version.map(|version| format!(" {}", visible(&version))).unwrap_or_default();
        vec![
            to_the_second(&record.created_at),
            status(record),
            record.correlation_id.to_string(),
            visible(&record.tool_name),
            visible(&record.account_id),
            or_dash(record.actor.as_deref()),
            approver(record),
            format!("{}{version}", or_dash(client.name.as_deref())),
            or_dash(client.session_id.as_deref()),
            record.elapsed_ms.map_or_else(|| "-".to_owned(), |ms| ms.to_string()),
            what(record),
            or_dash(record.reason.as_deref()),
        ]
    };
    let rows: Vec<_> = std::iter::once(heading.map(str::to_owned).to_vec()).chain(records.iter().map(row)).collect();
    table(&rows, None)
}

/// Status of the record; `reversed` if later writes have undone it.
fn status(record: &RecordLine) -> String {
    if record.is_reversed { "reversed".to_owned() } else { visible(&record.status) }
}

fn approver(record: &RecordLine) -> String {
    let approval = record.approval().unwrap_or_default();
    let (login, via) = (approval.decided_login.as_deref(), approval.decided_via.as_deref());
    approval.decided_by.as_deref().map_or_else(|| "-".to_owned(), |who| decided_by(who, login, via).short())
}

/// The parameters, after the error code if the write failed.
fn what(record: &RecordLine) -> String {
    // The server adds the account, which has its own column.
    let account = Value::from(record.account_id.as_str());
    let params = assignments(record.params_summary.as_deref().unwrap_or_default(), Some(&account));
    match &record.error_code {
        Some(code) => format!("{}: {params}", visible(code)),
        None => params,
    }
}
