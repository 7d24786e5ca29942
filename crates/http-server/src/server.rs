//! Accepts connections within the limits, serves them, and closes them at the end.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::Service;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::connection::{accept, serve_connection};
use crate::{ConnectionLimitError, ConnectionLimits, HttpConnection, ReloadableTls};

/// How long the last bytes of responses may take at the end.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub struct HttpServer {
    pub listener: TcpListener,
    /// Its certificate; `None` for plain HTTP.
    pub tls: Option<ReloadableTls>,
    /// The handler of requests. Each request has its [`HttpConnection`] as an extension.
    pub router: Router,
    pub connections: Arc<ConnectionLimits>,
}

/// Serves until `stop` is cancelled. Then accepts no more connections, waits for `drained`, and closes the open
/// connections. `on_refusal` is called for each connection that is closed immediately.
pub async fn serve(
    server: HttpServer,
    on_refusal: impl Fn(IpAddr, ConnectionLimitError) + Send,
    stop: CancellationToken,
    drained: impl Future<Output = ()> + Send,
) {
    let HttpServer { listener, tls, router, connections } = server;
    let graceful = GracefulShutdown::new();
    while let Some(accepted) = stop.run_until_cancelled(accept(&listener)).await {
        let Some((stream, peer)) = accepted else { continue };
        let (connection, slot) = match connections.admit(peer) {
            Ok(admitted) => admitted,
            Err(error) => {
                on_refusal(peer.ip().to_canonical(), error);
                continue;
            }
        };
        let service =
            RequestService { router: TowerToHyperService::new(router.clone()), connection: Arc::clone(&connection) };
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
    // New clients can connect to another server at once.
    drop(listener);
    drained.await;
    if tokio::time::timeout(CLOSE_TIMEOUT, graceful.shutdown()).await.is_err() {
        tracing::warn!("some clients did not read their last responses in time");
    }
}

struct RequestService {
    router: TowerToHyperService<Router>,
    connection: Arc<HttpConnection>,
}

impl Service<Request<Incoming>> for RequestService {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Future;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        self.connection.begin_head();
        request.extensions_mut().insert(Arc::clone(&self.connection));
        self.router.call(request)
    }
}
