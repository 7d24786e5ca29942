//! Tools and results as rmcp's types.
//!
//! rmcp's result has structured content as a tree of values. For a wide answer the tree takes fifty times the memory
//! of its text. So an envelope passes through rmcp as text, which every transport writes verbatim. To clients of
//! protocols before 2026-07-28, rmcp passes structured content only if it is an object.

use std::sync::Arc;

use rmcp::model::{
    CallToolResult, ContentBlock, ErrorData, JsonRpcMessage, JsonRpcResponse, MetaObject, ServerResult, Tool,
    ToolAnnotations,
};
use rmcp::service::{RoleServer, TxJsonRpcMessage};
use serde_json::{Map, Value, json};
use tools::{Annotations, ToolInfo};
use types::{Envelope, JsonText, NumberFields};

use crate::apps;

/// The only key of the structured content of a result that [`expand`] completes. No envelope has it.
const NUMBER_FIELDS: &str = "number_fields";

/// Where a tool result has the envelope.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ResultContent {
    Text,
    Structured,
    #[default]
    Both,
}

/// A tool as `tools/list` returns it. `views`: the client shows the views of MCP Apps.
pub(crate) fn encode_tool(info: &ToolInfo, content: ResultContent, views: bool) -> Tool {
    let mut tool = Tool::new(info.name.clone(), info.full_description(), info.listed_schema());
    tool.title.clone_from(&info.title);
    // Clients reject a result without structured content if the tool has an output schema.
    tool.output_schema = (content != ResultContent::Text).then(|| Arc::clone(&info.output_schema));
    let annotations = ToolAnnotations::new().read_only(info.hints.read_only).open_world(false);
    // The other annotations have no meaning for a tool that only reads.
    tool.annotations = Some(match info.hints {
        Annotations { read_only: true, .. } => annotations,
        Annotations { destructive, idempotent, .. } => annotations.destructive(destructive).idempotent(idempotent),
    });
    let mut meta = info.full_meta();
    meta.extend(if views { apps::tool_meta(info) } else { Map::new() });
    tool.meta = Some(meta).filter(|meta| !meta.is_empty()).map(MetaObject);
    tool
}

/// The result for an envelope. If it contains the envelope twice, the second copy is made by [`expand`] just before
/// the result is written: a result may wait a long time for its client.
pub(crate) fn encode_result(
    envelope: Envelope,
    content: ResultContent,
    fields: &NumberFields,
) -> Result<CallToolResult, ErrorData> {
    let is_success = envelope.is_success();
    let text = envelope.into_json().map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
    Ok(encode_text(text, is_success, content, fields))
}

fn encode_text(envelope: String, is_success: bool, content: ResultContent, fields: &NumberFields) -> CallToolResult {
    let (text, structured) = match content {
        ResultContent::Text => (Some(envelope), None),
        ResultContent::Structured => (None, Some(structured(&envelope, fields))),
        ResultContent::Both => (Some(envelope), Some(json!({NUMBER_FIELDS: fields}))),
    };
    let blocks = text.map(ContentBlock::text).into_iter().collect();
    let mut result = if is_success { CallToolResult::success(blocks) } else { CallToolResult::error(blocks) };
    result.structured_content = structured;
    result
}

/// The envelope as structured content. Clients parse its numbers as doubles before the model gets them, so numbers
/// with more digits than a double holds are written as text (I-2).
fn structured(envelope: &str, fields: &NumberFields) -> Value {
    JsonText::from_unchecked(fields.double_safe(envelope)).into_opaque_object()
}

/// Completes a result just before it is written, if its structured content holds only the facts about its numbers.
pub(crate) fn expand(result: &mut CallToolResult) {
    if let Some(fields) = result.structured_content.as_mut().and_then(|content| content.get_mut(NUMBER_FIELDS)) {
        let fields = serde_json::from_value(fields.take()).unwrap_or_default();
        let text = result.content.first().and_then(|block| block.as_text());
        result.structured_content = text.map(|block| structured(&block.text, &fields));
    }
}

/// Completes a message that is about to be written, if it is a tool result.
pub fn expand_message(message: &mut TxJsonRpcMessage<RoleServer>) {
    if let JsonRpcMessage::Response(JsonRpcResponse { result: ServerResult::CallToolResult(result), .. }) = message {
        expand(result);
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::RequestId;

    use super::*;

    /// What rmcp's handler makes of a result, for a client with a handshake.
    fn passed_by_rmcp(result: CallToolResult) -> ServerResult {
        let mut result = ServerResult::CallToolResult(result);
        result.strip_non_object_output_for_legacy_peer();
        result
    }

    fn sent(content: ResultContent) -> String {
        let text = r#"{"success":true,"n":1.10}"#.to_owned();
        let result = encode_text(text, true, content, &NumberFields::default());
        let mut message: TxJsonRpcMessage<RoleServer> =
            JsonRpcMessage::response(passed_by_rmcp(result), RequestId::Number(7));
        expand_message(&mut message);
        serde_json::to_string(&message).unwrap()
    }

    #[test]
    fn an_envelope_is_written_verbatim_as_text_and_with_safe_numbers_as_structured_content() {
        let start = r#"{"jsonrpc":"2.0","id":7,"result":{"resultType":"complete","content":["#;
        let text = r#"{"type":"text","text":"{\"success\":true,\"n\":1.10}"}"#;
        // I-2: most clients parse structured content, and would show 1.1.
        let structured = r#","structuredContent":{"success":true,"n":"1.10"}"#;
        assert_eq!(sent(ResultContent::Text), format!("{start}{text}],\"isError\":false}}}}"));
        assert_eq!(sent(ResultContent::Structured), format!("{start}]{structured},\"isError\":false}}}}"));
        assert_eq!(sent(ResultContent::Both), format!("{start}{text}]{structured},\"isError\":false}}}}"));
    }
}
