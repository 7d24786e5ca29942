//! `countersign audit list`.

use std::time::SystemTime;

use ledger::audit::{RecordFilter, RecordLine, RecordList, StoppedAt};
use serde_json::Value;
use types::visible;

use super::args::ListArgs;
use super::masks;
use super::open;
use crate::settings::DatabaseSettings;
use crate::terminal::short_id::short;
use crate::terminal::table::{
    assignments, client_cells, or_dash, table, to_the_second, with_heading, without_empty_columns,
};
use crate::terminal::{print_error, print_json, print_line, print_lines, width};
use review::ago::ago;
use review::decided_by;

/// How many records are searched for those that a filter without an index selects.
const MAX_SEARCHED: u32 = 100_000;

pub(crate) async fn run(arguments: ListArgs, settings: &DatabaseSettings) -> anyhow::Result<()> {
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
        max_searched: MAX_SEARCHED,
    };
    let RecordList { records, stopped_at } = masks::reader(audit, settings)?.list(&query).await?;
    if arguments.json {
        records.iter().for_each(print_json);
    } else if records.is_empty() {
        print_line("No records.");
    } else if arguments.wide {
        print_lines(wide(&records));
    } else {
        print_lines(narrow(&records, width()));
    }
    if let Some(StoppedAt { completed_at, .. }) = stopped_at {
        print_error(&format!(
            "Only the newest {MAX_SEARCHED} records were searched: --until '{}' searches older ones.",
            visible(&completed_at)
        ));
    }
    Ok(())
}

fn narrow(records: &[RecordLine], width: Option<usize>) -> Vec<String> {
    let heading = ["ID", "WHEN", "STATUS", "TOOL", "ACCOUNT", "ACTOR", "APPROVED BY", "WHAT"];
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
    table(&without_empty_columns(with_heading(heading, records.iter().map(row))), width)
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
        let [client, session] = client_cells(record.client.as_ref());
        vec![
            to_the_second(&record.created_at),
            status(record),
            record.correlation_id.to_string(),
            visible(&record.tool_name),
            visible(&record.account_id),
            or_dash(record.actor.as_deref()),
            approver(record),
            client,
            session,
            record.elapsed_ms.map_or_else(|| "-".to_owned(), |ms| ms.to_string()),
            what(record),
            or_dash(record.reason.as_deref()),
        ]
    };
    table(&with_heading(heading, records.iter().map(row)), None)
}

/// Status of the record; `reversed` if later writes have undone it.
fn status(record: &RecordLine) -> String {
    if record.is_reversed { "reversed".to_owned() } else { visible(&record.status) }
}

pub(super) fn approver(record: &RecordLine) -> String {
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
