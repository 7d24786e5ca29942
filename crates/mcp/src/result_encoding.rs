//! Tool results as text, once.
//!
//! rmcp's result holds structured content as a tree of values, which for a wide answer takes fifty times the room of the
//! text that becomes of it. So an envelope travels through rmcp as text that is written as it is, by whatever transport.

use rmcp::model::{CallToolResult, ContentBlock, JsonRpcMessage, JsonRpcResponse, ServerResult};
use rmcp::service::{RoleServer, TxJsonRpcMessage};
use serde_json::{Number, Value};

use crate::server::ResultContent;

/// The result for this envelope, which is the text of a JSON object. Where it stands twice, it is kept once until
/// [`expand`]: an answer may have to wait long for its client.
pub(crate) fn encode_result(envelope: String, is_success: bool, content: ResultContent) -> CallToolResult {
    let (text, structured) = match content {
        ResultContent::Text => (Some(envelope), None),
        ResultContent::Structured => (None, Some(raw_json(envelope))),
        ResultContent::Both => (Some(envelope), Some(SAME_AS_TEXT)),
    };
    let blocks = text.map(ContentBlock::text).into_iter().collect();
    let mut result = if is_success { CallToolResult::success(blocks) } else { CallToolResult::error(blocks) };
    result.structured_content = structured;
    result
}

/// No envelope is null.
const SAME_AS_TEXT: Value = Value::Null;

/// Makes a result whole that is about to be written.
pub(crate) fn expand(result: &mut CallToolResult) {
    if result.structured_content == Some(SAME_AS_TEXT) {
        let text = result.content.first().and_then(|block| block.as_text());
        result.structured_content = text.map(|block| raw_json(block.text.clone()));
    }
}

/// The same for the message that it is in.
pub(crate) fn expand_message(message: &mut TxJsonRpcMessage<RoleServer>) {
    if let JsonRpcMessage::Response(JsonRpcResponse { result: ServerResult::CallToolResult(result), .. }) = message {
        expand(result);
    }
}

/// A value that is written as this text. With `arbitrary_precision` serde_json keeps a number as its text, and writes that
/// without looking at it; there is no other way to put JSON text into a [`Value`]. It must not be read as a number, nor go
/// through `serde_json::to_value`, and nothing on the way to a transport does. The tests hold this to the letter.
fn raw_json(json: String) -> Value {
    Value::Number(Number::from_string_unchecked(json))
}

#[cfg(test)]
mod tests {
    use rmcp::model::RequestId;

    use super::*;

    fn sent(content: ResultContent) -> String {
        let result = encode_result(r#"{"success":true,"n":1.10}"#.to_owned(), true, content);
        let mut message: TxJsonRpcMessage<RoleServer> =
            JsonRpcMessage::response(ServerResult::CallToolResult(result), RequestId::Number(7));
        expand_message(&mut message);
        serde_json::to_string(&message).unwrap()
    }

    #[test]
    fn an_envelope_takes_its_place_as_text_as_structured_content_or_as_both_to_the_letter() {
        let start = r#"{"jsonrpc":"2.0","id":7,"result":{"resultType":"complete","content":["#;
        let text = r#"{"type":"text","text":"{\"success\":true,\"n\":1.10}"}"#;
        let structured = r#","structuredContent":{"success":true,"n":1.10}"#;
        assert_eq!(sent(ResultContent::Text), format!("{start}{text}],\"isError\":false}}}}"));
        assert_eq!(sent(ResultContent::Structured), format!("{start}]{structured},\"isError\":false}}}}"));
        assert_eq!(sent(ResultContent::Both), format!("{start}{text}]{structured},\"isError\":false}}}}"));
    }
}
