//! The program that a client starts: `countersign serve` with the options given to `install`, with absolute paths.
//!
//! The client starts it in another folder and without the variables of this shell. So paths become absolute,
//! variables become flags, and secrets go into separate files that the entry names.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf, absolute, is_separator};

use anyhow::{Context, bail, ensure};
use types::Secret;

use crate::commands::cli::{GivenOption, InstallArgs, OptionKind};
use crate::connection;
use crate::settings::{ConfigSources, Settings, config_directory};

/// The flag of the connection string, without dashes.
const DATABASE_URL: &str = "database-url";

/// Variables that complete a connection string. A client does not pass them on.
const LIBPQ_VARIABLES: [&str; 16] = [
    "PGHOST",
    "PGHOSTADDR",
    "PGPORT",
    "PGDATABASE",
    "PGUSER",
    "PGPASSWORD",
    "PGPASSFILE",
    "PGSERVICE",
    "PGSERVICEFILE",
    "PGOPTIONS",
    "PGSSLMODE",
    "PGSSLROOTCERT",
    "PGSSLCERT",
    "PGSSLKEY",
    "PGREQUIREAUTH",
    "PGCHANNELBINDING",
];

/// A program with its arguments, and the files that they need.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) command: String,
    pub(super) arguments: Vec<String>,
    /// The secrets that are not in a file yet.
    pub(super) secrets: Vec<SecretFile>,
}

#[derive(Debug)]
pub(super) struct SecretFile {
    pub(super) path: PathBuf,
    pub(super) secret: Secret,
    /// The flag for the secret, without dashes.
    pub(super) flag: String,
    /// The source of the secret, for messages.
    pub(super) origin: String,
}

impl Program {
    /// The program for these arguments of `install`.
    ///
    /// # Errors
    /// The client could not start the program, or the program would not find its database.
    pub(super) fn new(arguments: &InstallArgs, sources: &ConfigSources, settings: &Settings) -> anyhow::Result<Self> {
        ensure!(
            settings.http.is_none(),
            "this configuration serves HTTP (--http, listen in [http]), and a client speaks to a program that it starts over \
             standard input and output: leave it out, or add the running server with --remote URL"
        );
        let mut program =
            Self { command: command(arguments)?, arguments: vec!["serve".to_owned()], secrets: Vec::new() };
        if let Some(config) = &sources.config {
            program.push_path("config", config.as_os_str())?;
        }
        let log = &sources.given.server.log;
        if let Some(log) = &log.log {
            program.push("log", log.clone(), false);
        }
        let name = &arguments.entry.place.name;
        for option in &arguments.given {
            program.push_option(option, name)?;
        }
        // Each of several databases has its connection string in the configuration file.
        if let [database] = settings.databases.as_slice()
            && database.url.is_none()
        {
            let Some(database) = connection::named(database) else {
                bail!(
                    "no connection string is configured, and the client will not have the variables of this shell (PGHOST and the \
                     like): write it into a file and give --database-url-file FILE, or set DATABASE_URL for this command"
                );
            };
            program.push_secret(DATABASE_URL, name, database.text, database.origin)?;
        }
        Ok(program)
    }

    fn push_option(&mut self, option: &GivenOption, name: &str) -> anyhow::Result<()> {
        for value in &option.values {
            match option.kind {
                OptionKind::Path => self.push_path(&option.flag, value)?,
                OptionKind::Text => self.push(&option.flag, utf8(value)?.to_owned(), option.needs_equals),
                OptionKind::Secret => {
                    let variable = option.flag.replace('-', "_").to_ascii_uppercase();
                    let origin = match option.is_variable {
                        true => format!("COUNTERSIGN_{variable}"),
                        false => format!("--{}", option.flag),
                    };
                    self.push_secret(&option.flag, name, Secret::new(utf8(value)?), origin)?;
                }
            }
        }
        Ok(())
    }

    fn push(&mut self, flag: &str, value: String, needs_equals: bool) {
        if needs_equals || value.starts_with('-') {
            self.arguments.push(format!("--{flag}={value}"));
        } else {
            self.arguments.extend([format!("--{flag}"), value]);
        }
    }

    fn push_path(&mut self, flag: &str, path: &OsStr) -> anyhow::Result<()> {
        let path = absolute(Path::new(path)).with_context(|| format!("the path of --{flag} cannot be resolved"))?;
        self.push(flag, utf8(path.as_os_str())?.to_owned(), false);
        Ok(())
    }

    fn push_secret(&mut self, flag: &str, name: &str, secret: Secret, origin: String) -> anyhow::Result<()> {
        let folder = config_directory().context(
            "there is no folder for a file with the connection string: set HOME, or give --database-url-file FILE",
        )?;
        let path = folder.join("clients").join(format!("{name}.{flag}"));
        self.push_path(&format!("{flag}-file"), path.as_os_str())?;
        self.secrets.push(SecretFile { path, secret, flag: flag.to_owned(), origin });
        Ok(())
    }
}

/// The variables of this shell that influence which database a connection string means.
pub(super) fn libpq_variables() -> Vec<&'static str> {
    LIBPQ_VARIABLES.into_iter().filter(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty())).collect()
}

/// The absolute path of the program.
fn command(arguments: &InstallArgs) -> anyhow::Result<String> {
    let path = match &arguments.command {
        None => std::env::current_exe().context("the path of this program is not known: give --command PROGRAM")?,
        Some(command) => found(command).with_context(|| format!("--command {}", command.display()))?,
    };
    Ok(utf8(path.as_os_str())?.to_owned())
}

/// The program's path, given directly or found by its name in a folder of `PATH`.
fn found(command: &Path) -> anyhow::Result<PathBuf> {
    let is_program = |path: &PathBuf| os::is_program(path);
    if command.to_string_lossy().contains(is_separator) {
        let path = absolute(command)?;
        ensure!(is_program(&path), "there is no program {}", path.display());
        return Ok(path);
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let mut programs =
        std::env::split_paths(&folders).filter(|folder| folder.is_absolute()).map(|folder| folder.join(command));
    programs.find(is_program).context("there is no such program in a folder of PATH")
}

fn utf8(text: &OsStr) -> anyhow::Result<&str> {
    text.to_str().with_context(|| {
        format!("{} is not UTF-8, and the client's file must be: use another path", OsString::from(text).display())
    })
}
