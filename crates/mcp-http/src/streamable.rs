//! `/mcp`: the streamable HTTP transport, for all protocol revisions. rmcp implements it; this module runs before it.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::State;
use http::{Method, Request, Response, StatusCode};
use http_body::Body as HttpBody;
use http_body_util::Full;
use mcp::{TraceContext, TransportContext, message};
use rmcp::model::{
    ClientNotification, ClientRequest, GetMeta, InitializeRequestParams, JsonRpcMessage, JsonRpcRequest,
    ProtocolVersion,
};
use rmcp::service::{RoleServer, RxJsonRpcMessage};
use types::ClientInfo;

use crate::accepted_types::{self, AcceptedTypes};
use crate::active_backend::ActiveBackend;
use crate::body::{self, RequestBody};
use crate::client_address::ClientAddress;
use crate::direct_call::{DirectCall, is_direct, is_direct_in_session};
use crate::error_response::HttpError;
use crate::request_context::HttpRequestContext;
use crate::response_body::PendingBody;
use crate::state::{AppState, AuthenticatedClient};

/// The header with the id of a session.
const SESSION: &str = "mcp-session-id";

pub(crate) async fn handle(
    State(state): State<Arc<AppState>>,
    Extension(caller): Extension<ClientAddress>,
    mut request: Request<Body>,
) -> Result<Response<Body>, HttpError> {
    let client = state.authorize(&caller, request.headers()).await?;
    let accepted = AcceptedTypes::of(request.headers());
    accepted.complete(&mut request);
    let is_delete = request.method() == Method::DELETE;
    let mut pending = PendingBody::default();
    let named = requested_session(&client, &request)?;
    let sessions = &client.active.sessions;
    if let Some(session) = &named {
        if is_delete {
            sessions.cancel_requests(&session.id, |_| true);
        }
        pending.keep_alive(sessions.begin_use(&session.id));
    }
    let ForwardedRequest { request, session, initialize } = match *request.method() {
        Method::POST => match read_post(&state, &client, named, &mut pending, request).await? {
            PostedMessage::Forwarded(forwarded) => *forwarded,
            PostedMessage::Direct(call, transport) => {
                let server = request_context(&state, &client, None).mcp_server();
                let response = Box::pin(call.run(&server, client.active.silent_peer.clone(), *transport)).await;
                return Ok(response.map(|body| pending.into_body(body)));
            }
        },
        Method::GET => {
            state.open_stream(&client, request.headers(), &mut pending)?;
            ForwardedRequest::without_body(named, request)
        }
        _ => ForwardedRequest::without_body(named, request),
    };
    if initialize.is_some() || session.is_some() {
        let reserved = sessions.reserve_slot(&client.identity.principal.account_id, session.as_deref()).await;
        reserved.map_err(|most| HttpError::TooManySessions { most })?;
    }
    let context = request_context(&state, &client, initialize);
    let response = dispatch(&client.active, session, context, request).await?;
    let (mut parts, body) = response.into_parts();
    if is_delete && parts.status == StatusCode::ACCEPTED {
        // The session has ended already. Python's client treats 202 as a failure.
        parts.status = StatusCode::NO_CONTENT;
    }
    if accepted.refuses(&parts) {
        return Ok(accepted_types::as_json(parts, body).await?.map(|body| pending.into_body(body)));
    }
    Ok(Response::from_parts(parts, pending.into_body(body)))
}

fn request_context(
    state: &AppState,
    client: &AuthenticatedClient,
    initialize: Option<InitializeRequestParams>,
) -> HttpRequestContext {
    HttpRequestContext {
        identity: client.identity.clone(),
        account: Arc::clone(&client.account),
        backend: client.active.backend.clone(),
        initialize,
        stop: state.stop.clone(),
    }
}

struct RequestedSession {
    id: String,
    client: ClientInfo,
}

enum PostedMessage {
    Direct(Box<DirectCall>, Box<TransportContext>),
    Forwarded(Box<ForwardedRequest>),
}

/// A request for rmcp.
struct ForwardedRequest {
    request: Request<Full<Bytes>>,
    session: Option<String>,
    /// The parameters of `initialize`, if the message opens a session.
    initialize: Option<InitializeRequestParams>,
}

impl ForwardedRequest {
    fn without_body(session: Option<RequestedSession>, request: Request<Body>) -> Self {
        let session = session.map(|session| session.id);
        Self { request: request.map(|_| Full::default()), session, initialize: None }
    }
}

async fn read_post(
    state: &Arc<AppState>,
    client: &AuthenticatedClient,
    named: Option<RequestedSession>,
    pending: &mut PendingBody,
    request: Request<Body>,
) -> Result<PostedMessage, HttpError> {
    pending.keep_alive(state.track_request());
    let RequestBody { mut parts, bytes, message, in_flight_bytes } = body::read(request, &client.account).await?;
    state.check_scope(client, &message)?;
    pending.keep_alive(in_flight_bytes);
    let (session, session_client) =
        named.filter(|_| !is_stateless(&message)).map(|session| (session.id, session.client)).unzip();
    let sessions = &client.active.sessions;
    let claimed = match (&session, message::request_id(&message)) {
        (Some(session), Some(id)) => {
            let claimed = sessions.claim_request_id(session, id.clone());
            Some(claimed.ok_or_else(|| HttpError::IdInUse(Some(id.clone())))?)
        }
        _ => None,
    };
    let response = pending.scope().clone();
    let (client_info, trace) = (session_client.unwrap_or_default(), TraceContext::of_headers(&parts.headers));
    let transport = TransportContext { response, client: client_info, is_written_by_rmcp: true, tools: None, trace };
    let is_direct = |request: &ClientRequest| match session {
        None => is_direct(&parts.headers, request),
        Some(_) => is_direct_in_session(&parts.headers, request, |tool| client.has_reading_tool(tool)),
    };
    let message = match message {
        JsonRpcMessage::Request(request) if is_direct(&request.request) => {
            let transport = TransportContext { is_written_by_rmcp: false, ..transport };
            let cancellation = claimed.as_ref().map(|claimed| claimed.cancellation.clone()).unwrap_or_default();
            pending.keep_alive(claimed);
            return Ok(PostedMessage::Direct(Box::new(DirectCall::new(request, cancellation)), Box::new(transport)));
        }
        message => message,
    };
    // Held while rmcp handles the request, even after its client has gone.
    if let Some(claimed) = claimed {
        parts.extensions.insert(claimed);
    }
    if let (Some(session), JsonRpcMessage::Notification(notification)) = (&session, &message)
        && let ClientNotification::CancelledNotification(cancelled) = &notification.notification
    {
        sessions.cancel_requests(session, |id| Some(id) == cancelled.params.request_id.as_ref());
    }
    let mut initialize = None;
    if let JsonRpcMessage::Request(request) = message {
        match request.request {
            ClientRequest::InitializeRequest(opening) if session.is_none() => initialize = Some(opening.params),
            // The response to this POST is an event stream.
            ClientRequest::SubscriptionsListenRequest(_) => state.open_stream(client, &parts.headers, pending)?,
            _ => {}
        }
    }
    // The session may have been opened with a token of another scope.
    let tools = session.as_ref().map(|_| client.tools());
    parts.extensions.insert(TransportContext { tools, ..transport });
    let request = Request::from_parts(parts, Full::new(bytes));
    Ok(PostedMessage::Forwarded(Box::new(ForwardedRequest { request, session, initialize })))
}

/// Whether a request carries everything that a session otherwise has. rmcp gives it no session, whatever protocol the
/// header names, and has its answer before its handler returns.
fn is_stateless(message: &RxJsonRpcMessage<RoleServer>) -> bool {
    let JsonRpcMessage::Request(JsonRpcRequest { request, .. }) = message else { return false };
    !matches!(request, ClientRequest::InitializeRequest(_))
        && request.get_meta().missing_required_keys(&ProtocolVersion::V_2026_07_28).is_empty()
}

/// Passes the request to rmcp. If this server does not have the session in memory, one request at a time resumes it,
/// and completes that even if its client goes away.
async fn dispatch(
    active: &Arc<ActiveBackend>,
    session: Option<String>,
    context: HttpRequestContext,
    mut request: Request<Full<Bytes>>,
) -> Result<Response<impl HttpBody<Data = Bytes, Error = Infallible> + Send + use<>>, HttpError> {
    let Some(id) = session else {
        // An unchecked header must not reach rmcp, which takes an `initialize` to any session that the header names.
        request.headers_mut().remove(SESSION);
        return Ok(context.scope(active.service.handle(request)).await);
    };
    if active.sessions.is_active(&id) {
        return Ok(context.scope(active.service.handle(request)).await);
    }
    let active = Arc::clone(active);
    let resuming = tokio::spawn(async move {
        let _guard = active.sessions.resume(&id).await;
        let response = context.scope(active.service.handle(request)).await;
        active.sessions.mark_resumed(&id);
        response
    });
    resuming.await.map_err(|_| HttpError::Unavailable("the session cannot be resumed".to_owned()))
}

/// The session that a request names, if it belongs to this identity. Protocol 2026-07-28 has no sessions.
fn requested_session(
    client: &AuthenticatedClient,
    request: &Request<Body>,
) -> Result<Option<RequestedSession>, HttpError> {
    let version = request.headers().get("mcp-protocol-version").and_then(|version| version.to_str().ok());
    if version.is_some_and(|version| version >= ProtocolVersion::V_2026_07_28.as_str()) {
        return Ok(None);
    }
    let mut ids = request.headers().get_all(SESSION).iter();
    let Some(id) = ids.next() else { return Ok(None) };
    let id = id.to_str().ok().filter(|_| ids.next().is_none()).ok_or(HttpError::NoSuchSession)?;
    let described = client.active.ids.client(id, &client.identity).ok_or(HttpError::NoSuchSession)?;
    Ok(Some(RequestedSession { id: id.to_owned(), client: described }))
}
