//! A table `[mcp_servers.NAME]` in the configuration of Codex.
//!
//! As in JSON, the text around the table is kept, and a new text must parse to the expected content.

use std::cmp::Reverse;
use std::ops::Range;

use serde_json::{Value, json};
use serde_spanned::Spanned;
use toml::Table;
use toml::de::{DeString, DeTable, DeValue};

use super::edit::{EditError, Put, Splice, line_break, line_start, next_line_start, spliced};

const SERVERS: &str = "mcp_servers";

type Key<'a> = Spanned<DeString<'a>>;

fn parse(text: &str) -> Result<DeTable<'_>, EditError> {
    DeTable::parse(text).map(Spanned::into_inner).map_err(|error| {
        EditError::new(error.span().unwrap_or_default().start, format!("this is not TOML: {}", error.message()))
    })
}

/// The servers of a file, by name.
fn servers<'d, 'a>(document: &'d DeTable<'a>) -> Result<Option<&'d DeTable<'a>>, EditError> {
    let Some(servers) = document.get(SERVERS) else { return Ok(None) };
    match servers.get_ref() {
        DeValue::Table(servers) => Ok(Some(servers)),
        other => Err(EditError::new(
            servers.span().start,
            format!("{SERVERS} is of type {} and not a table", other.type_str()),
        )),
    }
}

fn find<'d, 'a>(servers: &'d DeTable<'a>, name: &str) -> Option<(&'d Key<'a>, &'d DeValue<'a>)> {
    servers.iter().find(|(key, _)| key.get_ref() == name).map(|(key, value)| (key, value.get_ref()))
}

/// The content of a file that is TOML.
fn parse_table(text: &str) -> Result<Table, EditError> {
    text.parse().map_err(|_| EditError::unsafe_edit())
}

fn server_of(table: &Table, name: &str) -> Option<Value> {
    serde_json::to_value(table.get(SERVERS)?.get(name)?).ok()
}

/// The table as it is written into a file.
fn section(name: &str, value: &Value, line_break: &str) -> Result<String, EditError> {
    let table = json!({SERVERS: {name: value}});
    let text = toml::to_string(&table).map_err(|_| EditError::unsafe_edit())?;
    Ok(text.replace('\n', line_break))
}

pub(super) fn put(text: &str, name: &str, value: &Value, replace: bool) -> Result<Put, EditError> {
    let document = parse(text)?;
    let line_break = line_break(text);
    let section = section(name, value, line_break)?;
    let splices = match servers(&document)?.and_then(|servers| find(servers, name)) {
        None => {
            let end_of_line = if text.is_empty() || text.ends_with('\n') { "" } else { line_break };
            let blank_line = if text.is_empty() { "" } else { line_break };
            vec![Splice::insert(text.len(), format!("{end_of_line}{blank_line}{section}"))]
        }
        Some((key, old)) => {
            let current = server_of(&parse_table(text)?, name);
            if let Some(put) = current.and_then(|current| Put::beside(current, value, replace)) {
                return Ok(put);
            }
            let mut parts = parts(text, key, old)?.into_iter();
            let first = parts.next().map(|range| Splice { range, text: section });
            let rest = parts.map(|range| Splice::remove(with_blank_line(text, range)));
            first.into_iter().chain(rest).collect()
        }
    };
    checked(text, &splices, name, Some(value)).map(Put::Written)
}

pub(super) fn get(text: &str, name: &str) -> Result<Option<Value>, EditError> {
    servers(&parse(text)?)?;
    Ok(server_of(&parse_table(text)?, name))
}

/// Removes the table of this name and all tables below it. `None` if there is none.
pub(super) fn take(text: &str, name: &str) -> Result<Option<String>, EditError> {
    let document = parse(text)?;
    let Some((key, old)) = servers(&document)?.and_then(|servers| find(servers, name)) else { return Ok(None) };
    let parts = parts(text, key, old)?.into_iter();
    let splices: Vec<Splice> = parts.map(|range| Splice::remove(with_blank_line(text, range))).collect();
    checked(text, &splices, name, None).map(Some)
}

/// The lines of a table and of the tables below it, in order.
fn parts(text: &str, key: &Key<'_>, value: &DeValue<'_>) -> Result<Vec<Range<usize>>, EditError> {
    let mut parts = Vec::new();
    let elsewhere = || {
        let message = format!("this server is not written as a table [{SERVERS}.NAME]: edit it by hand");
        EditError::new(key.span().start, message)
    };
    collect(text, key, value, &mut parts).ok_or_else(elsewhere)?;
    // The header of a table below also names this table, so both may begin on the same line.
    parts.sort_by_key(|part| (part.start, Reverse(part.end)));
    parts.dedup_by_key(|part| part.start);
    Ok(parts)
}

/// Adds the lines of a table with a header, and those of the tables below it. `None` if it has no header.
fn collect(text: &str, key: &Key<'_>, value: &DeValue<'_>, parts: &mut Vec<Range<usize>>) -> Option<()> {
    let DeValue::Table(table) = value else { return None };
    let start = line_start(text, key.span().start);
    let has_header = is_header(text, key);
    let mut end = next_line_start(text, key.span().end);
    for (key, value) in table {
        if is_header(text, key) {
            collect(text, key, value.get_ref(), parts)?;
        } else {
            end = end.max(next_line_start(text, last_byte(value)));
        }
    }
    has_header.then(|| parts.push(start..end))
}

fn is_header(text: &str, key: &Key<'_>) -> bool {
    text.get(line_start(text, key.span().start)..).is_some_and(|line| line.trim_start().starts_with('['))
}

/// The end of a value, including everything in it.
fn last_byte(value: &Spanned<DeValue<'_>>) -> usize {
    let inside = match value.get_ref() {
        DeValue::Table(table) => table.iter().map(|(_, value)| last_byte(value)).max(),
        DeValue::Array(array) => array.iter().map(last_byte).max(),
        _ => None,
    };
    inside.unwrap_or_default().max(value.span().end)
}

/// The lines, and the blank line before them.
fn with_blank_line(text: &str, lines: Range<usize>) -> Range<usize> {
    let before = text.get(..lines.start).unwrap_or_default();
    let blank = ["\r\n", "\n"].into_iter().find(|line_break| {
        before.strip_suffix(line_break).is_some_and(|before| before.is_empty() || before.ends_with('\n'))
    });
    lines.start - blank.map_or(0, str::len)..lines.end
}

/// The new text, if it has this server, and otherwise the old content.
fn checked(text: &str, splices: &[Splice], name: &str, server: Option<&Value>) -> Result<String, EditError> {
    let new = spliced(text, splices);
    let (mut before, mut after) = (parse_table(text)?, parse_table(&new)?);
    let found = server_of(&after, name);
    for table in [&mut before, &mut after] {
        if let Some(servers) = table.get_mut(SERVERS).and_then(toml::Value::as_table_mut) {
            servers.remove(name);
            if servers.is_empty() {
                table.remove(SERVERS);
            }
        }
    }
    if found.as_ref() == server && before == after { Ok(new) } else { Err(EditError::unsafe_edit()) }
}

#[cfg(test)]
mod tests;
