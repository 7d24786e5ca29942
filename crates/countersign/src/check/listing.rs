//! What each tool is, in a line: its tier, its parameters with their types, the tables that it writes, and its undo.

use std::collections::BTreeSet;

use contract::{TableUse, visible};
use manifest::{Catalog, Param, ParamSource, ToolSpec, Undo};

/// A line for each tool; on a terminal of this width a line that is too long is continued below itself.
pub(super) fn lines(catalog: &Catalog, width: Option<usize>) -> Vec<String> {
    let widest = |text: fn(&ToolSpec) -> &str| catalog.tools.iter().map(|tool| text(tool).len()).max().unwrap_or(0);
    let (names, tiers) = (widest(|tool| &tool.name), widest(tier));
    let indent = names + tiers + 4;
    let line = |tool: &ToolSpec| format!("{:<names$}  {:<tiers$}  {}", tool.name, tier(tool), visible(&about(tool)));
    catalog.tools.iter().flat_map(|tool| wrapped(&line(tool), indent, width)).collect()
}

/// `read` for a tool that does not write.
fn tier(tool: &ToolSpec) -> &str {
    if tool.access.writes() { tool.tier.as_str() } else { "read" }
}

fn about(tool: &ToolSpec) -> String {
    let params: Vec<String> = tool.params.iter().map(param).collect();
    let params = if params.is_empty() { "no parameters".to_owned() } else { params.join(", ") };
    if !tool.access.writes() {
        return format!("{params}; reads {}", listed(tool.tables()));
    }
    let written = match &tool.executor {
        Some(executor) => format!("executor {executor}"),
        None => format!("writes {}", listed(tool.written_tables())),
    };
    let undo = match &tool.undo {
        Undo::Calls { tool, .. } => tool.as_str(),
        Undo::None | Undo::Irreversible { .. } => "none",
    };
    format!("{params}; {written}; undo {undo}")
}

fn param(param: &Param) -> String {
    let ty = param.ty.sql_name();
    match &param.source {
        ParamSource::Principal(_) => format!("{} {ty} (server)", param.name),
        ParamSource::Argument if param.required => format!("{} {ty}", param.name),
        ParamSource::Argument => format!("{} {ty} (optional)", param.name),
    }
}

fn listed<'a>(tables: impl Iterator<Item = &'a TableUse>) -> String {
    let names: BTreeSet<String> = tables.map(|table| format!("{}.{}", table.schema, table.table)).collect();
    if names.is_empty() { "no table".to_owned() } else { names.into_iter().collect::<Vec<_>>().join(", ") }
}

/// The words of a line within this width, further lines under the `indent`th character of the first.
fn wrapped(line: &str, indent: usize, width: Option<usize>) -> Vec<String> {
    let Some(width) = width.filter(|width| line.chars().count() > *width && indent + 20 < *width) else {
        return vec![line.to_owned()];
    };
    let mut lines: Vec<String> = Vec::new();
    let start: String = line.chars().take(indent).collect();
    let mut current = start.clone();
    for word in line.chars().skip(indent).collect::<String>().split(' ') {
        let is_first = current.chars().count() == indent;
        if !is_first && current.chars().count() + 1 + word.chars().count() > width {
            lines.push(std::mem::replace(&mut current, " ".repeat(indent)));
            current.push_str(word);
        } else {
            current.push_str(if is_first { "" } else { " " });
            current.push_str(word);
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
        let line = "like  auto  tweet_id bigint; writes social.tweet_like; undo unlike";
        assert_eq!(wrapped(line, 12, None), [line]);
        assert_eq!(
            wrapped(line, 12, Some(44)),
            ["like  auto  tweet_id bigint; writes", "            social.tweet_like; undo unlike"]
        );
    }
}
