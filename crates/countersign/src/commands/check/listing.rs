//! One line for each tool: its tier, its parameters with their types, the tables that it writes, and its undo.

use std::collections::BTreeSet;

use manifest::{Param, ParamSource, ToolCatalog, ToolSpec};
use types::{TableAccess, visible};

use crate::terminal::undo_way::UndoWay;

/// A line for each tool. On a terminal of this width, a longer line is wrapped.
pub(super) fn lines(catalog: &ToolCatalog, width: Option<usize>) -> Vec<String> {
    let widest = |text: fn(&ToolSpec) -> &str| catalog.tools.iter().map(|tool| text(tool).len()).max().unwrap_or(0);
    let (names, tiers) = (widest(|tool| &tool.name), widest(tier));
    let indent = names + tiers + 4;
    let line =
        |tool: &ToolSpec| format!("{:<names$}  {:<tiers$}  {}", tool.name, tier(tool), visible(&about(catalog, tool)));
    let of_tool = |tool: &ToolSpec| {
        let own = wrapped(&line(tool), &[',', ';'], indent, width);
        let rules = rules(tool).into_iter().map(|rule| format!("{:indent$}{rule}", "")).collect::<Vec<_>>();
        own.into_iter().chain(rules.into_iter().flat_map(|rule| wrapped(&rule, &[' '], indent + 2, width)))
    };
    catalog.tools.iter().flat_map(|tool| of_tool(tool)).collect()
}

/// The rules of a tool, one per line: `rule 1: confirm if param.amount > 100`.
fn rules(tool: &ToolSpec) -> Vec<String> {
    let numbered = tool.rules.iter().zip(1..);
    numbered.map(|(rule, number)| format!("rule {number}: {} if {}", rule.then.as_str(), visible(&rule.when))).collect()
}

/// The tier of a tool; `read` if it does not write.
fn tier(tool: &ToolSpec) -> &str {
    if tool.access.writes() { tool.tier.as_str() } else { "read" }
}

fn about(catalog: &ToolCatalog, tool: &ToolSpec) -> String {
    let params: Vec<String> = tool.params.iter().map(param).collect();
    let params = if params.is_empty() { "no parameters".to_owned() } else { params.join(", ") };
    if !tool.access.writes() {
        return format!("{params}; reads {}", listed(tool.tables()));
    }
    let written = match &tool.executor {
        Some(executor) => format!("executor {executor}"),
        None => format!("writes {}", listed(tool.written_tables())),
    };
    format!("{params}; {written}{}; {}{}", policy(tool), UndoWay::of(tool, catalog), undo_tier(catalog, tool))
}

/// The tier of `undo_mutation` for this tool, if it differs from the tier of the write.
fn undo_tier(catalog: &ToolCatalog, tool: &ToolSpec) -> String {
    let tier = catalog.effective_undo_tier(tool);
    if tier == tool.tier { String::new() } else { format!("; undo_mutation {}", tier.as_str()) }
}

fn policy(tool: &ToolSpec) -> String {
    tool.limit.map_or_else(String::new, |limit| {
        format!("; limit {} in {} s by {}", limit.amount(), limit.per_s, limit.by.as_str())
    })
}

fn param(param: &Param) -> String {
    let ty = param.ty.sql_name();
    match &param.source {
        ParamSource::Principal(_) => format!("{} {ty} (server)", param.name),
        ParamSource::Argument if param.required => format!("{} {ty}", param.name),
        ParamSource::Argument => format!("{} {ty} (optional)", param.name),
    }
}

fn listed<'a>(tables: impl Iterator<Item = &'a TableAccess>) -> String {
    let names: BTreeSet<String> = tables.map(|table| format!("{}.{}", table.schema, table.table)).collect();
    if names.is_empty() { "no table".to_owned() } else { names.into_iter().collect::<Vec<_>>().join(", ") }
}

/// A sentence, wrapped to the width of the terminal.
pub(super) fn sentence(text: &str, width: Option<usize>) -> Vec<String> {
    wrapped(&visible(text), &[' '], 2, width)
}

/// A line wrapped after one of the characters `breaks`; further lines begin at column `indent`.
fn wrapped(line: &str, breaks: &[char], indent: usize, width: Option<usize>) -> Vec<String> {
    let length = |text: &str| text.trim_end().chars().count();
    let Some(width) = width.filter(|width| length(line) > *width && indent + 20 <= *width) else {
        return vec![line.to_owned()];
    };
    let start: String = line.chars().take(indent).collect();
    let rest = line.get(start.len()..).unwrap_or_default();
    let mut lines: Vec<String> = Vec::new();
    let mut current = start;
    for part in rest.split_inclusive(breaks) {
        if length(&format!("{current}{part}")) > width && length(&current) > indent {
            lines.push(current.trim_end().to_owned());
            current = " ".repeat(indent);
            current.push_str(part.trim_start());
        } else {
            current.push_str(part);
        }
    }
    lines.push(current);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_goes_on_below_itself_on_a_terminal_and_stays_one_line_elsewhere() {
        let line = "like  auto  tweet_id bigint, a text; writes social.tweet_like; undo unlike";
        assert_eq!(wrapped(line, &[',', ';'], 12, None), [line]);
        assert_eq!(
            wrapped(line, &[',', ';'], 12, Some(52)),
            ["like  auto  tweet_id bigint, a text;", "            writes social.tweet_like; undo unlike"]
        );
        for (width, lines) in [(23, ["one two three four five", "  six"]), (24, ["one two three four five", "  six"])] {
            assert_eq!(sentence("one two three four five six", Some(width)), lines);
        }
        assert_eq!(sentence("one two three four five six", Some(22))[0], "one two three four");
    }
}
