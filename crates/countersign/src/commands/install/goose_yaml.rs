//! An entry of the mapping `extensions` in the configuration of Goose, which is YAML.
//!
//! As in JSON, the text around the entry is kept, and a new text must parse to the expected content. An entry is
//! written on separate lines, and only such an entry is replaced or removed.

mod node;

use std::ops::Range;

use serde_json::Value;

use self::node::{Node, parse};
use super::edit::{EditError, Put, Splice, line_break, line_start, next_line_start, spliced};

/// The mapping of all servers.
const SERVERS: &str = "extensions";

/// The indentation of an entry if the file has none.
const STEP: &str = "  ";

/// Words that some version of YAML does not parse as text.
const NO_TEXTS: [&str; 9] = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];

fn lines(name: &str, value: &Value, indent: &str, line_break: &str) -> String {
    let mut lines = Vec::new();
    add_lines(&key(name), value, indent, &mut lines);
    lines.into_iter().map(|line| line + line_break).collect()
}

fn add_lines(key: &str, value: &Value, indent: &str, lines: &mut Vec<String>) {
    match value {
        Value::Object(members) if !members.is_empty() => {
            lines.push(format!("{indent}{key}:"));
            members
                .iter()
                .for_each(|(name, value)| add_lines(&self::key(name), value, &format!("{indent}{STEP}"), lines));
        }
        Value::Array(elements) if !elements.is_empty() => {
            lines.push(format!("{indent}{key}:"));
            lines.extend(elements.iter().map(|element| format!("{indent}{STEP}- {element}")));
        }
        // JSON is YAML.
        scalar => lines.push(format!("{indent}{key}: {scalar}")),
    }
}

fn key(name: &str) -> String {
    let is_word = name.starts_with(|first: char| first.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
        && !NO_TEXTS.contains(&name.to_ascii_lowercase().as_str());
    if is_word { name.to_owned() } else { Value::from(name).to_string() }
}

pub(super) fn put(text: &str, name: &str, value: &Value, replace: bool) -> Result<Put, EditError> {
    let document = parse(text)?;
    let line_break = line_break(text);
    let mut new = parse(&lines(name, value, "", line_break))?;
    let Some((new_key, new_value)) = new.as_mut().and_then(Node::pairs_mut).and_then(Vec::pop) else {
        return Err(EditError::unsafe_edit());
    };
    let mut expected = document.clone();
    let Some(root) = &document else {
        let splice = whole(text, name, value, line_break);
        let servers = Node::mapping(vec![(Node::text(SERVERS), Node::mapping(vec![(new_key, new_value)]))]);
        return checked(text, &[splice], Some(&servers)).map(Put::Written);
    };
    let expected_servers = expected.as_mut().and_then(Node::pairs_mut).ok_or_else(|| elsewhere(root))?;
    let Some((servers_key, servers)) = root.pair(SERVERS) else {
        require_lines(root)?;
        expected_servers.push((Node::text(SERVERS), Node::mapping(vec![(new_key, new_value)])));
        let splice = whole(text, name, value, line_break);
        return checked(text, &[splice], expected.as_ref()).map(Put::Written);
    };
    require_lines(root)?;
    let expected_servers =
        expected_servers.iter_mut().find(|(key, _)| key.is_text(SERVERS)).map(|(_, servers)| servers);
    let Some(expected_servers) = expected_servers else { return Err(EditError::unsafe_edit()) };
    let splices = if servers.is_empty() {
        // `{}` or `null` is replaced by the entry.
        *expected_servers = Node::mapping(vec![(new_key, new_value)]);
        let colon = colon(text, servers_key)?;
        let value_end = servers.range.end.max(colon);
        let after = next_line_start(text, value_end);
        let end_of_line = if text.get(..after).is_some_and(|before| before.ends_with('\n')) { "" } else { line_break };
        let entry = lines(name, value, &format!("{}{STEP}", indent(text, servers_key)), line_break);
        vec![Splice::remove(colon..value_end), Splice::insert(after, format!("{end_of_line}{entry}"))]
    } else {
        require_lines(servers)?;
        let pairs = expected_servers.pairs_mut().ok_or_else(|| elsewhere(servers))?;
        match servers.pair(name) {
            None => {
                // Inserted directly below `extensions:`, so that comments stay above their entries.
                pairs.insert(0, (new_key, new_value));
                let at = next_line_start(text, colon(text, servers_key)?);
                let first = servers.pairs().and_then(|pairs| pairs.first()).map(|(key, _)| indent(text, key));
                vec![Splice::insert(at, lines(name, value, &first.unwrap_or_default(), line_break))]
            }
            Some((key, old)) => {
                if let Some(put) = Put::beside(old.value(), value, replace) {
                    return Ok(put);
                }
                if let Some(pair) = pairs.iter_mut().find(|(key, _)| key.is_text(name)) {
                    *pair = (new_key, new_value);
                }
                let range = entry_lines(text, key, old)?;
                vec![Splice { range, text: lines(name, value, &indent(text, key), line_break) }]
            }
        }
    };
    checked(text, &splices, expected.as_ref()).map(Put::Written)
}

pub(super) fn get(text: &str, name: &str) -> Result<Option<Value>, EditError> {
    let document = parse(text)?;
    let Some((_, servers)) = document.as_ref().and_then(|root| root.pair(SERVERS)) else { return Ok(None) };
    Ok(servers.pair(name).map(|(_, entry)| entry.value()))
}

/// Removes the entry of this name. `None` if there is none.
pub(super) fn take(text: &str, name: &str) -> Result<Option<String>, EditError> {
    let document = parse(text)?;
    let Some((servers_key, servers)) = document.as_ref().and_then(|root| root.pair(SERVERS)) else { return Ok(None) };
    let Some((key, entry)) = servers.pair(name) else { return Ok(None) };
    let mut splices = vec![Splice::remove(entry_lines(text, key, entry)?)];
    let mut expected = document.clone();
    let pairs = expected.as_mut().and_then(|root| root.value_mut(SERVERS)).and_then(Node::pairs_mut);
    let Some(pairs) = pairs else { return Err(EditError::unsafe_edit()) };
    pairs.retain(|(key, _)| !key.is_text(name));
    if pairs.is_empty() {
        // Goose does not accept `null` here.
        splices.insert(0, Splice::insert(colon(text, servers_key)?, " {}"));
    }
    checked(text, &splices, expected.as_ref()).map(Some)
}

/// The whole mapping, appended to the text.
fn whole(text: &str, name: &str, value: &Value, line_break: &str) -> Splice {
    let end_of_line = if text.is_empty() || text.ends_with('\n') { "" } else { line_break };
    let entry = lines(name, value, STEP, line_break);
    Splice::insert(text.len(), format!("{end_of_line}{SERVERS}:{line_break}{entry}"))
}

/// # Errors
/// The members of the mapping are not on separate lines.
fn require_lines(mapping: &Node) -> Result<(), EditError> {
    if mapping.is_block_mapping() { Ok(()) } else { Err(elsewhere(mapping)) }
}

fn elsewhere(node: &Node) -> EditError {
    let message = "this is not a mapping with a line for each member: add what --print prints by hand";
    EditError::new(node.range.start, message)
}

/// The lines of an entry, without comments and blank lines after it.
fn entry_lines(text: &str, key: &Node, value: &Node) -> Result<Range<usize>, EditError> {
    let start = line_start(text, key.range.start);
    if text.get(start..key.range.start).is_none_or(|before| !before.chars().all(|c| c == ' ')) {
        return Err(elsewhere(key));
    }
    let end = value.last_byte().unwrap_or(key.range.end);
    let is_after_line = text.get(..end).is_some_and(|before| before.ends_with('\n'));
    Ok(start..if is_after_line { end } else { next_line_start(text, end) })
}

/// The offset after the colon of a key.
fn colon(text: &str, key: &Node) -> Result<usize, EditError> {
    let behind = text.get(key.range.end..).unwrap_or_default();
    let at = behind.find(':').filter(|at| behind.get(..*at).is_some_and(|between| between.trim().is_empty()));
    at.map(|at| key.range.end + at + 1).ok_or_else(|| elsewhere(key))
}

/// The spaces before a key.
fn indent(text: &str, key: &Node) -> String {
    text.get(line_start(text, key.range.start)..key.range.start).unwrap_or_default().to_owned()
}

/// The new text, if it parses to the expected content.
fn checked(text: &str, splices: &[Splice], expected: Option<&Node>) -> Result<String, EditError> {
    let text = spliced(text, splices);
    match (parse(&text), expected) {
        (Ok(Some(found)), Some(expected)) if found.means(expected) => Ok(text),
        _ => Err(EditError::unsafe_edit()),
    }
}

#[cfg(test)]
mod tests;
