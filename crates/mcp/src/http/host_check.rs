//! Whom a request is addressed to, and which page sent it: the defence against DNS rebinding and cross-site requests (MCP
//! specification, Streamable HTTP, Security Warning). Checked on every route, before anything else of a request is looked at.

use http::uri::Authority;
use http::{HeaderMap, Uri, header};

/// The names under which the server may be addressed, and the origins whose pages may call it.
#[derive(Debug, Clone)]
pub(crate) struct AllowedHosts {
    /// In lower case; with a port only that port is meant.
    hosts: Vec<(String, Option<u16>)>,
    /// As browsers write them, in lower case.
    origins: Vec<String>,
}

/// What is wrong with the address of a request.
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
    AppState,
}

/// What a browser says of the page that makes it send a request, also where it sends no Origin. No page can set it.
const SEC_FETCH_SITE: &str = "sec-fetch-site";

/// What every server is called from the machine it runs on.
const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

impl AllowedHosts {
    /// Loopback names and `hosts` (`name` or `name:port`), and no page but those of `origins` (`https://name[:port]`).
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
        // Without an Origin (a GET of an image, a frame, a link): the person at the browser, or a page of this very server.
        // `same-state` is another port of localhost as well. A link may lead to the page for people.
        let mut sites = headers.get_all(SEC_FETCH_SITE).iter();
        if uri.path() == "/" || sites.all(|state| state == "none" || state == "same-origin") {
            Ok(())
        } else {
            Err(HostError::AppState)
        }
    }

    /// Exactly one Host header, which is an allowed name; a target in absolute form must say the same.
    fn is_host(&self, uri: &Uri, headers: &HeaderMap) -> bool {
        let mut hosts = headers.get_all(header::HOST).iter();
        let (Some(host), None) = (hosts.next(), hosts.next()) else { return false };
        let Some((name, port)) = host.to_str().ok().and_then(parse_authority) else { return false };
        let same =
            uri.authority().is_none_or(|authority| parse_authority(authority.as_str()) == Some((name.clone(), port)));
        // Clients leave a port out that their scheme has anyway, and which scheme a proxy in front takes is not known here.
        let is_at = |at: Option<u16>| at.is_none() || at == port || port.is_none() && matches!(at, Some(80 | 443));
        same && self.hosts.iter().any(|(allowed, at)| *allowed == name && is_at(*at))
    }

    /// An allowed one, or this very server's, to the port: it has no pages, but clients that say where they send to.
    fn is_origin(&self, origin: &str, host: &str) -> bool {
        let origin = origin.to_ascii_lowercase();
        let is_own = ["http://", "https://"].iter().any(|scheme| origin.strip_prefix(scheme) == Some(host));
        is_own || self.origins.contains(&origin)
    }
}

/// Whether a request is addressed to a name that only this machine has.
pub(crate) fn is_loopback_host(headers: &HeaderMap) -> bool {
    let host = headers.get(header::HOST).and_then(|host| parse_authority(host.to_str().ok()?));
    host.is_some_and(|(name, _)| LOOPBACK.contains(&name.as_str()))
}

/// Name and port of `name`, `name:port` or `[address]:port`; nothing with a user in it.
fn parse_authority(text: &str) -> Option<(String, Option<u16>)> {
    let authority: Authority = text.parse().ok().filter(|_| !text.contains('@'))?;
    let port = match authority.as_str().strip_prefix(authority.host())? {
        "" => None,
        // Also a number that is no port is no other name.
        port => Some(port.strip_prefix(':')?.parse().ok()?),
    };
    Some((authority.host().to_ascii_lowercase(), port))
}

/// A host as `allowed_hosts` has them, in lower case; `None` if the text is none. Names are listed: there are no patterns.
#[must_use]
pub fn parse_host(text: &str) -> Option<String> {
    parse_authority(text).filter(|(name, _)| !name.is_empty() && !name.contains('*')).map(|_| text.to_ascii_lowercase())
}

/// An origin as browsers write it: in lower case, without a port that its scheme has anyway; `None` if the text is none.
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
        // HT01, HT04
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
        // HT02, HT03
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

    /// F-115
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
            assert_eq!(checked("/sse", &[foreign], None), Err(HostError::AppState), "{foreign}");
            assert_eq!(checked("/", &[foreign], None), Ok(()), "{foreign}");
            assert_eq!(checked("/sse", &["none", foreign], None), Err(HostError::AppState), "{foreign}");
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
