//! Accepts connections, serves them with TLS and timeouts, and closes them at the end.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tools::metrics::RefusalReason;

use crate::connections::HttpConnection;
use crate::min_throughput::MinThroughput;
use crate::rejection_log::Rejection;
use crate::state::AppState;

/// How long the head of a request may take, and how long a connection may be idle. The first request has less time
/// ([`FIRST_REQUEST_TIMEOUT`](crate::connections::FIRST_REQUEST_TIMEOUT)).
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// The most headers of a request. More are answered with 431.
const MAX_HEADERS: usize = 64;

/// The longest head of a request, in bytes. More is answered with 431 (attack HT07). The client is not authenticated
/// yet, so the memory of a connection must be small. It is also the size of the read and write buffers: bodies pass
/// in pieces.
const MAX_HEAD_BYTES: usize = 64 << 10;

/// How long the last bytes of responses may take at the end.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The delay after an accept failed, for example without free file descriptors.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// The server's certificate and key, which can be replaced while serving.
#[derive(Debug, Clone)]
pub struct ReloadableTls {
    config: Arc<RwLock<Arc<ServerConfig>>>,
}

impl ReloadableTls {
    /// Serves this certificate and key.
    #[must_use]
    pub fn new(config: ServerConfig) -> Self {
        Self { config: Arc::new(RwLock::new(Arc::new(config))) }
    }

    /// Replaces them for new connections.
    pub fn replace(&self, config: ServerConfig) {
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
    }

    fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.config.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

/// Reads a certificate chain and its private key, both in PEM.
///
/// # Errors
/// [`TlsError`] if a file cannot be read, or certificate and key do not match.
pub fn read_tls(certificate: &Path, key: &Path) -> Result<ServerConfig, TlsError> {
    let chain = CertificateDer::pem_file_iter(certificate)?.collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_file(key)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let mut config = config.with_no_client_auth().with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or is not the expected PEM.
    #[error("{0}")]
    Pem(#[from] rustls::pki_types::pem::Error),
    /// Certificate and key do not match, or are not supported.
    #[error("{0}")]
    Rustls(#[from] rustls::Error),
}

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
            let stream = MinThroughput::new(stream);
            let served = async {
                match tls {
                    None => serve(stream, service, watcher).await,
                    Some(tls) => match tls.acceptor().accept(stream).await {
                        Ok(stream) => serve(stream, service, watcher).await,
                        Err(error) => Err(error.to_string()),
                    },
                }
            };
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

/// Accepts the next connection.
async fn accept(listener: &TcpListener) -> Option<(TcpStream, SocketAddr)> {
    match listener.accept().await {
        Ok((stream, peer)) => {
            // Responses are written in whole, so they must not be delayed.
            stream.set_nodelay(true).ok();
            Some((stream, peer))
        }
        // The client has closed the connection already.
        Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => None,
        Err(error) => {
            tracing::error!(%error, "no connection can be accepted");
            tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
            None
        }
    }
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

async fn serve<S>(stream: S, service: RequestService, watcher: Watcher) -> Result<(), String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
    builder.max_headers(MAX_HEADERS).max_buf_size(MAX_HEAD_BYTES);
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    watcher.watch(connection).await.map_err(|error| error.to_string())
}
