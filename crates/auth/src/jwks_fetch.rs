//! Fetches a key set with one GET request. It uses hyper directly, so redirects and proxies are never followed.

use std::io;
use std::pin::pin;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// The timeout of the whole fetch, name resolution included.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The largest key set, in bytes.
const MAX_BYTES: usize = 1024 * 1024;

/// A URL with `https`, or with `http` on this machine, where traffic cannot be intercepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpsUrl {
    text: String,
    uri: Uri,
}

/// Why a text is not such a URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HttpsUrlError {
    /// The text is not a URL.
    #[error("it is not a URL such as https://login.example.com/keys")]
    Format,
    /// The URL has `http`, so the response could be modified on its way.
    #[error("it must begin with https:// (http:// is for this machine only: localhost, 127.0.0.1, [::1])")]
    Insecure,
    /// The URL has a user name or a password, which would not be sent but would be logged.
    #[error("it must not contain a user name or a password")]
    Userinfo,
}

impl FromStr for HttpsUrl {
    type Err = HttpsUrlError;

    fn from_str(text: &str) -> Result<Self, HttpsUrlError> {
        let uri: Uri = text.parse().map_err(|_| HttpsUrlError::Format)?;
        let (scheme, authority) = uri.scheme_str().zip(uri.authority()).ok_or(HttpsUrlError::Format)?;
        if authority.as_str().contains('@') {
            return Err(HttpsUrlError::Userinfo);
        }
        let host = strip_brackets(authority.host());
        let is_loopback = host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
        match scheme {
            _ if host.is_empty() || text.contains('#') => Err(HttpsUrlError::Format),
            "https" => Ok(Self { text: text.to_owned(), uri }),
            "http" if is_loopback => Ok(Self { text: text.to_owned(), uri }),
            _ => Err(HttpsUrlError::Insecure),
        }
    }
}

impl HttpsUrl {
    /// The URL as configured.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    fn is_https(&self) -> bool {
        self.uri.scheme_str() == Some("https")
    }

    fn host(&self) -> &str {
        strip_brackets(self.uri.host().unwrap_or_default())
    }
}

/// URLs have IPv6 addresses in brackets; other interfaces do not.
fn strip_brackets(host: &str) -> &str {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

/// Fetches the document at one URL.
#[derive(Debug)]
pub(crate) struct JwksFetcher {
    url: HttpsUrl,
    /// The TLS configuration, for `https`.
    tls: Option<Arc<ClientConfig>>,
}

impl JwksFetcher {
    /// Trusts the system's certificate authorities (`SSL_CERT_FILE` overrides them).
    ///
    /// # Errors
    /// An error if the system has none.
    pub(crate) fn new(url: HttpsUrl) -> io::Result<Self> {
        let mut roots = RootCertStore::empty();
        if url.is_https() {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if roots.is_empty() {
                return Err(io::Error::other("the system has no root certificates; name a file with SSL_CERT_FILE"));
            }
        }
        Self::with_roots(url, roots)
    }

    pub(crate) fn with_roots(url: HttpsUrl, roots: RootCertStore) -> io::Result<Self> {
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().map_err(io::Error::other)?;
        let config = builder.with_root_certificates(roots).with_no_client_auth();
        Ok(Self { tls: url.is_https().then(|| Arc::new(config)), url })
    }

    pub(crate) const fn url(&self) -> &HttpsUrl {
        &self.url
    }

    /// Returns the response body. The status must be 200, the size at most 1 MiB, and the time at most 5 s.
    pub(crate) async fn fetch(&self) -> io::Result<Bytes> {
        let timed_out = |_| io::Error::other(format!("no answer within {} s", TIMEOUT.as_secs()));
        tokio::time::timeout(TIMEOUT, self.connect_and_get()).await.map_err(timed_out)?
    }

    async fn connect_and_get(&self) -> io::Result<Bytes> {
        let host = self.url.host();
        let port = self.url.uri.port_u16().unwrap_or(if self.url.is_https() { 443 } else { 80 });
        let stream = TcpStream::connect((host, port)).await?;
        let Some(config) = &self.tls else { return self.get(stream).await };
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        self.get(TlsConnector::from(Arc::clone(config)).connect(name, stream).await?).await
    }

    async fn get(&self, stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<Bytes> {
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| io::Error::other(error_chain(&error)))?;
        let path = self.url.uri.path_and_query().map_or("/", |path| path.as_str());
        let request = Request::get(path)
            .header(header::HOST, self.url.uri.authority().map_or("", |authority| authority.as_str()))
            .header(header::ACCEPT, "application/json, application/jwk-set+json")
            .header(header::USER_AGENT, concat!("countersign/", env!("CARGO_PKG_VERSION")))
            .body(Empty::<Bytes>::new())
            .map_err(io::Error::other)?;
        let mut exchange = pin!(async {
            let answer = sender.send_request(request).await.map_err(|error| io::Error::other(error_chain(&error)))?;
            if answer.status() != StatusCode::OK {
                return Err(io::Error::other(format!("the status is {} instead of 200", answer.status())));
            }
            let body = Limited::new(answer.into_body(), MAX_BYTES).collect().await;
            Ok(body.map_err(|error| io::Error::other(error_chain(&*error)))?.to_bytes())
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
