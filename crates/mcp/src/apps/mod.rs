//! MCP Apps (`io.modelcontextprotocol/ui`, 2026-01-26): a view of a proposal, for clients that show HTML beside a
//! result. The result contains the same information as text.
//!
//! The view is one static file. It receives the result from the client, shows it as text, and requests nothing else.
//! For tier `confirm` it has a button that calls `confirm_proposal`. The server cannot tell that call from a call of
//! the model, so the button is no more trustworthy than the tool. For tier `approve` the view has a link to the
//! console.

use rmcp::model::{ClientCapabilities, JsonObject, MetaObject, ReadResourceResult, ResourceContents};
use serde_json::{Map, Value, json};
use tools::ToolInfo;
use types::Tier;

/// The extension, and the content that clients of it show.
const EXTENSION: &str = "io.modelcontextprotocol/ui";
const MIME_TYPE: &str = "text/html;profile=mcp-app";

const PROPOSAL_URI: &str = "ui://countersign/proposal";

const PROPOSAL_HTML: &str = include_str!("proposal.html");

/// The built-in tools whose results can be proposals, whatever their tier.
const PROPOSAL_TOOLS: [&str; 3] = ["get_proposal", "undo_mutation", "undo_run"];

/// Whether a client shows views.
pub(crate) fn is_supported(capabilities: Option<&ClientCapabilities>) -> bool {
    let settings = capabilities.and_then(|capabilities| capabilities.extensions.as_ref()?.get(EXTENSION));
    let types = settings.and_then(|settings: &JsonObject| settings.get("mimeTypes")).and_then(Value::as_array);
    types.is_some_and(|types| types.iter().any(|shown| shown == MIME_TYPE))
}

/// The entry of `_meta` that names the view of a tool; empty for a tool that proposes nothing.
pub(crate) fn tool_meta(info: &ToolInfo) -> Map<String, Value> {
    let may_propose = info.tier.is_some_and(|tier| tier != Tier::Auto)
        || !info.rules.is_empty()
        || PROPOSAL_TOOLS.contains(&info.name.as_str());
    let entry = may_propose.then(|| ("ui".to_owned(), json!({"resourceUri": PROPOSAL_URI})));
    entry.into_iter().collect()
}

pub(crate) fn read(uri: &str) -> Option<ReadResourceResult> {
    // The view loads nothing: without `csp` a client allows no other origin.
    let meta = json!({"ui": {"prefersBorder": true}});
    let contents = ResourceContents::TextResourceContents {
        uri: uri.to_owned(),
        mime_type: Some(MIME_TYPE.to_owned()),
        text: PROPOSAL_HTML.to_owned(),
        meta: meta.as_object().cloned().map(MetaObject),
    };
    (uri == PROPOSAL_URI).then(|| ReadResourceResult::new(vec![contents]))
}
