//! Texts to JSON-RPC messages, whatever transport they came by.

use std::collections::HashMap;
use std::fmt;

use rmcp::model::{ErrorCode, ErrorData, JsonRpcMessage, RequestId};
use rmcp::service::{RoleServer, RxJsonRpcMessage};
use serde_json::value::RawValue;
use types::{StrictJsonError, quoted};

/// The longest message that is read, in bytes: twice what the ledger records of a call.
pub(crate) const MAX_MESSAGE_BYTES: usize = 4 << 20;
/// The most values in a message: room for 65,535 parameters, the most that PostgreSQL takes.
const MAX_VALUES: usize = 70_000;

/// What is answered to a text that is no message.
pub(crate) struct ParseError {
    pub(crate) error: Box<ErrorData>,
    /// The text's own id, as far as it has one.
    pub(crate) id: Option<RequestId>,
}

impl ParseError {
    pub(crate) fn new(error: ErrorData, id: Option<RequestId>) -> Self {
        Self { error: Box::new(error), id }
    }
}

/// The message, and how many values it is made of.
///
/// # Errors
/// What is answered to a text that is no message.
pub(crate) fn parse(text: &[u8]) -> Result<(RxJsonRpcMessage<RoleServer>, usize), ParseError> {
    let values = types::check_strict_json(text, MAX_VALUES).map_err(|refused| match refused {
        StrictJsonError::NoJson(error) => {
            ParseError::new(ErrorData::new(ErrorCode::PARSE_ERROR, format!("Parse error: {error}"), None), None)
        }
        StrictJsonError::KeyTwice(_) => invalid_request(text, &refused),
        StrictJsonError::TooManyValues(_) => invalid_request(text, &format_args!("{refused}; give many as one text")),
    })?;
    if text.first() == Some(&b'[') {
        let message = "a batch (a JSON array of messages) is not taken: send its messages one by one";
        return Err(ParseError::new(ErrorData::invalid_request(message, None), None));
    }
    serde_json::from_slice(text).map(|message| (message, values)).map_err(|error| invalid_request(text, &error))
}

/// The answer to JSON that is no message. What is in it besides method and id is not looked at.
fn invalid_request(text: &[u8], error: &dyn fmt::Display) -> ParseError {
    let fields: HashMap<String, &RawValue> = serde_json::from_slice(text).unwrap_or_default();
    let id = fields.get("id").and_then(|id| serde_json::from_str(id.get()).ok());
    let method = fields.get("method").and_then(|method| serde_json::from_str::<String>(method.get()).ok());
    match method {
        Some(method) if id.is_some() => ParseError::new(
            ErrorData::invalid_params(format!("the params of {} cannot be read: {error}", quoted(&method)), None),
            id,
        ),
        _ => ParseError::new(ErrorData::invalid_request(format!("not a JSON-RPC message of MCP: {error}"), None), id),
    }
}

/// The id that an answer must have.
pub(crate) fn request_id(message: &RxJsonRpcMessage<RoleServer>) -> Option<RequestId> {
    match message {
        JsonRpcMessage::Request(request) => Some(request.id.clone()),
        _ => None,
    }
}
