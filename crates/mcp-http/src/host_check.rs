//! Checks the Host, Origin and Sec-Fetch-Site headers, against DNS rebinding and cross-site requests (MCP
//! specification, Streamable HTTP, Security Warning). The check is the first on every route.

use http::uri::Authority;
use http::{HeaderMap, Uri, header};

#[derive(Debug, Clone)]
pub(crate) struct AllowedHosts {
    /// Host names in lower case. A port restricts the name to that port.
    hosts: Vec<(String, Option<u16>)>,
    /// Origins as browsers send them, in lower case.
    origins: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HostError {
    #[error("the Host header does not name this server; an operator allows more names with allowed_hosts")]
    Host,
    #[error(
        "the Origin header names a page that may not call this server; an operator allows more with allowed_origins"
    )]
    Origin,
    #[error(
        "a page of another site may not call this server (Sec-Fetch-Site); an operator allows origins with allowed_origins"
    )]
    CrossSite,
}

/// The browser's statement about the page that caused the request, even without an Origin header. Pages cannot set
/// it.
const SEC_FETCH_SITE: &str = "sec-fetch-site";

const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

impl AllowedHosts {
    /// Allows loopback and `hosts` (`name` or `name:port`), and the pages of `origins` (`https://name[:port]`).
    pub(crate) fn new(hosts: &[String], origins: &[String]) -> Self {
        let hosts = hosts.iter().map(String::as_str).chain(LOOPBACK);
        Self {
            hosts: hosts.filter_map(parse_authority).collect(),
            origins: origins.iter().filter_map(|text| parse_origin(text)).collect(),
        }
    }

    pub(crate) fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), HostError> {
        if !self.is_host(uri, headers) {
            return Err(HostError::Host);
        }
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        let mut origins = headers.get_all(header::ORIGIN).iter().peekable();
        if origins.peek().is_some() {
            let are_allowed = origins.all(|origin| origin.to_str().is_ok_and(|origin| self.is_origin(origin, host)));
            return if are_allowed { Ok(()) } else { Err(HostError::Origin) };
        }
        // Without an Origin (a GET of an image, a frame, a link), the request must come from the user or from a page
        // of this server. `same-site` also includes other ports of localhost. A link may lead to the page for people.
        let mut sites = headers.get_all(SEC_FETCH_SITE).iter();
        if uri.path() == "/" || sites.all(|state| state == "none" || state == "same-origin") {
            Ok(())
        } else {
            Err(HostError::CrossSite)
        }
    }

    /// Whether there is exactly one Host header with an allowed name. An absolute request target must name the same
    /// host.
    fn is_host(&self, uri: &Uri, headers: &HeaderMap) -> bool {
        let mut hosts = headers.get_all(header::HOST).iter();
        let (Some(host), None) = (hosts.next(), hosts.next()) else { return false };
        let Some((name, port)) = host.to_str().ok().and_then(parse_authority) else { return false };
        let same =
            uri.authority().is_none_or(|authority| parse_authority(authority.as_str()) == Some((name.clone(), port)));
        // Clients omit the default port of their scheme, and the scheme in front of a proxy is unknown here.
        let is_at = |at: Option<u16>| at.is_none() || at == port || port.is_none() && matches!(at, Some(80 | 443));
        same && self.hosts.iter().any(|(allowed, at)| *allowed == name && is_at(*at))
    }

    /// Whether an origin is allowed, or is this server with its port. The server has no pages, but some clients send
    /// its own address as their origin.
    fn is_origin(&self, origin: &str, host: &str) -> bool {
        let origin = origin.to_ascii_lowercase();
        let is_own = ["http://", "https://"].iter().any(|scheme| origin.strip_prefix(scheme) == Some(host));
        is_own || self.origins.contains(&origin)
    }
}

pub(crate) fn is_loopback_host(headers: &HeaderMap) -> bool {
    let host = headers.get(header::HOST).and_then(|host| parse_authority(host.to_str().ok()?));
    host.is_some_and(|(name, _)| LOOPBACK.contains(&name.as_str()))
}

/// The name and port of `name`, `name:port` or `[address]:port`. A user name is not accepted.
fn parse_authority(text: &str) -> Option<(String, Option<u16>)> {
    let authority: Authority = text.parse().ok().filter(|_| !text.contains('@'))?;
    let port = match authority.as_str().strip_prefix(authority.host())? {
        "" => None,
        // A number that is not a port makes the text invalid.
        port => Some(port.strip_prefix(':')?.parse().ok()?),
    };
    Some((authority.host().to_ascii_lowercase(), port))
}

/// Parses a host of `allowed_hosts`, into lower case. `None` if the text is not a host name. Patterns are not
/// supported.
#[must_use]
pub fn parse_host(text: &str) -> Option<String> {
    parse_authority(text).filter(|(name, _)| !name.is_empty() && !name.contains('*')).map(|_| text.to_ascii_lowercase())
}

/// Parses an origin into the form that browsers send: lower case, without the default port of its scheme. `None` if
/// the text is not an origin.
#[must_use]
pub fn parse_origin(text: &str) -> Option<String> {
    let text = text.to_ascii_lowercase();
    let text = text.trim_end_matches('/');
    let (scheme, default_port) =
        [("https://", ":443"), ("http://", ":80")].into_iter().find(|(scheme, _)| text.starts_with(scheme))?;
    let host = parse_host(text.strip_prefix(scheme)?)?;
    Some(format!("{scheme}{}", host.strip_suffix(default_port).unwrap_or(&host)))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn checked(addresses: &AllowedHosts, host: &[&str], origin: &[&str]) -> Result<(), HostError> {
        let mut headers = HeaderMap::new();
        for host in host {
            headers.append(header::HOST, HeaderValue::from_str(host).unwrap());
        }
        for origin in origin {
            headers.append(header::ORIGIN, HeaderValue::from_str(origin).unwrap());
        }
        addresses.check(&Uri::from_static("/mcp"), &headers)
    }

    #[test]
    fn a_request_names_one_allowed_host_to_the_letter() {
        let hosts = ["mcp.example.com", "other.example:8443", "secure.example:443"].map(str::to_owned);
        let addresses = AllowedHosts::new(&hosts, &[]);
        for good in [
            "localhost",
            "LOCALHOST:7777",
            "127.0.0.1:1",
            "[::1]:80",
            "mcp.example.com",
            "other.example:8443",
            "secure.example:443",
            "secure.example",
        ] {
            assert_eq!(checked(&addresses, &[good], &[]), Ok(()), "{good}");
        }
        let bad = [
            "evil.example:8080",
            "localhost.evil.example",
            "xlocalhost",
            "mcp.example.com.",
            "mcp.example.com:",
            "other.example",
            "other.example:8444",
            "secure.example:8443",
            "user@localhost",
            "localhost@evil.example",
            "::1",
            "localhost:99999",
            "",
        ];
        for bad in bad {
            assert_eq!(checked(&addresses, &[bad], &[]), Err(HostError::Host), "{bad}");
        }
        assert_eq!(checked(&addresses, &[], &[]), Err(HostError::Host));
        assert_eq!(checked(&addresses, &["localhost", "localhost"], &[]), Err(HostError::Host));
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::from_static("localhost"));
        assert_eq!(addresses.check(&Uri::from_static("http://evil.example/mcp"), &headers), Err(HostError::Host));
    }

    #[test]
    fn a_page_calls_only_if_its_origin_is_allowed() {
        let addresses = AllowedHosts::new(&[], &["https://app.example/".to_owned()]);
        assert_eq!(checked(&addresses, &["localhost"], &["https://APP.example"]), Ok(()));
        for bad in
            ["http://evil.example", "null", "http://app.example", "https://app.example:8443", "http://localhost:1"]
        {
            assert_eq!(checked(&addresses, &["localhost"], &[bad]), Err(HostError::Origin), "{bad}");
        }
        assert_eq!(checked(&addresses, &["localhost:80"], &["http://localhost:80"]), Ok(()));
        assert_eq!(checked(&addresses, &["localhost"], &["https://app.example", "null"]), Err(HostError::Origin));
    }

    #[test]
    fn a_page_of_another_site_calls_only_with_an_origin_that_is_allowed() {
        let addresses = AllowedHosts::new(&[], &["https://app.example".to_owned()]);
        let checked = |path: &'static str, state: &[&'static str], origin: Option<&'static str>| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, HeaderValue::from_static("localhost:7777"));
            for state in state {
                headers.append(SEC_FETCH_SITE, HeaderValue::from_static(state));
            }
            origin.map(|origin| headers.insert(header::ORIGIN, HeaderValue::from_static(origin)));
            addresses.check(&Uri::from_static(path), &headers)
        };
        for foreign in ["cross-site", "same-site", "", "unknown"] {
            assert_eq!(checked("/sse", &[foreign], None), Err(HostError::CrossSite), "{foreign}");
            assert_eq!(checked("/", &[foreign], None), Ok(()), "{foreign}");
            assert_eq!(checked("/sse", &["none", foreign], None), Err(HostError::CrossSite), "{foreign}");
            assert_eq!(checked("/sse", &[foreign], Some("https://app.example")), Ok(()), "{foreign}");
            assert_eq!(checked("/", &[foreign], Some("https://evil.example")), Err(HostError::Origin), "{foreign}");
        }
        for own in [[].as_slice(), &["none"], &["same-origin"]] {
            assert_eq!(checked("/sse", own, None), Ok(()), "{own:?}");
        }
    }

    #[test]
    fn hosts_and_origins_are_read_as_clients_write_them() {
        for (given, read) in [
            ("https://App.Example.com", Some("https://app.example.com")),
            ("https://app.example.com:443/", Some("https://app.example.com")),
            ("http://app.example.com:80", Some("http://app.example.com")),
            ("https://app.example.com:80", Some("https://app.example.com:80")),
            ("HTTP://[::1]:443", Some("http://[::1]:443")),
            ("https://app.example.com/path", None),
            ("https://*.example.com", None),
            ("app.example.com", None),
            ("*", None),
        ] {
            assert_eq!(parse_origin(given).as_deref(), read, "{given}");
        }
        assert_eq!(parse_host("MCP.example.com:8443").as_deref(), Some("mcp.example.com:8443"));
        assert_eq!((parse_host("*"), parse_host("*.example.com"), parse_host("")), (None, None, None));
    }
}
