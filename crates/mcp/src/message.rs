//! Parses JSON-RPC messages, for every transport.

use std::collections::HashMap;
use std::fmt;

use rmcp::model::{ClientNotification, ErrorCode, ErrorData, JsonRpcMessage, RequestId};
use rmcp::service::{RoleServer, RxJsonRpcMessage, TxJsonRpcMessage};
use serde_json::value::RawValue;
use types::{IdScanner, StrictJsonError, quoted};

/// The longest message that is read, in bytes: twice what the ledger records of a call.
pub const MAX_MESSAGE_BYTES: usize = 4 << 20;

/// The longest id that is kept of a text that is not a message, in bytes.
pub(crate) const MAX_ID_BYTES: usize = 256;

/// The most values in a message. PostgreSQL accepts 65,535 parameters.
const MAX_VALUES: usize = 70_000;

/// The most bytes that the unanswered requests of one client may take together: two of the longest, or a thousand
/// short ones. A parsed request takes several times its length.
pub const MAX_IN_FLIGHT_BYTES: usize = 8 << 20;

/// The least that a request takes, in bytes: its task and its answer.
const MIN_REQUEST_BYTES: usize = 8 << 10;

/// What one value of a request takes, in bytes.
const BYTES_PER_VALUE: usize = 32;

/// Error code of a request that the server rejects for now. JSON-RPC reserves -32000 to -32099 for servers.
pub const SERVER_ERROR: ErrorCode = ErrorCode(-32000);

/// A text that is not a message, with the error to answer it with.
#[derive(thiserror::Error)]
#[error("{}", error.message)]
pub struct ParseError {
    /// The JSON-RPC error. Its message may quote the text, so it must not be logged.
    pub error: Box<ErrorData>,
    /// The id in the text, if it has one.
    pub id: Option<RequestId>,
}

impl ParseError {
    pub(crate) fn new(error: ErrorData, id: Option<RequestId>) -> Self {
        Self { error: Box::new(error), id }
    }
}

impl fmt::Debug for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ParseError").field("code", &self.error.code).finish_non_exhaustive()
    }
}

/// Returns the message and the number of its values.
///
/// # Errors
/// [`ParseError`] if the text is not strict JSON, has too many values, is a batch, or is not a message of MCP.
pub fn parse(text: &[u8]) -> Result<(RxJsonRpcMessage<RoleServer>, usize), ParseError> {
    let values = types::check_strict_json(text, MAX_VALUES).map_err(|refused| match refused {
        StrictJsonError::InvalidJson(error) => {
            // A client matches its answer by the id, and waits without one.
            let id = IdScanner::find(text, MAX_ID_BYTES).and_then(|id| serde_json::from_value(id).ok());
            ParseError::new(ErrorData::new(ErrorCode::PARSE_ERROR, format!("Parse error: {error}"), None), id)
        }
        StrictJsonError::RepeatedKey(_) => invalid_request(text, &refused),
        StrictJsonError::TooManyValues(_) => invalid_request(text, &format_args!("{refused}; give many as one text")),
    })?;
    // Only protocol 2025-03-26 had batches, and rmcp has none.
    if text.first() == Some(&b'[') {
        let message = "batches (JSON arrays of messages) are not supported: send the messages one by one";
        return Err(ParseError::new(ErrorData::invalid_request(message, None), None));
    }
    serde_json::from_slice(text).map(|message| (message, values)).map_err(|error| invalid_request(text, &error))
}

/// The error for JSON that is not a message. Of its contents only method and id are read.
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

/// The id of a message that is a request.
#[must_use]
pub fn request_id(message: &RxJsonRpcMessage<RoleServer>) -> Option<&RequestId> {
    match message {
        JsonRpcMessage::Request(request) => Some(&request.id),
        _ => None,
    }
}

/// The id of the request that a message cancels. A cancelled request gets no answer.
#[must_use]
pub fn cancelled_id(message: &RxJsonRpcMessage<RoleServer>) -> Option<&RequestId> {
    match message {
        JsonRpcMessage::Notification(notification) => match &notification.notification {
            ClientNotification::CancelledNotification(cancelled) => cancelled.params.request_id.as_ref(),
            _ => None,
        },
        _ => None,
    }
}

/// The id of the request that a message answers.
#[must_use]
pub fn answered_id(message: &TxJsonRpcMessage<RoleServer>) -> Option<&RequestId> {
    match message {
        JsonRpcMessage::Response(response) => Some(&response.id),
        JsonRpcMessage::Error(error) => error.id.as_ref(),
        _ => None,
    }
}

/// Estimates the memory of a request of this many bytes and values, in bytes.
#[must_use]
pub fn request_bytes(bytes: usize, values: usize) -> usize {
    MIN_REQUEST_BYTES.max(bytes + values * BYTES_PER_VALUE)
}
