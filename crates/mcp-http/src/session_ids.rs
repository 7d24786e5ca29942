//! Session ids: the whole state of a session, sealed with a key of the ledger for its identity. So any server of the
//! ledger can resume it, nothing is stored, and no other identity can use it.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use auth::{CredentialKind, Identity};
use mcp::StateCodec;
use rmcp::model::{
    ClientCapabilities, ElicitationCapability, Implementation, InitializeRequestParams, ProtocolVersion, SealOptions,
};
use rmcp::transport::streamable_http_server::session::{SessionState, SessionStore, SessionStoreError};
use serde::{Deserialize, Serialize};
use types::ClientInfo;

use crate::request_context::HttpRequestContext;

/// How long a session id is valid.
const TTL: Duration = Duration::from_secs(24 * 60 * 60);

/// The number of closed ids that are remembered.
const MAX_CLOSED: usize = 10_000;

/// The contents of a session id.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SealedSession {
    id: String,
    protocol: ProtocolVersion,
    /// Whether the client supports elicitation.
    elicits: bool,
    /// The client's name and version, for records.
    #[serde(default)]
    client: ClientInfo,
}

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
            id: uuid::Uuid::new_v4().simple().to_string(),
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

    /// The session's client, with the id that records give the session; `None` if this identity has no such open
    /// session.
    pub(crate) fn client(&self, id: &str, identity: &Identity) -> Option<ClientInfo> {
        let SealedSession { id, client, .. } = self.open_unless_closed(id, identity)?;
        Some(ClientInfo { session_id: Some(id), ..client })
    }

    fn open_unless_closed(&self, id: &str, identity: &Identity) -> Option<SealedSession> {
        self.unseal(id, identity).filter(|sealed| !self.closed().ids.contains(&sealed.id))
    }

    /// The `initialize` parameters of the session; `None` if this identity has no such open session.
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

    /// Marks the session as closed by its client.
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

/// The identity that an id is bound to: account, profile, label, databases, role and claims. None of them may contain
/// a NUL. The profile of a JWT is not part of it: a client that has requested another scope continues its session.
fn associated_data(identity: &Identity) -> Vec<u8> {
    let Identity { principal, profile, databases, credential } = identity;
    let profile = if *credential == CredentialKind::Jwt { "" } else { profile };
    let actor = principal.actor.as_deref().unwrap_or_default().replace('\0', "");
    let mut data = format!("countersign session\0{}\0{profile}\0{actor}", principal.account_id.as_str());
    for database in databases.iter().flatten() {
        data.push('\0');
        data.push_str(database.as_str());
    }
    if let Some(context) = principal.context.to_json() {
        data.push('\0');
        data.push_str(&context);
    }
    data.into_bytes()
}

/// The store from which rmcp resumes sessions. Their ids contain everything, so nothing is stored.
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

/// The protocol version of a session. Unknown versions, of any length, are replaced by the newest version with
/// sessions.
fn supported_version(protocol: &ProtocolVersion) -> ProtocolVersion {
    let supported_version =
        ProtocolVersion::KNOWN_VERSIONS.iter().find(|supported_version| *supported_version == protocol);
    supported_version.cloned().unwrap_or(ProtocolVersion::V_2025_11_25)
}
