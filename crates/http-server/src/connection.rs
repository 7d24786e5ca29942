//! Accepting a connection and serving it, with timeouts and bounded memory.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use axum::body::Body;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::Watcher;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};

use crate::ReloadableTls;
use crate::min_throughput::MinThroughput;

/// How long the head of a request may take, and how long a connection may be idle.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// The most headers of a request. More are answered with 431.
const MAX_HEADERS: usize = 64;

/// The size of the read and write buffers: bodies pass in pieces. The client is not authenticated yet, so the memory of
/// a connection must be small. The buffer may grow beyond it with the last read, and a head that is complete then would
/// be accepted, so that [`MAX_HEAD_BYTES`] is another limit.
const MAX_BUFFER_BYTES: usize = 64 << 10;

/// The longest head of a request, in bytes. More is answered with 431.
const MAX_HEAD_BYTES: usize = MAX_BUFFER_BYTES - 1;

/// The delay after an accept failed, for example without free file descriptors.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Accepts the next connection. `None` if there is none: the caller asks again.
pub(crate) async fn accept(listener: &TcpListener) -> Option<(TcpStream, SocketAddr)> {
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

/// Serves HTTP/1.1 on a connection until it ends. A client that reads too slowly is disconnected.
///
/// # Errors
/// The reason, for a log.
pub(crate) async fn serve_connection<S>(
    stream: TcpStream,
    tls: Option<&ReloadableTls>,
    service: S,
    watcher: Watcher,
) -> Result<(), String>
where
    S: Service<Request<Incoming>, Response = Response<Body>, Error = std::convert::Infallible>,
    S::Future: Send + 'static,
{
    let stream = MinThroughput::new(stream);
    match tls {
        None => serve(stream, service, watcher).await,
        Some(tls) => match tls.acceptor().accept(stream).await {
            Ok(stream) => serve(stream, service, watcher).await,
            Err(error) => Err(error.to_string()),
        },
    }
}

async fn serve<I, S>(stream: I, service: S, watcher: Watcher) -> Result<(), String>
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Service<Request<Incoming>, Response = Response<Body>, Error = std::convert::Infallible>,
    S::Future: Send + 'static,
{
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
    builder.max_headers(MAX_HEADERS).max_header_size(MAX_HEAD_BYTES).max_buf_size(MAX_BUFFER_BYTES);
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    watcher.watch(connection).await.map_err(|error| error.to_string())
}
