//! A router on a listener.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::{ReloadableTls, accept, serve_connection};

/// How long the last responses may take at the end.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Serves a router on at most `connections` connections at once until `stop` is cancelled and the requests before that
/// have been answered. Further connections wait.
pub async fn serve_router(
    listener: TcpListener,
    tls: Option<ReloadableTls>,
    router: Router,
    connections: usize,
    stop: CancellationToken,
) {
    let (graceful, slots) = (GracefulShutdown::new(), Arc::new(Semaphore::new(connections)));
    let next = async || {
        let slot = Arc::clone(&slots).acquire_owned().await.ok()?;
        accept(&listener).await.map(|accepted| (accepted, slot))
    };
    while let Some(next) = stop.run_until_cancelled(next()).await {
        let Some(((stream, peer), slot)) = next else { continue };
        let (tls, watcher) = (tls.clone(), graceful.watcher());
        let service = TowerToHyperService::new(router.clone());
        tokio::spawn(async move {
            let _slot = slot;
            if let Err(error) = serve_connection(stream, tls.as_ref(), service, watcher).await {
                tracing::debug!(%peer, error, "a connection ended");
            }
        });
    }
    drop(listener);
    if tokio::time::timeout(CLOSE_TIMEOUT, graceful.shutdown()).await.is_err() {
        tracing::warn!("some clients did not read their last responses in time");
    }
}
