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

use super::allowance::Allowances;
use super::body::{self, Received};
use super::client_address::Caller;
use super::exchange::{Exchange, Unanswered};
use super::refusal::Refusal;
use super::session_ids::{RecordedSession, SessionIds};
use super::sessions::Sessions;
use super::visit::Visit;
use super::{Guest, Open, Site};
use crate::Server;
use crate::message;

/// The header that names a session.
const SESSION: &str = "mcp-session-id";

/// rmcp's side of `/mcp`, for one ledger.
pub(crate) struct Streamable {
    ids: SessionIds,
    pub(crate) sessions: Arc<Sessions>,
    service: StreamableHttpService<Server, Sessions>,
}

impl Streamable {
    /// Its streams end when `streams` is cancelled.
    pub(crate) fn new(ids: SessionIds, each: Allowances, streams: CancellationToken, metrics: Metrics) -> Self {
        let sessions = Arc::new(Sessions::new(ids.clone(), each, metrics));
        let mut config = StreamableHttpServerConfig::default()
            // Checked on every route, by `addressed`.
            .disable_allowed_hosts()
            .disable_allowed_origins()
            .with_json_response(true)
            .with_sse_retry(None)
            .with_cancellation_token(streams)
            .with_max_request_body_bytes(crate::message::MAX_MESSAGE_BYTES);
        config.session_store = Some(Arc::new(ids.clone()));
        let server = || Visit::current().map(|visit| visit.server()).ok_or_else(|| io::Error::other("nobody asks"));
        let service = StreamableHttpService::new(server, Arc::clone(&sessions), config);
        Self { ids, sessions, service }
    }
}

/// Answers any request to `/mcp`.
pub(crate) async fn handle(
    State(site): State<Arc<Site>>,
    Extension(caller): Extension<Caller>,
    request: Request<Body>,
) -> Response<Body> {
    match admitted(&site, &caller, request).await {
        Ok(response) => response,
        Err(refusal) => refusal.response(),
    }
}

async fn admitted(site: &Arc<Site>, caller: &Caller, request: Request<Body>) -> Result<Response<Body>, Refusal> {
    let guest = site.guest(caller, request.headers()).await?;
    let is_delete = request.method() == Method::DELETE;
    let exchange = Exchange::default();
    let unanswered = Unanswered::new(exchange.clone());
    let (named, recorded) = session_of(&guest, &request)?.unzip();
    let sessions = &guest.open.streamable.sessions;
    if let Some(id) = &named {
        exchange.hold(sessions.enter(id));
    }
    let Posted { request, session, initialize } = match *request.method() {
        Method::POST => {
            let mut posted = posted(site, &guest, named, &exchange, request).await?;
            if posted.session.is_some() {
                recorded.map(|recorded| posted.request.extensions_mut().insert(recorded));
            }
            posted
        }
        Method::GET => {
            site.open_stream(&guest, request.headers(), &exchange)?;
            Posted::nothing(named, request)
        }
        _ => Posted::nothing(named, request),
    };
    if initialize.is_some() || session.is_some() {
        let room = sessions.make_room(&guest.identity.principal.account_id, session.as_deref()).await;
        room.map_err(|most| Refusal::TooManySessions { most })?;
    }
    let visit = Visit {
        identity: guest.identity.clone(),
        account: Arc::clone(&guest.account),
        offer: guest.open.offer.clone(),
        initialize,
        stop: site.stop.clone(),
    };
    let response = handled(&guest.open, session, visit, request).await?;
    let (mut parts, body) = response.into_parts();
    if is_delete && parts.status == StatusCode::ACCEPTED {
        // The session has ended already. Python's client takes 202 for a failure.
        parts.status = StatusCode::NO_CONTENT;
    }
    Ok(Response::from_parts(parts, unanswered.answered().answer(body)))
}

/// What is handed on.
struct Posted {
    request: Request<Full<Bytes>>,
    session: Option<String>,
    /// What opens a session, if the message does.
    initialize: Option<InitializeRequestParams>,
}

impl Posted {
    fn nothing(session: Option<String>, request: Request<Body>) -> Self {
        Self { request: request.map(|_| Full::default()), session, initialize: None }
    }
}

/// Takes the message of a POST.
async fn posted(
    site: &Arc<Site>,
    guest: &Guest,
    named: Option<String>,
    exchange: &Exchange,
    request: Request<Body>,
) -> Result<Posted, Refusal> {
    exchange.hold(site.under_way());
    let Received { mut parts, bytes, message, weight } = body::receive(request, &guest.account).await?;
    exchange.hold(weight);
    let session = named.filter(|_| !stands_alone(&message));
    if let (Some(session), Some(id)) = (&session, message::id_of(&message)) {
        let asked = guest.open.streamable.sessions.ask(session, id.clone());
        // For as long as rmcp has the request, also without its client.
        parts.extensions.insert(asked.ok_or(Refusal::IdInUse(Some(id)))?);
    }
    let mut initialize = None;
    if let JsonRpcMessage::Request(request) = message {
        match request.request {
            ClientRequest::InitializeRequest(opening) if session.is_none() => initialize = Some(opening.params),
            // A stream of events, although it is asked for by POST.
            ClientRequest::SubscriptionsListenRequest(_) => site.open_stream(guest, &parts.headers, exchange)?,
            _ => {}
        }
    }
    parts.extensions.insert(exchange.clone());
    Ok(Posted { request: Request::from_parts(parts, Full::new(bytes)), session, initialize })
}

/// Whether a request says itself what else a session knows. rmcp gives it none, whatever protocol it names, and has its answer
/// before it returns.
fn stands_alone(message: &RxJsonRpcMessage<RoleServer>) -> bool {
    let JsonRpcMessage::Request(JsonRpcRequest { request, .. }) = message else { return false };
    !matches!(request, ClientRequest::InitializeRequest(_))
        && request.get_meta().missing_required_keys(&ProtocolVersion::V_2026_07_28).is_empty()
}

/// Hands the request to rmcp. A session that this server does not have in hand is taken up by one request at a time, and to
/// the end, even if its client goes away.
async fn handled(
    open: &Arc<Open>,
    session: Option<String>,
    visit: Visit,
    mut request: Request<Full<Bytes>>,
) -> Result<Response<impl HttpBody<Data = Bytes, Error = Infallible> + Send + use<>>, Refusal> {
    let streamable = &open.streamable;
    let Some(id) = session else {
        // What nobody has looked at goes no further: rmcp takes an `initialize` to whatever session it names, in any protocol.
        request.headers_mut().remove(SESSION);
        return Ok(visit.during(streamable.service.handle(request)).await);
    };
    if streamable.sessions.is_in_hand(&id) {
        return Ok(visit.during(streamable.service.handle(request)).await);
    }
    let open = Arc::clone(open);
    let taking_up = tokio::spawn(async move {
        let _one = open.streamable.sessions.take_up(&id).await;
        let response = visit.during(open.streamable.service.handle(request)).await;
        open.streamable.sessions.taken_up(&id);
        response
    });
    taking_up.await.map_err(|_| Refusal::Unavailable("the session cannot be taken up again".to_owned()))
}

/// The session that a request belongs to. One that is not this identity's is not there. Protocol 2026-07-28 has none.
fn session_of(guest: &Guest, request: &Request<Body>) -> Result<Option<(String, RecordedSession)>, Refusal> {
    let version = request.headers().get("mcp-protocol-version").and_then(|version| version.to_str().ok());
    if version.is_some_and(|version| version >= ProtocolVersion::V_2026_07_28.as_str()) {
        return Ok(None);
    }
    let mut ids = request.headers().get_all(SESSION).iter();
    let Some(id) = ids.next() else { return Ok(None) };
    let id = id.to_str().ok().filter(|_| ids.next().is_none()).ok_or(Refusal::NoSuchSession)?;
    let recorded = guest.open.streamable.ids.recorded(id, &guest.identity);
    recorded.map(|recorded| Some((id.to_owned(), recorded))).ok_or(Refusal::NoSuchSession)
}
