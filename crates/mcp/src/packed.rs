//! Tool results as text, once.
//!
//! rmcp's result holds structured content as a tree of values, which for a wide answer takes fifty times the room of the
//! text that becomes of it. So an envelope travels through rmcp as a string, and takes its place in the line when the line
//! is written. A transport that serializes by itself has no use for this: it needs the tree.

use rmcp::model::{CallToolResult, ContentBlock, JsonRpcMessage, JsonRpcResponse, RequestId, ServerResult};
use rmcp::service::{RoleServer, TxJsonRpcMessage};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::server::Content;

/// The result that stands for this envelope until [`line`] makes it whole. An envelope is an object, so neither null nor a
/// string can be one.
pub(crate) fn pack(envelope: String, is_success: bool, content: Content) -> CallToolResult {
    let (text, structured) = match content {
        Content::Text => (Some(envelope), None),
        Content::Structured => (None, Some(Value::String(envelope))),
        // The same as the text.
        Content::Both => (Some(envelope), Some(Value::Null)),
    };
    let blocks = text.map(ContentBlock::text).into_iter().collect();
    let mut result = if is_success { CallToolResult::success(blocks) } else { CallToolResult::error(blocks) };
    result.structured_content = structured;
    result
}

/// A message as the line that is sent, line break included.
pub(crate) fn line(mut message: TxJsonRpcMessage<RoleServer>) -> serde_json::Result<Vec<u8>> {
    let mut line = match &mut message {
        JsonRpcMessage::Response(JsonRpcResponse { id, result: ServerResult::CallToolResult(result), .. })
            if result.structured_content.is_some() =>
        {
            unpacked(id, result)?
        }
        message => serde_json::to_vec(message)?,
    };
    line.push(b'\n');
    Ok(line)
}

fn unpacked(id: &RequestId, result: &mut CallToolResult) -> serde_json::Result<Vec<u8>> {
    let packed = result.structured_content.take();
    let text = result.content.first().and_then(|block| block.as_text()).map(|block| block.text.as_str());
    let envelope: Option<&RawValue> = match (&packed, text) {
        (Some(Value::String(envelope)), _) => Some(serde_json::from_str(envelope)?),
        (_, Some(envelope)) => Some(serde_json::from_str(envelope)?),
        _ => None,
    };
    let result = Whole { result, envelope };
    // Text in text: its quotes are escaped.
    let size = envelope.map_or(0, |envelope| envelope.get().len()) * 5 / 2;
    let mut line = Vec::with_capacity(size + 256);
    serde_json::to_writer(&mut line, &Response { jsonrpc: "2.0", id, result })?;
    Ok(line)
}

#[derive(Serialize)]
struct Response<'a> {
    jsonrpc: &'static str,
    id: &'a RequestId,
    result: Whole<'a>,
}

#[derive(Serialize)]
struct Whole<'a> {
    #[serde(flatten)]
    result: &'a CallToolResult,
    #[serde(rename = "structuredContent", skip_serializing_if = "Option::is_none")]
    envelope: Option<&'a RawValue>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(content: Content) -> String {
        let result = pack(r#"{"success":true,"n":1.10}"#.to_owned(), true, content);
        let message = JsonRpcMessage::response(ServerResult::CallToolResult(result), RequestId::Number(7));
        String::from_utf8(line(message).unwrap()).unwrap()
    }

    #[test]
    fn an_envelope_takes_its_place_as_text_as_structured_content_or_as_both_to_the_letter() {
        let start = r#"{"jsonrpc":"2.0","id":7,"result":{"resultType":"complete","content":["#;
        let text = r#"{"type":"text","text":"{\"success\":true,\"n\":1.10}"}"#;
        let structured = r#","structuredContent":{"success":true,"n":1.10}"#;
        assert_eq!(sent(Content::Text), format!("{start}{text}],\"isError\":false}}}}\n"));
        assert_eq!(sent(Content::Structured), format!("{start}],\"isError\":false{structured}}}}}\n"));
        assert_eq!(sent(Content::Both), format!("{start}{text}],\"isError\":false{structured}}}}}\n"));
    }
}
