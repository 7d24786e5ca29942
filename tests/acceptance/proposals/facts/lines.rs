//! The faces of a proposal as lines of text.

use std::collections::BTreeMap;

use serde_json::Value;

use super::fact::{Face, rows};

/// The lines of a face. What stands below the title of a table has its name.
pub(super) fn lines(face: Face, text: &str) -> Vec<String> {
    match face {
        Face::Agent => agent_lines(&serde_json::from_str(text).unwrap()),
        Face::Terminal => {
            let mut table = "";
            let line = |line| {
                let said = str::trim(line);
                if !str::starts_with(line, ' ') {
                    table = "";
                } else if said.starts_with(['~', '+', '-']) && said.contains(" row") {
                    table = said.split_once(" of ").map_or("", |(_, table)| table);
                }
                format!("{table} {said}")
            };
            text.lines().map(line).collect()
        }
        Face::Page => {
            let (mut table, mut found, mut before) = (String::new(), Vec::new(), Vec::new());
            for line in text.lines() {
                match line.split_once("<caption>").and_then(|(_, title)| title.split_once("</caption>")) {
                    Some((title, _)) => table = plain(title),
                    None if line.starts_with("<p class=\"column\">") => {
                        before.push(plain(line));
                        continue;
                    }
                    None if line.contains("</section>") => table.clear(),
                    None => {}
                }
                found.extend(before.drain(..).chain([plain(line)]).map(|line| format!("{table} {line}")));
            }
            found
        }
        Face::Inbox => {
            let rows = |line: &str| {
                line.replace("\"Rows\">1<", "\"Rows\">1 row<").replace("</td><td class=\"by\"", " rows</td><td")
            };
            text.lines().map(|line| plain(&rows(line))).collect()
        }
        Face::Question => {
            // The count names the table of the rows without one.
            let count = text.lines().find(|line| line.starts_with("It would ")).unwrap_or_default();
            let table = count.split(" of ").nth(1).and_then(|rest| rest.split([',', ':']).next()).unwrap_or_default();
            let space = format!("{}.", table.split('.').next().unwrap_or_default());
            let line = |line: &str| if line.contains(&space) { line.to_owned() } else { format!("{table} {line}") };
            text.lines().map(line).collect()
        }
        Face::Description | Face::List => text.lines().map(str::to_owned).collect(),
    }
}

/// A line of a page as text.
fn plain(html: &str) -> String {
    let text = html
        .replace("<wbr>", "")
        .split('<')
        .map(|part| part.split_once('>').map_or(part, |(_, text)| text))
        .collect::<Vec<_>>()
        .join(" ");
    [("&#34;", "\""), ("&#39;", "'"), ("&#60;", "<"), ("&#62;", ">"), ("&#38;", "&")]
        .iter()
        .fold(text, |text, (code, character)| text.replace(code, character))
}

/// What an agent reads in the data of its answer.
fn agent_lines(proposal: &Value) -> Vec<String> {
    let list = |of: &Value| of.as_array().cloned().unwrap_or_default();
    let text = |of: &Value| of.as_str().unwrap().to_owned();
    let preview = &proposal["preview"];
    let sentences = [&proposal["summary"], &preview["warnings"]].into_iter().flat_map(list);
    let mut lines: Vec<String> = sentences.chain([proposal["description"].clone()]).map(|line| text(&line)).collect();
    let (all, by_table) = (list(&preview["effects"]["rows"]), list(&preview["effects"]["by_table"]));
    let mut counts: BTreeMap<[String; 2], u64> = BTreeMap::new();
    for row in &all {
        let columns: Vec<&String> = row["columns"].as_object().unwrap().keys().collect();
        if columns.is_empty() && row["has_sensitive_changes"].is_null() {
            // The statement has found it as it is to be.
            continue;
        }
        let hidden = if row["has_sensitive_changes"] == true { "sensitive columns" } else { "" };
        lines.push(format!("{} {columns:?} {hidden}", text(&row["table"])));
        *counts.entry([text(&row["change"]), format!("{} {}", text(&row["table"]), row["by_trigger"])]).or_default() +=
            1;
    }
    if !by_table.is_empty() || preview["effects"]["count"] != all.len() {
        counts = by_table
            .iter()
            .map(|one| ([text(&one["change"]), text(&one["table"])], one["count"].as_u64().unwrap()))
            .collect();
    }
    lines.extend(counts.iter().map(|([change, table], count)| format!("{change} {} of {table}", rows(*count))));
    lines
}
