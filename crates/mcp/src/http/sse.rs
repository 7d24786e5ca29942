//! `/sse` and `/message`: the transport of protocol 2024-11-05, for clients that still use it. Requests come by POST, one each,
//! and all answers by the one stream that a session is.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::convert::Infallible;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Query, State};
use axum::response::IntoResponse;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::{Stream, StreamExt, stream};
use http::{HeaderMap, Request, Response, StatusCode};
use rmcp::ServiceExt;
use rmcp::model::{ClientNotification, JsonRpcMessage, RequestId};
use rmcp::service::{RoleServer, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};
use tools::metrics::GaugeGuard;

use super::body::{self, RequestBody};
use super::client_address::ClientAddress;
use super::error_response::HttpError;
use super::request_context::HttpRequestContext;
use super::response_scope::{PendingBody, ResponseScope};
use super::{AppState, AuthenticatedClient};
use crate::auth::Identity;
use crate::in_flight::answered_id;
use crate::result_encoding;

/// How often a silent stream says that it is there.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Messages of a session that nobody has taken yet, each way.
const CHANNEL_CAPACITY: usize = 4;

/// The sessions that are open.
#[derive(Clone, Default)]
pub(crate) struct SseSessions {
    by_id: Arc<Mutex<HashMap<String, SseSession>>>,
}

#[derive(Clone)]
struct SseSession {
    identity: Identity,
    inbox: mpsc::Sender<RxJsonRpcMessage<RoleServer>>,
    /// What is held for each request until its answer is on its way.
    track_request: InFlightScopes,
}

type InFlightScopes = Arc<Mutex<HashMap<RequestId, ResponseScope>>>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where a message goes.
#[derive(Debug, Deserialize)]
pub(crate) struct SseTarget {
    #[serde(rename = "sessionId")]
    session_id: String,
}

/// Opens a session: GET /sse.
pub(crate) async fn open(
    State(state): State<Arc<AppState>>,
    Extension(caller): Extension<ClientAddress>,
    headers: HeaderMap,
) -> Response<Body> {
    let response_scope = ResponseScope::default();
    let pending = PendingBody::new(response_scope.clone());
    match open_session(&state, &caller, &headers, &response_scope).await {
        Ok(events) => {
            let keep_alive = KeepAlive::new().interval(KEEP_ALIVE);
            let (parts, body) = Sse::new(events).keep_alive(keep_alive).into_response().into_parts();
            Response::from_parts(parts, pending.take_scope().into_body(body))
        }
        Err(error) => error.response(),
    }
}

/// Ends the session when its stream has ended.
struct SessionGuard {
    id: String,
    sessions: SseSessions,
    _counted: GaugeGuard,
    _ended: DropGuard,
}

impl Drop for SessionGuard {
    fn drop(&mut self) {
        lock(&self.sessions.by_id).remove(&self.id);
    }
}

type Events = std::pin::Pin<Box<dyn Stream<Item = Result<Event, Infallible>> + Send>>;

async fn open_session(
    state: &Arc<AppState>,
    caller: &ClientAddress,
    headers: &HeaderMap,
    response_scope: &ResponseScope,
) -> Result<Events, HttpError> {
    let client = state.authorize(caller, headers).await?;
    state.open_stream(&client, headers, response_scope)?;
    let AuthenticatedClient { identity, account, open, .. } = client;
    let sessions = state.sse.clone();
    let id = uuid::Uuid::new_v4().simple().to_string();
    let (inbox, incoming) = mpsc::channel(CHANNEL_CAPACITY);
    let (outgoing, outbox) = mpsc::channel(CHANNEL_CAPACITY);
    let track_request = InFlightScopes::default();
    let session = SseSession { identity: identity.clone(), inbox, track_request: Arc::clone(&track_request) };
    lock(&sessions.by_id).insert(id.clone(), session);
    let request_context = HttpRequestContext {
        identity,
        account,
        backend: open.backend.clone(),
        initialize: None,
        stop: state.stop.clone(),
    };
    let ended = state.streams.child_token();
    tokio::spawn(serve(request_context, SseTransport { incoming, outgoing }, ended.clone()));
    let endpoint = Event::default().event("endpoint").data(format!("/message?sessionId={id}"));
    let _counted = state.metrics.http().session();
    let session = SessionGuard { id, sessions, _counted, _ended: ended.clone().drop_guard() };
    let messages =
        stream::unfold((outbox, track_request, session), |(mut outbox, track_request, session)| async move {
            let OutgoingEvent { answers, event } = outbox.recv().await?;
            // On its way with this: what is held for it goes.
            if let Some(id) = answers {
                lock(&track_request).remove(&id);
            }
            Some((Ok(event), (outbox, track_request, session)))
        });
    let events = stream::once(async { Ok(endpoint) }).chain(messages).take_until(ended.cancelled_owned());
    Ok(Box::pin(events))
}

async fn serve(request_context: HttpRequestContext, transport: SseTransport, ended: CancellationToken) {
    match request_context.mcp_server().with_session_id().serve_with_ct(transport, ended).await {
        Ok(running) => drop(running.waiting().await),
        Err(error) => {
            // It may be in the client's own words.
            let error = types::quoted(&error.to_string());
            tracing::debug!(error, "a client opened a stream and no session");
        }
    }
}

/// Takes a message: POST /message?sessionId=...
pub(crate) async fn message(
    State(state): State<Arc<AppState>>,
    Extension(caller): Extension<ClientAddress>,
    request: Request<Body>,
) -> Response<Body> {
    match accept_message(&state, &caller, request).await {
        Ok(()) => (StatusCode::ACCEPTED, "Accepted").into_response(),
        Err(error) => error.response(),
    }
}

async fn accept_message(
    state: &Arc<AppState>,
    caller: &ClientAddress,
    request: Request<Body>,
) -> Result<(), HttpError> {
    let client = state.authorize(caller, request.headers()).await?;
    // Not before it is known who asks.
    let Query(target) = Query::<SseTarget>::try_from_uri(request.uri()).map_err(|_| HttpError::NoSessionNamed)?;
    let session = lock(&state.sse.by_id).get(&target.session_id).cloned();
    // One that is somebody else's is not there.
    let session = session.filter(|session| session.identity == client.identity).ok_or(HttpError::NoSuchSession)?;
    let response_scope = ResponseScope::default();
    // From now on: a message that was taken is answered, also if the server is told to stop meanwhile.
    response_scope.keep_alive(state.track_request());
    let RequestBody { message, in_flight_bytes, .. } = body::read(request, &client.account).await?;
    response_scope.keep_alive(in_flight_bytes);
    session.enqueue(message, response_scope).await
}

impl SseSession {
    /// Hands a message to whoever serves the session; what is held for a request stays until its answer is on its way.
    async fn enqueue(
        &self,
        message: RxJsonRpcMessage<RoleServer>,
        response_scope: ResponseScope,
    ) -> Result<(), HttpError> {
        // First of all: a client that goes away while it waits for a place has sent nothing.
        let place = self.inbox.reserve().await.map_err(|_| HttpError::NoSuchSession)?;
        match &message {
            JsonRpcMessage::Request(request) => match lock(&self.track_request).entry(request.id.clone()) {
                Entry::Vacant(entry) => drop(entry.insert(response_scope)),
                Entry::Occupied(_) => return Err(HttpError::IdInUse(Some(request.id.clone()))),
            },
            JsonRpcMessage::Notification(notification) => {
                // What is cancelled is never answered.
                if let ClientNotification::CancelledNotification(cancelled) = &notification.notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    lock(&self.track_request).remove(id);
                }
            }
            _ => {}
        }
        place.send(message);
        Ok(())
    }
}

/// A message that is on its way to the client.
struct OutgoingEvent {
    answers: Option<RequestId>,
    event: Event,
}

struct SseTransport {
    incoming: mpsc::Receiver<RxJsonRpcMessage<RoleServer>>,
    outgoing: mpsc::Sender<OutgoingEvent>,
}

impl Transport<RoleServer> for SseTransport {
    type Error = io::Error;

    fn send(
        &mut self,
        mut item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), io::Error>> + Send + 'static {
        let outgoing = self.outgoing.clone();
        async move {
            let answers = answered_id(&item);
            // Not before there is a place for it: a text takes as much room as all that it is made of.
            let place = outgoing.reserve().await.map_err(io::Error::other)?;
            result_encoding::expand_message(&mut item);
            let event = Event::default().event("message").data(serde_json::to_string(&item)?);
            place.send(OutgoingEvent { answers, event });
            Ok(())
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        self.incoming.recv().await
    }

    async fn close(&mut self) -> Result<(), io::Error> {
        self.incoming.close();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn ping(id: u32) -> RxJsonRpcMessage<RoleServer> {
        serde_json::from_value(serde_json::json!({"jsonrpc": "2.0", "id": id, "method": "ping"})).unwrap()
    }

    #[tokio::test]
    async fn a_client_that_goes_away_while_its_message_waits_for_a_place_leaves_nothing() {
        let (inbox, mut incoming) = mpsc::channel(1);
        let identity = crate::http::anonymous_identity(types::AccountId::default(), None, "write".to_owned());
        let session = SseSession { identity, inbox, track_request: InFlightScopes::default() };
        session.enqueue(ping(1), ResponseScope::default()).await.unwrap();
        let held = Arc::new(());
        let response_scope = ResponseScope::default();
        response_scope.keep_alive(Arc::clone(&held));
        // The channel is full.
        assert!(session.enqueue(ping(2), response_scope).now_or_never().is_none(), "there is a place");
        assert_eq!(Arc::strong_count(&held), 1, "what was held for it stays");
        assert!(incoming.recv().await.is_some());
        session.enqueue(ping(2), ResponseScope::default()).await.unwrap();
        assert!(incoming.recv().await.is_some());
        // One that was taken is held, and its id is in use. The place of one that is refused is free again.
        for _ in 0..2 {
            let again = session.enqueue(ping(2), ResponseScope::default()).now_or_never();
            assert!(matches!(again, Some(Err(HttpError::IdInUse(Some(_))))), "{again:?}");
        }
        assert_eq!(lock(&session.track_request).len(), 2);
    }
}
