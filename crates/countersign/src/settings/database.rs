//! The settings of one database: how to connect to it, what is served of it, and its ledger.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::bail;
use ledger::read::{ReadLimits, SearchPath};
use ledger::{
    DEFAULT_CONNECT_TIMEOUT, Fingerprints, LedgerOptions, ModificationLimits, PasswordCommand, Pooler, SshTunnel,
};
use tools::ExecuteSqlSettings;
use types::{DatabaseLabel, DatabaseName, ReasonRule, Secret};

use super::execute_sql;
use super::keys::{DatabaseGroups, LimitKeys, WriteKeys};
use super::masks::MaskConfig;
use super::reads_keys::ReadsKeys;
use super::secrets::{OpenSecretFile, SecretLayer, SecretSource, open_secret_files, secret};

/// Everything that is configured of a database, with defaults. `Debug` shows no secret.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DatabaseSettings {
    /// The name and the environment; `None` for the only database of a configuration without tables for several.
    pub(crate) label: Option<DatabaseLabel>,
    /// What the names of the tools of its manifests begin with, besides their names there.
    pub(crate) prefix: String,
    /// The source of the connection string; `None` if neither flag, variable nor file has one.
    pub(crate) url: Option<SecretSource>,
    pub(crate) read: Option<SecretSource>,
    /// The login with which the console undoes and freezes.
    pub(crate) operator: Option<SecretSource>,
    /// The pooler in front of the databases for writing and for reading.
    pub(crate) pooler: Pooler,
    /// The program that prints the password of a connection string without one.
    pub(crate) password_command: Option<PasswordCommand>,
    /// The tunnel to the databases for writing and for reading.
    pub(crate) ssh_tunnel: Option<SshTunnel>,
    pub(crate) manifests: Vec<PathBuf>,
    pub(crate) masks: MaskConfig,
    pub(crate) allow_privileged_reader: bool,
    pub(crate) execute_sql: Option<ExecuteSqlSettings>,
    /// Whether an agent may confirm a proposal where its client cannot ask the user.
    pub(crate) agent_confirms: bool,
    /// Whether a tool that does not fit the database prevents the start.
    pub(crate) strict: bool,
    /// How often a server looks for changes of the database.
    pub(crate) drift_check: Duration,
    pub(crate) strict_roles: bool,
    /// Whether every write of the command line must be recorded.
    pub(crate) require_audit: bool,
    pub(crate) ledger: LedgerOptions,
    pub(crate) connect_timeout: Duration,
    pub(crate) read_limits: ReadLimits,
    pub(crate) call_deadline: Duration,
    /// The files with secrets that every user of this machine may read, each with the key that names it.
    pub(crate) open_secret_files: Vec<OpenSecretFile>,
}

/// Keys of one source.
#[derive(Clone)]
pub(super) struct SettingsLayer<'a> {
    /// Where they stand, for messages; `None` for flags and variables.
    place: Option<String>,
    keys: &'a DatabaseGroups,
}

impl<'a> SettingsLayer<'a> {
    /// Flags and variables.
    pub(super) const fn given(keys: &'a DatabaseGroups) -> Self {
        Self { place: None, keys }
    }

    /// The general part of the configuration file.
    pub(super) fn file(config: Option<&Path>, keys: &'a DatabaseGroups) -> Self {
        Self { place: Some(config.map(|path| path.display().to_string()).unwrap_or_default()), keys }
    }

    /// The table of a database.
    pub(super) fn table(config: Option<&Path>, name: &DatabaseName, keys: &'a DatabaseGroups) -> Self {
        let path = config.map(|path| path.display().to_string()).unwrap_or_default();
        Self { place: Some(format!("[database.{name}] of {path}")), keys }
    }
}

impl DatabaseSettings {
    /// The settings from these layers. A layer goes before those that follow.
    pub(super) fn new(layers: &[SettingsLayer<'_>], masks: MaskConfig) -> anyhow::Result<Self> {
        let found = |name: &str, of: fn(&DatabaseGroups) -> (&Option<Secret>, &Option<PathBuf>)| {
            secret(name, layers.iter().map(|layer| SecretLayer::new(layer.place.clone(), of(layer.keys))))
        };
        let url = found("database-url", |keys| (&keys.connection.database_url, &keys.connection.database_url_file))?;
        let read = found("read-url", |keys| (&keys.served.read_url, &keys.served.read_url_file))?;
        let operator = found("operator-url", |keys| (&keys.operator.operator_url, &keys.operator.operator_url_file))?;
        let key = found("fingerprint-key", |keys| (&keys.write.fingerprint_key, &keys.write.fingerprint_key_file))?;
        let keys = layers.iter().map(|layer| layer.keys.clone()).reduce(DatabaseGroups::or).unwrap_or_default();
        let open_secret_files = open_secret_files([
            ("database_url_file", &keys.connection.database_url_file),
            ("read_url_file", &keys.served.read_url_file),
            ("operator_url_file", &keys.operator.operator_url_file),
            ("fingerprint_key_file", &keys.write.fingerprint_key_file),
        ]);
        let DatabaseGroups { connection, connect, manifests, served, write, reads, signing, limits, operator: _ } =
            keys;
        let lifetime = connection.password_lifetime_s.map_or(DEFAULT_PASSWORD_LIFETIME, |time| time.duration());
        let read_limits = read_limits(&limits)?;
        let modifications = ModificationLimits {
            max_rows: served.execute_sql_max_rows.map_or(execute_sql::DEFAULT_MAX_ROWS, |rows| rows.get().into()),
            tables: served.execute_sql_tables.unwrap_or_default(),
        };
        let execute_sql = served.execute_sql.unwrap_or_default().settings(
            served.execute_sql_tier,
            served.execute_sql_reason.map(ReasonRule::from).unwrap_or_default(),
            modifications,
            &read_limits,
        );
        Ok(Self {
            label: None,
            prefix: String::new(),
            url,
            read,
            operator,
            pooler: connection.pooler.unwrap_or_default().into(),
            password_command: connection.password_command.map(|arguments| PasswordCommand::new(arguments, lifetime)),
            ssh_tunnel: connection.ssh_tunnel.map(SshTunnel::new).transpose()?,
            manifests: manifests.manifests.unwrap_or_default(),
            masks,
            allow_privileged_reader: served.allow_privileged_reader.unwrap_or_default(),
            execute_sql,
            agent_confirms: served.agent_confirms.unwrap_or_default(),
            strict: served.strict.unwrap_or_default(),
            drift_check: served.drift_check_ms.map_or(DEFAULT_DRIFT_CHECK, |ms| Duration::from_millis(ms.get().into())),
            strict_roles: write.strict_roles.unwrap_or_default(),
            require_audit: write.require_audit.unwrap_or_default(),
            ledger: LedgerOptions { signing: signing.signing(), ..ledger_options(&write, &reads, &limits, key)? },
            connect_timeout: connect.connect_timeout_ms.map_or(DEFAULT_CONNECT_TIMEOUT, |time| time.duration()),
            call_deadline: call_deadline(&limits),
            read_limits,
            open_secret_files,
        })
    }

    pub(crate) fn name(&self) -> Option<&DatabaseName> {
        self.label.as_ref().map(|label| &label.name)
    }

    /// The key for the hashes of masked values. If none is configured, each call makes a new one.
    pub(crate) fn mask_key(&self) -> anyhow::Result<Secret> {
        match self.ledger.fingerprints.key() {
            Some(key) => Ok(key.clone()),
            None => Ok(auth::generate_token()?),
        }
    }

    /// Whether the settings differ from these only in what may change at a reload.
    pub(super) fn same_but_for_tools(&self, from: &Self) -> bool {
        Self { manifests: self.manifests.clone(), ..from.clone() } == *self
    }
}

const DEFAULT_DRIFT_CHECK: Duration = Duration::from_secs(60);

/// Tokens of clouds last from 15 minutes on.
const DEFAULT_PASSWORD_LIFETIME: Duration = Duration::from_secs(600);

/// The minimum length of the fingerprint key, in bytes. Shorter keys can be guessed.
const MIN_KEY_BYTES: usize = 16;

fn ledger_options(
    write: &WriteKeys,
    reads: &ReadsKeys,
    limits: &LimitKeys,
    key: Option<SecretSource>,
) -> anyhow::Result<LedgerOptions> {
    if let Some(key) = key.as_ref().filter(|key| key.text.expose().len() < MIN_KEY_BYTES) {
        bail!("{} is too short: a key of fingerprints has {MIN_KEY_BYTES} bytes or more", key.origin);
    }
    let default = LedgerOptions::default();
    Ok(LedgerOptions {
        fingerprints: Fingerprints::new(key.map(|key| key.text)),
        duplicate_memory: write.duplicate_memory_s.map_or(default.duplicate_memory, |time| time.duration()),
        durable_admission: write.durable_admission.unwrap_or(default.durable_admission),
        call_deadline: call_deadline(limits),
        proposal_lifetime: write.proposal_lifetime_s.map_or(default.proposal_lifetime, |time| time.duration()),
        sessions: limits.write_sessions.map_or(default.sessions, |sessions| sessions.get() as usize),
        search_path: SearchPath {
            schemas: write.write_search_path.clone().unwrap_or_default(),
            ..SearchPath::default()
        },
        read_log: reads.log.unwrap_or_default().into(),
        ..default
    })
}

fn call_deadline(limits: &LimitKeys) -> Duration {
    limits.call_deadline_ms.map_or(LedgerOptions::default().call_deadline, |time| time.duration())
}

fn read_limits(limits: &LimitKeys) -> anyhow::Result<ReadLimits> {
    let default = ReadLimits::default();
    let default_rows = limits.row_limit.map_or(default.default_rows, |rows| rows.get());
    let max_rows = limits.max_row_limit.map_or(default.max_rows, |rows| rows.get());
    if default_rows > max_rows {
        bail!("row_limit is {default_rows} and max_row_limit {max_rows}: what is returned by default must be allowed");
    }
    Ok(ReadLimits {
        default_rows,
        max_rows,
        max_bytes: limits.max_result_bytes.map_or(default.max_bytes, |bytes| bytes.get() as usize),
        sessions: limits.read_sessions.map_or(default.sessions, |sessions| sessions.get() as usize),
        deadline: limits.query_timeout_ms.map_or(default.deadline, |time| time.duration()),
    })
}
