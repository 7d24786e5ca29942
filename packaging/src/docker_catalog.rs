//! The entry for Docker's catalog of MCP servers: `server.yaml`, and `tools.json`, without which Docker would start the
//! server to list its tools, and it lists all of them only with a database.

use anyhow::Context;
use serde_json::{Value, json};

use crate::project::REPOSITORY;
use crate::tools::Tool;

const SERVER_YAML: &str = include_str!("../docker-catalog/server.yaml");

/// Docker builds the image itself, from the Containerfile of this commit.
pub(crate) fn server_yaml(commit: &str) -> String {
    SERVER_YAML.replace("@REPOSITORY@", REPOSITORY).replace("@COMMIT@", commit)
}

pub(crate) fn tools_json(tools: &[Tool]) -> anyhow::Result<Value> {
    let tools: anyhow::Result<Vec<Value>> = tools.iter().map(entry).collect();
    Ok(Value::Array(tools?))
}

fn entry(tool: &Tool) -> anyhow::Result<Value> {
    let arguments = tool.input.properties.iter().map(|(name, schema)| argument(tool, name, schema));
    let mut entry = json!({
        "name": tool.name,
        "description": tool.description,
        "arguments": arguments.collect::<anyhow::Result<Vec<Value>>>()?,
        "annotations": {
            "title": tool.title,
            "readOnlyHint": tool.annotations.read_only_hint,
            "idempotentHint": tool.annotations.idempotent_hint,
        },
    });
    // MCP's default of both is true, the catalog's is false.
    let hints = [
        ("destructiveHint", tool.annotations.destructive_hint.unwrap_or(!tool.annotations.read_only_hint)),
        ("openWorldHint", tool.annotations.open_world_hint.unwrap_or(true)),
    ];
    if let Some(annotations) = entry.get_mut("annotations").and_then(Value::as_object_mut) {
        annotations.extend(hints.map(|(name, hint)| (name.to_owned(), json!(hint))));
    }
    Ok(entry)
}

fn argument(tool: &Tool, name: &str, schema: &Value) -> anyhow::Result<Value> {
    let text = |key: &str| {
        let text = schema.get(key).and_then(Value::as_str);
        text.with_context(|| format!("{}: the argument {name} has no {key}", tool.name))
    };
    let mut argument = json!({"name": name, "type": text("type")?, "desc": text("description")?});
    let items = schema.get("items").and_then(|items| items.get("type"));
    let is_optional = !tool.input.required.iter().any(|required| required == name);
    if let Some(fields) = argument.as_object_mut() {
        fields.extend(items.map(|items| ("items".to_owned(), json!({"type": items}))));
        fields.extend(is_optional.then(|| ("optional".to_owned(), json!(true))));
    }
    Ok(argument)
}
