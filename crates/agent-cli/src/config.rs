//! The configuration of a pipe: sessions by name, and defaults for the options of queries. A [`Patch`] is applied
//! completely or, if any part of it is invalid, not at all.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};
use types::{Secret, quoted};

use crate::connection::ConnectionFields;
use crate::error::CliError;
use crate::log::LogFilters;
use crate::options::Defaults;

/// Name of the session that always exists.
pub const DEFAULT_SESSION: &str = "default";

/// Maximum number of sessions: each has its own pool.
pub const MAX_SESSIONS: usize = 64;

/// The configuration. Its JSON is the `config` event, with secrets as `***`. `sessions` has the fields that commands
/// have set; `connections` also has those from flags and variables.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Config {
    /// Session of a query that does not name one.
    pub default_session: String,
    /// Sessions by name.
    pub sessions: BTreeMap<String, Session>,
    /// Maximum number of rows of an inline result.
    pub inline_max_rows: u64,
    /// Maximum size of an inline result, in bytes.
    pub inline_max_bytes: u64,
    /// `statement_timeout`, in milliseconds; 0 disables it.
    pub statement_timeout_ms: u64,
    /// `lock_timeout`, in milliseconds; 0 disables it.
    pub lock_timeout_ms: u64,
    /// Filters of `log` events.
    pub log: LogFilters,
    /// Address of each session, resolved from flags, variables and files; only in the event.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub connections: BTreeMap<String, String>,
}

/// Fields of a session's connection that commands have set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Session {
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "starred")]
    dsn_secret: Option<Secret>,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "starred")]
    conninfo_secret: Option<Secret>,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dbname: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "starred")]
    password_secret: Option<Secret>,
}

fn starred<S: Serializer>(_: &Option<Secret>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str("***")
}

impl Session {
    /// Returns these fields as a layer of the connection.
    #[must_use]
    pub fn fields(&self) -> ConnectionFields {
        ConnectionFields {
            dsn_secret: self.dsn_secret.clone(),
            conninfo_secret: self.conninfo_secret.clone(),
            host: self.host.clone(),
            port: self.port.map(|port| port.to_string()),
            user: self.user.clone(),
            dbname: self.dbname.clone(),
            password_secret: self.password_secret.clone(),
        }
    }

    fn set(&mut self, field: FieldPatch) {
        match field {
            FieldPatch::DsnSecret(secret) => self.dsn_secret = secret,
            FieldPatch::ConninfoSecret(secret) => self.conninfo_secret = secret,
            FieldPatch::Host(text) => self.host = text,
            FieldPatch::Port(port) => self.port = port,
            FieldPatch::User(text) => self.user = text,
            FieldPatch::Dbname(text) => self.dbname = text,
            FieldPatch::PasswordSecret(secret) => self.password_secret = secret,
        }
    }
}

/// New value of one field of a session; `None` clears it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "they are the fields of a session")]
pub enum FieldPatch {
    DsnSecret(Option<Secret>),
    ConninfoSecret(Option<Secret>),
    Host(Option<String>),
    Port(Option<u16>),
    User(Option<String>),
    Dbname(Option<String>),
    PasswordSecret(Option<Secret>),
}

/// Changes of a `config` command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Patch {
    /// Session of a query that does not name one.
    pub default_session: Option<String>,
    /// Changed fields of existing and new sessions.
    pub sessions: Vec<(String, Vec<FieldPatch>)>,
    /// Maximum number of rows of an inline result.
    pub inline_max_rows: Option<u64>,
    /// Maximum size of an inline result, in bytes.
    pub inline_max_bytes: Option<u64>,
    /// `statement_timeout`, in milliseconds; 0 disables it.
    pub statement_timeout_ms: Option<u64>,
    /// `lock_timeout`, in milliseconds; 0 disables it.
    pub lock_timeout_ms: Option<u64>,
    /// Filters of `log` events.
    pub log: Option<LogFilters>,
}

impl Config {
    /// Creates a configuration with the default session only.
    #[must_use]
    pub fn new(defaults: Defaults, log: LogFilters) -> Self {
        Self {
            default_session: DEFAULT_SESSION.to_owned(),
            sessions: BTreeMap::from([(DEFAULT_SESSION.to_owned(), Session::default())]),
            inline_max_rows: defaults.inline_max_rows,
            inline_max_bytes: defaults.inline_max_bytes,
            statement_timeout_ms: defaults.statement_timeout_ms,
            lock_timeout_ms: defaults.lock_timeout_ms,
            log,
            connections: BTreeMap::new(),
        }
    }

    /// Defaults for the options of queries.
    #[must_use]
    pub fn defaults(&self) -> Defaults {
        Defaults {
            inline_max_rows: self.inline_max_rows,
            inline_max_bytes: self.inline_max_bytes,
            statement_timeout_ms: self.statement_timeout_ms,
            lock_timeout_ms: self.lock_timeout_ms,
        }
    }

    /// Returns the session of a request that names this one, or the default session.
    ///
    /// A name that is not configured is an error, so that a typing mistake does not reach the default database. A
    /// session that connects like the default one is created by `{"code":"config","sessions":{"name":{}}}`.
    ///
    /// # Errors
    /// [`CliError`] that names the configured sessions.
    pub fn session(&self, name: Option<&str>) -> Result<(&str, &Session), CliError> {
        let name = name.unwrap_or(&self.default_session);
        let found = self.sessions.get_key_value(name).map(|(name, session)| (name.as_str(), session));
        found.ok_or_else(|| self.unknown(name))
    }

    fn unknown(&self, name: &str) -> CliError {
        let known: Vec<String> = self.sessions.keys().map(|name| quoted(name)).collect();
        CliError::invalid(format!("there is no session {}; there is {}", quoted(name), known.join(", ")))
            .hint("a config command with the session under \"sessions\" makes it, also with no field: {}")
    }

    /// Returns the configuration with the patch applied.
    pub fn patched(&self, patch: Patch) -> Result<Self, CliError> {
        let mut config = self.clone();
        for (name, fields) in patch.sessions {
            let session = config.sessions.entry(name.clone()).or_default();
            fields.into_iter().for_each(|field| session.set(field));
            let check = session.fields().check();
            check
                .map_err(|problem| CliError { message: format!("session {}: {problem}", quoted(&name)), ..problem })?;
        }
        if config.sessions.len() > MAX_SESSIONS {
            return Err(CliError::invalid(format!("there may be {MAX_SESSIONS} sessions, each has a pool of its own")));
        }
        if let Some(name) = patch.default_session {
            config.session(Some(&name))?;
            config.default_session = name;
        }
        config.inline_max_rows = patch.inline_max_rows.unwrap_or(config.inline_max_rows);
        config.inline_max_bytes = patch.inline_max_bytes.unwrap_or(config.inline_max_bytes);
        config.statement_timeout_ms = patch.statement_timeout_ms.unwrap_or(config.statement_timeout_ms);
        config.lock_timeout_ms = patch.lock_timeout_ms.unwrap_or(config.lock_timeout_ms);
        config.log = patch.log.unwrap_or(config.log);
        Ok(config)
    }
}
