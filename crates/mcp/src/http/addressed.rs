//! Whom a request is addressed to, and which page sent it: the defence against DNS rebinding and cross-site requests (MCP
//! specification, Streamable HTTP, Security Warning). Checked on every route, before anything else of a request is looked at.

use http::uri::Authority;
use http::{HeaderMap, Uri, header};

/// The names under which the server may be addressed, and the origins whose pages may call it.
#[derive(Debug, Clone)]
pub(crate) struct Addresses {
    /// In lower case; with a port only that port is meant.
    hosts: Vec<(String, Option<u16>)>,
    /// As browsers write them, in lower case.
    origins: Vec<String>,
}

/// What is wrong with the address of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Misaddressed {
    #[error("the Host header does not name this server; an operator allows more names with allowed_hosts")]
    Host,
    #[error(
        "the Origin header names a page that may not call this server; an operator allows more with allowed_origins"
    )]
    Origin,
}

/// What every server is called from the machine it runs on.
const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

impl Addresses {
    /// Loopback names and `hosts` (`name` or `name:port`), and no page but those of `origins` (`https://name[:port]`).
    pub(crate) fn new(hosts: &[String], origins: &[String]) -> Self {
        let hosts = hosts.iter().map(String::as_str).chain(LOOPBACK);
        Self {
            hosts: hosts.filter_map(parse).collect(),
            origins: origins.iter().map(|origin| origin.trim_end_matches('/').to_ascii_lowercase()).collect(),
        }
    }

    pub(crate) fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Misaddressed> {
        if !self.is_host(uri, headers) {
            return Err(Misaddressed::Host);
        }
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        let mut origins = headers.get_all(header::ORIGIN).iter();
        if origins.all(|origin| origin.to_str().is_ok_and(|origin| self.is_origin(origin, host))) {
            Ok(())
        } else {
            Err(Misaddressed::Origin)
        }
    }

    /// Exactly one Host header, which is an allowed name; a target in absolute form must say the same.
    fn is_host(&self, uri: &Uri, headers: &HeaderMap) -> bool {
        let mut hosts = headers.get_all(header::HOST).iter();
        let (Some(host), None) = (hosts.next(), hosts.next()) else { return false };
        let Some((name, port)) = host.to_str().ok().and_then(parse) else { return false };
        let same = uri.authority().is_none_or(|authority| parse(authority.as_str()) == Some((name.clone(), port)));
        same && self.hosts.iter().any(|(allowed, at)| *allowed == name && (at.is_none() || *at == port))
    }

    /// An allowed one, or this very server's, to the port: it has no pages, but clients that say where they send to.
    fn is_origin(&self, origin: &str, host: &str) -> bool {
        let origin = origin.to_ascii_lowercase();
        let is_own = ["http://", "https://"].iter().any(|scheme| origin.strip_prefix(scheme) == Some(host));
        is_own || self.origins.contains(&origin)
    }
}

/// Name and port of `name`, `name:port` or `[address]:port`; nothing with a user in it.
fn parse(text: &str) -> Option<(String, Option<u16>)> {
    let authority: Authority = text.parse().ok().filter(|_| !text.contains('@'))?;
    let port = match authority.as_str().strip_prefix(authority.host())? {
        "" => None,
        // Also a number that is no port is no other name.
        port => Some(port.strip_prefix(':')?.parse().ok()?),
    };
    Some((authority.host().to_ascii_lowercase(), port))
}

/// Whether a text names a host as `allowed_hosts` has them.
#[must_use]
pub fn is_host(text: &str) -> bool {
    parse(text).is_some_and(|(name, _)| !name.is_empty())
}

/// Whether a text is an origin as browsers write it.
#[must_use]
pub fn is_origin(text: &str) -> bool {
    let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    host.is_some_and(is_host)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn checked(addresses: &Addresses, host: &[&str], origin: &[&str]) -> Result<(), Misaddressed> {
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
        let addresses = Addresses::new(&["mcp.example.com".to_owned(), "other.example:8443".to_owned()], &[]);
        for good in ["localhost", "LOCALHOST:7777", "127.0.0.1:1", "[::1]:80", "mcp.example.com", "other.example:8443"]
        {
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
            "user@localhost",
            "localhost@evil.example",
            "::1",
            "localhost:99999",
            "",
        ];
        for bad in bad {
            assert_eq!(checked(&addresses, &[bad], &[]), Err(Misaddressed::Host), "{bad}");
        }
        assert_eq!(checked(&addresses, &[], &[]), Err(Misaddressed::Host));
        assert_eq!(checked(&addresses, &["localhost", "localhost"], &[]), Err(Misaddressed::Host));
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::from_static("localhost"));
        assert_eq!(addresses.check(&Uri::from_static("http://evil.example/mcp"), &headers), Err(Misaddressed::Host));
    }

    #[test]
    fn a_page_calls_only_if_its_origin_is_allowed() {
        // HT02, HT03
        let addresses = Addresses::new(&[], &["https://app.example/".to_owned()]);
        assert_eq!(checked(&addresses, &["localhost"], &["https://APP.example"]), Ok(()));
        for bad in
            ["http://evil.example", "null", "http://app.example", "https://app.example:8443", "http://localhost:1"]
        {
            assert_eq!(checked(&addresses, &["localhost"], &[bad]), Err(Misaddressed::Origin), "{bad}");
        }
        assert_eq!(checked(&addresses, &["localhost:80"], &["http://localhost:80"]), Ok(()));
        assert_eq!(checked(&addresses, &["localhost"], &["https://app.example", "null"]), Err(Misaddressed::Origin));
    }
}
