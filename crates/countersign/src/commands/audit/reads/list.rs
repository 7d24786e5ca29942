//! `countersign audit reads list`.

use std::time::SystemTime;

use ledger::audit::{ReadFilter, ReadLogLine};
use types::visible;

use super::args::ReadsListArgs;
use super::permitted;
use crate::commands::audit::open;
use crate::settings::DatabaseSettings;
use crate::terminal::table::{client_cells, or_dash, table, to_the_second, with_heading, without_empty_columns};
use crate::terminal::{print_json, print_line, print_lines, width};
use review::ago::ago;

pub(super) async fn run(arguments: ReadsListArgs, settings: &DatabaseSettings) -> anyhow::Result<()> {
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
        reads.iter().for_each(print_json);
    } else if reads.is_empty() {
        print_line("No reads are logged.");
    } else if arguments.wide {
        print_lines(wide(&reads));
    } else {
        print_lines(narrow(&reads, width()));
    }
    Ok(())
}

fn narrow(reads: &[ReadLogLine], width: Option<usize>) -> Vec<String> {
    let heading = ["WHEN", "OUTCOME", "TOOL", "ACCOUNT", "ACTOR", "ROWS", "MS", "WHAT"];
    let now = SystemTime::now();
    let row = |read: &ReadLogLine| {
        // Most ledgers have only the default account.
        let account = or_dash(read.account_id.as_deref());
        vec![
            ago(&read.read_at, now),
            visible(&read.outcome),
            or_dash(read.tool_name.as_deref()),
            if account == "default" { "-".to_owned() } else { account },
            or_dash(read.actor.as_deref()),
            number(read.row_count),
            milliseconds(read),
            what(read),
        ]
    };
    table(&without_empty_columns(with_heading(heading, reads.iter().map(row))), width)
}

fn wide(reads: &[ReadLogLine]) -> Vec<String> {
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
    let row = |read: &ReadLogLine| {
        let [client, session] = client_cells(read.client.as_ref());
        vec![
            to_the_second(&read.read_at),
            visible(&read.outcome),
            or_dash(read.tool_name.as_deref()),
            or_dash(read.account_id.as_deref()),
            or_dash(read.actor.as_deref()),
            client,
            session,
            number(read.row_count),
            number(read.row_bytes),
            if read.is_truncated == Some(true) { "yes".to_owned() } else { "-".to_owned() },
            milliseconds(read),
            or_dash(read.fingerprint.as_deref()),
            what(read),
            or_dash(read.query.as_deref()),
        ]
    };
    table(&without_empty_columns(with_heading(heading, reads.iter().map(row))), None)
}

fn number(number: Option<i64>) -> String {
    number.map_or_else(|| "-".to_owned(), |number| number.to_string())
}

fn milliseconds(read: &ReadLogLine) -> String {
    read.duration_us.map_or_else(|| "-".to_owned(), |us| format!("{}.{}", us / 1000, us % 1000 / 100))
}

/// The tables that were read, or the gap in the log.
fn what(read: &ReadLogLine) -> String {
    let between = || {
        let [first, last] = [&read.first_at, &read.last_at].map(|at| to_the_second(&or_dash(at.as_deref())));
        format!("{first} to {last}")
    };
    let entries = number(read.entries);
    match (read.outcome.as_str(), &read.tables) {
        ("lost", _) if read.tool_name.is_none() => format!("{entries} reads that began {} are not logged", between()),
        ("pruned", _) => format!("{entries} rows of {} were removed", between()),
        (_, None) => "-".to_owned(),
        (_, Some(tables)) if tables.is_empty() => "no table".to_owned(),
        (_, Some(tables)) => tables.iter().map(|table| visible(table)).collect::<Vec<_>>().join(" "),
    }
}
