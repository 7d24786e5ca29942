//! One request on a connection of its own.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::HttpUrl;

/// The timeout of a whole request, name resolution included.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The largest response, in bytes.
const MAX_BYTES: usize = 1024 * 1024;

/// Sends requests to one server.
#[derive(Debug, Clone)]
pub struct HttpClient {
    url: HttpUrl,
    /// The TLS configuration, for `https`.
    tls: Option<Arc<ClientConfig>>,
}

/// What a server answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpResponse {
    pub status: StatusCode,
    /// The body, of at most 1 MiB.
    pub body: Bytes,
}

impl HttpClient {
    /// Trusts the system's certificate authorities (`SSL_CERT_FILE` overrides them).
    ///
    /// # Errors
    /// An error if the system has none.
    pub fn new(url: impl Into<HttpUrl>) -> io::Result<Self> {
        let url = url.into();
        let mut roots = RootCertStore::empty();
        if url.is_https() {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if roots.is_empty() {
                return Err(io::Error::other("the system has no root certificates; name a file with SSL_CERT_FILE"));
            }
        }
        Self::with_roots(url, roots)
    }

    /// Trusts these certificate authorities.
    pub fn with_roots(url: HttpUrl, roots: RootCertStore) -> io::Result<Self> {
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().map_err(io::Error::other)?;
        let config = builder.with_root_certificates(roots).with_no_client_auth();
        Ok(Self { tls: url.is_https().then(|| Arc::new(config)), url })
    }

    #[must_use]
    pub const fn url(&self) -> &HttpUrl {
        &self.url
    }

    /// Sends a request whose URI is a path with a query. `Host` and `User-Agent` are added.
    ///
    /// # Errors
    /// The server cannot be reached, or its response is not there within 5 s, or is larger than 1 MiB.
    pub async fn send(&self, request: Request<Bytes>) -> io::Result<HttpResponse> {
        let timed_out = |_| io::Error::other(format!("no answer within {} s", TIMEOUT.as_secs()));
        tokio::time::timeout(TIMEOUT, self.connect_and_send(request)).await.map_err(timed_out)?
    }

    /// The body that the URL has.
    ///
    /// # Errors
    /// Those of [`send`](Self::send), and each other status than 200.
    pub async fn get(&self, accept: &str) -> io::Result<Bytes> {
        let request = Request::builder().method(Method::GET).uri(self.url.path()).header(header::ACCEPT, accept);
        let HttpResponse { status, body } = self.send(request.body(Bytes::new()).map_err(io::Error::other)?).await?;
        if status != StatusCode::OK {
            return Err(io::Error::other(format!("the status is {status} instead of 200")));
        }
        Ok(body)
    }

    async fn connect_and_send(&self, request: Request<Bytes>) -> io::Result<HttpResponse> {
        let host = self.url.host();
        let stream = TcpStream::connect((host, self.url.port())).await?;
        let Some(config) = &self.tls else { return self.exchange(stream, request).await };
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let stream = TlsConnector::from(Arc::clone(config)).connect(name, stream).await?;
        self.exchange(stream, request).await
    }

    async fn exchange(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin,
        request: Request<Bytes>,
    ) -> io::Result<HttpResponse> {
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| io::Error::other(error_chain(&error)))?;
        let mut request = request.map(Full::new);
        let host = self.url.authority().parse().map_err(io::Error::other)?;
        request.headers_mut().insert(header::HOST, host);
        let user_agent = concat!("countersign/", env!("CARGO_PKG_VERSION"));
        request.headers_mut().insert(header::USER_AGENT, header::HeaderValue::from_static(user_agent));
        let mut exchange = pin!(async {
            let answer = sender.send_request(request).await.map_err(|error| io::Error::other(error_chain(&error)))?;
            let status = answer.status();
            let body = Limited::new(answer.into_body(), MAX_BYTES).collect().await;
            let body = body.map_err(|error| io::Error::other(error_chain(&*error)))?.to_bytes();
            Ok(HttpResponse { status, body })
        });
        let mut connection = pin!(connection);
        // The connection may end before its buffered response has been read.
        let mut is_over = false;
        loop {
            tokio::select! {
                outcome = &mut exchange => return outcome,
                _ = &mut connection, if !is_over => is_over = true,
            }
        }
    }
}

/// The error with all of its causes: hyper names the failed step, the system the reason.
fn error_chain(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
