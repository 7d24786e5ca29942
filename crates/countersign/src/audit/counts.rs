//! `countersign audit counts` (promise A9-33).

use serde_json::{Map, Value};

use super::args::CountsArgs;
use super::open;
use crate::settings::Settings;
use crate::table::{cell, json_line, table};
use crate::terminal::print_line;

pub(crate) async fn run(arguments: CountsArgs, settings: &Settings) -> anyhow::Result<()> {
    let audit = open(settings).await?;
    let counts = audit.counts(audit.time_range(arguments.since, None).await?).await?;
    if arguments.json {
        for count in counts {
            print_line(&json_line(&Value::Object(count)));
        }
        return Ok(());
    }
    let heading = ["TOOL", "PENDING", "SUCCESS", "FAILURE", "DUPLICATE", "TOTAL"].map(str::to_owned).to_vec();
    let rows: Vec<_> = std::iter::once(heading).chain(counts.iter().map(row)).collect();
    table(&rows, None).iter().for_each(|line| print_line(line));
    Ok(())
}

fn row(count: &Map<String, Value>) -> Vec<String> {
    let tool = count.get("tool_name").filter(|name| !name.is_null());
    let tool = tool.map_or_else(|| "all tools".to_owned(), |name| cell(Some(name)));
    let numbers = ["pending", "success", "failure", "duplicate", "total"].map(|column| cell(count.get(column)));
    std::iter::once(tool).chain(numbers).collect()
}
