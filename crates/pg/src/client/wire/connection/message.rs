//! Properties of single messages: whether they are well-formed or allowed at idle, and the encoding that they report.

use std::io;

use bytes::{BufMut, BytesMut};
use fallible_iterator::FallibleIterator;
use postgres_protocol::message::backend::{
    ERROR_RESPONSE_TAG, Message, NOTICE_RESPONSE_TAG, NOTIFICATION_RESPONSE_TAG, PARAMETER_STATUS_TAG,
};

use super::HEADER_BYTES;
use crate::client::error::{ENCODING_HINT, ServerError};

/// Whether the name is PostgreSQL's spelling of UTF8, or another spelling that a pooler forwards from a client.
pub(super) fn is_utf8(encoding: &str) -> bool {
    let letters: String = encoding.chars().filter(char::is_ascii_alphanumeric).collect();
    ["utf8", "unicode"].iter().any(|name| letters.eq_ignore_ascii_case(name))
}

/// feature_not_supported, with a CONTEXT: the error does not mean that the statement no longer fits the database
/// ([`ServerError::is_schema_drift`]).
pub(crate) fn other_encoding(encoding: &str) -> ServerError {
    let message = format!("the client encoding was set to {encoding}, and it is UTF8 here: nothing of it was done");
    let (hint, context) = (Some(ENCODING_HINT.to_owned()), Some("client_encoding".to_owned()));
    ServerError { hint, context, ..ServerError::synthetic("0A000", message) }
}

/// An error message with these fields. The last field may be cut off.
pub(super) fn beginning(fields: &[u8]) -> BytesMut {
    let mut body = BytesMut::with_capacity(fields.len() + 2);
    let mut rest = fields;
    while let [kind, text @ ..] = rest {
        if *kind == 0 {
            break;
        }
        let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
        body.put_u8(*kind);
        body.extend_from_slice(text.get(..end).unwrap_or_default());
        body.put_u8(0);
        rest = text.get(end + 1..).unwrap_or_default();
    }
    body.put_u8(0);
    let mut message = BytesMut::with_capacity(body.len() + HEADER_BYTES);
    message.put_u8(ERROR_RESPONSE_TAG);
    message.put_i32(i32::try_from(body.len() + 4).unwrap_or(i32::MAX));
    message.extend_from_slice(&body);
    message
}

/// Checks the body of a message, so that a malformed body ends the connection here, before its fields are used.
pub(super) fn check_body(message: &Message) -> io::Result<()> {
    match message {
        Message::RowDescription(body) => body.fields().count().map(drop),
        Message::DataRow(body) => body.ranges().count().map(drop),
        Message::CommandComplete(body) => body.tag().map(drop),
        Message::NoticeResponse(body) => body.fields().count().map(drop),
        _ => Ok(()),
    }
}

/// Whether a server may send this message without a request.
pub(super) fn may_be_volunteered(tag: u8) -> bool {
    [NOTICE_RESPONSE_TAG, PARAMETER_STATUS_TAG, NOTIFICATION_RESPONSE_TAG, ERROR_RESPONSE_TAG].contains(&tag)
}

pub(super) fn violation(message: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("protocol violation: {message}"))
}
