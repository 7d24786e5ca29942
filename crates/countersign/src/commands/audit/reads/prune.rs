//! `countersign audit reads prune`.

use anyhow::Context;
use ledger::audit::ReadDay;

use super::args::ReadsPruneArgs;
use crate::commands::audit::open;
use crate::settings::DatabaseSettings;
use crate::terminal::os_user;
use crate::terminal::print_line;

const FAILED: &str = "not everything was pruned; what was is recorded in the log, and it can be run again. Only members of \
    countersign_owner may prune, such as the role that ran `countersign init`";

pub(super) async fn run(arguments: ReadsPruneArgs, settings: &DatabaseSettings) -> anyhow::Result<()> {
    let audit = open(settings).await?;
    let days = audit.prunable_reads(arguments.older_than).await.context(FAILED)?;
    if arguments.dry_run {
        days.iter().for_each(|ReadDay { day, rows }| print_line(&format!("Would remove {day}: {}.", counted(*rows))));
    }
    let mut removed = 0;
    for ReadDay { day, .. } in days.iter().filter(|_| !arguments.dry_run) {
        let rows = audit.prune_reads(day, &os_user::name()).await.context(FAILED)?;
        print_line(&format!("Removed {day}: {}.", counted(rows)));
        removed += rows;
    }
    if days.is_empty() {
        print_line("No day of the log is that old.");
    } else if !arguments.dry_run {
        print_line(&format!("Removed {} of {} days.", counted(removed), days.len()));
    }
    Ok(())
}

fn counted(rows: i64) -> String {
    if rows == 1 { "1 row".to_owned() } else { format!("{rows} rows") }
}
