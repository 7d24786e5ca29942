//! The configuration file that `init --schema` writes. It contains the password of the servers' login, which is stored
//! nowhere else.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use auth::generate_token;
use tempfile::NamedTempFile;
use types::Secret;

use crate::commands::install::config_file::{PRIVATE, written};
use crate::connection;
use crate::settings::DatabaseSettings;

/// Turns on `execute_sql` for statements that change rows of tracked tables.
const EXECUTE_SQL: &str = "execute_sql = \"rows\"";

/// A complete file beside the place where it will be. It is removed unless it is published, so `init` changes nothing
/// in a database for which no file can be written.
pub(super) struct NewConfigFile {
    path: PathBuf,
    file: NamedTempFile,
    password: Secret,
}

impl NewConfigFile {
    /// A file for this login, with a new password.
    ///
    /// # Errors
    /// A file of this name exists, or the folder cannot be written.
    pub(super) fn new(path: &Path, login: &str, settings: &DatabaseSettings) -> anyhow::Result<Self> {
        let shown = path.display();
        ensure!(
            path.symlink_metadata().is_err(),
            "{shown} exists already, and init does not overwrite it: to repeat init, leave --config out; or name another file. \
             Nothing was changed"
        );
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
        // 32 random bytes, as in a token.
        let password = generate_token()?;
        let content = content(login, &connection::text_for_login(settings, login, &password)?);
        let file = written(folder, PRIVATE, content.as_bytes())
            .with_context(|| format!("{shown} cannot be written; nothing was changed"))?;
        Ok(Self { path: path.to_owned(), file, password })
    }

    pub(super) const fn password(&self) -> &Secret {
        &self.password
    }

    /// Adds the schemas whose triggers look names up there.
    pub(super) fn add_search_path(&mut self, schemas: &[String]) -> anyhow::Result<()> {
        let schemas = toml::Value::from(schemas.to_vec());
        writeln!(
            self.file,
            "\n# Functions of triggers look up names without a schema here.\nwrite_search_path = {schemas}"
        )?;
        Ok(self.file.as_file().sync_all()?)
    }

    /// Gives the file its name.
    ///
    /// # Errors
    /// A file of this name was made meanwhile. The new file keeps its temporary name, since it contains the password.
    pub(super) fn publish(self) -> anyhow::Result<()> {
        let Err(error) = self.file.persist_noclobber(&self.path) else { return Ok(()) };
        let (_, kept) = error.file.keep()?;
        Err(error.error).with_context(|| {
            format!("{} cannot be written; the configuration is in {}", self.path.display(), kept.display())
        })
    }
}

fn content(login: &str, database_url: &Secret) -> String {
    let database_url = toml::Value::String(database_url.expose().to_owned());
    let login = toml::Value::String(login.to_owned());
    format!(
        "# Written by `countersign init`. It contains the password of the login {login}.\n\
         database_url = {database_url}\n\n\
         # Agents may propose single statements that change rows of tracked tables (docs/topics/execute-sql.md).\n\
         {EXECUTE_SQL}\n"
    )
}
