//! Accepts connections within the limits, serves them, and closes them at the end.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::{Request, Response};
use http_server::{ReloadableTls, accept, serve_connection};
use hyper::body::Incoming;
use hyper::service::Service;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tools::metrics::RefusalReason;

use crate::connections::HttpConnection;
use crate::rejection_log::Rejection;
use crate::state::AppState;

/// How long the last bytes of responses may take at the end.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Serves until `stop` is cancelled and all earlier requests have been answered.
pub async fn serve_http(
    listener: TcpListener,
    tls: Option<ReloadableTls>,
    state: Arc<AppState>,
    stop: CancellationToken,
) {
    let router = state.router();
    let graceful = GracefulShutdown::new();
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener) => accepted,
            () = stop.cancelled() => break,
        };
        let Some((stream, peer)) = accepted else { continue };
        let (connection, slot) = match state.connections.admit(peer) {
            Ok(admitted) => admitted,
            Err(error) => {
                state.metrics.http().refused(RefusalReason::TooManyConnections);
                let message = error.to_string();
                state.rejections.report(peer.ip().to_canonical(), Rejection::Connection { message: &message });
                continue;
            }
        };
        let service =
            RequestService { router: TowerToHyperService::new(router.clone()), connection: connection.clone() };
        let (tls, watcher, since) = (tls.clone(), graceful.watcher(), Instant::now());
        tokio::spawn(async move {
            let _slot = slot;
            let served = serve_connection(stream, tls.as_ref(), service, watcher);
            let served = tokio::select! {
                served = served => served,
                why = connection.wait_until_evicted(since) => Err(why.to_owned()),
            };
            if let Err(error) = served {
                tracing::debug!(%peer, error, "a connection ended");
            }
        });
    }
    // New clients can go to another server at once.
    drop(listener);
    state.drain().await;
    if tokio::time::timeout(CLOSE_TIMEOUT, graceful.shutdown()).await.is_err() {
        tracing::warn!("some clients did not read their last responses in time");
    }
    state.rejections.summarize();
}

/// The service of one connection.
struct RequestService {
    router: TowerToHyperService<Router>,
    connection: Arc<HttpConnection>,
}

impl Service<Request<Incoming>> for RequestService {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Future;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        request.extensions_mut().insert(Arc::clone(&self.connection));
        self.router.call(request)
    }
}
