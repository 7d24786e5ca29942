//! `countersign audit reads counts`.

use ledger::audit::ReadGroup;
use serde_json::{Map, Value, json};

use super::args::ReadsCountsArgs;
use super::permitted;
use crate::audit::open;
use crate::settings::Settings;
use crate::table::{cell, json_line, table, to_the_second};
use crate::terminal::print_line;

pub(super) async fn run(arguments: ReadsCountsArgs, settings: &Settings) -> anyhow::Result<()> {
    let by = ReadGroup::from(arguments.by);
    let audit = open(settings).await?;
    let time = audit.time_range(arguments.since, None).await?;
    let counts = permitted(audit.count_reads(by, time).await)?;
    if arguments.json {
        counts.groups.into_iter().for_each(|group| print_line(&json_line(&Value::Object(group))));
        print_line(&json_line(&json!({"lost": counts.lost})));
        return Ok(());
    }
    let name = match by {
        ReadGroup::Table => "TABLE",
        ReadGroup::Account => "ACCOUNT",
        ReadGroup::Tool => "TOOL",
    };
    let heading = [name, "READS", "FAILED", "ROWS", "BYTES", "LAST READ"].map(str::to_owned).to_vec();
    let rows: Vec<_> = std::iter::once(heading).chain(counts.groups.iter().map(row)).collect();
    table(&rows, None).iter().for_each(|line| print_line(line));
    if counts.lost > 0 {
        print_line(&format!("Not logged: {} reads.", counts.lost));
    }
    Ok(())
}

fn row(group: &Map<String, Value>) -> Vec<String> {
    let texts = ["name", "reads", "failed", "rows", "bytes"].map(|column| cell(group.get(column)));
    texts.into_iter().chain([to_the_second(&cell(group.get("last_at")))]).collect()
}
