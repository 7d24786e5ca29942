//! The data that a transport attaches to a request.

use std::sync::{Arc, Mutex, PoisonError};

use http::HeaderMap;
use http::request::Parts;
use rmcp::service::{RequestContext, RoleServer};
use tokio_util::sync::CancellationToken;
use tools::ProfileView;
use types::ClientInfo;

/// The transport's side of one request. Requests of a transport that attaches nothing have the default.
#[derive(Clone, Default)]
pub struct TransportContext {
    pub response: ResponseScope,
    /// The client of the session, as far as the transport knows it, with the id of the session in records. It gives
    /// no access.
    pub client: ClientInfo,
    /// Whether rmcp writes the result, which then must be complete when the handler returns. Our own transports call
    /// [`expand_message`](crate::expand_message) just before they write.
    pub is_written_by_rmcp: bool,
    /// The tools that the credential of the request gives, if they may differ from those of the session.
    pub tools: Option<ProfileView>,
    pub trace: TraceContext,
}

/// The caller's trace context (W3C Trace Context), as the transport has it.
#[derive(Debug, Clone, Default)]
pub struct TraceContext {
    pub(crate) parent: Option<String>,
    pub(crate) state: Option<String>,
}

impl TraceContext {
    #[must_use]
    pub fn of_headers(headers: &HeaderMap) -> Self {
        let text = |name| Some(headers.get(name)?.to_str().ok()?.to_owned());
        Self { parent: text("traceparent"), state: text("tracestate") }
    }
}

impl TransportContext {
    /// The context of a request, from its extensions. rmcp's HTTP transport keeps those of the HTTP request below its
    /// [`Parts`].
    pub(crate) fn of(context: &RequestContext<RoleServer>) -> Self {
        let of_http = || context.extensions.get::<Parts>().and_then(|parts| parts.extensions.get::<Self>());
        context.extensions.get::<Self>().or_else(of_http).cloned().unwrap_or_default()
    }
}

/// Keeps values alive until a response has been written or its client has gone. Clones share the scope.
#[derive(Clone, Default)]
pub struct ResponseScope {
    state: Arc<Mutex<ScopeState>>,
    client_gone: CancellationToken,
}

#[derive(Default)]
struct ScopeState {
    is_finished: bool,
    kept: Vec<Box<dyn Send>>,
}

impl ResponseScope {
    /// Keeps a value until the scope is finished. A finished scope drops it at once.
    pub fn keep_alive(&self, value: impl Send + 'static) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !state.is_finished {
            state.kept.push(Box::new(value));
        }
    }

    /// Drops the kept values. `is_complete` is whether the response has been written in full; if not, the client has
    /// gone.
    pub fn finish(&self, is_complete: bool) {
        if !is_complete {
            self.client_gone.cancel();
        }
        let kept = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.is_finished = true;
            std::mem::take(&mut state.kept)
        };
        drop(kept);
    }

    /// Returns when the client has gone before its response was complete.
    pub(crate) async fn client_gone(&self) {
        self.client_gone.cancelled().await;
    }
}
