//! Names and addresses of the HTTP server and of the console, checked as they are read.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use schemars::JsonSchema;
use serde::Deserialize;

/// A text that is checked when it is read, and kept as clients write it.
macro_rules! checked {
    ($(#[$meta:meta])* $name:ident, $read:expr, $wanted:literal) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
        #[serde(try_from = "String")]
        pub(crate) struct $name(String);

        impl $name {
            pub(crate) fn into_text(self) -> String {
                self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = String;

            fn try_from(text: String) -> Result<Self, String> {
                let read: fn(&str) -> Option<String> = $read;
                read(&text).map(Self).ok_or_else(|| format!(concat!("{:?} is not ", $wanted), text))
            }
        }

        impl FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                Self::try_from(text.to_owned())
            }
        }
    };
}

checked!(
    /// A host, with a port or without.
    Host,
    mcp_http::parse_host,
    "the name of a host: name, name:port, or [address]:port. Names are listed, there are no patterns"
);
checked!(
    /// An origin as browsers write it.
    Origin,
    mcp_http::parse_origin,
    "an origin: https://name or https://name:port. Origins are listed, there are no patterns"
);
checked!(
    /// A proxy in front, or a network of proxies.
    Proxy,
    http_server::parse_proxy,
    "the address of a proxy, or a network: 10.0.0.1, 10.0.0.0/8, fd00::/8. Names are not looked up"
);
checked!(
    /// A URL that notices are sent to, or name.
    TargetUrl,
    |text| text.parse::<http_client::HttpsUrl>().ok().map(|url| url.as_str().to_owned()),
    "a URL that begins with https://, or with http:// for this machine, without a user name"
);
checked!(
    /// A collector of telemetry. It may be on another machine without TLS, as within a cluster.
    CollectorUrl,
    |text| text.parse::<http_client::HttpUrl>().ok().map(|url| url.as_str().to_owned()),
    "a URL of a collector: http://name:4318 or https://name, without a user name"
);
checked!(
    /// The address of the server, without a path.
    PublicUrl,
    mcp_http::parse_origin,
    "the address of a server: https://name or https://name:port, without a path"
);
checked!(
    /// The address of the console, without a path.
    ConsoleUrl,
    |text| ::console::read_origin(text).ok().map(|(origin, _)| origin),
    "the address of the console: https://name or https://name:port, without a path (http:// is for this machine only)"
);

/// An address with a port, to listen on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
#[schemars(with = "String")]
pub(crate) struct ListenAddress(pub(crate) SocketAddr);

impl TryFrom<String> for ListenAddress {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().map(Self).map_err(|_| {
            let host = text.trim_start_matches('[').trim_end_matches(']');
            match host.parse::<IpAddr>() {
                Ok(IpAddr::V6(_)) => format!("the port is missing: [{host}]:7777"),
                Ok(IpAddr::V4(_)) => format!("the port is missing: {host}:7777"),
                Err(_) => {
                    format!("{text:?} is not an address with a port, such as 127.0.0.1:7777; names are not looked up")
                }
            }
        })
    }
}
