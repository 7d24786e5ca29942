//! `/mcp`: the streamable transport, all protocol revisions. rmcp speaks it; here is what stands before it.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::State;
use http::{Method, Request, Response, StatusCode};
use http_body::Body as HttpBody;
use http_body_util::Full;
use rmcp::model::{ClientRequest, GetMeta, InitializeRequestParams, JsonRpcMessage, JsonRpcRequest, ProtocolVersion};
use rmcp::service::{RoleServer, RxJsonRpcMessage};
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use tokio_util::sync::CancellationToken;
use tools::metrics::Metrics;

use super::body::{self, RequestBody};
use super::client_address::ClientAddress;
use super::error_response::HttpError;
use super::quota::AccountQuotas;
use super::request_context::HttpRequestContext;
use super::response_scope::{PendingBody, ResponseScope};
use super::session_ids::{RecordSessionId, SessionIdCodec};
use super::sessions::StreamableSessions;
use super::{AppState, AuthenticatedClient, OpenBackend};
use crate::McpServer;
use crate::message;

/// The header that names a session.
const SESSION: &str = "mcp-session-id";

/// rmcp's side of `/mcp`, for one ledger.
pub(crate) struct StreamableHttp {
    ids: SessionIdCodec,
    pub(crate) sessions: Arc<StreamableSessions>,
    service: StreamableHttpService<McpServer, StreamableSessions>,
}

impl StreamableHttp {
    /// Its streams end when `streams` is cancelled.
    pub(crate) fn new(ids: SessionIdCodec, each: AccountQuotas, streams: CancellationToken, metrics: Metrics) -> Self {
        let sessions = Arc::new(StreamableSessions::new(ids.clone(), each, metrics));
        let mut config = StreamableHttpServerConfig::default()
            // Checked on every route, by `host_check`.
            .disable_allowed_hosts()
            .disable_allowed_origins()
            .with_json_response(true)
            .with_sse_retry(None)
            .with_cancellation_token(streams)
            .with_max_request_body_bytes(crate::message::MAX_MESSAGE_BYTES);
        config.session_store = Some(Arc::new(ids.clone()));
        let server = || {
            HttpRequestContext::current()
                .map(|request_context| request_context.mcp_server())
                .ok_or_else(|| io::Error::other("nobody asks"))
        };
        let service = StreamableHttpService::new(server, Arc::clone(&sessions), config);
        Self { ids, sessions, service }
    }
}

/// Answers any request to `/mcp`.
pub(crate) async fn handle(
    State(state): State<Arc<AppState>>,
    Extension(caller): Extension<ClientAddress>,
    request: Request<Body>,
) -> Response<Body> {
    match respond(&state, &caller, request).await {
        Ok(response) => response,
        Err(error) => error.response(),
    }
}

async fn respond(
    state: &Arc<AppState>,
    caller: &ClientAddress,
    request: Request<Body>,
) -> Result<Response<Body>, HttpError> {
    let client = state.authorize(caller, request.headers()).await?;
    let is_delete = request.method() == Method::DELETE;
    let response_scope = ResponseScope::default();
    let pending = PendingBody::new(response_scope.clone());
    let (session_id, record_id) = requested_session(&client, &request)?.unzip();
    let sessions = &client.open.streamable.sessions;
    if let Some(id) = &session_id {
        response_scope.keep_alive(sessions.begin_use(id));
    }
    let ForwardedRequest { request, session, initialize } = match *request.method() {
        Method::POST => {
            let mut read_post = read_post(state, &client, session_id, &response_scope, request).await?;
            if read_post.session.is_some() {
                record_id.map(|record_id| read_post.request.extensions_mut().insert(record_id));
            }
            read_post
        }
        Method::GET => {
            state.open_stream(&client, request.headers(), &response_scope)?;
            ForwardedRequest::without_body(session_id, request)
        }
        _ => ForwardedRequest::without_body(session_id, request),
    };
    if initialize.is_some() || session.is_some() {
        let room = sessions.reserve_slot(&client.identity.principal.account_id, session.as_deref()).await;
        room.map_err(|most| HttpError::TooManySessions { most })?;
    }
    let request_context = HttpRequestContext {
        identity: client.identity.clone(),
        account: Arc::clone(&client.account),
        backend: client.open.backend.clone(),
        initialize,
        stop: state.stop.clone(),
    };
    let response = dispatch(&client.open, session, request_context, request).await?;
    let (mut parts, body) = response.into_parts();
    if is_delete && parts.status == StatusCode::ACCEPTED {
        // The session has ended already. Python's client takes 202 for a failure.
        parts.status = StatusCode::NO_CONTENT;
    }
    Ok(Response::from_parts(parts, pending.take_scope().into_body(body)))
}

/// What is handed on.
struct ForwardedRequest {
    request: Request<Full<Bytes>>,
    session: Option<String>,
    /// What opens a session, if the message does.
    initialize: Option<InitializeRequestParams>,
}

impl ForwardedRequest {
    fn without_body(session: Option<String>, request: Request<Body>) -> Self {
        Self { request: request.map(|_| Full::default()), session, initialize: None }
    }
}

/// Takes the message of a POST.
async fn read_post(
    state: &Arc<AppState>,
    client: &AuthenticatedClient,
    session_id: Option<String>,
    response_scope: &ResponseScope,
    request: Request<Body>,
) -> Result<ForwardedRequest, HttpError> {
    response_scope.keep_alive(state.track_request());
    let RequestBody { mut parts, bytes, message, in_flight_bytes } = body::read(request, &client.account).await?;
    response_scope.keep_alive(in_flight_bytes);
    let session = session_id.filter(|_| !is_stateless(&message));
    if let (Some(session), Some(id)) = (&session, message::request_id(&message)) {
        let asked = client.open.streamable.sessions.claim_request_id(session, id.clone());
        // For as long as rmcp has the request, also without its client.
        parts.extensions.insert(asked.ok_or(HttpError::IdInUse(Some(id)))?);
    }
    let mut initialize = None;
    if let JsonRpcMessage::Request(request) = message {
        match request.request {
            ClientRequest::InitializeRequest(opening) if session.is_none() => initialize = Some(opening.params),
            // A stream of events, although it is asked for by POST.
            ClientRequest::SubscriptionsListenRequest(_) => {
                state.open_stream(client, &parts.headers, response_scope)?
            }
            _ => {}
        }
    }
    parts.extensions.insert(response_scope.clone());
    Ok(ForwardedRequest { request: Request::from_parts(parts, Full::new(bytes)), session, initialize })
}

/// Whether a request says itself what else a session knows. rmcp gives it none, whatever protocol it names, and has its answer
/// before it returns.
fn is_stateless(message: &RxJsonRpcMessage<RoleServer>) -> bool {
    let JsonRpcMessage::Request(JsonRpcRequest { request, .. }) = message else { return false };
    !matches!(request, ClientRequest::InitializeRequest(_))
        && request.get_meta().missing_required_keys(&ProtocolVersion::V_2026_07_28).is_empty()
}

/// Hands the request to rmcp. A session that this server does not have in hand is taken up by one request at a time, and to
/// the end, even if its client goes away.
async fn dispatch(
    open: &Arc<OpenBackend>,
    session: Option<String>,
    request_context: HttpRequestContext,
    mut request: Request<Full<Bytes>>,
) -> Result<Response<impl HttpBody<Data = Bytes, Error = Infallible> + Send + use<>>, HttpError> {
    let streamable = &open.streamable;
    let Some(id) = session else {
        // What nobody has looked at goes no further: rmcp takes an `initialize` to whatever session it names, in any protocol.
        request.headers_mut().remove(SESSION);
        return Ok(request_context.scope(streamable.service.handle(request)).await);
    };
    if streamable.sessions.is_active(&id) {
        return Ok(request_context.scope(streamable.service.handle(request)).await);
    }
    let open = Arc::clone(open);
    let resuming = tokio::spawn(async move {
        let _one = open.streamable.sessions.resume(&id).await;
        let response = request_context.scope(open.streamable.service.handle(request)).await;
        open.streamable.sessions.mark_resumed(&id);
        response
    });
    resuming.await.map_err(|_| HttpError::Unavailable("the session cannot be taken up again".to_owned()))
}

/// The session that a request belongs to. One that is not this identity's is not there. Protocol 2026-07-28 has none.
fn requested_session(
    client: &AuthenticatedClient,
    request: &Request<Body>,
) -> Result<Option<(String, RecordSessionId)>, HttpError> {
    let version = request.headers().get("mcp-protocol-version").and_then(|version| version.to_str().ok());
    if version.is_some_and(|version| version >= ProtocolVersion::V_2026_07_28.as_str()) {
        return Ok(None);
    }
    let mut ids = request.headers().get_all(SESSION).iter();
    let Some(id) = ids.next() else { return Ok(None) };
    let id = id.to_str().ok().filter(|_| ids.next().is_none()).ok_or(HttpError::NoSuchSession)?;
    let record_id = client.open.streamable.ids.record_id(id, &client.identity);
    record_id.map(|record_id| Some((id.to_owned(), record_id))).ok_or(HttpError::NoSuchSession)
}
