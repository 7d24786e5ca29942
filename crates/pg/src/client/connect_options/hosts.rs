//! The servers to try, their order, and the properties that they must have (`host`, `hostaddr`, `port`,
//! `target_session_attrs`, `load_balance_hosts`).

use std::net::IpAddr;

use super::ConnectOptionsError;
use super::address::Address;
use super::environment::ConnectEnvironment;
use super::keywords::KeywordValues;

const DEFAULT_PORT: u16 = 5432;

/// `target_session_attrs`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TargetSessionAttrs {
    /// Any server that accepts the login.
    #[default]
    Any,
    /// A server whose sessions may write by default.
    ReadWrite,
    /// A server whose sessions may not write by default.
    ReadOnly,
    /// A server that is not in recovery.
    Primary,
    /// A server that is in recovery.
    Standby,
    /// A standby, or any server if there is none.
    PreferStandby,
}

const SESSION_ATTRS: [(&str, TargetSessionAttrs); 6] = [
    ("any", TargetSessionAttrs::Any),
    ("read-write", TargetSessionAttrs::ReadWrite),
    ("read-only", TargetSessionAttrs::ReadOnly),
    ("primary", TargetSessionAttrs::Primary),
    ("standby", TargetSessionAttrs::Standby),
    ("prefer-standby", TargetSessionAttrs::PreferStandby),
];

pub(super) fn session_attrs(given: &KeywordValues) -> Result<TargetSessionAttrs, ConnectOptionsError> {
    given.choice("target_session_attrs", &SESSION_ATTRS, TargetSessionAttrs::Any)
}

/// Whether the servers are tried in random order.
pub(super) fn are_shuffled(given: &KeywordValues) -> Result<bool, ConnectOptionsError> {
    given.choice("load_balance_hosts", &[("disable", false), ("random", true)], false)
}

pub(super) fn addresses(
    given: &KeywordValues,
    surroundings: &ConnectEnvironment,
) -> Result<Vec<Address>, ConnectOptionsError> {
    let (hosts, hostaddrs, ports) = (list(given, "host"), list(given, "hostaddr"), list(given, "port"));
    let count = hosts.len().max(hostaddrs.len()).max(1);
    for (key, list) in [("host", &hosts), ("hostaddr", &hostaddrs)] {
        if !list.is_empty() && list.len() != count {
            return Err(given.wrong(key, format!("it lists {} where {count} are needed", list.len())));
        }
    }
    if ports.len() > 1 && ports.len() != count {
        return Err(given.wrong("port", format!("it lists {} ports for {count} hosts", ports.len())));
    }
    (0..count)
        .map(|index| {
            let at = |list: &[&str]| list.get(index).copied().filter(|entry| !entry.is_empty()).map(str::to_owned);
            let port = match ports.get(index).or_else(|| ports.first().filter(|_| ports.len() == 1)) {
                Some(port) if !port.is_empty() => self::port(port).ok_or_else(|| {
                    given.wrong("port", "a port is a number from 1 to 65535; several are separated by commas")
                })?,
                _ => DEFAULT_PORT,
            };
            let hostaddr = at(&hostaddrs).map(|text| {
                text.parse().map_err(|_| given.wrong("hostaddr", "it is an IP address; a name belongs into host"))
            });
            Ok(address(at(&hosts), hostaddr.transpose()?, port, surroundings))
        })
        .collect()
}

fn list<'g>(given: &'g KeywordValues, key: &str) -> Vec<&'g str> {
    given.get(key).map(|text| text.split(',').map(str::trim).collect()).unwrap_or_default()
}

fn port(text: &str) -> Option<u16> {
    text.parse().ok().filter(|port| *port > 0)
}

fn address(host: Option<String>, hostaddr: Option<IpAddr>, port: u16, surroundings: &ConnectEnvironment) -> Address {
    match (host, hostaddr) {
        (host, Some(address)) => {
            Address::Tcp { host: host.unwrap_or_else(|| address.to_string()), hostaddr: Some(address), port }
        }
        (Some(host), None) if host.starts_with(['/', '@']) => Address::Unix(host.into(), port),
        (Some(host), None) => Address::Tcp { hostaddr: host.parse().ok(), host, port },
        (None, None) => match surroundings.socket_folder(port) {
            Some(folder) => Address::Unix(folder.to_owned(), port),
            None => Address::Tcp { host: "localhost".to_owned(), hostaddr: None, port },
        },
    }
}
