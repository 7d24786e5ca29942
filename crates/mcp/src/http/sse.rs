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

use super::body::{self, Received};
use super::client_address::Caller;
use super::exchange::{Exchange, Unanswered};
use super::refusal::Refusal;
use super::visit::Visit;
use super::{Guest, Site};
use crate::auth::Identity;
use crate::in_flight::answers;
use crate::packed;

/// How often a silent stream says that it is there.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Messages of a session that nobody has taken yet, each way.
const CHANNEL: usize = 4;

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
    under_way: UnderWay,
}

type UnderWay = Arc<Mutex<HashMap<RequestId, Exchange>>>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where a message goes.
#[derive(Debug, Deserialize)]
pub(crate) struct To {
    #[serde(rename = "sessionId")]
    session_id: String,
}

/// Opens a session: GET /sse.
pub(crate) async fn open(
    State(site): State<Arc<Site>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
) -> Response<Body> {
    let exchange = Exchange::default();
    let unanswered = Unanswered::new(exchange.clone());
    match opened(&site, &caller, &headers, &exchange).await {
        Ok(events) => {
            let keep_alive = KeepAlive::new().interval(KEEP_ALIVE);
            let (parts, body) = Sse::new(events).keep_alive(keep_alive).into_response().into_parts();
            Response::from_parts(parts, unanswered.answered().answer(body))
        }
        Err(refusal) => refusal.response(),
    }
}

/// Ends the session when its stream has ended.
struct Session {
    id: String,
    sessions: SseSessions,
    _counted: GaugeGuard,
    _ended: DropGuard,
}

impl Drop for Session {
    fn drop(&mut self) {
        lock(&self.sessions.by_id).remove(&self.id);
    }
}

type Events = std::pin::Pin<Box<dyn Stream<Item = Result<Event, Infallible>> + Send>>;

async fn opened(
    site: &Arc<Site>,
    caller: &Caller,
    headers: &HeaderMap,
    exchange: &Exchange,
) -> Result<Events, Refusal> {
    let guest = site.guest(caller, headers).await?;
    site.open_stream(&guest, headers, exchange)?;
    let Guest { identity, account, open, .. } = guest;
    let sessions = site.sse.clone();
    let id = uuid::Uuid::new_v4().simple().to_string();
    let (inbox, incoming) = mpsc::channel(CHANNEL);
    let (outgoing, outbox) = mpsc::channel(CHANNEL);
    let under_way = UnderWay::default();
    let session = SseSession { identity: identity.clone(), inbox, under_way: Arc::clone(&under_way) };
    lock(&sessions.by_id).insert(id.clone(), session);
    let visit = Visit { identity, account, offer: open.offer.clone(), initialize: None, stop: site.stop.clone() };
    let ended = site.streams.child_token();
    tokio::spawn(serve(visit, SseTransport { incoming, outgoing }, ended.clone()));
    let endpoint = Event::default().event("endpoint").data(format!("/message?sessionId={id}"));
    let _counted = site.metrics.http().session();
    let session = Session { id, sessions, _counted, _ended: ended.clone().drop_guard() };
    let messages = stream::unfold((outbox, under_way, session), |(mut outbox, under_way, session)| async move {
        let Outgoing { answers, event } = outbox.recv().await?;
        // On its way with this: what is held for it goes.
        if let Some(id) = answers {
            lock(&under_way).remove(&id);
        }
        Some((Ok(event), (outbox, under_way, session)))
    });
    let events = stream::once(async { Ok(endpoint) }).chain(messages).take_until(ended.cancelled_owned());
    Ok(Box::pin(events))
}

async fn serve(visit: Visit, transport: SseTransport, ended: CancellationToken) {
    match visit.server().of_one_session().serve_with_ct(transport, ended).await {
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
    State(site): State<Arc<Site>>,
    Extension(caller): Extension<Caller>,
    request: Request<Body>,
) -> Response<Body> {
    match taken(&site, &caller, request).await {
        Ok(()) => (StatusCode::ACCEPTED, "Accepted").into_response(),
        Err(refusal) => refusal.response(),
    }
}

async fn taken(site: &Arc<Site>, caller: &Caller, request: Request<Body>) -> Result<(), Refusal> {
    let guest = site.guest(caller, request.headers()).await?;
    // Not before it is known who asks.
    let Query(to) = Query::<To>::try_from_uri(request.uri()).map_err(|_| Refusal::NoSessionNamed)?;
    let session = lock(&site.sse.by_id).get(&to.session_id).cloned();
    // One that is somebody else's is not there.
    let session = session.filter(|session| session.identity == guest.identity).ok_or(Refusal::NoSuchSession)?;
    let exchange = Exchange::default();
    // From now on: a message that was taken is answered, also if the server is told to stop meanwhile.
    exchange.hold(site.under_way());
    let Received { message, weight, .. } = body::receive(request, &guest.account).await?;
    exchange.hold(weight);
    session.take(message, exchange).await
}

impl SseSession {
    /// Hands a message to whoever serves the session; what is held for a request stays until its answer is on its way.
    async fn take(&self, message: RxJsonRpcMessage<RoleServer>, exchange: Exchange) -> Result<(), Refusal> {
        // First of all: a client that goes away while it waits for a place has sent nothing.
        let place = self.inbox.reserve().await.map_err(|_| Refusal::NoSuchSession)?;
        match &message {
            JsonRpcMessage::Request(request) => match lock(&self.under_way).entry(request.id.clone()) {
                Entry::Vacant(entry) => drop(entry.insert(exchange)),
                Entry::Occupied(_) => return Err(Refusal::IdInUse(Some(request.id.clone()))),
            },
            JsonRpcMessage::Notification(notification) => {
                // What is cancelled is never answered.
                if let ClientNotification::CancelledNotification(cancelled) = &notification.notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    lock(&self.under_way).remove(id);
                }
            }
            _ => {}
        }
        place.send(message);
        Ok(())
    }
}

/// A message that is on its way to the client.
struct Outgoing {
    answers: Option<RequestId>,
    event: Event,
}

struct SseTransport {
    incoming: mpsc::Receiver<RxJsonRpcMessage<RoleServer>>,
    outgoing: mpsc::Sender<Outgoing>,
}

impl Transport<RoleServer> for SseTransport {
    type Error = io::Error;

    fn send(
        &mut self,
        mut item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), io::Error>> + Send + 'static {
        let outgoing = self.outgoing.clone();
        async move {
            let answers = answers(&item);
            // Not before there is a place for it: a text takes as much room as all that it is made of.
            let place = outgoing.reserve().await.map_err(io::Error::other)?;
            packed::complete_message(&mut item);
            let event = Event::default().event("message").data(serde_json::to_string(&item)?);
            place.send(Outgoing { answers, event });
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
        let identity = crate::http::anonymous(types::AccountId::default(), None, "write".to_owned());
        let session = SseSession { identity, inbox, under_way: UnderWay::default() };
        session.take(ping(1), Exchange::default()).await.unwrap();
        let held = Arc::new(());
        let exchange = Exchange::default();
        exchange.hold(Arc::clone(&held));
        // The channel is full.
        assert!(session.take(ping(2), exchange).now_or_never().is_none(), "there is a place");
        assert_eq!(Arc::strong_count(&held), 1, "what was held for it stays");
        assert!(incoming.recv().await.is_some());
        session.take(ping(2), Exchange::default()).await.unwrap();
        assert!(incoming.recv().await.is_some());
        // One that was taken is held, and its id is in use. The place of one that is refused is free again.
        for _ in 0..2 {
            let again = session.take(ping(2), Exchange::default()).now_or_never();
            assert!(matches!(again, Some(Err(Refusal::IdInUse(Some(_))))), "{again:?}");
        }
        assert_eq!(lock(&session.under_way).len(), 2);
    }
}
