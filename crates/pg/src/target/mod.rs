//! Where to connect and as whom: one libpq URL or keyword string, read by tokio-postgres' own parser.

use std::path::PathBuf;
use std::time::Duration;

use contract::Secret;
use tokio_postgres::config::Host;

mod tls;

pub use tls::{Tls, TlsMode};

/// One server to try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A TCP host name or address, and a port.
    Tcp(String, u16),
    /// A folder that holds the socket, and the port that names it.
    Unix(PathBuf, u16),
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp(host, port) => write!(f, "{host}:{port}"),
            Self::Unix(folder, port) => write!(f, "{} (unix socket, port {port})", folder.display()),
        }
    }
}

/// A database to connect to. `Debug` shows no password.
#[derive(Debug, Clone)]
pub struct Target {
    /// The servers to try, in order.
    pub addresses: Vec<Address>,
    /// The login role.
    pub user: String,
    /// Its password, for servers that ask for one.
    pub password: Option<Secret>,
    /// The database.
    pub dbname: String,
    /// `options` of the connection string, passed on as they are.
    pub options: Option<String>,
    /// Whether the connection is encrypted, and how much is checked.
    pub tls: Tls,
    /// How long one connection attempt may take; 10 s unless the connection string says otherwise (promise D3-05).
    pub connect_timeout: Duration,
}

/// Why a connection string was not taken. Never shows the string: it may hold a password.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
pub enum TargetError {
    /// Neither a URL nor keywords.
    #[error(
        "the connection string cannot be read ({0}); it looks like postgresql://user@host:5432/dbname \
         or host=localhost user=me dbname=mine"
    )]
    Malformed(String),
}

/// How long connecting may take when nobody says otherwise (promises D3-05, D5-06).
pub const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

impl Target {
    /// Reads `postgresql://…` or `host=… dbname=…`.
    ///
    /// # Errors
    /// [`TargetError`] if the text is neither, or asks for what is not supported.
    pub fn parse(text: &str) -> Result<Self, TargetError> {
        Self::parse_with(text, DEFAULT_CONNECT_TIMEOUT)
    }

    /// The same, with the time that connecting may take unless the text has a `connect_timeout`.
    ///
    /// # Errors
    /// [`TargetError`] if the text is neither, or asks for what is not supported.
    pub fn parse_with(text: &str, connect_timeout: Duration) -> Result<Self, TargetError> {
        let (text, tls) = tls::take(text).map_err(TargetError::Malformed)?;
        let config: tokio_postgres::Config = text.parse().map_err(|error: tokio_postgres::Error| {
            // tokio-postgres names the key and never its value.
            let cause = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
            TargetError::Malformed(cause)
        })?;
        let ports = config.get_ports();
        let port = |index: usize| ports.get(index).or_else(|| ports.first()).copied().unwrap_or(5432);
        let mut addresses: Vec<Address> = config
            .get_hosts()
            .iter()
            .enumerate()
            .map(|(index, host)| match host {
                Host::Tcp(name) => Address::Tcp(name.clone(), port(index)),
                #[cfg(unix)]
                Host::Unix(folder) => Address::Unix(folder.clone(), port(index)),
            })
            .collect();
        if addresses.is_empty() {
            addresses.push(Address::Tcp("localhost".to_owned(), port(0)));
        }
        let user = config.get_user().unwrap_or("postgres").to_owned();
        Ok(Self {
            addresses,
            password: config.get_password().map(|password| Secret::new(String::from_utf8_lossy(password))),
            dbname: config.get_dbname().unwrap_or(&user).to_owned(),
            options: config.get_options().map(str::to_owned),
            connect_timeout: config.get_connect_timeout().copied().unwrap_or(connect_timeout),
            tls,
            user,
        })
    }

    /// The same database, as another role.
    #[must_use]
    pub fn as_role(&self, user: &str, password: Option<Secret>) -> Self {
        Self { user: user.to_owned(), password, ..self.clone() }
    }

    /// The servers, for a message: no user, no password.
    #[must_use]
    pub fn place(&self) -> String {
        self.addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_with_every_awkward_character_is_read_from_url_and_keywords() {
        let url = Target::parse("postgresql://me:p%40ss%2F%23%25@db.example:6432/shop").unwrap();
        assert_eq!(url.password.as_ref().unwrap().expose(), "p@ss/#%");
        assert_eq!(url.addresses, [Address::Tcp("db.example".into(), 6432)]);
        let keywords = Target::parse("host=/run/pg port=5433 user=me password='p@ss/#%' dbname=shop").unwrap();
        assert_eq!(keywords.password, url.password);
        assert_eq!(keywords.addresses, [Address::Unix("/run/pg".into(), 5433)]);
    }

    #[test]
    fn a_malformed_string_is_refused_without_repeating_it() {
        let error = Target::parse("host=localhost port=abc password=hunter2").unwrap_err();
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }

    #[test]
    fn debug_shows_no_password() {
        let target = Target::parse("postgresql://me:hunter2@h/d").unwrap();
        assert!(!format!("{target:?}").contains("hunter2"));
    }
}
