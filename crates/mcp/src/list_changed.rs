//! `list_changed`: who is told when tools or resources have changed.

use rmcp::service::{Peer, RoleServer, SubscriptionSendError, SubscriptionSink};
use tools::ProfileView;

/// Whoever is told of changes.
pub(crate) enum ChangeSubscriber<'a> {
    /// A session with a handshake: of all.
    Session(Peer<RoleServer>),
    /// A subscription: of what it asked for.
    Subscription(&'a SubscriptionSink),
}

impl ChangeSubscriber<'_> {
    /// Tells of each change until nobody listens.
    pub(crate) async fn forward_changes(&self, tools: &mut ProfileView) {
        while let Some(change) = tools.changed().await {
            if (change.tools && !self.notify_tools().await) || (change.resources && !self.notify_resources().await) {
                return;
            }
        }
    }

    /// Whether it still listens.
    async fn notify_tools(&self) -> bool {
        match self {
            Self::Session(peer) => peer.notify_tool_list_changed().await.is_ok(),
            Self::Subscription(sink) => is_open(sink.notify_tool_list_changed().await),
        }
    }

    /// Whether it still listens.
    async fn notify_resources(&self) -> bool {
        match self {
            Self::Session(peer) => peer.notify_resource_list_changed().await.is_ok(),
            Self::Subscription(sink) => is_open(sink.notify_resource_list_changed().await),
        }
    }
}

fn is_open(sent: Result<(), SubscriptionSendError>) -> bool {
    matches!(sent, Ok(()) | Err(SubscriptionSendError::NotificationNotAccepted(_)))
}
