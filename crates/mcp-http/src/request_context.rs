//! The context of the request that a task handles, for the functions that rmcp calls without their request.

use std::future::Future;
use std::sync::Arc;

use auth::Identity;
use mcp::{Elicitation, McpServer, ResultContent};
use rmcp::model::InitializeRequestParams;
use tokio_util::sync::CancellationToken;
use tools::{LiveRegistry, View};

use crate::quota::AccountUsage;

tokio::task_local! {
    static REQUEST_CONTEXT: HttpRequestContext;
}

/// What requests are served from once a database is connected.
#[derive(Clone)]
pub struct Backend {
    /// The tools of all databases and profiles.
    pub registry: LiveRegistry,
    pub elicitation: Elicitation,
    /// Where results have the envelope.
    pub content: ResultContent,
}

/// The tools that a caller sees.
pub(crate) fn view(identity: &Identity) -> View {
    View { profile: identity.profile.clone(), databases: identity.databases.clone() }
}

#[derive(Clone)]
pub(crate) struct HttpRequestContext {
    pub(crate) identity: Identity,
    pub(crate) account: Arc<AccountUsage>,
    pub(crate) backend: Backend,
    /// The parameters of `initialize`, if the request opens a session.
    pub(crate) initialize: Option<InitializeRequestParams>,
    /// Cancelled when the server stops.
    pub(crate) stop: CancellationToken,
}

impl HttpRequestContext {
    pub(crate) fn current() -> Option<Self> {
        REQUEST_CONTEXT.try_with(Clone::clone).ok()
    }

    /// Runs the handler of the request with this context.
    pub(crate) async fn scope<F: Future>(self, handler: F) -> F::Output {
        REQUEST_CONTEXT.scope(self, handler).await
    }

    pub(crate) fn mcp_server(&self) -> McpServer {
        let Backend { registry, elicitation, content, .. } = &self.backend;
        let tools = registry.view(view(&self.identity));
        McpServer::new(tools, self.identity.principal.clone(), *content, elicitation.clone())
            .shared(Arc::clone(&self.account.reads), &self.stop)
    }
}
