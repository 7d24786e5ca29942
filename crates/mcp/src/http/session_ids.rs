//! The ids of sessions: all there is to know of one, sealed with the ledger's key for the identity that opened it. So any server
//! of the ledger takes it up, nothing is stored, and nobody else can use it.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::request::Parts;
use rmcp::model::{
    ClientCapabilities, ElicitationCapability, Implementation, InitializeRequestParams, ProtocolVersion, SealOptions,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::transport::streamable_http_server::session::{SessionState, SessionStore, SessionStoreError};
use serde::{Deserialize, Serialize};
use types::ClientInfo;

use super::request_context::HttpRequestContext;
use crate::auth::Identity;
use crate::server::new_session_id;
use crate::state_codec::StateCodec;

/// How long a session's id is good for.
const TTL: Duration = Duration::from_secs(24 * 60 * 60);

/// How many ids that clients have closed are remembered.
const MAX_CLOSED: usize = 10_000;

/// What a session's id says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SealedSession {
    id: String,
    protocol: ProtocolVersion,
    /// Whether the client can ask its user.
    elicits: bool,
    /// The client's name and version, for the records.
    #[serde(default)]
    client: ClientInfo,
}

/// A session's name in records. Travels with each request of the session; it opens nothing.
#[derive(Clone)]
pub(crate) struct RecordSessionId(String);

impl RecordSessionId {
    /// That of the request which this context belongs to, if it belongs to a session of the streamable transport.
    pub(crate) fn of(context: &RequestContext<RoleServer>) -> Option<String> {
        let parts = context.extensions.get::<Parts>()?;
        parts.extensions.get::<Self>().map(|session| session.0.clone())
    }
}

/// Seals and opens the ids of sessions.
#[derive(Clone)]
pub(crate) struct SessionIdCodec {
    codec: StateCodec,
    closed: Arc<Mutex<Closed>>,
}

#[derive(Default)]
struct Closed {
    ids: HashSet<String>,
    order: VecDeque<String>,
}

impl SessionIdCodec {
    pub(crate) fn new(codec: StateCodec) -> Self {
        Self { codec, closed: Arc::default() }
    }

    pub(crate) fn seal(&self, identity: &Identity, initialize: &InitializeRequestParams) -> Option<String> {
        let sealed = SealedSession {
            id: new_session_id(),
            protocol: supported_version(&initialize.protocol_version),
            elicits: initialize.capabilities.elicitation.is_some(),
            client: ClientInfo::new(&initialize.client_info.name, &initialize.client_info.version),
        };
        let associated_data = associated_data(identity);
        self.codec
            .current()
            .seal_json_with(&sealed, &SealOptions::new().associated_data(&associated_data).ttl(TTL))
            .ok()
    }

    /// The session's name in records; `None` for what is no session of this identity's.
    pub(crate) fn record_id(&self, id: &str, identity: &Identity) -> Option<RecordSessionId> {
        self.open_unless_closed(id, identity).map(|sealed| RecordSessionId(sealed.id))
    }

    fn open_unless_closed(&self, id: &str, identity: &Identity) -> Option<SealedSession> {
        self.unseal(id, identity).filter(|sealed| !self.closed().ids.contains(&sealed.id))
    }

    /// What the client of this session said when it opened it; `None` for what is no session of this identity's.
    pub(crate) fn initialize_params(&self, id: &str, identity: &Identity) -> Option<InitializeRequestParams> {
        let sealed = self.open_unless_closed(id, identity)?;
        let mut capabilities = ClientCapabilities::default();
        capabilities.elicitation = sealed.elicits.then(ElicitationCapability::default);
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let client = Implementation::new(text(&sealed.client.name), text(&sealed.client.version));
        Some(InitializeRequestParams::new(capabilities, client).with_protocol_version(sealed.protocol))
    }

    fn unseal(&self, id: &str, identity: &Identity) -> Option<SealedSession> {
        self.codec.current().open_json_with(id, &associated_data(identity)).ok()
    }

    /// The client wants no more of it.
    fn close(&self, id: &str, identity: &Identity) {
        let Some(SealedSession { id, .. }) = self.unseal(id, identity) else { return };
        let mut closed = self.closed();
        if closed.ids.insert(id.clone()) {
            closed.order.push_back(id);
        }
        if closed.order.len() > MAX_CLOSED
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
fn associated_data(identity: &Identity) -> Vec<u8> {
    let Identity { principal, profile, .. } = identity;
    let actor = principal.actor.as_deref().unwrap_or_default().replace('\0', "");
    format!("countersign session\0{}\0{profile}\0{actor}", principal.account_id.as_str()).into_bytes()
}

/// The "store" from which rmcp takes sessions up again: their ids.
#[async_trait::async_trait]
impl SessionStore for SessionIdCodec {
    async fn load(&self, id: &str) -> Result<Option<SessionState>, SessionStoreError> {
        let unseal = HttpRequestContext::current()
            .and_then(|request_context| self.initialize_params(id, &request_context.identity));
        Ok(unseal.map(SessionState::new))
    }

    async fn store(&self, _: &str, _: &SessionState) -> Result<(), SessionStoreError> {
        Ok(())
    }

    async fn delete(&self, id: &str) -> Result<(), SessionStoreError> {
        if let Some(request_context) = HttpRequestContext::current() {
            self.close(id, &request_context.identity);
        }
        Ok(())
    }
}

/// A client may name any version, of any length; one that nobody knows is answered with the newest that has sessions.
fn supported_version(protocol: &ProtocolVersion) -> ProtocolVersion {
    let supported_version =
        ProtocolVersion::KNOWN_VERSIONS.iter().find(|supported_version| *supported_version == protocol);
    supported_version.cloned().unwrap_or(ProtocolVersion::V_2025_11_25)
}
