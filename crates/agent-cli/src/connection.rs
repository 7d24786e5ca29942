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

use pg::{ConnectEnvironment, ConnectOptions, ConnectOptionsError, Conninfo};
use types::Secret;

use crate::error::CliError;
use crate::redaction;

/// The fields of one layer. An empty text counts as absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConnectionFields {
    /// `postgresql://user:password@host:port/dbname`.
    pub dsn_secret: Option<Secret>,
    /// `host=.. dbname=..`.
    pub conninfo_secret: Option<Secret>,
    /// A name, an address, or the folder of a unix socket (with a leading `/`).
    pub host: Option<String>,
    /// The port, as text.
    pub port: Option<String>,
    /// The login role.
    pub user: Option<String>,
    /// The database.
    pub dbname: Option<String>,
    /// The password, unencoded.
    pub password_secret: Option<Secret>,
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
        let text = |name: &str| env.get(&format!("COUNTERSIGN_{name}")).cloned();
        Self {
            dsn_secret: text("DSN_SECRET").map(Secret::new),
            conninfo_secret: text("CONNINFO_SECRET").map(Secret::new),
            host: text("HOST"),
            port: text("PORT"),
            user: text("USER"),
            dbname: text("DBNAME"),
            password_secret: text("PASSWORD_SECRET").map(Secret::new),
        }
    }

    /// Reads libpq's variables.
    #[must_use]
    pub fn of_libpq(env: &HashMap<String, String>) -> Self {
        let text = |name: &str| env.get(name).cloned();
        Self {
            host: text("PGHOST"),
            port: text("PGPORT"),
            user: text("PGUSER"),
            dbname: text("PGDATABASE"),
            password_secret: text("PGPASSWORD").map(Secret::new),
            ..Self::default()
        }
    }

    fn get(&self, key: &str) -> Option<&str> {
        let value = match key {
            "host" => self.host.as_deref(),
            "port" => self.port.as_deref(),
            "user" => self.user.as_deref(),
            "dbname" => self.dbname.as_deref(),
            _ => self.password_secret.as_ref().map(Secret::expose),
        };
        value.filter(|value| !value.is_empty())
    }

    /// Returns the connection string and the name of its field, if there is one.
    fn text(&self) -> Result<Option<(&'static str, &str)>, CliError> {
        let [dsn, conninfo] = [("dsn_secret", &self.dsn_secret), ("conninfo_secret", &self.conninfo_secret)]
            .map(|(key, secret)| Some((key, secret.as_ref().map(Secret::expose).filter(|text| !text.is_empty())?)));
        if dsn.is_some() && conninfo.is_some() {
            return Err(CliError::invalid(
                "both dsn_secret and conninfo_secret are given: each is a whole connection string; give one of them",
            ));
        }
        Ok(dsn.or(conninfo))
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
        let dsn = self.dsn_secret.as_ref().map(Secret::expose).filter(|dsn| !dsn.is_empty());
        if dsn.is_some_and(|dsn| !Conninfo::is_uri(dsn)) {
            return Err(CliError::invalid("dsn_secret is no URL: one begins with postgresql:// or postgres://")
                .hint("host=.. dbname=.. is a conninfo: give it as conninfo_secret"));
        }
        Ok(())
    }
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
        ConnectOptions::from_conninfo(&conninfo, &self.environment).map_err(|error| unusable(&error))
    }

    fn conninfo(&self, layers: &[Layer<'_>; 5]) -> Result<Conninfo, CliError> {
        let own = layers.get(..4).unwrap_or_default();
        let base = base(layers)?;
        let (depth, mut conninfo) = match &base {
            Some(base) => {
                let conninfo = Conninfo::parse(base.text).map_err(|error| unusable(&error))?;
                (base.depth, conninfo.with_origin(&base.origin))
            }
            None => (layers.len(), Conninfo::parse("").map_err(|error| unusable(&error))?),
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

/// The connection string to use.
struct Base<'f> {
    /// The number of layers above the one with this string.
    depth: usize,
    text: &'f str,
    origin: String,
}

fn base<'f>(layers: &[Layer<'f>; 5]) -> Result<Option<Base<'f>>, CliError> {
    for (depth, Layer { fields, source }) in layers.iter().enumerate() {
        if let Some((key, text)) = fields.text()? {
            return Ok(Some(Base { depth, text, origin: source.origin(key) }));
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
