//! The backend with rmcp's streamable HTTP service.

use std::io;
use std::sync::Arc;

use mcp::McpServer;
use mcp::message::MAX_MESSAGE_BYTES;
use rmcp::service::{Peer, RoleServer};
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use tokio_util::sync::CancellationToken;
use tools::metrics::Metrics;

use crate::direct_call;
use crate::quota::AccountQuotas;
use crate::request_context::{Backend, HttpRequestContext};
use crate::session_ids::SessionIdCodec;
use crate::sessions::StreamableSessions;

pub(crate) struct ActiveBackend {
    pub(crate) backend: Backend,
    pub(crate) ids: SessionIdCodec,
    pub(crate) sessions: Arc<StreamableSessions>,
    pub(crate) service: StreamableHttpService<McpServer, StreamableSessions>,
    pub(crate) silent_peer: Peer<RoleServer>,
}

impl ActiveBackend {
    /// `streams` ends the event streams when it is cancelled.
    pub(crate) fn new(backend: Backend, quotas: AccountQuotas, streams: CancellationToken, metrics: Metrics) -> Self {
        let ids = SessionIdCodec::new(backend.elicitation.codec());
        let sessions = Arc::new(StreamableSessions::new(ids.clone(), quotas, metrics));
        let mut config = StreamableHttpServerConfig::default()
            // `host_check` checks both on every route.
            .disable_allowed_hosts()
            .disable_allowed_origins()
            .with_json_response(true)
            .with_sse_retry(None)
            .with_cancellation_token(streams)
            .with_max_request_body_bytes(MAX_MESSAGE_BYTES);
        config.session_store = Some(Arc::new(ids.clone()));
        let server = || {
            let context = HttpRequestContext::current();
            context
                .map(|context| context.mcp_server())
                .ok_or_else(|| io::Error::other("request has no authenticated context"))
        };
        let service = StreamableHttpService::new(server, Arc::clone(&sessions), config);
        Self { backend, ids, sessions, service, silent_peer: direct_call::silent_peer() }
    }
}
