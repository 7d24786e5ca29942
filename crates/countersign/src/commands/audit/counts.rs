//! `countersign audit counts`: the number of records by state, overall and by tool.

use ledger::audit::ToolCounts;
use types::visible;

use super::args::CountsArgs;
use super::open;
use crate::settings::DatabaseSettings;
use crate::terminal::table::{table, with_heading};
use crate::terminal::{print_json, print_lines};

pub(crate) async fn run(arguments: CountsArgs, settings: &DatabaseSettings) -> anyhow::Result<()> {
    let audit = open(settings).await?;
    let counts = audit.counts(audit.time_range(arguments.since, None).await?).await?;
    if arguments.json {
        counts.iter().for_each(print_json);
    } else {
        let heading = ["TOOL", "PENDING", "SUCCESS", "FAILURE", "DUPLICATE", "TOTAL"];
        print_lines(table(&with_heading(heading, counts.iter().map(row)), None));
    }
    Ok(())
}

fn row(count: &ToolCounts) -> Vec<String> {
    let ToolCounts { tool_name, pending, success, failure, duplicate, total } = count;
    let tool = tool_name.as_deref().map_or_else(|| "all tools".to_owned(), visible);
    let numbers = [pending, success, failure, duplicate, total].map(u64::to_string);
    std::iter::once(tool).chain(numbers).collect()
}
