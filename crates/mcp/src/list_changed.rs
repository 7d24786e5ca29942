//! Forwards changes of tools and resources to clients (`list_changed`).

use rmcp::service::{Peer, RoleServer, SubscriptionSendError, SubscriptionSink};
use tools::ProfileView;

pub(crate) enum ChangeSubscriber<'a> {
    /// A session with a handshake. It gets every notification.
    Session(Peer<RoleServer>),
    /// A subscription. It gets the notifications that it asked for.
    Subscription(&'a SubscriptionSink),
}

impl ChangeSubscriber<'_> {
    /// Notifies the client of each change, until the client has gone.
    pub(crate) async fn forward_changes(&self, tools: &mut ProfileView) {
        while let Some(change) = tools.changed().await {
            if (change.tools && !self.notify_tools().await) || (change.resources && !self.notify_resources().await) {
                return;
            }
        }
    }

    /// Returns whether the client is still connected.
    async fn notify_tools(&self) -> bool {
        match self {
            Self::Session(peer) => peer.notify_tool_list_changed().await.is_ok(),
            Self::Subscription(sink) => is_open(sink.notify_tool_list_changed().await),
        }
    }

    /// Returns whether the client is still connected.
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
