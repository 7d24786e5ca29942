//! Sessions of the streamable transport (protocols up to 2025-11-25).
//!
//! A session's id says all that there is to know of it, sealed with the ledger's key for the identity that opened it. So any
//! server of the ledger takes it up when the one that opened it has gone or given it up, nothing is stored, and nobody else
//! can use it. What a server keeps of a session is a task and its channels; what lies idle is given up, the longest first
//! when an account has many, and taken up again when its client comes back.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::Stream;
use rmcp::model::{
    ClientCapabilities, ClientJsonRpcMessage, ElicitationCapability, Implementation, InitializeRequestParams,
    ProtocolVersion, RequestId, RequestStateCodec, SealOptions, ServerJsonRpcMessage,
};
use rmcp::transport::WorkerTransport;
use rmcp::transport::streamable_http_server::SessionManager;
use rmcp::transport::streamable_http_server::session::local::{
    LocalSessionManager, LocalSessionManagerError, LocalSessionWorker, SessionConfig, create_local_session,
};
use rmcp::transport::streamable_http_server::session::{
    RestoreOutcome, ServerSseMessage, SessionId, SessionState, SessionStore, SessionStoreError,
};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use tools::metrics::{Metrics, Open as OpenCount};

use super::visit::Visit;
use crate::auth::Identity;

/// How long a session's id is good for.
const TTL: Duration = Duration::from_secs(24 * 60 * 60);

/// How long a session may lie idle before this server gives it up.
const IDLE: Duration = Duration::from_secs(5 * 60);

/// How many ids that clients have closed are remembered.
const CLOSED: usize = 10_000;

/// What a session's id says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sealed {
    id: String,
    protocol: ProtocolVersion,
    /// Whether the client can ask its user.
    elicits: bool,
}

/// Seals and opens the ids of sessions.
#[derive(Clone)]
pub(crate) struct SessionIds {
    codec: Arc<RequestStateCodec>,
    closed: Arc<Mutex<Closed>>,
}

#[derive(Default)]
struct Closed {
    ids: HashSet<String>,
    order: VecDeque<String>,
}

impl SessionIds {
    pub(crate) fn new(codec: Arc<RequestStateCodec>) -> Self {
        Self { codec, closed: Arc::default() }
    }

    fn seal(&self, identity: &Identity, initialize: &InitializeRequestParams) -> Option<String> {
        let sealed = Sealed {
            id: uuid::Uuid::new_v4().simple().to_string(),
            protocol: initialize.protocol_version.clone(),
            elicits: initialize.capabilities.elicitation.is_some(),
        };
        let bound = bound(identity);
        self.codec.seal_json_with(&sealed, &SealOptions::new().associated_data(&bound).ttl(TTL)).ok()
    }

    /// What the client of this session said when it opened it; `None` for what is no session of this identity's.
    pub(crate) fn open(&self, id: &str, identity: &Identity) -> Option<InitializeRequestParams> {
        if self.closed().ids.contains(id) {
            return None;
        }
        let sealed: Sealed = self.codec.open_json_with(id, &bound(identity)).ok()?;
        let mut capabilities = ClientCapabilities::default();
        capabilities.elicitation = sealed.elicits.then(ElicitationCapability::default);
        let client = Implementation::new("client", "");
        Some(InitializeRequestParams::new(capabilities, client).with_protocol_version(sealed.protocol))
    }

    /// The client wants no more of it.
    fn close(&self, id: &str) {
        let mut closed = self.closed();
        if closed.ids.insert(id.to_owned()) {
            closed.order.push_back(id.to_owned());
        }
        if closed.order.len() > CLOSED
            && let Some(oldest) = closed.order.pop_front()
        {
            closed.ids.remove(&oldest);
        }
    }

    fn closed(&self) -> MutexGuard<'_, Closed> {
        self.closed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A session is one identity's: another label of the same account has another. No part may hold a NUL.
fn bound(identity: &Identity) -> Vec<u8> {
    let Identity { principal, profile, .. } = identity;
    let actor = principal.actor.as_deref().unwrap_or_default().replace('\0', "");
    format!("countersign session\0{}\0{profile}\0{actor}", principal.account_id.as_str()).into_bytes()
}

/// The "store" from which rmcp takes sessions up again: their ids.
#[async_trait::async_trait]
impl SessionStore for SessionIds {
    async fn load(&self, id: &str) -> Result<Option<SessionState>, SessionStoreError> {
        let opened = Visit::current().and_then(|visit| self.open(id, &visit.identity));
        Ok(opened.map(SessionState::new))
    }

    async fn store(&self, _: &str, _: &SessionState) -> Result<(), SessionStoreError> {
        Ok(())
    }

    async fn delete(&self, id: &str) -> Result<(), SessionStoreError> {
        self.close(id);
        Ok(())
    }
}

/// The sessions that this server has in hand.
pub(crate) struct Sessions {
    ids: SessionIds,
    /// The most of one account.
    most: u32,
    in_hand: Arc<Mutex<HashMap<SessionId, InHand>>>,
    inner: LocalSessionManager,
    /// Held while a session is taken up again: two requests of it that come at once must not do so twice.
    taking_up: tokio::sync::Mutex<()>,
    asked: Asked,
    metrics: Metrics,
}

struct InHand {
    identity: Identity,
    /// Requests and streams that are open.
    open: usize,
    used: Instant,
    _counted: OpenCount,
}

/// The ids of requests that are not answered yet, by session.
type Asked = Arc<Mutex<HashSet<(SessionId, RequestId)>>>;

/// A request or a stream of a session.
pub(crate) struct Use {
    id: SessionId,
    request: Option<RequestId>,
    in_hand: Arc<Mutex<HashMap<SessionId, InHand>>>,
    asked: Asked,
}

impl Drop for Use {
    fn drop(&mut self) {
        if let Some(request) = self.request.take() {
            self.asked.lock().unwrap_or_else(PoisonError::into_inner).remove(&(self.id.clone(), request));
        }
        if let Some(session) = lock(&self.in_hand).get_mut(&self.id) {
            session.open = session.open.saturating_sub(1);
            session.used = Instant::now();
        }
    }
}

fn lock(in_hand: &Mutex<HashMap<SessionId, InHand>>) -> MutexGuard<'_, HashMap<SessionId, InHand>> {
    in_hand.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sessions {
    pub(crate) fn new(ids: SessionIds, most: u32, metrics: Metrics) -> Self {
        let mut inner = LocalSessionManager::default();
        inner.session_config = config();
        Self {
            ids,
            most,
            in_hand: Arc::default(),
            inner,
            taking_up: tokio::sync::Mutex::default(),
            asked: Asked::default(),
            metrics,
        }
    }

    /// Notes a request of a session, until what is returned is dropped; `None` if the session has a request with this id that
    /// is not answered yet: rmcp would send both answers to the one that came last.
    pub(crate) fn enter(&self, id: &str, request: Option<RequestId>) -> Option<Use> {
        let id: SessionId = id.into();
        if let Some(request) = &request
            && !self.asked.lock().unwrap_or_else(PoisonError::into_inner).insert((id.clone(), request.clone()))
        {
            return None;
        }
        if let Some(session) = lock(&self.in_hand).get_mut(&id) {
            session.open += 1;
        }
        Some(Use { id, request, in_hand: Arc::clone(&self.in_hand), asked: Arc::clone(&self.asked) })
    }

    /// Whether this server has the session in hand.
    pub(crate) fn is_in_hand(&self, id: &str) -> bool {
        lock(&self.in_hand).contains_key(id)
    }

    /// What must be held while a session is taken in hand; `None` if somebody else has done that meanwhile.
    pub(crate) async fn take_up(&self, id: &str) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        let taking_up = self.taking_up.lock().await;
        (!self.is_in_hand(id)).then_some(taking_up)
    }

    /// Gives up what has lain idle for long.
    pub(crate) async fn sweep(&self) {
        let idle: Vec<SessionId> = lock(&self.in_hand)
            .iter()
            .filter(|(_, session)| session.open == 0 && session.used.elapsed() > IDLE)
            .map(|(id, _)| id.clone())
            .collect();
        for id in idle {
            self.give_up(&id).await;
        }
    }

    /// Makes room for one more of this identity's account; `id` is that of one that it may have in hand already.
    ///
    /// # Errors
    /// The most that an account may have, all of which are in use.
    pub(crate) async fn make_room(&self, identity: &Identity, id: Option<&str>) -> Result<(), u32> {
        while let Some(oldest) = self.in_the_way(identity, id)? {
            self.give_up(&oldest).await;
        }
        Ok(())
    }

    /// Which one has to go first.
    fn in_the_way(&self, identity: &Identity, id: Option<&str>) -> Result<Option<SessionId>, u32> {
        let in_hand = lock(&self.in_hand);
        let account = &identity.principal.account_id;
        let own: Vec<_> = in_hand.iter().filter(|(_, it)| it.identity.principal.account_id == *account).collect();
        if own.len() < self.most as usize || id.is_some_and(|id| in_hand.contains_key(id)) {
            return Ok(None);
        }
        let idle = own.into_iter().filter(|(_, session)| session.open == 0);
        idle.min_by_key(|(_, session)| session.used).map(|(id, _)| Some(id.clone())).ok_or(self.most)
    }

    async fn give_up(&self, id: &SessionId) {
        if let Err(error) = self.close_session(id).await {
            tracing::debug!(%error, "a session was not closed");
        }
    }

    async fn take_in_hand(
        &self,
        id: &SessionId,
        open: usize,
    ) -> Result<WorkerTransport<LocalSessionWorker>, NoSession> {
        let Visit { identity, .. } = Visit::current().ok_or(NoSession::Unseen)?;
        let (handle, worker) = create_local_session(id.clone(), config());
        self.inner.sessions.write().await.insert(id.clone(), handle);
        let _counted = self.metrics.http().session();
        lock(&self.in_hand).insert(id.clone(), InHand { identity, open, used: Instant::now(), _counted });
        Ok(WorkerTransport::spawn(worker))
    }
}

fn config() -> SessionConfig {
    let mut config = SessionConfig::default();
    // Given up by `sweep`, which knows whether a session is in use.
    config.keep_alive = None;
    // No event is kept for a client that comes back for it: a read can be repeated, and so can a write.
    config.sse_retry = None;
    config.completed_cache_ttl = Duration::ZERO;
    config.channel_capacity = CHANNEL;
    config
}

/// Messages between a session and its streams that nobody has taken yet.
const CHANNEL: usize = 4;

/// Why there is no session.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoSession {
    #[error("nobody is known to have asked")]
    Unseen,
    #[error(transparent)]
    Local(#[from] LocalSessionManagerError),
}

type Messages = Result<ServerJsonRpcMessage, NoSession>;

impl SessionManager for Sessions {
    type Error = NoSession;
    type Transport = WorkerTransport<LocalSessionWorker>;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), NoSession> {
        let Visit { identity, initialize, .. } = Visit::current().ok_or(NoSession::Unseen)?;
        let initialize = initialize.ok_or(NoSession::Unseen)?;
        let id: SessionId = self.ids.seal(&identity, &initialize).ok_or(NoSession::Unseen)?.into();
        let transport = self.take_in_hand(&id, 0).await?;
        Ok((id, transport))
    }

    async fn restore_session(&self, id: SessionId) -> Result<RestoreOutcome<Self::Transport>, NoSession> {
        // The request that takes it up is counted already.
        Ok(RestoreOutcome::Restored(self.take_in_hand(&id, 1).await?))
    }

    async fn initialize_session(&self, id: &SessionId, message: ClientJsonRpcMessage) -> Messages {
        Ok(self.inner.initialize_session(id, message).await?)
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, NoSession> {
        Ok(self.inner.has_session(id).await?)
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), NoSession> {
        lock(&self.in_hand).remove(id);
        Ok(self.inner.close_session(id).await?)
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, NoSession> {
        Ok(self.inner.create_stream(id, message).await?)
    }

    async fn accept_message(&self, id: &SessionId, message: ClientJsonRpcMessage) -> Result<(), NoSession> {
        Ok(self.inner.accept_message(id, message).await?)
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, NoSession> {
        Ok(self.inner.create_standalone_stream(id).await?)
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, NoSession> {
        Ok(self.inner.resume(id, last_event_id).await?)
    }
}
