//! The operator's configuration: flags, then `COUNTERSIGN_*` variables, then the configuration file, then defaults.
//!
//! To add a key, add a field in `keys` and use it in [`Settings`]. Flag, variable, file and schema follow from the
//! field.

mod addresses;
mod bounded;
mod console;
mod console_keys;
mod database;
mod database_keys;
mod database_tables;
mod execute_sql;
mod file;
mod http;
mod http_auth;
mod http_auth_keys;
mod key_group;
mod keys;
mod masks;
mod notify_keys;
mod otel_keys;
mod profiles;
mod reader;
mod reads_keys;
mod schema;
mod secrets;
mod signing_keys;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use auth::{BearerToken, Issuer};
use telemetry::TelemetrySettings;
use tools::Profile;
use types::AccountId;

use addresses::{Proxy, PublicUrl};

use crate::notify::NotifySettings;
pub(crate) use console::{ConsoleSettings, OidcSettings};
pub(crate) use database::DatabaseSettings;
use database::SettingsLayer;
use database_tables::DatabaseTable;
use file::ConfigFile;
pub(crate) use http::HttpSettings;
pub(crate) use keys::{
    ChosenKeys, ConsoleServerKeys, Content, DatabaseGroups, Keys, LogFormat, LogKeys, ManifestKeys, ServerGroups,
    ServerKeys, SignedKeys, With,
};
pub(crate) use masks::MaskConfig;
pub(crate) use profiles::{ProfileConfig, is_name as is_profile_name};
use secrets::open_secret_files;
pub(crate) use secrets::{OpenSecretFile, SecretSource};
pub(crate) use signing_keys::config_directory;

/// The sources of settings. The file can be read again; flags and variables are fixed at the start.
#[derive(Debug, Clone)]
pub(crate) struct ConfigSources {
    /// `--config` or `COUNTERSIGN_CONFIG`. The working directory is not searched, since anybody may control it.
    pub(crate) config: Option<PathBuf>,
    /// Flags and variables.
    pub(crate) given: Keys,
}

/// Everything that is configured of a server or a command, with defaults. `Debug` shows no secret.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Settings {
    pub(crate) log: String,
    pub(crate) log_format: LogFormat,
    /// The name of a built-in profile or of one in `profiles`.
    pub(crate) profile: String,
    pub(crate) profiles: Vec<ProfileConfig>,
    pub(crate) account: AccountId,
    pub(crate) actor: Option<String>,
    /// The bearer tokens for HTTP, from the configuration file and `tokens_file`.
    pub(crate) tokens: Vec<BearerToken>,
    /// The issuers whose JWTs are accepted over HTTP.
    pub(crate) oauth: Vec<Issuer>,
    pub(crate) content: Content,
    /// How long a call waits for the answer of its user.
    pub(crate) ask_timeout: Duration,
    /// `None` if no notices are sent.
    pub(crate) notify: Option<NotifySettings>,
    pub(crate) telemetry: TelemetrySettings,
    /// `None` if MCP is served on standard input and output.
    pub(crate) http: Option<HttpSettings>,
    pub(crate) console: ConsoleSettings,
    /// The proxies of `[http]`, as addresses and networks. They also apply to the console.
    pub(crate) trusted_proxies: Vec<String>,
    /// The files with secrets that every user of this machine may read, each with the key that names it.
    open_secret_files: Vec<OpenSecretFile>,
    /// Never empty.
    pub(crate) databases: Vec<DatabaseSettings>,
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
        self.given.database.signing.signing_key.get_or_insert_with(|| vec![file.to_owned()]);
    }

    /// The databases of the file, or the one without a name; or the chosen one.
    fn databases(
        &self,
        tables: &[DatabaseTable],
        general: &DatabaseGroups,
        masks: &MaskConfig,
    ) -> anyhow::Result<Vec<DatabaseSettings>> {
        let (config, given) = (self.config.as_deref(), &self.given.database);
        let chosen = self.given.chosen.database.as_ref();
        if tables.is_empty() {
            if let Some(name) = chosen {
                bail!("--database {name}: the configuration has no table [database.{name}]");
            }
            let layers = [SettingsLayer::given(given), SettingsLayer::file(config, general)];
            return Ok(vec![DatabaseSettings::new(&layers, masks.clone())?]);
        }
        let DatabaseGroups { connection, served, operator, .. } = given;
        let urls = [&connection.database_url, &served.read_url, &operator.operator_url];
        let files = [&connection.database_url_file, &served.read_url_file, &operator.operator_url_file];
        if urls.into_iter().any(Option::is_some) || files.into_iter().any(Option::is_some) {
            bail!(
                "the configuration file has several databases, and a flag or variable names another one \
                 (database-url, read-url, operator-url, or a file with one): leave it out, and choose one with --database"
            );
        }
        let chosen_ones = tables.iter().filter(|own| chosen.is_none_or(|name| own.label.name == *name));
        let of_table = |own: &DatabaseTable| {
            let layers = [
                SettingsLayer::given(given),
                SettingsLayer::table(config, &own.label.name, &own.keys),
                SettingsLayer::file(config, general),
            ];
            let masks = own.masks.as_ref().map_or_else(|| masks.clone(), |own| own.over(masks));
            let settings = DatabaseSettings::new(&layers, masks);
            let settings = settings.with_context(|| format!("the database {}", own.label.name))?;
            Ok(DatabaseSettings { label: Some(own.label.clone()), prefix: own.prefix.clone(), ..settings })
        };
        let databases = chosen_ones.map(of_table).collect::<anyhow::Result<Vec<_>>>()?;
        if let (true, Some(name)) = (databases.is_empty(), chosen) {
            let known: Vec<&str> = tables.iter().map(|own| own.label.name.as_str()).collect();
            bail!("--database {name}: there is no such database; it is one of {}", known.join(", "));
        }
        Ok(databases)
    }

    fn merge(&self, file: ConfigFile) -> anyhow::Result<Settings> {
        let config = self.config.as_deref();
        let layers = [&self.given.server, &file.keys.server];
        let secrets = layers.map(|keys| &keys.oidc_secret);
        let console = layers.map(|keys| keys.console.clone());
        let console = ConsoleSettings::new(console, file.oidc, config, secrets, &file.oauth)?;
        let keys = self.given.server.clone().or(file.keys.server);
        let open_secret_files = open_secret_files([
            ("secret_file of [notify]", &keys.notify.secret_file),
            ("client_secret_file of [console.oidc]", &keys.oidc_secret.client_secret_file),
            ("tls_key of [http]", &keys.http.tls_key),
        ]);
        let ServerGroups { serve, log, ask, notify, otel, http, .. } = keys;
        let profiles = file.profiles.iter().map(|own| own.profile.name.as_str());
        let tokens = match serve.tokens_file {
            Some(path) => http_auth::read_file(&path, file.tokens, profiles, &file.databases)?,
            None => file.tokens,
        };
        let databases = self.databases(&file.databases, &file.keys.database, &file.masks)?;
        let public_url = http.public_url.clone().map(PublicUrl::into_text);
        if http.listen.is_some() && !file.oauth.is_empty() && public_url.is_none() {
            bail!(
                "[oauth] is configured and public_url is not, so clients could not learn where to get a token: set public_url in \
                 [http] (--http-public-url, COUNTERSIGN_HTTP_PUBLIC_URL) to the address that they know, such as \
                 https://mcp.example.com"
            );
        }
        let trusted_proxies = http.trusted_proxies.iter().flatten().cloned().map(Proxy::into_text).collect();
        let settings = Settings {
            log: log.log.unwrap_or_else(|| "info".to_owned()),
            log_format: log.log_format.unwrap_or_default(),
            profile: serve.profile.unwrap_or_else(|| Profile::DEFAULT.to_owned()),
            profiles: file.profiles,
            account: serve.account.unwrap_or_default(),
            actor: serve.actor,
            tokens: tokens.into_iter().map(|own| own.token).collect(),
            oauth: file.oauth.into_iter().filter_map(|own| own.of_server(public_url.as_deref())).collect(),
            content: serve.content.unwrap_or_default(),
            ask_timeout: ask.ask_timeout_ms.map_or(DEFAULT_ASK_TIMEOUT, |time| time.duration()),
            notify: notify.settings()?,
            telemetry: otel.settings(),
            http: HttpSettings::new(http, databases.iter().map(|database| &database.read_limits))?,
            console,
            trusted_proxies,
            open_secret_files,
            databases,
        };
        if !settings.has_profile(&settings.profile) {
            let known: Vec<&str> = settings.profile_names().collect();
            bail!("there is no profile \"{}\": it is one of {}", settings.profile, known.join(", "));
        }
        Ok(settings)
    }
}

impl Settings {
    /// The database of a command that works on one.
    ///
    /// # Errors
    /// Several are configured.
    pub(crate) fn database(&self) -> anyhow::Result<&DatabaseSettings> {
        match self.databases.as_slice() {
            [database] => Ok(database),
            several => {
                let names: Vec<&str> = several.iter().filter_map(|own| Some(own.name()?.as_str())).collect();
                bail!("the configuration has several databases: choose one with --database ({})", names.join(", "))
            }
        }
    }

    /// The settings of a database that had these at the start. One that is no longer configured keeps them.
    pub(crate) fn of_database<'a>(&'a self, first: &'a DatabaseSettings) -> &'a DatabaseSettings {
        self.databases.iter().find(|own| own.name() == first.name()).unwrap_or(first)
    }

    /// The files with secrets that every user of this machine may read, each with the key that names it.
    pub(crate) fn open_secret_files(&self) -> impl Iterator<Item = &OpenSecretFile> {
        self.open_secret_files.iter().chain(self.databases.iter().flat_map(|database| &database.open_secret_files))
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
        let Self { profiles, tokens, oauth, console, databases, .. } = own;
        let is_same = self.databases.len() == from.databases.len()
            && self.databases.iter().zip(&from.databases).all(|(own, from)| own.same_but_for_tools(from));
        is_same && Self { profiles, tokens, oauth, console, databases, ..from.clone() } == *self
    }

    /// The authenticator of HTTP. It reads the issuer's keys if they are in a file, so a new one is made at SIGHUP.
    pub(crate) fn authenticator(&self) -> anyhow::Result<auth::Authenticator> {
        Ok(auth::Authenticator::new(self.tokens.clone(), self.oauth.clone())?)
    }
}

/// The default time to wait for a user. Many clients give up on a call after a minute anyway.
const DEFAULT_ASK_TIMEOUT: Duration = Duration::from_secs(120);

#[cfg(test)]
mod issuer_recipes;
#[cfg(test)]
mod tests;
