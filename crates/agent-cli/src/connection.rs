//! The database of a session: [`ConnectionFields`] in layers, in the order of precedence:
//!
//! 1. the session's fields in the configuration,
//! 2. the flags,
//! 3. `COUNTERSIGN_DSN_SECRET`, `_CONNINFO_SECRET`, `_HOST`, `_PORT`, `_USER`, `_DBNAME`, `_PASSWORD_SECRET`,
//! 4. the connection string that every command uses ([`ConnectionString`]),
//! 5. `PGHOST`, `PGPORT`, `PGUSER`, `PGDATABASE`, `PGPASSWORD`,
//! 6. 127.0.0.1, 5432, postgres, postgres.
//!
//! Host, port, user, database and password are each taken from the first layer that has it, where:
//!
//! - a layer may have one connection string, a DSN or a conninfo, and its own fields take precedence over that string;
//! - a connection string is used unless a layer above it names a host or has a connection string of its own. Then the
//!   whole string is ignored: neither its password nor its `sslmode` is meant for another server;
//! - port, user, database or password in a layer above refine it: the same server with other values;
//! - its password belongs to its user: with another user from a layer above, the password is ignored;
//! - the layers below supply what it leaves out; a service that it names (or `PGSERVICE`) takes precedence over the
//!   last two;
//! - what the string of the fourth layer leaves out is found by libpq's rules, as for every other command.
//!
//! All other settings (`sslmode`, `connect_timeout`, ..) follow libpq.

use std::collections::HashMap;
use std::num::NonZeroU16;

use clap::Args;
use clap::builder::{StringValueParser, TypedValueParser};
use pg::{ConnectEnvironment, ConnectOptions, ConnectOptionsError, Conninfo};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use types::Secret;

use crate::error::CliError;
use crate::redaction;

/// The fields of one layer, which are flags, too: the comments are the help texts. An empty text counts as absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct ConnectionFields {
    /// postgresql://user:password@host:port/dbname.
    #[arg(long, value_name = "URL", value_parser = StringValueParser::new().map(Secret::new))]
    pub dsn_secret: Option<Secret>,
    /// host=.. port=.. user=.. dbname=.. password=.. (libpq's keys).
    #[arg(long, value_name = "KEYS", value_parser = StringValueParser::new().map(Secret::new))]
    #[arg(conflicts_with = "dsn_secret")]
    pub conninfo_secret: Option<Secret>,
    /// A name, an address, or the folder of a unix socket (with a leading /). Default: 127.0.0.1.
    #[arg(long)]
    pub host: Option<String>,
    /// Default: 5432.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..).map(|port: u16| port.to_string()))]
    pub port: Option<String>,
    /// Default: postgres.
    #[arg(long)]
    pub user: Option<String>,
    /// Default: postgres.
    #[arg(long)]
    pub dbname: Option<String>,
    /// The password. Prefer COUNTERSIGN_PASSWORD_SECRET: other users can see the arguments of a process.
    #[arg(long, value_name = "PASSWORD", allow_hyphen_values = true)]
    #[arg(value_parser = StringValueParser::new().map(Secret::new))]
    pub password_secret: Option<Secret>,
}

/// New values of the fields of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConnectionPatch {
    pub dsn_secret: Change<Secret>,
    pub conninfo_secret: Change<Secret>,
    pub host: Change<String>,
    pub port: Change<NonZeroU16>,
    pub user: Change<String>,
    pub dbname: Change<String>,
    pub password_secret: Change<Secret>,
}

/// The change of one field. As JSON it is the new value, or `null`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Change<T> {
    /// The key is absent: the field stays as it is.
    #[default]
    Keep,
    /// A new value; `None` clears the field.
    Set(Option<T>),
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Change<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Option::deserialize(deserializer).map(Self::Set)
    }
}

impl<T> Change<T> {
    fn apply(self, field: &mut Option<T>) {
        if let Self::Set(value) = self {
            *field = value;
        }
    }
}

impl Serialize for ConnectionFields {
    /// The fields that are set, with secrets as `***` and the port as a number.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let value = |key: &str, text: &str| match text.parse::<u16>() {
            Ok(port) if key == "port" => Value::from(port),
            _ => Value::from(text),
        };
        serializer.collect_map(self.shown().map(|(key, text)| (key, value(key, text))))
    }
}

/// The keys that are merged, in this order.
const KEYS: [&str; 5] = ["host", "port", "user", "dbname", "password"];
/// The values for keys that no layer has.
const DEFAULTS: [(&str, &str); 4] =
    [("host", "127.0.0.1"), ("port", "5432"), ("user", "postgres"), ("dbname", "postgres")];

impl ConnectionFields {
    /// Reads the variables `COUNTERSIGN_*`.
    #[must_use]
    pub fn of_countersign(env: &HashMap<String, String>) -> Self {
        Self::of(|key| env.get(&Source::Countersign.origin(key)).cloned())
    }

    /// Reads libpq's variables.
    #[must_use]
    pub fn of_libpq(env: &HashMap<String, String>) -> Self {
        Self::of(|key| {
            let key = named(key);
            env.get(&Source::Libpq.origin(key)).filter(|_| KEYS.contains(&key)).cloned()
        })
    }

    fn of(text: impl Fn(&str) -> Option<String>) -> Self {
        let secret = |key: &str| text(key).map(Secret::new);
        Self {
            dsn_secret: secret("dsn_secret"),
            conninfo_secret: secret("conninfo_secret"),
            host: text("host"),
            port: text("port"),
            user: text("user"),
            dbname: text("dbname"),
            password_secret: secret("password_secret"),
        }
    }

    /// The fields by name.
    pub(crate) fn entries(&self) -> [(&'static str, Option<&str>); 7] {
        fn exposed(secret: &Option<Secret>) -> Option<&str> {
            secret.as_ref().map(Secret::expose)
        }
        [
            ("dsn_secret", exposed(&self.dsn_secret)),
            ("conninfo_secret", exposed(&self.conninfo_secret)),
            ("host", self.host.as_deref()),
            ("port", self.port.as_deref()),
            ("user", self.user.as_deref()),
            ("dbname", self.dbname.as_deref()),
            ("password_secret", exposed(&self.password_secret)),
        ]
    }

    /// The fields that are set, with secrets as `***`.
    pub(crate) fn shown(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let set = self.entries().into_iter().filter_map(|(key, text)| Some((key, text?)));
        set.map(|(key, text)| (key, if named(key) == key { text } else { redaction::STARS }))
    }

    /// Changes the fields that the patch names.
    pub fn patch(&mut self, patch: ConnectionPatch) {
        patch.dsn_secret.apply(&mut self.dsn_secret);
        patch.conninfo_secret.apply(&mut self.conninfo_secret);
        patch.host.apply(&mut self.host);
        if let Change::Set(port) = patch.port {
            self.port = port.map(|port| port.to_string());
        }
        patch.user.apply(&mut self.user);
        patch.dbname.apply(&mut self.dbname);
        patch.password_secret.apply(&mut self.password_secret);
    }

    fn get(&self, key: &str) -> Option<&str> {
        let (_, value) = self.entries().into_iter().find(|(name, _)| named(name) == key)?;
        value.filter(|value| !value.is_empty())
    }

    /// Returns the connection string and the name of its field, if there is one.
    fn text(&self) -> Result<Option<(&'static str, &str)>, CliError> {
        let [dsn, conninfo] = ["dsn_secret", "conninfo_secret"].map(|key| self.get(named(key)).map(|text| (key, text)));
        if dsn.is_some() && conninfo.is_some() {
            return Err(CliError::invalid(
                "both dsn_secret and conninfo_secret are given: each is a whole connection string; give one of them",
            ));
        }
        Ok(dsn.or(conninfo))
    }

    /// Whether the fields lead to a server of their own.
    fn names_host(&self) -> bool {
        ["host", "dsn_secret", "conninfo_secret"].into_iter().any(|key| self.get(named(key)).is_some())
    }

    /// Checks that there is at most one connection string, and that it is in the field for its kind. In another field
    /// it would be shown.
    ///
    /// # Errors
    /// The problem, without the string.
    pub fn check(&self) -> Result<(), CliError> {
        self.text()?;
        for (name, value) in [("host", &self.host), ("user", &self.user), ("dbname", &self.dbname)] {
            if value.as_deref().is_some_and(redaction::may_hold_a_password) {
                return Err(CliError::invalid(format!("{name} is or holds a connection string")).hint(
                    "give postgresql://.. as dsn_secret, host=.. dbname=.. as conninfo_secret, where it is not shown",
                ));
            }
        }
        if self.get("dsn").is_some_and(|dsn| !Conninfo::is_uri(dsn)) {
            return Err(CliError::invalid("dsn_secret is no URL: one begins with postgresql:// or postgres://")
                .hint("host=.. dbname=.. is a conninfo: give it as conninfo_secret"));
        }
        Ok(())
    }
}

/// The key of a field: its name without `_secret`.
fn named(name: &str) -> &str {
    name.strip_suffix("_secret").unwrap_or(name)
}

fn unusable(error: &ConnectOptionsError) -> CliError {
    CliError::invalid(format!("the connection cannot be made: {error}"))
}

/// The connection string that is shared by all commands, used if a command is given none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionString {
    /// `postgresql://…` or `host=… dbname=…`.
    pub text: Secret,
    /// Its source, for messages.
    pub origin: String,
}

/// One layer, with its name for messages.
struct Layer<'f> {
    fields: &'f ConnectionFields,
    source: Source<'f>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Source<'f> {
    Session,
    Flags,
    Countersign,
    /// The shared connection string, with its origin.
    Shared(&'f str),
    Libpq,
}

impl Source<'_> {
    /// The place of the value of a key in this layer, for messages.
    fn origin(self, key: &str) -> String {
        match self {
            Self::Session => format!("{key} of the session"),
            Self::Flags => format!("--{}", key.replace('_', "-")),
            Self::Countersign => format!("COUNTERSIGN_{}", key.to_ascii_uppercase()),
            Self::Shared(origin) => origin.to_owned(),
            Self::Libpq if key == "dbname" => "PGDATABASE".to_owned(),
            Self::Libpq => format!("PG{}", key.to_ascii_uppercase()),
        }
    }
}

/// The layers below a session, and libpq's further sources.
#[derive(Clone)]
pub struct ConnectionLayers {
    flags: ConnectionFields,
    countersign: ConnectionFields,
    shared: ConnectionFields,
    shared_origin: String,
    libpq: ConnectionFields,
    has_service: bool,
    environment: ConnectEnvironment,
}

impl ConnectionLayers {
    /// Creates the layers from the flags, the environment and the shared connection string. `environment` provides the
    /// settings that are not fields here: TLS, files, timeouts.
    #[must_use]
    pub fn new(
        flags: ConnectionFields,
        env: &HashMap<String, String>,
        shared: Option<ConnectionString>,
        environment: ConnectEnvironment,
    ) -> Self {
        let (text, shared_origin) = shared.map(|shared| (shared.text, shared.origin)).unzip();
        Self {
            flags,
            countersign: ConnectionFields::of_countersign(env),
            shared: ConnectionFields { conninfo_secret: text, ..ConnectionFields::default() },
            shared_origin: shared_origin.unwrap_or_default(),
            libpq: ConnectionFields::of_libpq(env),
            has_service: env.get("PGSERVICE").is_some_and(|name| !name.is_empty()),
            environment,
        }
    }

    /// The connection options of a session with these fields.
    ///
    /// # Errors
    /// [`CliError`] if the fields contradict each other; it shows no value.
    pub fn target(&self, session: &ConnectionFields) -> Result<ConnectOptions, CliError> {
        let layers = [
            Layer { fields: session, source: Source::Session },
            Layer { fields: &self.flags, source: Source::Flags },
            Layer { fields: &self.countersign, source: Source::Countersign },
            Layer { fields: &self.shared, source: Source::Shared(&self.shared_origin) },
            Layer { fields: &self.libpq, source: Source::Libpq },
        ];
        for layer in &layers {
            layer.fields.check()?;
        }
        let conninfo = self.conninfo(&layers)?;
        // The tunnel leads to the configured database, and the password is for it: neither is for another host.
        let is_other = layers.iter().take(3).any(|layer| layer.fields.names_host());
        let direct = is_other.then(|| self.environment.clone().with_ssh_tunnel(None).with_password_command(None));
        let environment = direct.as_ref().unwrap_or(&self.environment);
        ConnectOptions::from_conninfo(&conninfo, environment).map_err(|error| unusable(&error))
    }

    fn conninfo(&self, layers: &[Layer<'_>; 5]) -> Result<Conninfo, CliError> {
        let own = layers.get(..4).unwrap_or_default();
        let parsed = |text| Conninfo::parse(text).map_err(|error| unusable(&error));
        let (depth, mut conninfo) = match base(layers)? {
            Some((depth, text, origin)) => (depth, parsed(text)?.with_origin(origin)),
            None => (layers.len(), parsed("")?),
        };
        // The shared string is completed by libpq's rules, as for every other command.
        let is_shared = layers.get(depth).is_some_and(|layer| matches!(layer.source, Source::Shared(_)));
        // PGHOSTADDR applies to PGHOST, or to no host name at all.
        let is_named = conninfo.contains_key("host") || first(own, "host").is_some();
        if is_named && !conninfo.contains_key("hostaddr") && !is_shared {
            conninfo.set("hostaddr", "", "");
        }
        // A service precedes libpq's variables and the defaults, so those are left to libpq's own rules.
        let follows_libpq = is_shared || self.has_service || conninfo.contains_key("service");
        let layers = if follows_libpq { own } else { layers.as_slice() };
        let (over, below) = layers.split_at_checked(depth + 1).unwrap_or((layers, &[]));
        // A password belongs to its user and is ignored for another user. A service has no password for another user
        // either.
        let user = first(over.get(..depth).unwrap_or_default(), "user").map(|(user, _)| user);
        let is_anothers =
            conninfo.contains_key("password") && user.is_some_and(|user| conninfo.get("user") != Some(user));
        if is_anothers {
            conninfo.set("password", "", "");
        }
        for key in KEYS {
            if let Some((value, source)) = first(over, key) {
                conninfo.set(key, value, &source.origin(if key == "password" { "password_secret" } else { key }));
                continue;
            }
            let is_said = conninfo.contains_key(key) && !(key == "password" && is_anothers);
            if !(is_said || key == "host" && conninfo.contains_key("hostaddr")) {
                if let Some((value, source)) = first(below, key) {
                    conninfo.set(key, value, &source.origin(key));
                } else if let Some((_, value)) = DEFAULTS.iter().find(|(name, _)| *name == key && !follows_libpq) {
                    conninfo.set(key, value, "default");
                }
            }
        }
        Ok(conninfo)
    }
}

/// The connection string to use: the number of layers above the one that has it, its text and its origin.
fn base<'f>(layers: &[Layer<'f>; 5]) -> Result<Option<(usize, &'f str, String)>, CliError> {
    for (depth, Layer { fields, source }) in layers.iter().enumerate() {
        if let Some((key, text)) = fields.text()? {
            return Ok(Some((depth, text, source.origin(key))));
        }
        if fields.get("host").is_some() {
            break;
        }
    }
    Ok(None)
}

/// The value of a key in the first layer that has one.
fn first<'f>(layers: &[Layer<'f>], key: &str) -> Option<(&'f str, Source<'f>)> {
    layers.iter().find_map(|layer| Some((layer.fields.get(key)?, layer.source)))
}

#[cfg(test)]
mod tests;
