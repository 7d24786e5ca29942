//! Reads the message of a request, with limits on its size, its time, and the memory of all requests of an account.

use axum::body::{Body, Bytes};
use http::request::Parts;
use http::{Request, header};
use http_server::{BodyError, read_body};
use mcp::message::{self, MAX_MESSAGE_BYTES};
use rmcp::model::{ClientRequest, JsonRpcMessage};
use rmcp::service::{RoleServer, RxJsonRpcMessage};
use types::without_byte_order_mark;

use crate::error_response::HttpError;
use crate::quota::{AccountUsage, InFlightBytes};

const MAX_INITIALIZE_BYTES: usize = 64 << 10;

/// A parsed message and the head of its request.
pub(crate) struct RequestBody {
    pub(crate) parts: Parts,
    pub(crate) bytes: Bytes,
    pub(crate) message: RxJsonRpcMessage<RoleServer>,
    pub(crate) in_flight_bytes: InFlightBytes,
}

pub(crate) async fn read(request: Request<Body>, account: &AccountUsage) -> Result<RequestBody, HttpError> {
    let (parts, body) = request.into_parts();
    if !is_json(&parts) {
        return Err(HttpError::NotJson);
    }
    let announced = parts.headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let expected: usize = announced.unwrap_or(MAX_MESSAGE_BYTES);
    if expected > MAX_MESSAGE_BYTES {
        return Err(HttpError::TooLarge { most: MAX_MESSAGE_BYTES });
    }
    let arriving = account.reserve_bytes(message::request_bytes(expected, 0))?;
    // No database session waits for it.
    let bytes = read_body(body, MAX_MESSAGE_BYTES).await.map_err(|error| match error {
        BodyError::TooSlow => HttpError::TooSlow,
        BodyError::TooLarge(most) => HttpError::TooLarge { most },
        BodyError::Broken => HttpError::Broken,
    })?;
    let bytes = without_byte_order_mark(bytes);
    let (message, values) = message::parse(bytes.trim_ascii()).map_err(HttpError::Malformed)?;
    if is_initialize(&message) && bytes.len() > MAX_INITIALIZE_BYTES {
        return Err(HttpError::TooLarge { most: MAX_INITIALIZE_BYTES });
    }
    drop(arriving);
    let in_flight_bytes = account.reserve_bytes(message::request_bytes(bytes.len(), values))?;
    Ok(RequestBody { parts, bytes, message, in_flight_bytes })
}

/// Whether a message opens a session. It is kept as long as the session.
fn is_initialize(message: &RxJsonRpcMessage<RoleServer>) -> bool {
    matches!(message, JsonRpcMessage::Request(request) if matches!(request.request, ClientRequest::InitializeRequest(_)))
}

/// Whether the content type is JSON. A page cannot send JSON to another origin without a preflight request.
fn is_json(parts: &Parts) -> bool {
    let mut types = parts.headers.get_all(header::CONTENT_TYPE).iter();
    let (Some(only), None) = (types.next(), types.next()) else { return false };
    let essence = only.to_str().ok().and_then(|text| text.split(';').next());
    essence.is_some_and(|essence| essence.trim().eq_ignore_ascii_case("application/json"))
}
