//! `countersign audit reads counts`.

use ledger::audit::{ReadGroup, ReadGroupCount};
use serde_json::json;

use super::args::ReadsCountsArgs;
use super::permitted;
use crate::commands::audit::open;
use crate::settings::DatabaseSettings;
use crate::terminal::table::{or_dash, table, to_the_second, with_heading};
use crate::terminal::{print_json, print_line, print_lines};

pub(super) async fn run(arguments: ReadsCountsArgs, settings: &DatabaseSettings) -> anyhow::Result<()> {
    let by = arguments.by;
    let audit = open(settings).await?;
    let time = audit.time_range(arguments.since, None).await?;
    let counts = permitted(audit.count_reads(by, time).await)?;
    if arguments.json {
        counts.groups.iter().for_each(print_json);
        print_json(json!({"lost": counts.lost}));
        return Ok(());
    }
    let name = match by {
        ReadGroup::Table => "TABLE",
        ReadGroup::Account => "ACCOUNT",
        ReadGroup::Tool => "TOOL",
    };
    let heading = [name, "READS", "FAILED", "ROWS", "BYTES", "LAST READ"];
    print_lines(table(&with_heading(heading, counts.groups.iter().map(row)), None));
    if counts.lost > 0 {
        print_line(&format!("Not logged: {} reads.", counts.lost));
    }
    Ok(())
}

fn row(group: &ReadGroupCount) -> Vec<String> {
    let ReadGroupCount { name, reads, failed, rows, bytes, last_at } = group;
    let name = or_dash(name.as_deref());
    let numbers = [reads, failed, rows, bytes].map(u64::to_string);
    std::iter::once(name).chain(numbers).chain([to_the_second(last_at)]).collect()
}
