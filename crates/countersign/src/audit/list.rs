//! `countersign audit list`.

use ledger::audit::RecordQuery;
use serde_json::{Map, Value};

use super::args::ListArgs;
use super::open;
use crate::settings::Settings;
use crate::terminal::{say, width};
use crate::text::{Side, cell, json_line, table, to_the_second};

pub(crate) async fn run(arguments: ListArgs, settings: &Settings) -> anyhow::Result<()> {
    let query = RecordQuery {
        limit: arguments.limit,
        tool_name: arguments.tool,
        status: arguments.status.map(Into::into),
        account_id: arguments.account,
        since_hours: arguments.since,
    };
    let records = open(settings).await?.list(&query).await?;
    if arguments.json {
        for record in records {
            say(&json_line(&Value::Object(record)));
        }
    } else if records.is_empty() {
        say("No records.");
    } else {
        let heading = ["MADE AT", "STATUS", "CORRELATION ID", "TOOL", "ACCOUNT", "MS", "PARAMETERS"].map(str::to_owned);
        let rows: Vec<_> = std::iter::once(heading.to_vec()).chain(records.iter().map(row)).collect();
        let sides = [Side::Left, Side::Left, Side::Left, Side::Left, Side::Left, Side::Right, Side::Left];
        table(&sides, &rows, width()).iter().for_each(|line| say(line));
    }
    Ok(())
}

fn row(record: &Map<String, Value>) -> Vec<String> {
    let made_at = to_the_second(&cell(record.get("created_at")));
    let rest = ["status", "correlation_id", "tool_name", "account_id", "elapsed_ms", "params_summary"];
    std::iter::once(made_at).chain(rest.map(|column| cell(record.get(column)))).collect()
}
