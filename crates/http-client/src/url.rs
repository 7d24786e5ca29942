//! URLs, and those whose traffic cannot be intercepted.

use std::ops::Deref;
use std::str::FromStr;

use http::Uri;
use http::uri::Authority;

/// A URL with `https` or `http`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpUrl {
    text: String,
    uri: Uri,
}

/// A URL with `https`, or with `http` on this machine, where traffic cannot be intercepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpsUrl(HttpUrl);

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

impl FromStr for HttpUrl {
    type Err = HttpsUrlError;

    fn from_str(text: &str) -> Result<Self, HttpsUrlError> {
        let uri: Uri = text.parse().map_err(|_| HttpsUrlError::Format)?;
        let (scheme, authority) = uri.scheme_str().zip(uri.authority()).ok_or(HttpsUrlError::Format)?;
        if authority.as_str().contains('@') {
            return Err(HttpsUrlError::Userinfo);
        }
        match scheme {
            _ if strip_brackets(authority.host()).is_empty() || text.contains('#') => Err(HttpsUrlError::Format),
            "https" | "http" => Ok(Self { text: text.to_owned(), uri }),
            _ => Err(HttpsUrlError::Insecure),
        }
    }
}

impl FromStr for HttpsUrl {
    type Err = HttpsUrlError;

    fn from_str(text: &str) -> Result<Self, HttpsUrlError> {
        let url: HttpUrl = text.parse()?;
        let is_loopback =
            url.host() == "localhost" || url.host().parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
        if url.is_https() || is_loopback { Ok(Self(url)) } else { Err(HttpsUrlError::Insecure) }
    }
}

impl Deref for HttpsUrl {
    type Target = HttpUrl;

    fn deref(&self) -> &HttpUrl {
        &self.0
    }
}

impl From<HttpsUrl> for HttpUrl {
    fn from(url: HttpsUrl) -> Self {
        url.0
    }
}

impl HttpUrl {
    /// The URL as configured.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    #[must_use]
    pub fn is_https(&self) -> bool {
        self.uri.scheme_str() == Some("https")
    }

    /// The host, without the brackets of an IPv6 address.
    pub(crate) fn host(&self) -> &str {
        strip_brackets(self.uri.host().unwrap_or_default())
    }

    /// Host and port, as a `Host` header has them.
    pub(crate) fn authority(&self) -> &str {
        self.uri.authority().map_or("", Authority::as_str)
    }

    pub(crate) fn port(&self) -> u16 {
        self.uri.port_u16().unwrap_or(if self.is_https() { 443 } else { 80 })
    }

    #[must_use]
    pub fn path(&self) -> &str {
        self.uri.path_and_query().map_or("/", |path| path.as_str())
    }
}

/// URLs have IPv6 addresses in brackets; other interfaces do not.
fn strip_brackets(host: &str) -> &str {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_url_with_interceptable_traffic_is_rejected() {
        for right in
            ["https://login.example.com/keys?x=1", "http://localhost:8080/", "http://127.0.0.1/", "http://[::1]:1/k"]
        {
            assert_eq!(right.parse::<HttpsUrl>().unwrap().as_str(), right);
        }
        for (wrong, why) in [
            ("http://login.example.com/keys", "must begin with https://"),
            ("http://127.0.0.1.example.com/", "must begin with https://"),
            ("http://localhost.example.com/", "must begin with https://"),
            ("ftp://localhost/", "must begin with https://"),
            ("https://me:hunter2@example.com/", "not contain a user name"),
            ("http://localhost@example.com/", "not contain a user name"),
            ("/keys", "is not a URL"),
            ("login.example.com", "is not a URL"),
            ("https://example.com/#keys", "is not a URL"),
            ("", "is not a URL"),
        ] {
            let error = wrong.parse::<HttpsUrl>().unwrap_err().to_string();
            assert!(error.contains(why), "{wrong}: {error}");
        }
    }
}
