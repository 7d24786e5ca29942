//! `countersign track` and `untrack`: the tables whose changes the ledger records.

use std::process::ExitCode;

use clap::Args;
use ledger::{TableNames, TrackOptions, TrackedTable};
use tokio::sync::Notify;
use types::visible;

use crate::connection;
use crate::settings::DatabaseSettings;
use crate::terminal::{print_error, print_line};

#[derive(Debug, Args)]
pub(crate) struct TrackArgs {
    #[command(flatten)]
    tables: TableArgs,
    /// Without TABLE: the tracked tables whose columns, name or key have changed, as after a migration; with
    /// --schema, those of the schema.
    #[arg(long, group = "TableArgs", conflicts_with = "tables")]
    changed: bool,
    /// Columns that triggers set (updated_at): an undo need not restore them. Applies to the tables that have
    /// them.
    #[arg(long, value_name = "COLUMN,..", value_delimiter = ',')]
    maintained: Option<Vec<String>>,
    /// Columns of which only a keyed hash is recorded: a write that changes one cannot be undone. Applies to
    /// the tables that have them.
    #[arg(long, value_name = "COLUMN,..", value_delimiter = ',')]
    sensitive: Option<Vec<String>>,
    /// The tables are logs: an undo may add rows to them.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    is_log: Option<bool>,
    /// The tables are no logs: an undo that would leave rows there that triggers have added is refused.
    #[arg(long, conflicts_with = "is_log")]
    not_log: bool,
    /// Also record changes made outside countersign, with login and application_name.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    all_writers: Option<bool>,
    /// Print the SQL and change nothing. The SQL is tried in a transaction that is rolled back.
    #[arg(long)]
    print: bool,
}

#[derive(Debug, Args)]
pub(crate) struct UntrackArgs {
    #[command(flatten)]
    tables: TableArgs,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
struct TableArgs {
    /// The tables, as SQL names them: shop.orders, or orders if only one schema has such a table.
    #[arg(value_name = "TABLE")]
    tables: Vec<String>,
    /// The schema of tables that are named without one; without TABLE, all tables of it.
    #[arg(long, value_name = "SCHEMA")]
    schema: Option<String>,
}

impl TableArgs {
    fn names(self, changed: bool) -> TableNames {
        TableNames { tables: self.tables, schema: self.schema, changed }
    }
}

pub(crate) async fn track(
    arguments: TrackArgs,
    settings: &DatabaseSettings,
    step: &Notify,
) -> anyhow::Result<ExitCode> {
    let target = connection::configured(settings)?;
    // An empty value removes a table's columns.
    let columns = |given: Option<Vec<String>>| {
        given.map(|names| names.into_iter().filter(|name| !name.is_empty()).collect::<Vec<_>>())
    };
    let options = TrackOptions {
        maintained: columns(arguments.maintained),
        sensitive: columns(arguments.sensitive),
        is_log: arguments.is_log,
        not_log: arguments.not_log,
        all_writers: arguments.all_writers,
        dry_run: arguments.print,
    };
    let report = ledger::track(&target, &arguments.tables.names(arguments.changed), &options, &|done, of| {
        report_progress(step, "", done, of)
    })
    .await?;
    if arguments.print {
        print_line("begin;");
        for statement in &report.statements {
            let end = if statement.starts_with("--") { "" } else { ";" };
            print_line(&format!("{statement}{end}"));
        }
        print_line("commit;");
    }
    if report.tables.is_empty() {
        print_line(
            "unchanged  no tracked table has other columns, another name or another key than when it was tracked",
        );
    }
    let (prefix, word) = if arguments.print { ("-- ", "would track") } else { ("", "tracked") };
    for table in &report.tables {
        print_line(&format!("{prefix}{word}  {}", visible(&described(table))));
    }
    for table in &report.tables {
        for problem in &table.problems {
            print_line(&format!("{prefix}warning  {}: {}", visible(&table.name), visible(problem)));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Notes that a table is done, and prints how many are after each hundred.
pub(crate) fn report_progress(step: &Notify, of_schema: &str, done: usize, of: usize) {
    const EVERY: usize = 100;
    step.notify_one();
    if done.is_multiple_of(EVERY) {
        print_error(&format!("tracking: {done} of {of} tables{of_schema}"));
    }
}

/// Returns the key, shape and tracking options of the table.
fn described(table: &TrackedTable) -> String {
    let key = if table.key.is_empty() { "no key".to_owned() } else { format!("key ({})", table.key.join(", ")) };
    let mut parts = vec![key, format!("shape {}", table.shape)];
    for (what, columns) in [("maintained", &table.maintained), ("sensitive", &table.sensitive)] {
        if !columns.is_empty() {
            parts.push(format!("{what} ({})", columns.join(", ")));
        }
    }
    parts.extend(table.is_log.map(|is_log| if is_log { "log" } else { "no log" }.to_owned()));
    parts.extend(table.all_writers.then(|| "all writers".to_owned()));
    format!("{}: {}", table.name, parts.join(", "))
}

pub(crate) async fn untrack(arguments: UntrackArgs, settings: &DatabaseSettings) -> anyhow::Result<ExitCode> {
    let target = connection::configured(settings)?;
    for (name, was_tracked) in ledger::untrack(&target, &arguments.tables.names(false)).await? {
        let name = visible(&name);
        print_line(&if was_tracked {
            format!("untracked  {name}: what was recorded stays, and cannot be undone any more")
        } else {
            format!("unchanged  {name}: it was not tracked")
        });
    }
    Ok(ExitCode::SUCCESS)
}
