//! Serves MCP on a listener, and drains it at the end.

use std::sync::Arc;

use http_server::{HttpServer, ReloadableTls};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tools::metrics::RefusalReason;

use crate::rejection_log::Rejection;
use crate::state::AppState;

/// Serves until `stop` is cancelled and all earlier requests have been answered.
pub async fn serve_http(
    listener: TcpListener,
    tls: Option<ReloadableTls>,
    state: Arc<AppState>,
    stop: CancellationToken,
) {
    let (router, connections) = (state.router(), Arc::clone(&state.connections));
    let server = HttpServer { listener, tls, router, connections };
    let on_refusal = |peer, error: http_server::ConnectionLimitError| {
        state.metrics.http().refused(RefusalReason::TooManyConnections);
        state.rejections.report(peer, Rejection::Connection { message: &error.to_string() });
    };
    http_server::serve(server, on_refusal, stop, state.drain()).await;
    state.rejections.summarize();
}
