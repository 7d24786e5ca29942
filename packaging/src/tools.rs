//! The tools that a server without manifests has: its answer to `tools/list`, which the test
//! `packaging::tools` compares with the binary's.

use serde::Deserialize;
use serde_json::{Map, Value};

const SERVED: &str = include_str!("../../tests/golden/packaging/tools.json");

/// A tool, as far as packages describe it.
#[derive(Debug, Deserialize)]
pub(crate) struct Tool {
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) description: String,
    #[serde(rename = "inputSchema")]
    pub(crate) input: InputSchema,
    pub(crate) annotations: Annotations,
}

#[derive(Debug, Deserialize)]
pub(crate) struct InputSchema {
    pub(crate) properties: Map<String, Value>,
    #[serde(default)]
    pub(crate) required: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Annotations {
    #[serde(default)]
    pub(crate) read_only_hint: bool,
    pub(crate) destructive_hint: Option<bool>,
    #[serde(default)]
    pub(crate) idempotent_hint: bool,
    pub(crate) open_world_hint: Option<bool>,
}

pub(crate) fn served() -> anyhow::Result<Vec<Tool>> {
    Ok(serde_json::from_str(SERVED)?)
}
