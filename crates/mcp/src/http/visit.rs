//! Whose request this is, for what rmcp calls while it handles the request without saying for whom.

use std::future::Future;
use std::sync::Arc;

use rmcp::model::InitializeRequestParams;
use tokio_util::sync::CancellationToken;

use super::{Account, Offer};
use crate::Server;
use crate::auth::Identity;

tokio::task_local! {
    static VISIT: Visit;
}

/// One request of somebody who is known.
#[derive(Clone)]
pub(crate) struct Visit {
    pub(crate) identity: Identity,
    /// What its account may take.
    pub(crate) account: Arc<Account>,
    pub(crate) offer: Offer,
    /// What opens a session, if the request is that.
    pub(crate) initialize: Option<InitializeRequestParams>,
    /// Cancelled when the server stops.
    pub(crate) stop: CancellationToken,
}

impl Visit {
    /// That of the task.
    pub(crate) fn current() -> Option<Self> {
        VISIT.try_with(Clone::clone).ok()
    }

    /// Handles the request.
    pub(crate) async fn during<F: Future>(self, handling: F) -> F::Output {
        VISIT.scope(self, handling).await
    }

    /// A server for whoever asks.
    pub(crate) fn server(&self) -> Server {
        let tools = self.offer.toolbox.of_profile(&self.identity.profile);
        Server::new(tools, self.identity.principal.clone(), self.offer.content, self.offer.asking.clone())
            .until(&self.stop)
            .over_http(Arc::clone(&self.account))
    }
}
