//! `countersign audit row`: the recorded changes of one row of a tracked table, and who made them.

use ledger::audit::{RecordFilter, RecordLine};
use serde_json::Value;
use types::{RowHistoryEntry, visible};

use super::args::RowArgs;
use super::list::approver;
use super::masks;
use super::open;
use crate::settings::DatabaseSettings;
use crate::terminal::effects;
use crate::terminal::short_id::short;
use crate::terminal::table::to_the_second;
use crate::terminal::{print_json, print_line, print_lines};

pub(crate) async fn run(arguments: RowArgs, settings: &DatabaseSettings) -> anyhow::Result<()> {
    let records = masks::reader(open(settings).await?, settings)?;
    let row = records.tracked_row(&arguments.table, &arguments.key.0).await?;
    let changes = records.row(&row, arguments.limit).await?;
    let writes = RecordFilter { limit: arguments.limit, row: Some(row), ..RecordFilter::default() };
    let writes = if arguments.json { Vec::new() } else { records.list(&writes).await?.records };
    if arguments.json {
        changes.iter().for_each(print_json);
    } else if changes.is_empty() {
        print_line("No change of this row is recorded.");
    } else {
        for change in &changes {
            let write = writes.iter().find(|write| Some(write.correlation_id) == change.correlation_id);
            print_lines(lines(change, write, arguments.full));
        }
    }
    Ok(())
}

/// The time, and the call or other origin; below them the reason of the call, and the change.
fn lines(change: &RowHistoryEntry<Value>, write: Option<&RecordLine>, full: bool) -> Vec<String> {
    let text = |text: &Option<String>| text.as_deref().map(visible);
    let at = text(&change.changed_at).map(|time| to_the_second(&time)).unwrap_or_default();
    let by = match change.correlation_id {
        Some(id) => {
            let account = text(&change.account_id).map(|account| format!("account {account}"));
            let actor = text(&change.actor).map(|actor| format!("actor {actor}"));
            let client = text(&change.client_name).map(|client| format!("client {client}"));
            let approver = write.map(approver).filter(|name| name != "-").map(|name| format!("approved by {name}"));
            let tool = format!("{}  {}", short(&id.to_string()), text(&change.tool_name).unwrap_or_default());
            std::iter::once(tool)
                .chain([account, actor, client, approver].into_iter().flatten())
                .collect::<Vec<_>>()
                .join(", ")
        }
        None => format!("outside countersign, {}", text(&change.origin).unwrap_or_default()),
    };
    let reason = write.and_then(|write| text(&write.reason)).map(|reason| format!("    reason: {reason}"));
    let change = format!("    {}", effects::change(&change.effect, full));
    std::iter::once(format!("{at}  {by}")).chain(reason).chain([change]).collect()
}
