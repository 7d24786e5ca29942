//! One GET of a set of keys. hyper itself, since nothing more is wanted: no redirect is followed, no proxy is looked for.

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

/// How long everything may take, from the name of the host to the last byte.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The largest set of keys, in bytes.
const MAX_BYTES: usize = 1024 * 1024;

/// An address of the web: `https`, or `http` on this machine, where nobody is between.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpsUrl {
    text: String,
    uri: Uri,
}

/// A text that is no such address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HttpsUrlError {
    /// It cannot be read.
    #[error("it is no URL such as https://login.example.com/keys")]
    Format,
    /// Whoever is between could change what comes back.
    #[error("it must begin with https:// (http:// is for this machine only: localhost, 127.0.0.1, [::1])")]
    Insecure,
    /// A name or a password in it would be sent nowhere and logged everywhere.
    #[error("it must have no user name and no password in it")]
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
    /// As it was written, to the letter.
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

/// An IPv6 address stands in brackets in a URL, and nowhere else.
fn strip_brackets(host: &str) -> &str {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

/// Gets what stands at one address.
#[derive(Debug)]
pub(super) struct JwksFetcher {
    url: HttpsUrl,
    /// For `https`.
    tls: Option<Arc<ClientConfig>>,
}

impl JwksFetcher {
    /// Trusts whom the system trusts (`SSL_CERT_FILE` names others).
    ///
    /// # Errors
    /// If that is nobody.
    pub(super) fn new(url: HttpsUrl) -> io::Result<Self> {
        let mut roots = RootCertStore::empty();
        if url.is_https() {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if roots.is_empty() {
                return Err(io::Error::other("the system has no root certificates; name a file with SSL_CERT_FILE"));
            }
        }
        Self::with_roots(url, roots)
    }

    pub(super) fn with_roots(url: HttpsUrl, roots: RootCertStore) -> io::Result<Self> {
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().map_err(io::Error::other)?;
        let config = builder.with_root_certificates(roots).with_no_client_auth();
        Ok(Self { tls: url.is_https().then(|| Arc::new(config)), url })
    }

    pub(super) const fn url(&self) -> &HttpsUrl {
        &self.url
    }

    /// The body of the answer, which must be a 200 of at most 1 MiB, within 5 s.
    pub(super) async fn fetch(&self) -> io::Result<Bytes> {
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
                return Err(io::Error::other(format!("it answered {}, and only 200 counts", answer.status())));
            }
            let body = Limited::new(answer.into_body(), MAX_BYTES).collect().await;
            Ok(body.map_err(|error| io::Error::other(error_chain(&*error)))?.to_bytes())
        });
        let mut connection = pin!(connection);
        // The connection may be over before all that came over it has been taken.
        let mut is_over = false;
        loop {
            tokio::select! {
                outcome = &mut exchange => return outcome,
                _ = &mut connection, if !is_over => is_over = true,
            }
        }
    }
}

/// An error and what is behind it: hyper says the one, the system the other.
fn error_chain(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
