//! What a client of `/mcp` accepts. MCP asks clients to list JSON and event streams, and rmcp refuses others. Some send
//! `*/*`, JSON alone, or no `Accept` at all; those have one answer to a request, which JSON can carry.

use std::convert::Infallible;
use std::pin::pin;

use axum::body::Bytes;
use futures_util::StreamExt;
use http::response::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, header};
use http_body::Body as HttpBody;
use http_body_util::Full;
use rmcp::model::JsonRpcMessage;
use rmcp::service::{RoleServer, TxJsonRpcMessage};
use sse_stream::SseStream;

use crate::error_response::HttpError;

const JSON: &str = "application/json";
const EVENT_STREAM: &str = "text/event-stream";

/// The types of responses that a client accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AcceptedTypes {
    json: bool,
    event_stream: bool,
}

impl AcceptedTypes {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        if !headers.contains_key(header::ACCEPT) {
            return Self { json: true, event_stream: true };
        }
        let ranges = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
        // A range with the weight 0 is refused, as are malformed ones.
        let ranges: Vec<String> = ranges
            .flat_map(|list: &str| list.split(','))
            .filter(|range| !range.split(';').skip(1).any(is_zero_weight))
            .filter_map(|range| range.split(';').next().map(|range| range.trim().to_ascii_lowercase()))
            .collect();
        let accepts = |wanted: &[&str]| ranges.iter().any(|range| wanted.contains(&range.as_str()));
        Self { json: accepts(&[JSON, "application/*", "*/*"]), event_stream: accepts(&[EVENT_STREAM, "text/*", "*/*"]) }
    }

    /// Completes the header of a request for rmcp, which refuses a client that does not accept what it would get: a GET
    /// opens an event stream.
    pub(crate) fn complete<B>(self, request: &mut Request<B>) {
        let is_served = if request.method() == Method::GET { self.event_stream } else { self.json };
        let is_complete = request
            .headers()
            .get(header::ACCEPT)
            .is_some_and(|value| value.to_str().is_ok_and(|list| list.contains(JSON) && list.contains(EVENT_STREAM)));
        if is_served && !is_complete {
            let both = HeaderValue::from_static("application/json, text/event-stream");
            request.headers_mut().insert(header::ACCEPT, both);
        }
    }

    /// Whether a response is an event stream, and the client accepts JSON alone.
    pub(crate) fn refuses(self, response: &Parts) -> bool {
        let kind = response.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        !self.event_stream && kind.is_some_and(|kind| kind.starts_with(EVENT_STREAM))
    }
}

/// The answer to a request in an event stream, as a response of JSON. Notifications before it are left out.
pub(crate) async fn as_json<B>(mut parts: Parts, stream: B) -> Result<Response<Full<Bytes>>, HttpError>
where
    B: HttpBody<Data = Bytes, Error = Infallible>,
{
    let mut events = pin!(SseStream::new(stream));
    while let Some(Ok(event)) = events.next().await {
        let data = event.data.unwrap_or_default();
        let message: Option<TxJsonRpcMessage<RoleServer>> = serde_json::from_str(&data).ok();
        if matches!(message, Some(JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_))) {
            parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(JSON));
            return Ok(Response::from_parts(parts, Full::from(data)));
        }
    }
    Err(HttpError::Unavailable("the stream ended before its answer".to_owned()))
}

/// Whether a parameter of a range is `q=0`, with any number of decimals.
fn is_zero_weight(parameter: &str) -> bool {
    let weight = parameter.trim().strip_prefix("q=").or_else(|| parameter.trim().strip_prefix("Q="));
    weight.is_some_and(|weight| weight.parse() == Ok(0.0_f32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_weights_and_several_headers_are_read() {
        let of = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::ACCEPT, value.parse().unwrap());
            }
            let AcceptedTypes { json, event_stream } = AcceptedTypes::of(&headers);
            (json, event_stream)
        };
        for (values, expected) in [
            (&[][..], (true, true)),
            (&["*/*"], (true, true)),
            (&["application/json"], (true, false)),
            (&["Application/JSON; charset=utf-8, text/plain"], (true, false)),
            (&["application/*;q=0.5"], (true, false)),
            (&["application/json", "text/event-stream"], (true, true)),
            (&["text/*"], (false, true)),
            (&["text/html"], (false, false)),
            (&["text/event-stream, application/json;q=0"], (false, true)),
            (&[""], (false, false)),
        ] {
            assert_eq!(of(values), expected, "{values:?}");
        }
    }
}
