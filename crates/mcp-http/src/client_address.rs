//! The client that sent a request, also from behind a trusted proxy.

use std::net::IpAddr;
use std::sync::Arc;

use http::HeaderMap;
use http_server::{ClientNetwork, HttpConnection, PROXY_HEADERS, TrustedProxies};

use crate::host_check::is_loopback_host;

/// The sender of a request: its connection, and its address from behind a trusted proxy.
#[derive(Debug, Clone)]
pub(crate) struct ClientAddress {
    pub(crate) connection: Arc<HttpConnection>,
    pub(crate) address: IpAddr,
}

impl ClientAddress {
    pub(crate) fn new(connection: Arc<HttpConnection>, proxies: &TrustedProxies, headers: &HeaderMap) -> Self {
        Self { address: proxies.client(connection.peer(), headers), connection }
    }

    pub(crate) fn network(&self) -> ClientNetwork {
        ClientNetwork::of(self.address)
    }

    /// Whether a program on this machine sent the request itself. An unlisted proxy on this machine looks the same if
    /// it adds no header and forwards a Host header that names loopback.
    pub(crate) fn is_local(&self, proxies: &TrustedProxies, headers: &HeaderMap) -> bool {
        let peer = self.connection.peer();
        peer.is_loopback()
            && !proxies.contains(peer)
            && !PROXY_HEADERS.iter().any(|name| headers.contains_key(*name))
            && is_loopback_host(headers)
    }
}
