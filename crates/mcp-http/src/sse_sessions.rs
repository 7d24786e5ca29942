//! The sessions of the transport of protocol 2024-11-05, and their queues.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use auth::Identity;
use axum::response::sse::Event;
use mcp::{expand_message, message};
use rmcp::model::{ClientRequest, JsonRpcMessage, RequestId};
use rmcp::service::{RoleServer, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde_json::json;
use tokio::sync::mpsc;

use crate::error_response::HttpError;
use crate::response_body::PendingBody;

/// The messages that a session queues, in each direction.
const CHANNEL_CAPACITY: usize = 4;

#[derive(Clone, Default)]
pub(crate) struct SseSessions {
    by_id: Arc<Mutex<HashMap<String, SseSession>>>,
}

#[derive(Clone)]
pub(crate) struct SseSession {
    identity: Identity,
    inbox: mpsc::Sender<RxJsonRpcMessage<RoleServer>>,
    in_flight: InFlightScopes,
    /// Whether the session's task was told of its client.
    is_introduced: Arc<tokio::sync::Mutex<bool>>,
}

/// The id of the `initialize` that a session gets in place of its client.
const INTRODUCTION: &str = "countersign-introduction";

/// `initialize` and its notification, for a client that goes on after its stream was lost. The event source of TypeScript
/// clients connects again by itself, and gets a new session of which the client knows nothing. What the client can do is
/// not known then: it is asked nothing.
fn introduction() -> serde_json::Result<[RxJsonRpcMessage<RoleServer>; 2]> {
    let client = json!({"name": "unknown", "version": ""});
    let params = json!({"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": client});
    Ok([
        serde_json::from_value(
            json!({"jsonrpc": "2.0", "id": INTRODUCTION, "method": "initialize", "params": params}),
        )?,
        serde_json::from_value(json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))?,
    ])
}

/// The scopes of the requests whose answer has not reached the stream yet.
type InFlightScopes = Arc<Mutex<HashMap<RequestId, PendingBody>>>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SseSessions {
    /// Opens a session of this identity. It ends when the outbox is dropped.
    pub(crate) fn open(&self, identity: Identity) -> (SseTransport, SseOutbox) {
        let id = uuid::Uuid::new_v4().simple().to_string();
        let (inbox, incoming) = mpsc::channel(CHANNEL_CAPACITY);
        let (outgoing, outbox) = mpsc::channel(CHANNEL_CAPACITY);
        let in_flight = InFlightScopes::default();
        let session = SseSession { identity, inbox, in_flight: Arc::clone(&in_flight), is_introduced: Arc::default() };
        lock(&self.by_id).insert(id.clone(), session);
        (SseTransport { incoming, outgoing }, SseOutbox { id, sessions: self.clone(), events: outbox, in_flight })
    }

    /// The session with this id, if it belongs to this identity.
    pub(crate) fn get(&self, id: &str, identity: &Identity) -> Option<SseSession> {
        lock(&self.by_id).get(id).filter(|session| session.identity == *identity).cloned()
    }
}

/// The events of a session's stream.
pub(crate) struct SseOutbox {
    id: String,
    sessions: SseSessions,
    events: mpsc::Receiver<OutgoingEvent>,
    in_flight: InFlightScopes,
}

impl SseOutbox {
    pub(crate) fn session_id(&self) -> &str {
        &self.id
    }

    /// The next event. Releases what is held for the request that it answers.
    pub(crate) async fn next_event(&mut self) -> Option<Event> {
        let OutgoingEvent { answered, event } = self.events.recv().await?;
        if let Some(id) = answered {
            lock(&self.in_flight).remove(&id);
        }
        Some(event)
    }
}

impl Drop for SseOutbox {
    fn drop(&mut self) {
        lock(&self.sessions.by_id).remove(&self.id);
    }
}

impl SseSession {
    /// Queues a message for the session's task. What `pending` holds for a request is kept until its answer is on the
    /// stream.
    pub(crate) async fn enqueue(
        &self,
        message: RxJsonRpcMessage<RoleServer>,
        pending: PendingBody,
    ) -> Result<(), HttpError> {
        let request = match &message {
            JsonRpcMessage::Request(request) => Some(&request.request),
            _ => None,
        };
        // A ping may come before `initialize`.
        if !matches!(request, Some(ClientRequest::PingRequest(_))) {
            let mut is_introduced = self.is_introduced.lock().await;
            if !*is_introduced && !matches!(request, Some(ClientRequest::InitializeRequest(_))) {
                // Both or none, also if the client goes away meanwhile.
                let slots = self.inbox.reserve_many(2).await.map_err(|_| HttpError::NoSuchSession)?;
                let messages = introduction().map_err(|_| HttpError::NoSuchSession)?;
                slots.zip(messages).for_each(|(slot, message)| slot.send(message));
            }
            *is_introduced = true;
        }
        // First of all: a client that goes away while it waits for a slot has sent nothing.
        let slot = self.inbox.reserve().await.map_err(|_| HttpError::NoSuchSession)?;
        if let Some(id) = message::cancelled_id(&message) {
            lock(&self.in_flight).remove(id);
        }
        if let Some(id) = message::request_id(&message) {
            match lock(&self.in_flight).entry(id.clone()) {
                Entry::Vacant(entry) => drop(entry.insert(pending)),
                Entry::Occupied(_) => return Err(HttpError::IdInUse(Some(id.clone()))),
            }
        }
        slot.send(message);
        Ok(())
    }
}

struct OutgoingEvent {
    answered: Option<RequestId>,
    event: Event,
}

pub(crate) struct SseTransport {
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
            if message::answered_id(&item).is_some_and(|id| *id == RequestId::String(INTRODUCTION.into())) {
                return Ok(());
            }
            // Serialized after the wait for a slot: a text takes as much memory as the values that it is made of.
            let slot = match outgoing.reserve().await {
                Ok(slot) => slot,
                // The client has left, which rmcp would log as an error for each of its answers (I-8).
                Err(_) if message::answered_id(&item).is_some() => {
                    tracing::debug!("an answer is dropped: its client has left");
                    return Ok(());
                }
                Err(left) => return Err(io::Error::other(left)),
            };
            expand_message(&mut item);
            let event = Event::default().event("message").data(serde_json::to_string(&item)?);
            slot.send(OutgoingEvent { answered: message::answered_id(&item).cloned(), event });
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
    use auth::CredentialKind;
    use futures_util::FutureExt;

    use super::*;

    fn ping(id: u32) -> RxJsonRpcMessage<RoleServer> {
        serde_json::from_value(serde_json::json!({"jsonrpc": "2.0", "id": id, "method": "ping"})).unwrap()
    }

    #[tokio::test]
    async fn a_client_that_goes_away_while_its_message_waits_for_a_slot_leaves_nothing() {
        let (inbox, mut incoming) = mpsc::channel(1);
        let principal = types::Principal::default();
        let identity =
            Identity { principal, profile: "write".to_owned(), databases: None, credential: CredentialKind::None };
        let in_flight = InFlightScopes::default();
        let session = SseSession { identity, inbox, in_flight, is_introduced: Arc::default() };
        session.enqueue(ping(1), PendingBody::default()).await.unwrap();
        let held = Arc::new(());
        let pending = PendingBody::default();
        pending.keep_alive(Arc::clone(&held));
        // The channel is full.
        assert!(session.enqueue(ping(2), pending).now_or_never().is_none(), "there is a slot");
        assert_eq!(Arc::strong_count(&held), 1, "what was held for it stays");
        assert!(incoming.recv().await.is_some());
        session.enqueue(ping(2), PendingBody::default()).await.unwrap();
        assert!(incoming.recv().await.is_some());
        // The scope of an accepted message is held, and its id is in use. The slot of a rejected message is free
        // again.
        for _ in 0..2 {
            let again = session.enqueue(ping(2), PendingBody::default()).now_or_never();
            assert!(matches!(again, Some(Err(HttpError::IdInUse(Some(_))))), "{again:?}");
        }
        assert_eq!(lock(&session.in_flight).len(), 2);
    }
}
