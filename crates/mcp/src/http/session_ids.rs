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

use super::visit::Visit;
use crate::auth::Identity;
use crate::server::new_session_id;
use crate::state_codec::StateCodec;

/// How long a session's id is good for.
const TTL: Duration = Duration::from_secs(24 * 60 * 60);

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
    /// The client's name and version, for the records.
    #[serde(default)]
    client: ClientInfo,
}

/// A session's name in records. Travels with each request of the session; it opens nothing.
#[derive(Clone)]
pub(crate) struct RecordedSession(String);

impl RecordedSession {
    /// That of the request which this context belongs to, if it belongs to a session of the streamable transport.
    pub(crate) fn of(context: &RequestContext<RoleServer>) -> Option<String> {
        let parts = context.extensions.get::<Parts>()?;
        parts.extensions.get::<Self>().map(|session| session.0.clone())
    }
}

/// Seals and opens the ids of sessions.
#[derive(Clone)]
pub(crate) struct SessionIds {
    codec: StateCodec,
    closed: Arc<Mutex<Closed>>,
}

#[derive(Default)]
struct Closed {
    ids: HashSet<String>,
    order: VecDeque<String>,
}

impl SessionIds {
    pub(crate) fn new(codec: StateCodec) -> Self {
        Self { codec, closed: Arc::default() }
    }

    pub(crate) fn seal(&self, identity: &Identity, initialize: &InitializeRequestParams) -> Option<String> {
        let sealed = Sealed {
            id: new_session_id(),
            protocol: known(&initialize.protocol_version),
            elicits: initialize.capabilities.elicitation.is_some(),
            client: ClientInfo::new(&initialize.client_info.name, &initialize.client_info.version),
        };
        let bound = bound(identity);
        self.codec.current().seal_json_with(&sealed, &SealOptions::new().associated_data(&bound).ttl(TTL)).ok()
    }

    /// The session's name in records; `None` for what is no session of this identity's.
    pub(crate) fn recorded(&self, id: &str, identity: &Identity) -> Option<RecordedSession> {
        self.still_open(id, identity).map(|sealed| RecordedSession(sealed.id))
    }

    fn still_open(&self, id: &str, identity: &Identity) -> Option<Sealed> {
        self.opened(id, identity).filter(|sealed| !self.closed().ids.contains(&sealed.id))
    }

    /// What the client of this session said when it opened it; `None` for what is no session of this identity's.
    pub(crate) fn open(&self, id: &str, identity: &Identity) -> Option<InitializeRequestParams> {
        let sealed = self.still_open(id, identity)?;
        let mut capabilities = ClientCapabilities::default();
        capabilities.elicitation = sealed.elicits.then(ElicitationCapability::default);
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let client = Implementation::new(text(&sealed.client.name), text(&sealed.client.version));
        Some(InitializeRequestParams::new(capabilities, client).with_protocol_version(sealed.protocol))
    }

    fn opened(&self, id: &str, identity: &Identity) -> Option<Sealed> {
        self.codec.current().open_json_with(id, &bound(identity)).ok()
    }

    /// The client wants no more of it.
    fn close(&self, id: &str, identity: &Identity) {
        let Some(Sealed { id, .. }) = self.opened(id, identity) else { return };
        let mut closed = self.closed();
        if closed.ids.insert(id.clone()) {
            closed.order.push_back(id);
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
        if let Some(visit) = Visit::current() {
            self.close(id, &visit.identity);
        }
        Ok(())
    }
}

/// A client may name any version, of any length; one that nobody knows is answered with the newest that has sessions.
fn known(protocol: &ProtocolVersion) -> ProtocolVersion {
    let known = ProtocolVersion::KNOWN_VERSIONS.iter().find(|known| *known == protocol);
    known.cloned().unwrap_or(ProtocolVersion::V_2025_11_25)
}
