//! The configuration of a pipe: sessions by name, and defaults for the options of queries. A [`Patch`] is applied
//! completely or, if any part of it is invalid, not at all.

use std::collections::BTreeMap;

use serde::Serialize;
use types::quoted;

use crate::connection::{ConnectionFields, ConnectionPatch};
use crate::error::CliError;
use crate::log::LogFilters;
use crate::options::{Defaults, Options};

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
    /// Sessions by name, each with the fields of its connection that commands have set.
    pub sessions: BTreeMap<String, ConnectionFields>,
    /// Defaults for the options of queries.
    #[serde(flatten)]
    pub defaults: Defaults,
    pub log: LogFilters,
    /// Address of each session, resolved from flags, variables and files; only in the event.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub connections: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Patch {
    /// Session of a query that does not name one.
    pub default_session: Option<String>,
    /// Changed fields of existing and new sessions.
    pub sessions: Vec<(String, ConnectionPatch)>,
    /// Changed defaults; the other options are `None`.
    pub defaults: Options,
    pub log: Option<LogFilters>,
}

impl Config {
    /// Creates a configuration with the default session only.
    #[must_use]
    pub fn new(defaults: Defaults, log: LogFilters) -> Self {
        Self {
            default_session: DEFAULT_SESSION.to_owned(),
            sessions: BTreeMap::from([(DEFAULT_SESSION.to_owned(), ConnectionFields::default())]),
            defaults,
            log,
            connections: BTreeMap::new(),
        }
    }

    /// Returns the session of a request that names this one, or the default session.
    ///
    /// A name that is not configured is an error, so that a typing mistake does not reach the default database. A
    /// session that connects like the default one is created by `{"code":"config","sessions":{"name":{}}}`.
    ///
    /// # Errors
    /// [`CliError`] that names the configured sessions.
    pub fn session(&self, name: Option<&str>) -> Result<(&str, &ConnectionFields), CliError> {
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
            session.patch(fields);
            session
                .check()
                .map_err(|problem| CliError { message: format!("session {}: {problem}", quoted(&name)), ..problem })?;
        }
        if config.sessions.len() > MAX_SESSIONS {
            return Err(CliError::invalid(format!("there may be {MAX_SESSIONS} sessions, each has a pool of its own")));
        }
        if let Some(name) = patch.default_session {
            config.session(Some(&name))?;
            config.default_session = name;
        }
        config.defaults = config.defaults.with(&patch.defaults);
        config.log = patch.log.unwrap_or(config.log);
        Ok(config)
    }
}
