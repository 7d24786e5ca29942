//! `countersign audit counts`: the number of records by state, overall and by tool.

use ledger::audit::ToolCounts;
use serde_json::json;
use types::visible;

use super::args::CountsArgs;
use super::open;
use crate::settings::Settings;
use crate::terminal::print_line;
use crate::terminal::table::{json_line, table};

pub(crate) async fn run(arguments: CountsArgs, settings: &Settings) -> anyhow::Result<()> {
    let audit = open(settings).await?;
    let counts = audit.counts(audit.time_range(arguments.since, None).await?).await?;
    if arguments.json {
        for count in counts {
            print_line(&json_line(&json!(count)));
        }
        return Ok(());
    }
    let heading = ["TOOL", "PENDING", "SUCCESS", "FAILURE", "DUPLICATE", "TOTAL"].map(str::to_owned).to_vec();
    let rows: Vec<_> = std::iter::once(heading).chain(counts.iter().map(row)).collect();
    table(&rows, None).iter().for_each(|line| print_line(line));
    Ok(())
}

fn row(count: &ToolCounts) -> Vec<String> {
    let ToolCounts { tool_name, pending, success, failure, duplicate, total } = count;
    let tool = tool_name.as_deref().map_or_else(|| "all tools".to_owned(), visible);
    let numbers = [pending, success, failure, duplicate, total].map(u64::to_string);
    std::iter::once(tool).chain(numbers).collect()
}
