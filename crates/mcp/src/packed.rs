//! Tool results as text, once.
//!
//! rmcp's result holds structured content as a tree of values, which for a wide answer takes fifty times the room of the
//! text that becomes of it. So an envelope travels through rmcp as text that is written as it is, by whatever transport.

use rmcp::model::{CallToolResult, ContentBlock};
use serde_json::{Number, Value};

use crate::server::Content;

/// The result that is written with this envelope, which is the text of a JSON object.
pub(crate) fn pack(envelope: String, is_success: bool, content: Content) -> CallToolResult {
    let (text, structured) = match content {
        Content::Text => (Some(envelope), None),
        Content::Structured => (None, Some(envelope)),
        Content::Both => (Some(envelope.clone()), Some(envelope)),
    };
    let blocks = text.map(ContentBlock::text).into_iter().collect();
    let mut result = if is_success { CallToolResult::success(blocks) } else { CallToolResult::error(blocks) };
    result.structured_content = structured.map(verbatim);
    result
}

/// A value that is written as this text. With `arbitrary_precision` serde_json keeps a number as its text, and writes that
/// without looking at it; there is no other way to put JSON text into a [`Value`]. It must not be read as a number, nor go
/// through `serde_json::to_value`, and nothing on the way to a transport does. The tests hold this to the letter.
fn verbatim(json: String) -> Value {
    Value::Number(Number::from_string_unchecked(json))
}

#[cfg(test)]
mod tests {
    use rmcp::model::{JsonRpcMessage, RequestId, ServerResult};
    use rmcp::service::{RoleServer, TxJsonRpcMessage};

    use super::*;

    fn sent(content: Content) -> String {
        let result = pack(r#"{"success":true,"n":1.10}"#.to_owned(), true, content);
        let message: TxJsonRpcMessage<RoleServer> =
            JsonRpcMessage::response(ServerResult::CallToolResult(result), RequestId::Number(7));
        serde_json::to_string(&message).unwrap()
    }

    #[test]
    fn an_envelope_takes_its_place_as_text_as_structured_content_or_as_both_to_the_letter() {
        let start = r#"{"jsonrpc":"2.0","id":7,"result":{"resultType":"complete","content":["#;
        let text = r#"{"type":"text","text":"{\"success\":true,\"n\":1.10}"}"#;
        let structured = r#","structuredContent":{"success":true,"n":1.10}"#;
        assert_eq!(sent(Content::Text), format!("{start}{text}],\"isError\":false}}}}"));
        assert_eq!(sent(Content::Structured), format!("{start}]{structured},\"isError\":false}}}}"));
        assert_eq!(sent(Content::Both), format!("{start}{text}]{structured},\"isError\":false}}}}"));
    }
}
