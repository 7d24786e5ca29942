//! The known keys, and the sources of their values: the connection string, then the service that it names, then
//! the `PG*` variables (PostgreSQL manual, "Parameter Key Words" and "Environment Variables").
//!
//! To add a key, add a line to [`KEYS`] and read its value where it is needed. A key for a feature that is not
//! supported has a line in [`REFUSED`]. No key is ignored.

use std::collections::HashMap;

use super::environment::ConnectEnvironment;
use super::{ConnectOptionsError, Conninfo};

/// All keys of libpq, each with the environment variable that supplies its value if nothing else does.
const KEYS: [(&str, Option<&str>); 51] = [
    ("application_name", Some("PGAPPNAME")),
    ("channel_binding", Some("PGCHANNELBINDING")),
    // PGCLIENTENCODING is left out because it concerns what a terminal displays, and three variables of GSSAPI because
    // GSSAPI is not supported.
    ("client_encoding", None),
    ("connect_timeout", Some("PGCONNECT_TIMEOUT")),
    ("dbname", Some("PGDATABASE")),
    ("fallback_application_name", None),
    ("gssdelegation", None),
    ("gssencmode", Some("PGGSSENCMODE")),
    ("gsslib", None),
    ("host", Some("PGHOST")),
    ("hostaddr", Some("PGHOSTADDR")),
    ("keepalives", None),
    ("keepalives_count", None),
    ("keepalives_idle", None),
    ("keepalives_interval", None),
    ("krbsrvname", None),
    ("load_balance_hosts", Some("PGLOADBALANCEHOSTS")),
    ("max_protocol_version", Some("PGMAXPROTOCOLVERSION")),
    ("min_protocol_version", Some("PGMINPROTOCOLVERSION")),
    ("oauth_client_id", None),
    ("oauth_client_secret", None),
    ("oauth_issuer", None),
    ("oauth_scope", None),
    ("options", Some("PGOPTIONS")),
    ("passfile", Some("PGPASSFILE")),
    ("password", Some("PGPASSWORD")),
    ("port", Some("PGPORT")),
    ("replication", None),
    ("require_auth", Some("PGREQUIREAUTH")),
    ("requirepeer", Some("PGREQUIREPEER")),
    ("scram_client_key", None),
    ("scram_server_key", None),
    ("service", Some("PGSERVICE")),
    ("servicefile", Some("PGSERVICEFILE")),
    ("ssl_max_protocol_version", Some("PGSSLMAXPROTOCOLVERSION")),
    ("ssl_min_protocol_version", Some("PGSSLMINPROTOCOLVERSION")),
    ("sslcert", Some("PGSSLCERT")),
    ("sslcertmode", Some("PGSSLCERTMODE")),
    ("sslcompression", Some("PGSSLCOMPRESSION")),
    ("sslcrl", Some("PGSSLCRL")),
    ("sslcrldir", Some("PGSSLCRLDIR")),
    ("sslkey", Some("PGSSLKEY")),
    ("sslkeylogfile", None),
    ("sslmode", Some("PGSSLMODE")),
    ("sslnegotiation", Some("PGSSLNEGOTIATION")),
    ("sslpassword", None),
    ("sslrootcert", Some("PGSSLROOTCERT")),
    ("sslsni", Some("PGSSLSNI")),
    ("target_session_attrs", Some("PGTARGETSESSIONATTRS")),
    ("tcp_user_timeout", None),
    ("user", Some("PGUSER")),
];

/// Keys of unsupported features: the values that do not request the feature, and the reason why all other values are
/// refused.
const REFUSED: [(&str, &[&str], &str); 17] = [
    ("client_encoding", &["auto", "utf8", "utf-8", "unicode"], "text is always UTF8 here"),
    ("gssdelegation", &["0"], GSS),
    ("gssencmode", &["disable", "prefer"], "encryption by GSSAPI is not supported; use TLS (sslmode)"),
    ("gsslib", &[], GSS),
    ("krbsrvname", &[], GSS),
    ("max_protocol_version", &["3.0", "3.2", "latest"], "it is one of 3.0, 3.2, latest"),
    ("min_protocol_version", &["3.0"], "the protocol is spoken in version 3.0"),
    ("oauth_client_id", &[], OAUTH),
    ("oauth_client_secret", &[], OAUTH),
    ("oauth_issuer", &[], OAUTH),
    ("oauth_scope", &[], OAUTH),
    ("replication", &["false", "off", "no", "0"], "replication connections are not what this is for"),
    ("scram_client_key", &[], "keys of SCRAM are not supported; give the password"),
    ("scram_server_key", &[], "keys of SCRAM are not supported; give the password"),
    ("sslcompression", &["0"], "PostgreSQL 14 and later have no compression"),
    ("sslcrldir", &[], "folders of revocation lists are not supported; name a file with sslcrl"),
    ("sslkeylogfile", &[], "keys of connections are not written to files"),
];

const GSS: &str = "GSSAPI is not supported";
const OAUTH: &str = "OAuth is not supported";

/// The given values, by key. Not `Debug`: they may include a password.
#[derive(Default)]
pub(super) struct KeywordValues {
    values: HashMap<&'static str, Value>,
}

struct Value {
    text: String,
    /// The source, for messages.
    origin: String,
    /// The source of the connection string that contains it.
    source: Option<String>,
}

impl KeywordValues {
    pub(super) fn from_conninfo(conninfo: &Conninfo) -> Result<Self, ConnectOptionsError> {
        let mut given = Self::default();
        let mut before = "";
        for (key, value) in conninfo.pairs() {
            let Some(known) = known(key) else {
                // An unquoted password with a space: the text after the space looks like the next key.
                return Err(if before == "password" {
                    ConnectOptionsError::Malformed(
                        "what follows the password is no key; is it a part of it?".to_owned(),
                    )
                } else {
                    ConnectOptionsError::UnknownKey { key: key.to_owned(), place: "the connection string".to_owned() }
                });
            };
            before = key;
            // The last one of a repeated key is used.
            let source = conninfo.origin(known).map(str::to_owned);
            given.values.insert(known, Value { text: value.to_owned(), origin: known.to_owned(), source });
        }
        Ok(given)
    }

    /// Adds the values of environment variables for keys that have no value yet.
    pub(super) fn add_environment(&mut self, environment: &ConnectEnvironment) -> Result<(), ConnectOptionsError> {
        for (key, variable) in KEYS {
            if let Some((variable, value)) = variable.and_then(|name| Some((name, environment.variable(name)?))) {
                self.add(key, value.to_owned(), || variable.to_owned());
            }
        }
        self.refuse_what_is_not_supported()
    }

    /// Adds a value, unless there is one already, even an empty one.
    pub(super) fn add(&mut self, key: &'static str, text: String, origin: impl FnOnce() -> String) {
        self.values.entry(key).or_insert_with(|| Value { text, origin: origin(), source: None });
    }

    /// The value of a key. As in libpq, an empty value counts as none.
    pub(super) fn get(&self, key: &str) -> Option<&str> {
        self.values.get(key).map(|value| value.text.as_str()).filter(|text| !text.is_empty())
    }

    /// The keys that have a value, except these, with the values, in the order of [`KEYS`].
    pub(super) fn pairs_without(&self, keys: &[&str]) -> impl Iterator<Item = (&'static str, &str)> {
        let known = KEYS.iter().map(|(key, _)| *key).filter(|key| !keys.contains(key));
        known.filter_map(|key| Some((key, self.get(key)?)))
    }

    /// The source of the value of a key; `default` if it was not given.
    pub(super) fn origin(&self, key: &str) -> String {
        let value = self.values.get(key).filter(|value| !value.text.is_empty());
        value.map_or("default", |value| value.source.as_ref().unwrap_or(&value.origin)).to_owned()
    }

    /// The error for the value of this key.
    pub(super) fn wrong(&self, key: &str, problem: impl Into<String>) -> ConnectOptionsError {
        let origin = self.values.get(key).map_or(key, |value| value.origin.as_str());
        ConnectOptionsError::Setting { origin: origin.to_owned(), problem: problem.into() }
    }

    /// The choice that the value names, or the default.
    pub(super) fn choice<T: Copy>(
        &self,
        key: &str,
        choices: &[(&str, T)],
        default: T,
    ) -> Result<T, ConnectOptionsError> {
        let Some(text) = self.get(key) else { return Ok(default) };
        let chosen = choices.iter().find(|(word, _)| *word == text).map(|(_, choice)| *choice);
        chosen.ok_or_else(|| {
            let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
            self.wrong(key, format!("it is one of {}", words.join(", ")))
        })
    }

    /// The value as a whole number; `None` if it was not given.
    pub(super) fn number(&self, key: &str) -> Result<Option<i32>, ConnectOptionsError> {
        let number = |text: &str| text.trim().parse().map_err(|_| self.wrong(key, "it is a whole number"));
        self.get(key).map(number).transpose()
    }

    fn refuse_what_is_not_supported(&self) -> Result<(), ConnectOptionsError> {
        for (key, harmless, why) in REFUSED {
            let value = self.get(key).map(str::to_ascii_lowercase);
            if value.is_some_and(|value| !harmless.contains(&value.as_str())) {
                return Err(self.wrong(key, why));
            }
        }
        Ok(())
    }
}

pub(super) fn known(key: &str) -> Option<&'static str> {
    KEYS.iter().map(|(name, _)| *name).find(|name| *name == key)
}
