//! The document in which an issuer names its keys (RFC 8414, OpenID Connect Discovery 1.0).

use std::io;

use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_client::{HttpClient, HttpsUrl};
use serde::Deserialize;

/// The URL of an OpenID provider's document.
pub(crate) fn openid_url(issuer: &HttpsUrl) -> String {
    format!("{}/.well-known/openid-configuration", issuer.as_str().trim_end_matches('/'))
}

/// The URL of an OAuth server's document: `.well-known` stands before the path of the issuer.
fn oauth_url(issuer: &HttpsUrl) -> String {
    let issuer = issuer.as_str().trim_end_matches('/');
    let authority = issuer.find("://").map_or(0, |scheme| scheme + "://".len());
    let path = issuer[authority..].find('/').map_or(issuer.len(), |path| authority + path);
    let (origin, path) = issuer.split_at(path);
    format!("{origin}/.well-known/oauth-authorization-server{path}")
}

/// The URL of this member of the document. A remote issuer must not name URLs of this machine.
pub(crate) fn endpoint(issuer: &HttpsUrl, name: &str, text: &str) -> Result<HttpsUrl, String> {
    let url: HttpsUrl = text.parse().map_err(|error| format!("{name} of the provider: {error}"))?;
    let is_allowed = url.is_https() || !issuer.is_https();
    is_allowed.then_some(url).ok_or_else(|| format!("{name} of the provider is not https"))
}

/// Checks that a document is of this issuer. With that of another one, the other one's tokens would be accepted.
pub(crate) fn check_issuer(issuer: &HttpsUrl, named: &str) -> Result<(), String> {
    let is_own = named == issuer.as_str();
    is_own.then_some(()).ok_or_else(|| format!("the document is of the issuer {}", types::quoted(named)))
}

/// The documents of an issuer, of which it needs one.
#[derive(Debug)]
pub(crate) struct IssuerMetadata {
    issuer: HttpsUrl,
    documents: [HttpClient; 2],
}

/// The members that are read.
#[derive(Deserialize)]
struct Document {
    issuer: String,
    jwks_uri: String,
}

impl IssuerMetadata {
    /// # Errors
    /// The system has no certificate authorities.
    pub(crate) fn new(issuer: HttpsUrl) -> io::Result<Self> {
        let client = |url: String| HttpClient::new(url.parse::<HttpsUrl>().map_err(io::Error::other)?);
        Ok(Self { documents: [client(oauth_url(&issuer))?, client(openid_url(&issuer))?], issuer })
    }

    /// Fetches the URL of the issuer's keys. The error is the reason why there is none.
    pub(crate) async fn jwks_url(&self) -> Result<HttpsUrl, String> {
        let mut reasons = Vec::new();
        for document in &self.documents {
            let url = document.url();
            let request = Request::builder().uri(url.path()).header(header::ACCEPT, "application/json");
            let request = request.body(Bytes::new()).map_err(|error| error.to_string())?;
            // An issuer that does not answer is not asked for its other document.
            let response = document.send(request).await.map_err(|error| format!("{}: {error}", url.as_str()))?;
            let keys = match response.status {
                StatusCode::OK => self.parse(&response.body),
                status => Err(format!("the status is {status} instead of 200")),
            };
            match keys {
                Ok(keys) => return Ok(keys),
                Err(reason) => reasons.push(format!("{}: {reason}", url.as_str())),
            }
        }
        Err(reasons.join("; "))
    }

    fn parse(&self, json: &[u8]) -> Result<HttpsUrl, String> {
        let document: Document =
            serde_json::from_slice(json).map_err(|error| format!("the document is not valid: {error}"))?;
        check_issuer(&self.issuer, &document.issuer)?;
        endpoint(&self.issuer, "jwks_uri", &document.jwks_uri)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documents_are_before_and_below_the_path_of_the_issuer() {
        let (oauth, openid) = ("/.well-known/oauth-authorization-server", "/.well-known/openid-configuration");
        for (issuer, origin, path) in [
            ("https://a.example.com", "https://a.example.com", ""),
            ("https://a.example.com/", "https://a.example.com", ""),
            ("https://a.example.com:1/realms/x", "https://a.example.com:1", "/realms/x"),
            ("https://a.example.com/t/v2.0/", "https://a.example.com", "/t/v2.0"),
        ] {
            let issuer = issuer.parse().unwrap();
            assert_eq!(oauth_url(&issuer), format!("{origin}{oauth}{path}"));
            assert_eq!(openid_url(&issuer), format!("{origin}{path}{openid}"));
        }
    }
}
