//! Sessions of the streamable transport (protocols up to 2025-11-25), as far as this server has them in hand: a task and its channels
//! each. What lies idle is given up, the longest first when an account has many, and taken up again by its id (`session_ids`)
//! when its client comes back.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::Stream;
use rmcp::model::{ClientJsonRpcMessage, RequestId, ServerJsonRpcMessage};
use rmcp::transport::WorkerTransport;
use rmcp::transport::streamable_http_server::SessionManager;
use rmcp::transport::streamable_http_server::session::local::{
    LocalSessionManager, LocalSessionManagerError, LocalSessionWorker, SessionConfig, create_local_session,
};
use rmcp::transport::streamable_http_server::session::{RestoreOutcome, ServerSseMessage, SessionId};
use tokio::time::Instant;
use tools::metrics::{GaugeGuard, Metrics};
use types::AccountId;

use super::keyed_mutex::{KeyedGuard, KeyedMutex};
use super::quota::AccountQuotas;
use super::request_context::HttpRequestContext;
use super::session_ids::SessionIdCodec;

/// The sessions that this server has in hand.
pub(crate) struct StreamableSessions {
    ids: SessionIdCodec,
    /// What each account may have.
    quotas: AccountQuotas,
    table: SharedTable,
    inner: LocalSessionManager,
    /// A session is taken up again in turn: two requests of it that come at once must not do so twice.
    resuming: KeyedMutex,
    metrics: Metrics,
}

type SharedTable = Arc<Mutex<Table>>;

#[derive(Default)]
struct Table {
    active: HashMap<SessionId, ActiveSession>,
    /// Requests and streams that are open, whether their session is in hand yet or not.
    uses: HashMap<SessionId, usize>,
    /// The ids of requests that are being answered.
    claimed_ids: HashSet<(SessionId, RequestId)>,
    /// Workers of sessions that were given up and have not ended yet.
    ending: HashMap<SessionId, usize>,
}

struct ActiveSession {
    account: AccountId,
    /// The handshake is over: nothing may reach the worker before.
    is_open: bool,
    used: Instant,
    _counted: GaugeGuard,
}

impl Table {
    fn is_idle(&self, id: &SessionId) -> bool {
        !self.uses.contains_key(id)
    }

    /// Takes one off a count; whether there was one.
    fn decrement(counts: &mut HashMap<SessionId, usize>, id: &SessionId) -> bool {
        let Some(count) = counts.get_mut(id) else { return false };
        *count -= 1;
        if *count == 0 {
            counts.remove(id);
        }
        true
    }

    /// Notes the end of a worker; whether its session had been given up before.
    fn worker_ended(&mut self, id: &SessionId) -> bool {
        Self::decrement(&mut self.ending, id)
    }
}

fn lock(table: &Mutex<Table>) -> MutexGuard<'_, Table> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A request or a stream of a session, until its answer has been written.
pub(crate) struct SessionUse {
    id: SessionId,
    table: SharedTable,
}

impl Drop for SessionUse {
    fn drop(&mut self) {
        let mut table = lock(&self.table);
        Table::decrement(&mut table.uses, &self.id);
        if let Some(session) = table.active.get_mut(&self.id) {
            session.used = Instant::now();
        }
    }
}

/// The id of a request of a session, until it has been handled, whether its client is still there or not.
#[derive(Clone)]
pub(crate) struct RequestIdGuard {
    _held: Arc<ClaimedRequestId>,
}

struct ClaimedRequestId {
    key: (SessionId, RequestId),
    table: SharedTable,
}

impl Drop for ClaimedRequestId {
    fn drop(&mut self) {
        lock(&self.table).claimed_ids.remove(&self.key);
    }
}

impl StreamableSessions {
    pub(crate) fn new(ids: SessionIdCodec, quotas: AccountQuotas, metrics: Metrics) -> Self {
        let mut inner = LocalSessionManager::default();
        inner.session_config = config();
        Self { ids, quotas, table: Arc::default(), inner, resuming: KeyedMutex::default(), metrics }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        lock(&self.table)
    }

    /// Notes a request or a stream of a session, until what is returned is dropped.
    pub(crate) fn begin_use(&self, id: &str) -> SessionUse {
        let id: SessionId = id.into();
        *self.table().uses.entry(id.clone()).or_default() += 1;
        SessionUse { id, table: Arc::clone(&self.table) }
    }

    /// Notes the id of a request, until what is returned is dropped; `None` if the session has a request with this id that is
    /// being handled: rmcp would send both answers to the one that came last.
    pub(crate) fn claim_request_id(&self, id: &str, request: RequestId) -> Option<RequestIdGuard> {
        let key = (id.into(), request);
        let is_new = self.table().claimed_ids.insert(key.clone());
        is_new.then(|| RequestIdGuard { _held: Arc::new(ClaimedRequestId { key, table: Arc::clone(&self.table) }) })
    }

    /// Whether this server has the session in hand, and its handshake is over.
    pub(crate) fn is_active(&self, id: &str) -> bool {
        self.table().active.get(id).is_some_and(|session| session.is_open)
    }

    /// The session has been taken up: its handshake is over.
    pub(crate) fn mark_resumed(&self, id: &str) {
        if let Some(session) = self.table().active.get_mut(id) {
            session.is_open = true;
        }
    }

    /// What must be held while a session is taken in hand; `None` if somebody else has done that meanwhile.
    pub(crate) async fn resume(&self, id: &str) -> Option<KeyedGuard> {
        let turn = self.resuming.lock(id).await;
        (!self.is_active(id)).then_some(turn)
    }

    /// Gives up what has lain idle for long.
    pub(crate) async fn sweep(&self) {
        let ids: Vec<SessionId> = self.table().active.keys().cloned().collect();
        for id in ids {
            self.close_if(&id, false, |session| session.used.elapsed() > self.quotas.session_idle).await;
        }
    }

    /// Makes room for one more of this account; `id` is that of one that it may have in hand already.
    ///
    /// # Errors
    /// The most that an account may have, all of which are in use.
    pub(crate) async fn reserve_slot(&self, account: &AccountId, id: Option<&str>) -> Result<(), u32> {
        while let Some(oldest) = self.eviction_candidate(account, id)? {
            self.close_if(&oldest, false, |_| true).await;
        }
        Ok(())
    }

    /// Which one has to go first.
    fn eviction_candidate(&self, account: &AccountId, id: Option<&str>) -> Result<Option<SessionId>, u32> {
        let table = self.table();
        // The usual case first: it is asked at every request of a session.
        if id.is_some_and(|id| table.active.contains_key(id)) {
            return Ok(None);
        }
        let own = || table.active.iter().filter(|(_, session)| session.account == *account);
        if own().count() < self.quotas.sessions as usize {
            return Ok(None);
        }
        let idle = own().filter(|(id, _)| table.is_idle(id));
        idle.min_by_key(|(_, session)| session.used).map(|(id, _)| Some(id.clone())).ok_or(self.quotas.sessions)
    }

    /// Gives a session up, unless it is in use by now, or not as it should be.
    async fn close_if(&self, id: &SessionId, even_in_use: bool, only: impl Fn(&ActiveSession) -> bool + Send) {
        let handle = {
            let mut handles = self.inner.sessions.write().await;
            let mut table = self.table();
            if !(even_in_use || table.is_idle(id)) || !table.active.get(id).is_some_and(only) {
                return;
            }
            table.active.remove(id);
            *table.ending.entry(id.clone()).or_default() += 1;
            handles.remove(id)
        };
        if let Some(handle) = handle
            && let Err(error) = handle.close().await
        {
            tracing::debug!(%error, "a session had ended already");
        }
    }

    async fn activate(
        &self,
        id: &SessionId,
        is_open: bool,
    ) -> Result<WorkerTransport<LocalSessionWorker>, SessionError> {
        let HttpRequestContext { identity, .. } = HttpRequestContext::current().ok_or(SessionError::Unauthenticated)?;
        let (handle, worker) = create_local_session(id.clone(), config());
        let account = identity.principal.account_id;
        let active = ActiveSession { account, is_open, used: Instant::now(), _counted: self.metrics.http().session() };
        let mut handles = self.inner.sessions.write().await;
        handles.insert(id.clone(), handle);
        self.table().active.insert(id.clone(), active);
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
    config.channel_capacity = CHANNEL_CAPACITY;
    config
}

/// Messages between a session and its streams that nobody has taken yet.
const CHANNEL_CAPACITY: usize = 4;

/// Why there is no session.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SessionError {
    #[error("nobody is known to have asked")]
    Unauthenticated,
    #[error(transparent)]
    Local(#[from] LocalSessionManagerError),
}

impl SessionManager for StreamableSessions {
    type Error = SessionError;
    type Transport = WorkerTransport<LocalSessionWorker>;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), SessionError> {
        let HttpRequestContext { identity, initialize, .. } =
            HttpRequestContext::current().ok_or(SessionError::Unauthenticated)?;
        let initialize = initialize.ok_or(SessionError::Unauthenticated)?;
        let id: SessionId = self.ids.seal(&identity, &initialize).ok_or(SessionError::Unauthenticated)?.into();
        // Nobody knows its id before the handshake is over.
        let transport = self.activate(&id, true).await?;
        Ok((id, transport))
    }

    async fn restore_session(&self, id: SessionId) -> Result<RestoreOutcome<Self::Transport>, SessionError> {
        Ok(RestoreOutcome::Restored(self.activate(&id, false).await?))
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, SessionError> {
        Ok(self.inner.initialize_session(id, message).await?)
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, SessionError> {
        Ok(self.inner.has_session(id).await?)
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), SessionError> {
        if HttpRequestContext::current().is_some() {
            // The client wants no more of it.
            self.close_if(id, true, |_| true).await;
            return Ok(());
        }
        // rmcp says so at the end of each worker, also of one that was given up before, whose session may be in hand again.
        let mut handles = self.inner.sessions.write().await;
        let mut table = self.table();
        if !table.worker_ended(id) {
            table.active.remove(id);
            handles.remove(id);
        }
        Ok(())
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionError> {
        Ok(self.inner.create_stream(id, message).await?)
    }

    async fn accept_message(&self, id: &SessionId, message: ClientJsonRpcMessage) -> Result<(), SessionError> {
        Ok(self.inner.accept_message(id, message).await?)
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionError> {
        Ok(self.inner.create_standalone_stream(id).await?)
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionError> {
        Ok(self.inner.resume(id, last_event_id).await?)
    }
}
