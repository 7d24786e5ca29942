//! Writes tools as the TOML of a manifest. The `toml` library writes every value, so that no name or comment can end
//! a string.

use std::fmt::Write;

use toml::Value;
use types::Tier;

use crate::columns::Param;
use crate::tools::Tool;

pub(crate) fn tool(tool: &Tool) -> String {
    let mut text = String::from("[[tool]]\n");
    let mut key = |name: &str, value: Value| push(&mut text, name, &value);
    key("name", Value::from(tool.name.as_str()));
    key("access", Value::from("write"));
    if tool.tier != Tier::Auto {
        key("tier", Value::from(tool.tier.as_str()));
    }
    key("description", Value::from(tool.description.join("\n")));
    if let Some(before) = &tool.before {
        key("before", Value::from(before.as_str()));
    }
    key("sql", Value::from(tool.sql.as_str()));
    key("rows", Value::from("one"));
    if let Some(not_found) = &tool.not_found {
        key("not_found", Value::from(not_found.as_str()));
    }
    if tool.is_destructive {
        key("annotations", table("destructiveHint", Value::from(true)));
    }
    if let Some(why) = &tool.irreversible {
        key("undo", table("irreversible", Value::from(why.as_str())));
    }
    for param in &tool.params {
        text.push('\n');
        text.push_str(&of_param(param));
    }
    text
}

fn of_param(param: &Param) -> String {
    let mut text = String::from("[[tool.param]]\n");
    let mut key = |name: &str, value: Value| push(&mut text, name, &value);
    key("name", Value::from(param.name.as_str()));
    key("description", Value::from(param.description.as_str()));
    if param.optional {
        key("optional", Value::from(true));
    }
    if let Some(assignment) = &param.sets {
        key("sets", Value::from(assignment.as_str()));
    }
    if param.sets_null {
        key("sets_null", Value::from(true));
    }
    let rules = &param.rules;
    let bounds = [("default", &param.default), ("minimum", &rules.minimum), ("maximum", &rules.maximum)];
    for (name, value) in bounds {
        if let Some(value) = value {
            key(name, value.clone());
        }
    }
    if let Some(values) = &rules.one_of {
        key("enum", Value::Array(values.clone()));
    }
    if let Some(length) = rules.max_length.and_then(|length| i64::try_from(length).ok()) {
        key("max_length", Value::from(length));
    }
    if let Some(scale) = rules.scale {
        key("scale", Value::from(scale));
    }
    if let Some(pattern) = &rules.pattern {
        key("pattern", Value::from(pattern.as_str()));
    }
    text
}

/// Writes a key and its value, on several lines if the value is a text of several lines.
pub(crate) fn push(text: &mut String, name: &str, value: &Value) {
    // Writing to a string does not fail.
    let _ = writeln!(text, "{name} = {value}");
}

fn table(key: &str, value: Value) -> Value {
    Value::Table(toml::Table::from_iter([(key.to_owned(), value)]))
}
