//! `countersign audit row`: what became of one row of a tracked table, and by whom.

use serde_json::{Map, Value};

use super::args::RowArgs;
use super::masks;
use super::open;
use crate::effects;
use crate::settings::Settings;
use crate::short_id::short;
use crate::table::{cell, json_line, to_the_second};
use crate::terminal::print_line;

pub(crate) async fn run(arguments: RowArgs, settings: &Settings) -> anyhow::Result<()> {
    let records = masks::reader(open(settings).await?, settings)?;
    let row = records.tracked_row(&arguments.table, &arguments.key.0).await?;
    let changes = records.row(&row, arguments.limit).await?;
    if arguments.json {
        changes.into_iter().for_each(|change| print_line(&json_line(&Value::Object(change))));
    } else if changes.is_empty() {
        print_line("No change of this row is recorded.");
    } else {
        changes.iter().for_each(|change| lines(change, arguments.full).iter().for_each(|line| print_line(line)));
    }
    Ok(())
}

/// When, by what and by whom, and below it what changed.
fn lines(change: &Map<String, Value>, full: bool) -> [String; 2] {
    let text = |name: &str| change.get(name).filter(|value| !value.is_null()).map(|value| cell(Some(value)));
    let at = text("changed_at").map(|time| to_the_second(&time)).unwrap_or_default();
    let by = match text("correlation_id") {
        Some(id) => {
            let account =
                text("account_id").filter(|account| account != "default").map(|account| format!("account {account}"));
            let actor = text("actor").map(|actor| format!("actor {actor}"));
            let client = text("client_name").map(|client| format!("client {client}"));
            let tool = format!("{}  {}", short(&id), text("tool_name").unwrap_or_default());
            std::iter::once(tool).chain([account, actor, client].into_iter().flatten()).collect::<Vec<_>>().join(", ")
        }
        None => format!("outside countersign, {}", text("origin").unwrap_or_default()),
    };
    [format!("{at}  {by}"), format!("    {}", effects::change(&Value::Object(change.clone()), full))]
}
