//! The address that a request comes from: the peer of its connection, or, if that is a trusted proxy, the client that the
//! proxy names. The header of any other peer is ignored.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use http::HeaderMap;
use ipnet::IpNet;

use super::connections::HttpConnection;
use super::is_loopback_host;

/// The client's address, appended by each proxy on the way.
const FORWARDED_FOR: &str = "x-forwarded-for";

/// Headers that only proxies send.
const PROXY_HEADERS: [&str; 6] =
    [FORWARDED_FOR, "forwarded", "via", "x-forwarded-host", "x-forwarded-proto", "x-real-ip"];

/// The proxies that name their clients' addresses.
#[derive(Debug, Clone, Default)]
pub(crate) struct TrustedProxies(Vec<IpNet>);

impl TrustedProxies {
    /// Those of addresses and networks as [`proxy`] writes them.
    pub(crate) fn new(texts: &[String]) -> Self {
        Self(texts.iter().filter_map(|text| parse_network(text)).collect())
    }

    /// Whether a request over a connection with this peer looks as if a proxy sent it that is not listed.
    pub(crate) fn is_unlisted_proxy(&self, peer: IpAddr, headers: &HeaderMap) -> bool {
        headers.contains_key(FORWARDED_FOR) && !self.contains(peer)
    }

    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(&address))
    }

    /// The client of a request over a connection with this peer: the last address of `X-Forwarded-For` that is not a trusted
    /// proxy's. What stands before it was written by strangers.
    fn client(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let mut client = peer;
        let values = headers.get_all(FORWARDED_FOR).iter().rev();
        let mut nearest_first = values.flat_map(|value| value.to_str().unwrap_or_default().rsplit(','));
        while self.contains(client)
            && let Some(address) = nearest_first.next().and_then(parse_address)
        {
            client = address;
        }
        client
    }
}

/// An address or a network (`10.0.0.0/8`) as it is kept; `None` if the text is neither.
#[must_use]
pub fn parse_proxy(text: &str) -> Option<String> {
    parse_network(text).map(|network| network.to_string())
}

fn parse_network(text: &str) -> Option<IpNet> {
    let of_address = |text: &str| Some(IpNet::from(text.parse::<IpAddr>().ok()?.to_canonical()));
    text.parse().ok().or_else(|| of_address(text))
}

/// `address`, `address:port`, `[address]` or `[address]:port`: proxies write all of them.
fn parse_address(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let address = bare.parse().ok().or_else(|| Some(text.parse::<SocketAddr>().ok()?.ip()))?;
    Some(address.to_canonical())
}

/// A client as far as limits go: an IPv4 address, or an IPv6 network of 64 bits, in which a host takes any address it likes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ClientNetwork(IpAddr);

impl ClientNetwork {
    pub(crate) fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V6(address) => Self(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into()),
            address => Self(address),
        }
    }
}

/// The sender of a request.
#[derive(Debug, Clone)]
pub(crate) struct ClientAddress {
    pub(crate) connection: Arc<HttpConnection>,
    pub(crate) address: IpAddr,
}

impl ClientAddress {
    pub(crate) fn new(connection: Arc<HttpConnection>, proxies: &TrustedProxies, headers: &HeaderMap) -> Self {
        Self { address: proxies.client(connection.peer(), headers), connection }
    }

    pub(crate) fn network(&self) -> ClientNetwork {
        ClientNetwork::of(self.address)
    }

    /// Whether a program on this machine sent the request for itself. A proxy on this machine cannot be told from one if it is
    /// not listed, adds no header and passes on a Host header that names loopback.
    pub(crate) fn is_local(&self, proxies: &TrustedProxies, headers: &HeaderMap) -> bool {
        let peer = self.connection.peer();
        peer.is_loopback()
            && !proxies.contains(peer)
            && !PROXY_HEADERS.iter().any(|name| headers.contains_key(*name))
            && is_loopback_host(headers)
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn forwarded(values: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(FORWARDED_FOR, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    /// F-109
    #[test]
    fn only_a_trusted_proxy_names_its_client() {
        let proxies = TrustedProxies::new(&["10.0.0.0/8".to_owned(), "fd00::1".to_owned()]);
        let client =
            |peer: &str, values: &[&str]| proxies.client(peer.parse().unwrap(), &forwarded(values)).to_string();
        assert_eq!(client("203.0.113.9", &["198.51.100.1"]), "203.0.113.9", "a stranger's header");
        assert_eq!(client("10.0.0.1", &["198.51.100.1"]), "198.51.100.1");
        assert_eq!(client("fd00::1", &["198.51.100.1:4711"]), "198.51.100.1");
        assert_eq!(client("10.0.0.1", &["[2001:db8::1]:80"]), "2001:db8::1");
        assert_eq!(client("10.0.0.1", &["::ffff:198.51.100.1"]), "198.51.100.1");
        // What the client sent stands before what the proxies appended.
        assert_eq!(client("10.0.0.1", &["127.0.0.1, 198.51.100.1, 10.0.0.2"]), "198.51.100.1");
        assert_eq!(client("10.0.0.1", &["127.0.0.1", "198.51.100.1", "10.0.0.2"]), "198.51.100.1");
        // Without a client that can be read it is the proxy.
        for unreadable in [[].as_slice(), &["unknown"], &[""], &["198.51.100.1, x"], &["\u{e9}"]] {
            assert_eq!(client("10.0.0.1", unreadable), "10.0.0.1", "{unreadable:?}");
        }
        assert_eq!(client("10.0.0.1", &["10.0.0.3"]), "10.0.0.3", "proxies only");
    }

    /// F-109, F-110
    #[test]
    fn addresses_of_one_ipv6_network_are_one_client() {
        let network = |text: &str| ClientNetwork::of(text.parse().unwrap());
        assert_eq!(network("2001:db8:0:1::1"), network("2001:db8:0:1:ffff::9"));
        assert_ne!(network("2001:db8:0:1::1"), network("2001:db8:0:2::1"));
        assert_eq!(network("::ffff:192.0.2.1"), network("192.0.2.1"));
        assert_ne!(network("192.0.2.1"), network("192.0.2.2"));
    }

    #[test]
    fn a_proxy_is_an_address_or_a_network() {
        for (given, read) in [
            ("10.0.0.1", Some("10.0.0.1/32")),
            ("10.0.0.0/8", Some("10.0.0.0/8")),
            ("::1", Some("::1/128")),
            ("::ffff:10.0.0.1", Some("10.0.0.1/32")),
            ("fd00::/8", Some("fd00::/8")),
            ("10.0.0.0/33", None),
            ("proxy.example.com", None),
            ("*", None),
            ("", None),
        ] {
            assert_eq!(parse_proxy(given).as_deref(), read, "{given}");
        }
    }
}
