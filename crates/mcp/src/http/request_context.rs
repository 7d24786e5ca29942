//! Whose request this is, for what rmcp calls while it handles the request without saying for whom.

use std::future::Future;
use std::sync::Arc;

use rmcp::model::InitializeRequestParams;
use tokio_util::sync::CancellationToken;

use super::{AccountUsage, Backend};
use crate::McpServer;
use crate::auth::Identity;

tokio::task_local! {
    static REQUEST_CONTEXT: HttpRequestContext;
}

/// One request of somebody who is known.
#[derive(Clone)]
pub(crate) struct HttpRequestContext {
    pub(crate) identity: Identity,
    /// What its account may take.
    pub(crate) account: Arc<AccountUsage>,
    pub(crate) backend: Backend,
    /// What opens a session, if the request is that.
    pub(crate) initialize: Option<InitializeRequestParams>,
    /// Cancelled when the server stops.
    pub(crate) stop: CancellationToken,
}

impl HttpRequestContext {
    /// That of the task.
    pub(crate) fn current() -> Option<Self> {
        REQUEST_CONTEXT.try_with(Clone::clone).ok()
    }

    /// Handles the request.
    pub(crate) async fn scope<F: Future>(self, handler: F) -> F::Output {
        REQUEST_CONTEXT.scope(self, handler).await
    }

    /// A server for whoever asks.
    pub(crate) fn mcp_server(&self) -> McpServer {
        let tools = self.backend.registry.of_profile(&self.identity.profile);
        McpServer::new(tools, self.identity.principal.clone(), self.backend.content, self.backend.elicitation.clone())
            .stopping_with(&self.stop)
            .for_account(Arc::clone(&self.account))
    }
}
