//! Where a server listens.

use std::net::IpAddr;
use std::path::PathBuf;

/// One server to try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// Over TCP.
    Tcp {
        /// A name or an address. The certificate is checked against it, and the password file is searched for it.
        host: String,
        /// The address; if `None`, `host` is resolved.
        hostaddr: Option<IpAddr>,
        port: u16,
    },
    /// The folder with the socket, and the port that is part of the socket's file name. On Linux, a path that begins
    /// with `@` is in the abstract namespace.
    Unix(PathBuf, u16),
}

impl Address {
    /// The value of `host` that leads to this server. `None` if it is not UTF-8.
    pub(super) fn host(&self) -> Option<&str> {
        match self {
            Self::Tcp { host, .. } => Some(host),
            Self::Unix(folder, _) => folder.to_str(),
        }
    }

    pub(super) const fn port(&self) -> u16 {
        match self {
            Self::Tcp { port, .. } | Self::Unix(_, port) => *port,
        }
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp { host, port, .. } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port, .. } => write!(f, "{host}:{port}"),
            Self::Unix(folder, port) => write!(f, "{} (unix socket, port {port})", folder.display()),
        }
    }
}
