//! The operator's configuration: flags, then `COUNTERSIGN_*` variables, then the configuration file, then defaults.
//!
//! To add a key, add a field in `keys` and use it in [`Settings`]. Flag, variable, file and schema follow from the
//! field.

mod addresses;
mod bounded;
mod console;
mod console_keys;
mod execute_sql;
mod file;
mod http;
mod http_auth;
mod http_auth_keys;
mod key_group;
mod keys;
mod masks;
mod notify_keys;
mod profiles;
mod reader;
mod reads_keys;
mod schema;
mod secrets;
mod signing_keys;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::bail;
use auth::{BearerToken, Issuer};
use ledger::read::ReadLimits;
use ledger::{DEFAULT_CONNECT_TIMEOUT, Fingerprints, ModificationLimits, PasswordCommand, Pooler};
use tools::{ExecuteSqlSettings, Profile};
use types::{AccountId, ReasonRule, Secret};

use addresses::{Proxy, PublicUrl};

use crate::notify::NotifySettings;
pub(crate) use console::{ConsoleSettings, OidcSettings};
use file::ConfigFile;
pub(crate) use http::HttpSettings;
pub(crate) use keys::{
    ConsoleServerKeys, Content, Keys, LogFormat, LogKeys, ManifestKeys, ServerKeys, SignedKeys, With,
};
use keys::{LimitKeys, WriteKeys};
pub(crate) use masks::MaskConfig;
pub(crate) use profiles::{ProfileConfig, is_name as is_profile_name};
use reads_keys::ReadsKeys;
pub(crate) use secrets::{OpenSecretFile, SecretSource};
use secrets::{open_secret_files, secret};
pub(crate) use signing_keys::config_directory;

/// The sources of settings. The file can be read again; flags and variables are fixed at the start.
#[derive(Debug, Clone)]
pub(crate) struct ConfigSources {
    /// `--config` or `COUNTERSIGN_CONFIG`. The working directory is not searched, since anybody may control it.
    pub(crate) config: Option<PathBuf>,
    /// Flags and variables.
    pub(crate) given: Keys,
}

/// Everything that is configured, with defaults. `Debug` shows no secret.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Settings {
    pub(crate) log: String,
    pub(crate) log_format: LogFormat,
    /// The source of the connection string; `None` if neither flag, variable nor file has one.
    pub(crate) database: Option<SecretSource>,
    pub(crate) read: Option<SecretSource>,
    /// The pooler in front of the databases for writing and for reading.
    pub(crate) pooler: Pooler,
    /// The program that prints the password of a connection string without one.
    pub(crate) password_command: Option<PasswordCommand>,
    pub(crate) manifests: Vec<PathBuf>,
    /// The name of a built-in profile or of one in `profiles`.
    pub(crate) profile: String,
    pub(crate) profiles: Vec<ProfileConfig>,
    pub(crate) masks: MaskConfig,
    pub(crate) account: AccountId,
    pub(crate) actor: Option<String>,
    /// The bearer tokens for HTTP, from the configuration file and `tokens_file`.
    pub(crate) tokens: Vec<BearerToken>,
    /// The issuer whose JWTs are accepted over HTTP.
    pub(crate) oauth: Option<Issuer>,
    pub(crate) allow_privileged_reader: bool,
    pub(crate) execute_sql: Option<ExecuteSqlSettings>,
    /// Whether a tool that does not fit the database prevents the start.
    pub(crate) strict: bool,
    /// How often a server looks for changes of the database.
    pub(crate) drift_check: Duration,
    pub(crate) content: Content,
    pub(crate) strict_roles: bool,
    /// Whether every write of the command line must be recorded.
    pub(crate) require_audit: bool,
    pub(crate) ledger: ledger::LedgerOptions,
    pub(crate) connect_timeout: Duration,
    pub(crate) read_limits: ReadLimits,
    pub(crate) call_deadline: Duration,
    /// How long a call waits for the answer of its user.
    pub(crate) ask_timeout: Duration,
    /// `None` if no notices are sent.
    pub(crate) notify: Option<NotifySettings>,
    /// `None` if MCP is served on standard input and output.
    pub(crate) http: Option<HttpSettings>,
    pub(crate) console: ConsoleSettings,
    /// The proxies of `[http]`, as addresses and networks. They also apply to the console.
    pub(crate) trusted_proxies: Vec<String>,
    /// The files with secrets that every user of this machine may read, each with the key that names it.
    pub(crate) open_secret_files: Vec<OpenSecretFile>,
}

impl ConfigSources {
    /// Reads the file, if one is configured, and merges all sources.
    ///
    /// # Errors
    /// The errors of the file, all of them, or of the secrets.
    pub(crate) fn load(&self) -> anyhow::Result<Settings> {
        let file = self.config.as_deref().map(ConfigFile::read).transpose()?.unwrap_or_default();
        self.merge(file)
    }

    /// Adds a signing key, unless the user has configured others.
    pub(crate) fn add_signing_key(&mut self, file: &Path) {
        self.given.signing.signing_key.get_or_insert_with(|| vec![file.to_owned()]);
    }

    fn merge(&self, file: ConfigFile) -> anyhow::Result<Settings> {
        let config = self.config.as_deref();
        let layers = [&self.given, &file.keys];
        let database = layers.map(|Keys { database, .. }| (&database.database_url, &database.database_url_file));
        let database_url = secret("database-url", config, database)?;
        let read = layers.map(|Keys { serve, .. }| (&serve.read_url, &serve.read_url_file));
        let read = secret("read-url", config, read)?;
        let key = layers.map(|Keys { write, .. }| (&write.fingerprint_key, &write.fingerprint_key_file));
        let key = secret("fingerprint-key", config, key)?;
        let secrets = layers.map(|Keys { oidc_secret, .. }| oidc_secret);
        let console = layers.map(|Keys { console, .. }| console.clone());
        let console = ConsoleSettings::new(console, file.oidc, config, secrets, file.oauth.as_ref())?;
        let keys = self.given.clone().or(file.keys);
        let open_secret_files = open_secret_files([
            ("database_url_file", &keys.database.database_url_file),
            ("read_url_file", &keys.serve.read_url_file),
            ("fingerprint_key_file", &keys.write.fingerprint_key_file),
            ("secret_file of [notify]", &keys.notify.secret_file),
            ("client_secret_file of [console.oidc]", &keys.oidc_secret.client_secret_file),
        ]);
        let Keys { log, database, connect, manifests, serve, write, reads, signing, notify, http, limits, .. } = keys;
        let lifetime = database.password_lifetime_s.map_or(DEFAULT_PASSWORD_LIFETIME, |time| time.duration());
        let password_command = database.password_command.map(|arguments| PasswordCommand::new(arguments, lifetime));
        let read_limits = read_limits(&limits)?;
        let modifications = ModificationLimits {
            max_rows: serve.execute_sql_max_rows.map_or(execute_sql::DEFAULT_MAX_ROWS, |rows| rows.get().into()),
            tables: serve.execute_sql_tables.unwrap_or_default(),
        };
        let mode = serve.execute_sql.unwrap_or_default();
        let execute_sql = mode.settings(
            serve.execute_sql_tier,
            serve.execute_sql_reason.map(ReasonRule::from).unwrap_or_default(),
            modifications,
            &read_limits,
        );
        let profiles = file.profiles.iter().map(|own| own.profile.name.as_str());
        let tokens = match serve.tokens_file {
            Some(path) => http_auth::read_file(&path, file.tokens, profiles)?,
            None => file.tokens,
        };
        let public_url = http.public_url.clone().map(PublicUrl::into_text);
        if http.listen.is_some() && file.oauth.is_some() && public_url.is_none() {
            bail!(
                "[oauth] is configured and public_url is not, so clients could not learn where to get a token: set public_url in \
                 [http] (--http-public-url, COUNTERSIGN_HTTP_PUBLIC_URL) to the address that they know, such as \
                 https://mcp.example.com"
            );
        }
        let trusted_proxies = http.trusted_proxies.iter().flatten().cloned().map(Proxy::into_text).collect();
        let http = HttpSettings::new(http, &read_limits)?;
        let settings = Settings {
            log: log.log.unwrap_or_else(|| "info".to_owned()),
            log_format: log.log_format.unwrap_or_default(),
            database: database_url,
            read,
            pooler: database.pooler.unwrap_or_default().into(),
            password_command,
            manifests: manifests.manifests.unwrap_or_default(),
            profile: serve.profile.unwrap_or_else(|| Profile::DEFAULT.to_owned()),
            profiles: file.profiles,
            masks: file.masks,
            account: serve.account.unwrap_or_default(),
            actor: serve.actor,
            tokens: tokens.into_iter().map(|own| own.token).collect(),
            oauth: file.oauth.and_then(|own| own.of_server(public_url.as_deref())),
            allow_privileged_reader: serve.allow_privileged_reader.unwrap_or_default(),
            execute_sql,
            strict: serve.strict.unwrap_or_default(),
            drift_check: serve.drift_check_ms.map_or(DEFAULT_DRIFT_CHECK, |ms| Duration::from_millis(ms.get().into())),
            content: serve.content.unwrap_or_default(),
            strict_roles: write.strict_roles.unwrap_or_default(),
            require_audit: write.require_audit.unwrap_or_default(),
            ledger: ledger::LedgerOptions {
                signing: signing.signing(),
                ..ledger_settings(&write, &reads, &limits, key)?
            },
            connect_timeout: connect.connect_timeout_ms.map_or(DEFAULT_CONNECT_TIMEOUT, |time| time.duration()),
            call_deadline: call_deadline(&limits),
            ask_timeout: limits.ask_timeout_ms.map_or(DEFAULT_ASK_TIMEOUT, |time| time.duration()),
            read_limits,
            notify: notify.settings()?,
            http,
            console,
            trusted_proxies,
            open_secret_files,
        };
        if !settings.has_profile(&settings.profile) {
            let known: Vec<&str> = settings.profile_names().collect();
            bail!("there is no profile \"{}\": it is one of {}", settings.profile, known.join(", "));
        }
        Ok(settings)
    }
}

impl Settings {
    /// The key for the hashes of masked values. If none is configured, each call makes a new one.
    pub(crate) fn mask_key(&self) -> anyhow::Result<Secret> {
        match self.ledger.fingerprints.key() {
            Some(key) => Ok(key.clone()),
            None => Ok(auth::generate_token()?),
        }
    }

    /// The names of the built-in profiles and of those in the file.
    pub(crate) fn profile_names(&self) -> impl Iterator<Item = &str> {
        Profile::BUILTIN.into_iter().chain(self.profiles.iter().map(|own| own.profile.name.as_str()))
    }

    pub(crate) fn has_profile(&self, name: &str) -> bool {
        self.profile_names().any(|known| known == name)
    }

    /// Whether the settings differ from these only in what may change at a reload: manifests, profiles, tokens and
    /// issuer; and in the console, which is another process.
    pub(crate) fn same_but_for_tools(&self, from: &Self) -> bool {
        let own = self.clone();
        let (manifests, profiles, tokens, oauth) = (own.manifests, own.profiles, own.tokens, own.oauth);
        Self { manifests, profiles, tokens, oauth, console: own.console, ..from.clone() } == *self
    }

    /// The authenticator of HTTP. It reads the issuer's keys if they are in a file, so a new one is made at SIGHUP.
    pub(crate) fn authenticator(&self) -> anyhow::Result<auth::Authenticator> {
        Ok(auth::Authenticator::new(self.tokens.clone(), self.oauth.clone())?)
    }
}

/// The default time to wait for a user. Many clients give up on a call after a minute anyway.
const DEFAULT_ASK_TIMEOUT: Duration = Duration::from_secs(120);

const DEFAULT_DRIFT_CHECK: Duration = Duration::from_secs(60);

/// Tokens of clouds last from 15 minutes on.
const DEFAULT_PASSWORD_LIFETIME: Duration = Duration::from_secs(600);

/// The minimum length of the fingerprint key, in bytes. Shorter keys can be guessed.
const MIN_KEY_BYTES: usize = 16;

fn ledger_settings(
    write: &WriteKeys,
    reads: &ReadsKeys,
    limits: &LimitKeys,
    key: Option<SecretSource>,
) -> anyhow::Result<ledger::LedgerOptions> {
    if let Some(key) = key.as_ref().filter(|key| key.text.expose().len() < MIN_KEY_BYTES) {
        bail!("{} is too short: a key of fingerprints has {MIN_KEY_BYTES} bytes or more", key.origin);
    }
    let default = ledger::LedgerOptions::default();
    Ok(ledger::LedgerOptions {
        fingerprints: Fingerprints::new(key.map(|key| key.text)),
        duplicate_memory: write.duplicate_memory_s.map_or(default.duplicate_memory, |time| time.duration()),
        durable_admission: write.durable_admission.unwrap_or(default.durable_admission),
        call_deadline: call_deadline(limits),
        proposal_lifetime: write.proposal_lifetime_s.map_or(default.proposal_lifetime, |time| time.duration()),
        sessions: limits.write_sessions.map_or(default.sessions, |sessions| sessions.get() as usize),
        read_log: reads.log.unwrap_or_default().into(),
        ..default
    })
}

fn call_deadline(limits: &LimitKeys) -> Duration {
    limits.call_deadline_ms.map_or(ledger::LedgerOptions::default().call_deadline, |time| time.duration())
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

#[cfg(test)]
mod tests;
