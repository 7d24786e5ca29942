//! `countersign.toml`: the same keys as flags and variables, in a file. Every error in it is reported with its place.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use manifest::{Diagnostics, Source};
use toml::de::DeTable;
use tools::Profile;

use super::console::OidcConfig;
use super::console_keys::CONSOLE;
use super::database_tables::DatabaseTable;
use super::http_auth::{self, IssuerConfig, TokenConfig};
use super::key_group;
use super::keys::{DatabaseGroups, HTTP, Keys, LIMITS, ServerGroups, TOP};
use super::masks::MaskConfig;
use super::notify_keys::NOTIFY;
use super::otel_keys::OTEL;
use super::profiles::{self, ProfileConfig, ProfileKeys};
use super::reader::Reader;
use super::reads_keys::READS;
use super::schema;

/// The content of the file. Its paths are relative to its folder.
#[derive(Debug, Clone, Default)]
pub(crate) struct ConfigFile {
    pub(super) keys: Keys,
    pub(super) profiles: Vec<ProfileConfig>,
    pub(super) tokens: Vec<TokenConfig>,
    pub(super) oauth: Vec<IssuerConfig>,
    pub(super) masks: MaskConfig,
    pub(super) oidc: Option<OidcConfig>,
    /// The databases; empty if the file has one, without a table.
    pub(super) databases: Vec<DatabaseTable>,
}

impl ConfigFile {
    /// The error is a list of all mistakes in the file, with file, line and column.
    pub(super) fn read(path: &Path) -> anyhow::Result<Self> {
        let source = Source::read(path)
            .map_err(|error| anyhow::anyhow!("the configuration file (--config, COUNTERSIGN_CONFIG) {error}"))?;
        let folder = path.parent().map(Path::to_owned).unwrap_or_default();
        Self::parse(&source, &folder)
            .map_err(|mistakes| anyhow::anyhow!("the configuration file has mistakes\n{mistakes}"))
    }

    pub(super) fn parse(source: &Source, folder: &Path) -> Result<Self, Diagnostics> {
        let mut reader = Reader::new(source, schema::elsewhere);
        let mut file = reader.document(folder).unwrap_or_default();
        if !reader.mistakes.is_empty() {
            reader.mistakes.sort();
            return Err(Diagnostics(reader.mistakes));
        }
        file.keys.database.resolve_paths(folder);
        file.keys.server.resolve_paths(folder);
        Ok(file)
    }
}

impl DatabaseGroups {
    pub(super) fn resolve_paths(&mut self, folder: &Path) {
        let Self { connection, manifests, served, write, signing, operator, .. } = self;
        let files = [
            &mut connection.database_url_file,
            &mut served.read_url_file,
            &mut operator.operator_url_file,
            &mut write.fingerprint_key_file,
        ];
        resolve(folder, files, [&mut manifests.manifests, &mut signing.signing_key]);
    }
}

impl ServerGroups {
    fn resolve_paths(&mut self, folder: &Path) {
        let Self { serve, notify, http, oidc_secret, .. } = self;
        let files = [
            &mut serve.tokens_file,
            &mut notify.secret_file,
            &mut http.tls_certificate,
            &mut http.tls_key,
            &mut oidc_secret.client_secret_file,
        ];
        resolve(folder, files, []);
    }
}

fn resolve<const N: usize, const M: usize>(
    folder: &Path,
    files: [&mut Option<PathBuf>; N],
    lists: [&mut Option<Vec<PathBuf>>; M],
) {
    for path in files.into_iter().flatten().chain(lists.into_iter().flatten().flatten()) {
        *path = folder.join(PathBuf::from(&*path));
    }
}

impl<'s> Reader<'s> {
    fn document(&mut self, folder: &Path) -> Option<ConfigFile> {
        let mut top = self.top()?;
        let names = [LIMITS, HTTP, READS, NOTIFY, OTEL];
        let mut tables = BTreeMap::from(names.map(|name| (name, self.table(&mut top, name))));
        let mut console = self.table(&mut top, CONSOLE);
        let (oidc_secret, oidc) = self.oidc(&mut console);
        let profiles = self.table(&mut top, profiles::TABLE);
        // A profile that has an error is still a known profile.
        let names: Vec<String> = profiles.keys().map(|name| name.get_ref().to_string()).collect();
        let known: Vec<String> = Profile::BUILTIN.into_iter().map(str::to_owned).chain(names.iter().cloned()).collect();
        let databases = self.databases(&mut top, folder, &known);
        let tokens = self.tokens(&mut top, &databases);
        self.mistakes.extend(http_auth::mistakes(&tokens, names.iter().map(String::as_str)));
        let oauth = self.oauth(&mut top, folder, &names);
        let masks = self.masks(&mut top, &known);
        tables.extend([(TOP, top), (CONSOLE, console)]);
        let database = DatabaseGroups::read(self, &mut tables);
        let server = ServerGroups { oidc_secret, ..ServerGroups::read(self, &mut tables) };
        let keys = Keys { database, server, ..Keys::default() };
        for (table, rest) in &tables {
            let table = Some(*table).filter(|table| *table != TOP);
            self.refuse_rest(rest, &schema::prefix(table), &schema::names(table));
        }
        let profiles = self.profiles(profiles, &databases);
        Some(ConfigFile { keys, profiles, tokens, oauth, masks, oidc, databases })
    }

    fn profiles(&mut self, mut tables: DeTable<'s>, databases: &[DatabaseTable]) -> Vec<ProfileConfig> {
        let names: Vec<_> = tables.keys().cloned().collect();
        let mut profiles = Vec::new();
        for name in names {
            let at = self.source.locate(name.span().start);
            let name = name.into_inner();
            let before = self.mistakes.len();
            let mut table = self.table(&mut tables, &name);
            let keys: ProfileKeys = self.group(&mut table);
            let known: Vec<String> = key_group::properties::<ProfileKeys>().keys().cloned().collect();
            self.refuse_rest(&table, &format!("profiles.{name}."), &known);
            self.known_databases(
                &format!("profiles.{name}.databases"),
                keys.databases.as_deref().unwrap_or_default(),
                databases,
            );
            match ProfileConfig::new(&name, at, keys, |offset| self.source.locate(offset)) {
                Ok(profile) => profiles.push(profile),
                // A profile whose keys could not be read is not reported as empty.
                Err(_) if self.mistakes.len() > before => {}
                Err(mistake) => self.mistakes.push(mistake),
            }
        }
        profiles
    }
}
