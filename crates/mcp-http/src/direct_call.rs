//! Answers the usual tool call of protocol 2026-07-28, and a read in a session, without rmcp's HTTP service. That
//! service parses each message once more, starts three tasks and a service for it, and in a session passes it through
//! the session's worker.
//!
//! Only a request that passes every check of that service is a direct call. rmcp handles all others, and reports
//! their errors. A write in a session is rmcp's: it continues when its client has gone, and may ask the user.

use std::io;

use axum::body::{Body, Bytes};
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use mcp::{McpServer, TransportContext};
use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    ClientRequest, ErrorCode, ErrorData, GetExtensions, GetMeta, JsonRpcMessage, JsonRpcRequest, ProtocolVersion,
    ServerResult,
};
use rmcp::service::{Peer, RequestContext, RoleServer, RxJsonRpcMessage, Service, TxJsonRpcMessage, serve_directly};
use rmcp::transport::Transport;
use tokio_util::sync::CancellationToken;

/// A tool call whose answer is one JSON message.
pub(crate) struct DirectCall {
    request: JsonRpcRequest<ClientRequest>,
    cancellation: CancellationToken,
}

impl DirectCall {
    /// The call of a request that [`is_direct`], or [`is_direct_in_session`], where `cancellation` cancels it.
    pub(crate) const fn new(request: JsonRpcRequest<ClientRequest>, cancellation: CancellationToken) -> Self {
        Self { request, cancellation }
    }

    /// Runs the call. Dropping it cancels the call, as rmcp does for a client that has gone.
    pub(crate) async fn run(
        self,
        server: &McpServer,
        peer: Peer<RoleServer>,
        transport: TransportContext,
    ) -> Response<Body> {
        let JsonRpcRequest { id, mut request, .. } = self.request;
        let mut context = RequestContext::new(id.clone(), peer);
        context.ct = self.cancellation;
        std::mem::swap(&mut context.meta, request.get_meta_mut());
        std::mem::swap(&mut context.extensions, request.extensions_mut());
        context.extensions.insert(transport);
        let result: Result<ServerResult, ErrorData> = Service::handle_request(server, request, context).await;
        let status = result.as_ref().map_or_else(|error| status(error.code), |_| StatusCode::OK);
        let mut message: TxJsonRpcMessage<RoleServer> = match result {
            Ok(result) => JsonRpcMessage::response(result, id),
            Err(error) => JsonRpcMessage::error(error, Some(id)),
        };
        mcp::expand_message(&mut message);
        response(status, &message)
    }
}

/// Whether rmcp would pass a request to the handler, in this protocol and without a session.
pub(crate) fn is_direct(headers: &HeaderMap, request: &ClientRequest) -> bool {
    let ClientRequest::CallToolRequest(call) = request else { return false };
    let meta = request.get_meta();
    let version = ProtocolVersion::V_2026_07_28;
    accepts_both_types(headers)
        && is_only(headers, "mcp-protocol-version", version.as_str())
        && is_only(headers, "mcp-method", "tools/call")
        && is_plain(&call.params.name)
        && is_only(headers, "mcp-name", &call.params.name)
        && meta.protocol_version().is_some_and(|named| named == version)
        && meta.missing_required_keys(&version).is_empty()
        && meta.client_info().is_some()
}

/// Whether rmcp would pass a request of a session to the handler, and the tool only reads.
pub(crate) fn is_direct_in_session(
    headers: &HeaderMap,
    request: &ClientRequest,
    is_read: impl FnOnce(&str) -> bool,
) -> bool {
    let ClientRequest::CallToolRequest(call) = request else { return false };
    accepts_both_types(headers) && has_known_version(headers) && is_read(&call.params.name)
}

/// Whether the version in the header, if there is one, is known.
fn has_known_version(headers: &HeaderMap) -> bool {
    !headers.contains_key("mcp-protocol-version")
        || ProtocolVersion::KNOWN_VERSIONS.iter().any(|known| is_only(headers, "mcp-protocol-version", known.as_str()))
}

/// Whether a header occurs exactly once, with this value.
fn is_only(headers: &HeaderMap, name: &str, value: &str) -> bool {
    let mut values = headers.get_all(name).iter();
    values.next().is_some_and(|only| only == value) && values.next().is_none()
}

/// Whether a header contains the name unencoded.
fn is_plain(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
}

/// Whether the client accepts both types of responses, without weights.
fn accepts_both_types(headers: &HeaderMap) -> bool {
    let mut values = headers.get_all(header::ACCEPT).iter();
    let (Some(only), None) = (values.next(), values.next()) else { return false };
    let Ok(list) = only.to_str() else { return false };
    let accepts = |wanted: &str| list.split(',').any(|accepted| accepted.trim().eq_ignore_ascii_case(wanted));
    !list.contains(['"', ';']) && accepts("application/json") && accepts("text/event-stream")
}

/// The status of an error, as protocol 2026-07-28 has it.
fn status(code: ErrorCode) -> StatusCode {
    match code {
        ErrorCode::UNSUPPORTED_PROTOCOL_VERSION
        | ErrorCode::MISSING_REQUIRED_CLIENT_CAPABILITY
        | ErrorCode::HEADER_MISMATCH => StatusCode::BAD_REQUEST,
        ErrorCode::METHOD_NOT_FOUND => StatusCode::NOT_FOUND,
        _ => StatusCode::OK,
    }
}

fn response(status: StatusCode, message: &TxJsonRpcMessage<RoleServer>) -> Response<Body> {
    let (status, body) = match serde_json::to_vec(message) {
        Ok(body) => (status, body),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string().into_bytes()),
    };
    let mut response = Response::new(Body::from(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// The peer of all direct calls: a client that cannot be asked or notified. A call of this protocol does neither.
pub(crate) fn silent_peer() -> Peer<RoleServer> {
    serve_directly::<RoleServer, _, _, _, _>(NoHandler, NoClient, None).peer().clone()
}

struct NoHandler;

impl ServerHandler for NoHandler {}

/// A transport that is closed.
struct NoClient;

impl Transport<RoleServer> for NoClient {
    type Error = io::Error;

    fn send(
        &mut self,
        _: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), io::Error>> + Send + 'static {
        std::future::ready(Err(io::ErrorKind::NotConnected.into()))
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        None
    }

    async fn close(&mut self) -> Result<(), io::Error> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    fn is_taken(lines: &[(&'static str, &str)], meta: &Value) -> bool {
        let params = json!({"name": "query_database", "arguments": {"query": "select 1"}, "_meta": meta});
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        let (message, _) = mcp::message::parse(message.to_string().as_bytes()).unwrap();
        let JsonRpcMessage::Request(request) = message else { panic!("it is a request") };
        is_direct(&headers(lines), &request.request)
    }

    #[test]
    fn only_a_call_with_all_headers_and_metadata_is_direct() {
        let lines = [
            ("accept", "application/json, text/event-stream"),
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "tools/call"),
            ("mcp-name", "query_database"),
        ];
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "0"},
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        assert!(is_taken(&lines, &meta), "the usual call");
        for (index, (name, _)) in lines.iter().enumerate() {
            let mut missing = lines.to_vec();
            missing.remove(index);
            let different = [missing.as_slice(), &[(*name, "other")]].concat();
            let twice = [lines.as_slice(), &lines[index..=index]].concat();
            for lines in [missing, different, twice] {
                assert!(!is_taken(&lines, &meta), "{lines:?}");
            }
        }
        for key in meta.as_object().unwrap().keys() {
            let mut missing = meta.clone();
            missing.as_object_mut().unwrap().remove(key);
            assert!(!is_taken(&lines, &missing), "without {key}");
        }
    }
}
