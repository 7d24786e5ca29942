//! The settings of HTTP.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;
use ledger::read::ReadLimits;
use mcp_http::{AccountQuotas, HttpOptions};

use super::addresses::{Host, ListenAddress, Origin, Proxy, PublicUrl};
use super::keys::HttpKeys;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct HttpSettings {
    pub(crate) listen: SocketAddr,
    pub(crate) public_url: Option<String>,
    pub(crate) allowed_hosts: Vec<String>,
    pub(crate) allowed_origins: Vec<String>,
    /// Certificate and key.
    pub(crate) tls: Option<(PathBuf, PathBuf)>,
    pub(crate) quotas: AccountQuotas,
    pub(crate) connections: usize,
    pub(crate) connections_per_address: usize,
    /// Addresses and networks.
    pub(crate) trusted_proxies: Vec<String>,
}

const REQUESTS_PER_S: u32 = 100;
const BURST: NonZeroU32 = NonZeroU32::new(200).unwrap();
const SESSIONS: u32 = 256;
const SESSION_IDLE: Duration = Duration::from_secs(300);
const STREAMS: u32 = 256;
const CONNECTIONS: usize = 1024;

/// One address may use one in this many of all connections, so that the rest remains for other addresses.
const SHARE_OF_ADDRESS: usize = 4;

/// The minimum number of connections per address: a client has an event stream and a few concurrent requests.
const MIN_PER_ADDRESS: usize = 16;

impl HttpSettings {
    /// `None` if no address is configured. Then MCP is served on standard input and output.
    pub(super) fn new<'a>(
        keys: HttpKeys,
        limits: impl Iterator<Item = &'a ReadLimits>,
    ) -> anyhow::Result<Option<Self>> {
        let tls = match (keys.tls_certificate, keys.tls_key) {
            (None, None) => None,
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (Some(_), None) => bail!("tls_certificate is given and tls_key is not: give the file with its key as well"),
            (None, Some(_)) => {
                bail!("tls_key is given and tls_certificate is not: give the file with the certificate as well")
            }
        };
        let Some(ListenAddress(listen)) = keys.listen else { return Ok(None) };
        let (sessions, deadlines): (Vec<usize>, Vec<Duration>) =
            limits.map(|limits| (limits.sessions, limits.deadline)).unzip();
        let sessions = sessions.into_iter().min().unwrap_or_default();
        let left_to_others = sessions.div_ceil(4);
        let reads = keys.reads.map_or(sessions.saturating_sub(left_to_others), |reads| reads.get() as usize);
        let quotas = AccountQuotas {
            requests_per_s: NonZeroU32::new(keys.requests_per_s.map_or(REQUESTS_PER_S, |rate| rate.get())),
            burst: keys.burst.and_then(|burst| NonZeroU32::new(burst.get())).unwrap_or(BURST),
            streams: keys.streams.map_or(STREAMS, |streams| streams.get()),
            sessions: keys.sessions.map_or(SESSIONS, |sessions| sessions.get()),
            session_idle: keys.session_idle_s.map_or(SESSION_IDLE, |idle| idle.duration()),
            reads: reads.max(1),
            read_time: deadlines.into_iter().max().unwrap_or_default(),
        };
        let connections = keys.connections.map_or(CONNECTIONS, |most| most.get() as usize);
        let share = (connections / SHARE_OF_ADDRESS).max(MIN_PER_ADDRESS);
        Ok(Some(Self {
            listen,
            public_url: keys.public_url.map(PublicUrl::into_text),
            allowed_hosts: keys.allowed_hosts.into_iter().flatten().map(Host::into_text).collect(),
            allowed_origins: keys.allowed_origins.into_iter().flatten().map(Origin::into_text).collect(),
            tls,
            quotas,
            connections,
            connections_per_address: keys.connections_per_address.map_or(share, |most| most.get() as usize),
            trusted_proxies: keys.trusted_proxies.into_iter().flatten().map(Proxy::into_text).collect(),
        }))
    }

    pub(crate) fn options(&self) -> HttpOptions {
        HttpOptions {
            allowed_hosts: self.allowed_hosts.clone(),
            allowed_origins: self.allowed_origins.clone(),
            public_url: self.public_url.clone(),
            quotas: self.quotas,
            connections: self.connections,
            connections_per_address: self.connections_per_address,
            trusted_proxies: self.trusted_proxies.clone(),
        }
    }
}
