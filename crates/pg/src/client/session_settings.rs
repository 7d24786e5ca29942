//! The settings that a session starts with.

/// Settings of every session, so that text has one form and SQL one meaning, whatever the settings of the database and
/// the role are. `array_nulls` decides whether NULL in an array is a null or a text, `standard_conforming_strings` how
/// a backslash in a literal is read.
const BASE: [(&str, &str); 6] = [
    ("DateStyle", "ISO"),
    ("IntervalStyle", "postgres"),
    ("extra_float_digits", "1"),
    ("bytea_output", "hex"),
    ("array_nulls", "on"),
    ("standard_conforming_strings", "on"),
];

const SEARCH_PATH: &str = "search_path";

/// An SQL expression that makes the backend check every 2 s, until the end of the transaction, whether its client is
/// still connected. Servers on Windows refuse the setting, so it is set on Linux only.
macro_rules! check_client {
    () => {
        "case when pg_catalog.current_setting('client_connection_check_interval', true) is not null \
                   and pg_catalog.version() operator(pg_catalog.~~) '%linux%' \
              then pg_catalog.set_config('client_connection_check_interval', '2000', true) end"
    };
}
pub(crate) use check_client;

/// PostgreSQL's own schema, and temporary objects last: unqualified names in our SQL mean PostgreSQL's own functions,
/// operators and relations, whatever other users have created and whatever the database and the role are set to.
const SYSTEM_PATH: &str = "pg_catalog, pg_temp";

/// The settings that a session starts with. They take precedence over those of the database, of the role and of the
/// connection string's `options`, and RESET returns to them. A pooler does not forward start-up settings, so through a
/// pooler each transaction sets them (`session::pooler_transaction`).
///
/// By default the search path is PostgreSQL's own schema. Any user who may create a function in a schema of the path
/// could make the server's SQL call it (PostgreSQL manual, "Writing SECURITY DEFINER Functions Safely").
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionSettings(Vec<(&'static str, String)>);

impl Default for SessionSettings {
    fn default() -> Self {
        let settings = BASE.into_iter().chain([(SEARCH_PATH, SYSTEM_PATH)]);
        Self(settings.map(|(name, value)| (name, value.to_owned())).collect())
    }
}

impl SessionSettings {
    /// Adds this setting.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.0.retain(|(known, _)| *known != name);
        self.0.push((name, value.into()));
        self
    }

    /// Sets this search path, in SQL's own form: quoted names, separated by commas.
    #[must_use]
    pub fn with_search_path(self, path: impl Into<String>) -> Self {
        self.with(SEARCH_PATH, path)
    }

    /// Uses the search path of the database and the login, for SQL that a person writes and who expects the names of
    /// their other sessions.
    #[must_use]
    pub fn with_login_search_path(mut self) -> Self {
        self.0.retain(|(name, _)| *name != SEARCH_PATH);
        self
    }

    /// Whether unqualified names are looked up in PostgreSQL's own schema only.
    pub(crate) fn has_system_path(&self) -> bool {
        self.iter().any(|setting| setting == (SEARCH_PATH, SYSTEM_PATH))
    }

    /// Names and values, in the order in which they are sent.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (*name, value.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path_of(settings: &SessionSettings) -> Option<&str> {
        settings.iter().find(|(name, _)| *name == SEARCH_PATH).map(|(_, value)| value)
    }

    #[test]
    fn the_search_path_is_the_system_schema_unless_another_one_is_asked_for() {
        assert_eq!(path_of(&SessionSettings::default()), Some(SYSTEM_PATH));
        assert_eq!(path_of(&SessionSettings::default().with("jit", "off")), Some(SYSTEM_PATH));
        let named = SessionSettings::default().with_search_path("pg_catalog, shop");
        assert_eq!(path_of(&named), Some("pg_catalog, shop"));
        assert_eq!(path_of(&named.with_login_search_path()), None);
    }
}
