//! The trusted proxies, and the networks that limits count clients by.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use http::HeaderMap;
use ipnet::IpNet;

/// The client's address. Each proxy appends the address of its peer.
const FORWARDED_FOR: &str = "x-forwarded-for";

/// Headers that only proxies send.
pub const PROXY_HEADERS: [&str; 6] =
    [FORWARDED_FOR, "forwarded", "via", "x-forwarded-host", "x-forwarded-proto", "x-real-ip"];

/// The networks of trusted proxies.
#[derive(Debug, Clone, Default)]
pub struct TrustedProxies(Vec<IpNet>);

impl TrustedProxies {
    /// Parses addresses and networks as [`parse_proxy`] returns them.
    pub fn new(texts: &[String]) -> Self {
        Self(texts.iter().filter_map(|text| parse_network(text)).collect())
    }

    /// Whether the request seems to come from a proxy that is not listed.
    pub fn is_unlisted_proxy(&self, peer: IpAddr, headers: &HeaderMap) -> bool {
        headers.contains_key(FORWARDED_FOR) && !self.contains(peer)
    }

    /// Whether this is the address of a trusted proxy.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(&address))
    }

    /// The address of the client: the last one of `X-Forwarded-For` that is not a trusted proxy. The addresses before
    /// it can be forged.
    pub fn client(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
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

/// Parses an address or a network (`10.0.0.0/8`) into a canonical form. `None` if the text is neither.
#[must_use]
pub fn parse_proxy(text: &str) -> Option<String> {
    parse_network(text).map(|network| network.to_string())
}

fn parse_network(text: &str) -> Option<IpNet> {
    let of_address = |text: &str| Some(IpNet::from(text.parse::<IpAddr>().ok()?.to_canonical()));
    text.parse().ok().or_else(|| of_address(text))
}

/// Parses `address`, `address:port`, `[address]` or `[address]:port`, which are all in use by proxies.
fn parse_address(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let address = bare.parse().ok().or_else(|| Some(text.parse::<SocketAddr>().ok()?.ip()))?;
    Some(address.to_canonical())
}

/// The unit of limits: an IPv4 address, or an IPv6 network of 64 bits, in which a host can use any address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClientNetwork(IpAddr);

impl ClientNetwork {
    /// The network of an address: the address itself, or its /64 of IPv6.
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V6(address) => Self(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into()),
            address => Self(address),
        }
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
        // The client's own text precedes what the proxies appended.
        assert_eq!(client("10.0.0.1", &["127.0.0.1, 198.51.100.1, 10.0.0.2"]), "198.51.100.1");
        assert_eq!(client("10.0.0.1", &["127.0.0.1", "198.51.100.1", "10.0.0.2"]), "198.51.100.1");
        // Without a readable address it is the proxy.
        for unreadable in [[].as_slice(), &["unknown"], &[""], &["198.51.100.1, x"], &["\u{e9}"]] {
            assert_eq!(client("10.0.0.1", unreadable), "10.0.0.1", "{unreadable:?}");
        }
        assert_eq!(client("10.0.0.1", &["10.0.0.3"]), "10.0.0.3", "proxies only");
    }

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
