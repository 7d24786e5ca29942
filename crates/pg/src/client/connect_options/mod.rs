//! The server to connect to and the login, from libpq's connection strings and their environment (PostgreSQL manual,
//! "Database Connection Control Functions").
//!
//! `conninfo` parses the text. `keywords` lists the keys and merges the text, the service file (`service`) and the
//! variables (`environment`). `hosts`, `tls` and `auth_policy` interpret the values. `passfile` is read when a server
//! requests a password. `password_command` runs before a connection is opened, and `ssh_tunnel` carries it.
//!
//! Every keyword of libpq is implemented or refused, because a password or `sslmode` must not reach another server than
//! intended; the parser of tokio-postgres lacks `verify-full`, services, password files and client certificates. A
//! message never repeats a value: any part of a misread string may be its password. Of the default socket folders only
//! the first that exists is used, since any user could listen in `/tmp`.

mod address;
mod auth_policy;
mod conninfo;
mod environment;
mod hosts;
mod keywords;
mod passfile;
mod password_command;
mod service;
#[cfg(unix)]
mod ssh_guard;
#[cfg(unix)]
mod ssh_tunnel;
mod tls;
mod tls_config;
mod user_files;

#[cfg(windows)]
mod no_ssh_tunnel;
#[cfg(windows)]
use no_ssh_tunnel as ssh_tunnel;

use std::path::{Path, PathBuf};
use std::time::Duration;

use types::Secret;

pub use address::Address;
pub use auth_policy::{AuthMethod, AuthPolicy, ChannelBinding};
pub use conninfo::Conninfo;
pub use environment::ConnectEnvironment;
pub use hosts::TargetSessionAttrs;
use keywords::KeywordValues;
pub use password_command::PasswordCommand;
pub use ssh_tunnel::{SshTunnel, guard_ssh};
pub use tls::{ClientCertificate, RootCertificates, SslMode, TlsOptions};
pub(crate) use tls_config::TLS_PROTOCOL;

/// The default time limit for connecting.
pub const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The name of the sessions in `pg_stat_activity`, unless the connection string has one.
const APPLICATION_NAME: &str = "countersign";

/// The pooler that may stand between this process and PostgreSQL.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Pooler {
    /// No pooler: each connection has a backend of its own. A connection to a pooler is refused when it is opened.
    #[default]
    None,
    /// A pooler that lends a backend for a transaction (PgBouncer's `pool_mode = transaction`), or for longer.
    Transaction,
}

/// A database to connect to. `Debug` shows no password.
#[derive(Debug, Clone)]
pub struct ConnectOptions {
    /// The servers to try, in order.
    pub addresses: Vec<Address>,
    /// Whether the servers are tried in random order instead.
    pub is_shuffled: bool,
    /// The properties that the server must have.
    pub session_attrs: TargetSessionAttrs,
    /// The login role.
    pub user: String,
    /// Its password, for servers that ask for one.
    pub password: Option<Secret>,
    /// The program that prints the password if it is not given.
    pub password_command: Option<PasswordCommand>,
    /// The tunnel through which TCP connections are opened.
    pub ssh_tunnel: Option<SshTunnel>,
    /// The file in which the password is looked up if neither is given.
    pub passfile: Option<PathBuf>,
    /// The authentication methods that a server may request.
    pub login: AuthPolicy,
    /// The operating-system user that the server behind a unix socket must run as.
    pub requirepeer: Option<String>,
    /// The database.
    pub dbname: String,
    /// `application_name` of the sessions.
    pub application_name: String,
    /// `options` of the connection string, forwarded to the server unchanged.
    pub options: Option<String>,
    /// Whether the connection is encrypted, and how the server's certificate is verified.
    pub tls: TlsOptions,
    /// How a lost peer is detected.
    pub keepalive: Keepalive,
    /// The time limit for logging in at one server; 10 s unless the connection string has another.
    pub connect_timeout: Duration,
    /// The pooler between this process and the server.
    pub pooler: Pooler,
    /// The sources of host, user and database, for messages.
    pub origins: ParameterOrigins,
}

/// The sources of those parts of [`ConnectOptions`] that errors are usually about: a flag, a variable, a file, or
/// `default`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ParameterOrigins {
    /// The source of the host, or of its address if only the address was given.
    pub host: String,
    /// The source of the user.
    pub user: String,
    /// The source of the database.
    pub dbname: String,
}

/// How a silent loss of the peer is detected: options of the TCP socket (`None` is the system's default), and the
/// probe of an idle session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keepalive {
    /// Whether TCP keepalive is on.
    pub is_on: bool,
    /// The time without data after which the system sends the first probe.
    pub idle: Option<Duration>,
    /// The interval between probes of the system.
    pub interval: Option<Duration>,
    /// The number of unanswered probes after which the peer counts as lost.
    pub count: Option<u32>,
    /// How long sent data may stay without an acknowledgement (Linux).
    pub user_timeout: Option<Duration>,
    /// The time without data after which the next pipeline of a session begins with a probe, which PostgreSQL answers
    /// at once. No probe is sent through a pooler, since the pooler may have no backend for it yet.
    pub probe_after: Duration,
    /// How long PostgreSQL may take to answer a probe before the connection counts as lost.
    pub probe_timeout: Duration,
}

impl Default for Keepalive {
    /// The system's defaults are too long (Linux: 2 h, and 15 min for unacknowledged data).
    fn default() -> Self {
        Self {
            is_on: true,
            idle: Some(Duration::from_secs(60)),
            interval: Some(Duration::from_secs(10)),
            count: Some(3),
            user_timeout: Some(Duration::from_secs(10)),
            probe_after: Duration::from_secs(5),
            probe_timeout: Duration::from_secs(3),
        }
    }
}

/// The reason why a connection string is refused. It never quotes the string or a value in it, which may be a
/// password.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
pub enum ConnectOptionsError {
    #[error(
        "the connection string cannot be read ({0}); it looks like postgresql://user@host:5432/dbname \
         or host=localhost user=me dbname=mine"
    )]
    Malformed(String),
    #[error("there is no key \"{key}\" in {place}; the keys are libpq's, such as host, user, dbname, sslmode")]
    UnknownKey { key: String, place: String },
    /// The value is malformed or requests an unsupported feature.
    #[error("{origin}: {problem}")]
    Setting { origin: String, problem: String },
}

impl ConnectOptions {
    /// Parses `postgresql://…` or `host=… dbname=…`. Of the environment it uses only the name of the operating-system
    /// user.
    ///
    /// # Errors
    /// [`ConnectOptionsError`] if the text is neither, or requests an unsupported feature.
    pub fn parse(text: &str) -> Result<Self, ConnectOptionsError> {
        Self::parse_with(text, &ConnectEnvironment::empty())
    }

    /// Parses a connection string. Parts that the text leaves out are taken from its surroundings, as in libpq. The
    /// text may be empty.
    pub fn parse_with(text: &str, surroundings: &ConnectEnvironment) -> Result<Self, ConnectOptionsError> {
        Self::from_conninfo(&Conninfo::parse(text)?, surroundings)
    }

    /// Interprets keys and values that were parsed before.
    pub fn from_conninfo(conninfo: &Conninfo, surroundings: &ConnectEnvironment) -> Result<Self, ConnectOptionsError> {
        let given = all_values(conninfo, surroundings)?;
        let text = |key: &str| given.get(key).map(str::to_owned);
        let user = text("user")
            .or_else(|| surroundings.os_user().map(str::to_owned))
            .ok_or_else(|| given.wrong("user", "no user is named, and the user who runs this has no name: add one"))?;
        let application_name = text("application_name").or_else(|| text("fallback_application_name"));
        // In libpq, 0 and negative values mean no limit. Here a connection attempt always has a limit, so they mean
        // the default.
        let timeout = given.number("connect_timeout")?.and_then(|s| u64::try_from(s).ok()).filter(|s| *s > 0);
        let addresses = hosts::addresses(&given, surroundings)?;
        if surroundings.ssh_tunnel.is_some() && addresses.iter().any(|address| matches!(address, Address::Unix(..))) {
            let problem =
                "ssh_tunnel leads to a host that the bastion can reach, and not to a unix socket: name the host";
            return Err(given.wrong("host", problem));
        }
        Ok(Self {
            addresses,
            is_shuffled: hosts::are_shuffled(&given)?,
            session_attrs: hosts::session_attrs(&given)?,
            password: text("password").map(Secret::new),
            password_command: surroundings.password_command.clone(),
            ssh_tunnel: surroundings.ssh_tunnel.clone(),
            passfile: text("passfile")
                .map(PathBuf::from)
                .or_else(|| surroundings.existing_user_file(user_files::PASSWORDS)),
            login: auth_policy::of(&given)?,
            requirepeer: text("requirepeer"),
            dbname: text("dbname").unwrap_or_else(|| user.clone()),
            application_name: application_name.unwrap_or_else(|| APPLICATION_NAME.to_owned()),
            options: text("options"),
            tls: tls::of(&given, surroundings)?,
            keepalive: keepalive(&given)?,
            connect_timeout: timeout.map_or(surroundings.connect_timeout, Duration::from_secs),
            pooler: Pooler::None,
            origins: ParameterOrigins {
                host: given.origin(if given.get("host").is_some() { "host" } else { "hostaddr" }),
                user: given.origin("user"),
                dbname: given.origin("dbname"),
            },
            user,
        })
    }

    /// The same database through this pooler.
    ///
    /// # Errors
    /// [`ConnectOptionsError`] if the options need something that the pooler does not forward.
    pub fn with_pooler(self, pooler: Pooler) -> Result<Self, ConnectOptionsError> {
        if pooler == Pooler::Transaction && self.options.is_some() {
            // A pooler refuses this parameter or, if it is configured to ignore it, drops it.
            let problem = "a pooler does not hand it on; set it for the role instead (alter role .. set ..)".to_owned();
            return Err(ConnectOptionsError::Setting { origin: "options".to_owned(), problem });
        }
        Ok(Self { pooler, ..self })
    }

    /// The same database with another role.
    #[must_use]
    pub fn as_role(&self, user: &str, password: Option<Secret>) -> Self {
        let origins = ParameterOrigins { user: "chosen by countersign".to_owned(), ..self.origins.clone() };
        Self { user: user.to_owned(), password, origins, ..self.clone() }
    }

    /// The connection string of another login of the same database. It includes the values that the service file and
    /// the environment supply, so that another process, in another folder, connects to the same server.
    pub fn text_for_login(
        conninfo: &Conninfo,
        surroundings: &ConnectEnvironment,
        user: &str,
        password: &Secret,
    ) -> Result<Secret, ConnectOptionsError> {
        let options = Self::from_conninfo(conninfo, surroundings)?;
        let given = all_values(conninfo, surroundings)?;
        let hosts: Vec<&str> = options.addresses.iter().filter_map(Address::host).collect();
        let ports: Vec<String> = options.addresses.iter().map(|address| address.port().to_string()).collect();
        let (hosts, ports) = (hosts.join(","), ports.join(","));
        let own = [
            ("host", hosts.as_str()),
            ("port", &ports),
            ("dbname", &options.dbname),
            ("user", user),
            ("password", password.expose()),
        ];
        let others: Vec<(&str, String)> =
            given.pairs_without(&REPLACED).map(|(key, value)| (key, with_absolute_path(key, value))).collect();
        let others = others.iter().map(|(key, value)| (*key, value.as_str()));
        Ok(Secret::new(conninfo::text(own.into_iter().chain(others))))
    }

    /// The servers, for a message: no user, no password.
    #[must_use]
    pub fn address(&self) -> String {
        self.addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    }

    /// Host, user and database with their sources, for a message. Without the password.
    #[must_use]
    pub fn described(&self) -> String {
        let ParameterOrigins { host, user, dbname } = &self.origins;
        format!("host {} ({host}), user {} ({user}), database {} ({dbname})", self.address(), self.user, self.dbname)
    }

    /// The program that prints the password; `None` if the password is given, as for the login that the ledger has.
    pub(crate) fn used_password_command(&self) -> Option<&PasswordCommand> {
        self.password_command.as_ref().filter(|_| self.password.is_none())
    }

    /// The password for a server, from the options or from the password file.
    ///
    /// # Errors
    /// The reason why there is no password: the end of a sentence.
    pub(crate) fn password_for(&self, address: &Address) -> Result<Password<'_>, String> {
        if let Some(password) = &self.password {
            return Ok(Password { secret: password.clone(), file: None });
        }
        let Some(file) = self.passfile.as_deref() else { return Err("none is given".to_owned()) };
        let (host, port) = match address {
            Address::Tcp { host, port, .. } => (host.clone(), port),
            // Password files use `localhost` for a socket in a default folder.
            Address::Unix(folder, port) if environment::is_default(folder) => ("localhost".to_owned(), port),
            Address::Unix(folder, port) => (folder.display().to_string(), port),
        };
        let wanted = [host.as_str(), &port.to_string(), &self.dbname, &self.user];
        let unused = |why: &str| format!("none is given; the password file {}: {why}", file.display());
        match passfile::look_up(file, &wanted) {
            Ok(Some(secret)) => Ok(Password { secret, file: Some(file) }),
            Ok(None) => Err(unused(&format!("no line of it fits {}", wanted.join(":")))),
            Err(why) => Err(unused(&why)),
        }
    }
}

/// The keys that [`ConnectOptions::text_for_login`] replaces, and those that belong to the other login.
const REPLACED: [&str; 10] = [
    "host",
    "port",
    "dbname",
    "user",
    "password",
    "passfile",
    "service",
    "servicefile",
    "application_name",
    "fallback_application_name",
];

/// The values of the text, then of the service file, then of the environment.
fn all_values(conninfo: &Conninfo, surroundings: &ConnectEnvironment) -> Result<KeywordValues, ConnectOptionsError> {
    let mut given = KeywordValues::from_conninfo(conninfo)?;
    service::add(&mut given, surroundings)?;
    given.add_environment(surroundings)?;
    Ok(given)
}

/// The value; the path of a file as an absolute one.
fn with_absolute_path(key: &str, value: &str) -> String {
    let is_file = matches!(key, "sslcert" | "sslkey" | "sslcrl") || key == "sslrootcert" && value != "system";
    let path = is_file.then(|| std::path::absolute(value).ok()).flatten();
    path.and_then(|path| path.into_os_string().into_string().ok()).unwrap_or_else(|| value.to_owned())
}

/// A password, and the file that contains it.
pub(crate) struct Password<'t> {
    pub(crate) secret: Secret,
    pub(crate) file: Option<&'t Path>,
}

fn keepalive(given: &KeywordValues) -> Result<Keepalive, ConnectOptionsError> {
    let usual = Keepalive::default();
    // As in libpq, zero and negative values leave the choice to the system.
    let positive = |number: i32| u32::try_from(number).ok().filter(|number| *number > 0);
    let time = |key, usual, unit: fn(u64) -> Duration| {
        Ok(given.number(key)?.map_or(usual, |number| positive(number).map(|number| unit(number.into()))))
    };
    Ok(Keepalive {
        is_on: given.number("keepalives")?.is_none_or(|number| number != 0),
        idle: time("keepalives_idle", usual.idle, Duration::from_secs)?,
        interval: time("keepalives_interval", usual.interval, Duration::from_secs)?,
        count: given.number("keepalives_count")?.map_or(usual.count, positive),
        user_timeout: time("tcp_user_timeout", usual.user_timeout, Duration::from_millis)?,
        ..usual
    })
}

#[cfg(test)]
mod tests;
