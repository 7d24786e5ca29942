//! Sessions of the streamable transport (protocols up to 2025-11-25) in the memory of this server: a task and its
//! channels each. Idle sessions are closed, the longest idle first if an account has too many. A client that returns
//! resumes its session by its id (`session_ids`).

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::Stream;
use rmcp::model::{ClientJsonRpcMessage, RequestId, ServerJsonRpcMessage};
use rmcp::transport::WorkerTransport;
use rmcp::transport::streamable_http_server::SessionManager;
use rmcp::transport::streamable_http_server::session::local::{
    LocalSessionManager, LocalSessionManagerError, LocalSessionWorker, SessionConfig, create_local_session,
};
use rmcp::transport::streamable_http_server::session::{RestoreOutcome, ServerSseMessage, SessionId};
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tools::metrics::{GaugeGuard, Metrics};
use types::AccountId;

use crate::quota::AccountQuotas;
use crate::request_context::HttpRequestContext;
use crate::session_ids::SessionIdCodec;

pub(crate) struct StreamableSessions {
    ids: SessionIdCodec,
    quotas: AccountQuotas,
    table: SharedTable,
    inner: LocalSessionManager,
    /// Serializes the resumption of a session: two concurrent requests must not both resume it.
    resuming: KeyedMutex,
    metrics: Metrics,
}

type SharedTable = Arc<Mutex<Table>>;

#[derive(Default)]
struct Table {
    active: HashMap<SessionId, ActiveSession>,
    /// Number of open requests and streams of each session, active or not.
    uses: HashMap<SessionId, usize>,
    /// The unanswered requests, each with the token that cancels it if it is a direct call.
    claimed_ids: HashMap<(SessionId, RequestId), CancellationToken>,
    /// Number of workers of closed sessions that have not ended yet.
    ending: HashMap<SessionId, usize>,
}

struct ActiveSession {
    account: AccountId,
    /// Whether the handshake is over. No message may reach the worker before.
    is_open: bool,
    used: Instant,
    _counted: GaugeGuard,
}

impl Table {
    fn is_idle(&self, id: &SessionId) -> bool {
        !self.uses.contains_key(id)
    }

    /// Decrements a count. Returns whether there was one.
    fn decrement(counts: &mut HashMap<SessionId, usize>, id: &SessionId) -> bool {
        let Some(count) = counts.get_mut(id) else { return false };
        *count -= 1;
        if *count == 0 {
            counts.remove(id);
        }
        true
    }

    /// Notes the end of a worker. Returns whether its session had been closed before.
    fn worker_ended(&mut self, id: &SessionId) -> bool {
        Self::decrement(&mut self.ending, id)
    }
}

fn lock(table: &Mutex<Table>) -> MutexGuard<'_, Table> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A request or stream of a session, until its response has been written.
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

/// The id of a request, until the request has been handled, even without its client.
#[derive(Clone)]
pub(crate) struct RequestIdGuard {
    _held: Arc<ClaimedRequestId>,
    /// Cancelled with the request.
    pub(crate) cancellation: CancellationToken,
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

/// One mutex per session, for as long as a task holds it or waits for it.
#[derive(Default)]
struct KeyedMutex {
    mutexes: Mutex<HashMap<SessionId, Weak<tokio::sync::Mutex<()>>>>,
}

impl KeyedMutex {
    async fn lock(&self, id: &str) -> OwnedMutexGuard<()> {
        let mutex = {
            let mut mutexes = self.mutexes.lock().unwrap_or_else(PoisonError::into_inner);
            mutexes.retain(|_, mutex| mutex.strong_count() > 0);
            let existing = mutexes.get(id).and_then(Weak::upgrade);
            existing.unwrap_or_else(|| {
                let mutex = Arc::default();
                mutexes.insert(id.into(), Arc::downgrade(&mutex));
                mutex
            })
        };
        mutex.lock_owned().await
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

    /// Counts a request or stream of a session, until the result is dropped.
    pub(crate) fn begin_use(&self, id: &str) -> SessionUse {
        let id: SessionId = id.into();
        *self.table().uses.entry(id.clone()).or_default() += 1;
        SessionUse { id, table: Arc::clone(&self.table) }
    }

    /// Claims the id of a request, until the result is dropped. `None` if an unanswered request has the id: rmcp
    /// would send both answers to the later one.
    pub(crate) fn claim_request_id(&self, id: &str, request: RequestId) -> Option<RequestIdGuard> {
        let key = (id.into(), request);
        let cancellation = CancellationToken::new();
        match self.table().claimed_ids.entry(key.clone()) {
            Entry::Occupied(_) => return None,
            Entry::Vacant(entry) => entry.insert(cancellation.clone()),
        };
        let held = ClaimedRequestId { key, table: Arc::clone(&self.table) };
        Some(RequestIdGuard { _held: Arc::new(held), cancellation })
    }

    /// Cancels the direct calls of a session that have such an id.
    pub(crate) fn cancel_requests(&self, id: &str, is_meant: impl Fn(&RequestId) -> bool) {
        for ((session, request), cancellation) in &self.table().claimed_ids {
            if **session == *id && is_meant(request) {
                cancellation.cancel();
            }
        }
    }

    /// Whether the session is active and its handshake is over.
    pub(crate) fn is_active(&self, id: &str) -> bool {
        self.table().active.get(id).is_some_and(|session| session.is_open)
    }

    /// Notes that the handshake of a resumed session is over.
    pub(crate) fn mark_resumed(&self, id: &str) {
        if let Some(session) = self.table().active.get_mut(id) {
            session.is_open = true;
        }
    }

    /// The guard to hold while a session is resumed. `None` if another request has resumed it meanwhile.
    pub(crate) async fn resume(&self, id: &str) -> Option<OwnedMutexGuard<()>> {
        let turn = self.resuming.lock(id).await;
        (!self.is_active(id)).then_some(turn)
    }

    /// Closes the sessions that have been idle for too long.
    pub(crate) async fn sweep(&self) {
        let ids: Vec<SessionId> = self.table().active.keys().cloned().collect();
        for id in ids {
            self.close_if(&id, false, |session| session.used.elapsed() > self.quotas.session_idle).await;
        }
    }

    /// Makes room for a session of this account. `id` is its id, if it may be active already.
    ///
    /// # Errors
    /// The account's limit, if all of its sessions are in use.
    pub(crate) async fn reserve_slot(&self, account: &AccountId, id: Option<&str>) -> Result<(), u32> {
        while let Some(oldest) = self.eviction_candidate(account, id)? {
            self.close_if(&oldest, false, |_| true).await;
        }
        Ok(())
    }

    fn eviction_candidate(&self, account: &AccountId, id: Option<&str>) -> Result<Option<SessionId>, u32> {
        let table = self.table();
        // The common case first: every request of a session runs this.
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

    /// Closes a session if the predicate holds, and, without `even_in_use`, if it is idle.
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
    // `sweep` closes idle sessions, because it knows whether they are in use.
    config.keep_alive = None;
    // No events are kept for clients that reconnect: reads can be repeated, and so can writes.
    config.sse_retry = None;
    config.completed_cache_ttl = Duration::ZERO;
    config.channel_capacity = CHANNEL_CAPACITY;
    config
}

/// The most queued messages between a session and its streams.
const CHANNEL_CAPACITY: usize = 4;

#[derive(Debug, thiserror::Error)]
pub(crate) enum SessionError {
    #[error("request has no authenticated context")]
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
        // No client has the id before the handshake is over.
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
            // The client has closed the session.
            self.close_if(id, true, |_| true).await;
            return Ok(());
        }
        // rmcp calls this at the end of each worker, also of a closed session, which may be active again.
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

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_lock_keeps_out_tasks_of_its_own_session_only_and_leaves_nothing_behind() {
        let mutex = KeyedMutex::default();
        let first = mutex.lock("a").await;
        let mut next = Box::pin(mutex.lock("a"));
        let mut gives_up = Box::pin(mutex.lock("a"));
        assert!(next.as_mut().now_or_never().is_none(), "two at once");
        assert!(gives_up.as_mut().now_or_never().is_none(), "three at once");
        let other = mutex.lock("b").now_or_never();
        assert!(other.is_some(), "another session waits");
        drop(other);
        drop(first);
        let second = next.now_or_never();
        assert!(second.is_some(), "the lock was not passed on");
        drop(second);
        // Dropped although the lock is free for it.
        drop(gives_up);
        drop(mutex.lock("c").await);
        let ids: Vec<SessionId> = mutex.mutexes.lock().unwrap().keys().cloned().collect();
        assert_eq!(ids, ["c".into()], "unused locks stay");
    }
}
