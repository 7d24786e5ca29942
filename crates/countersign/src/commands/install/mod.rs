//! `countersign install` and `countersign uninstall`: add or remove this server in the configuration of an MCP
//! client.
//!
//! To add a client: a variant of `cli::ClientName`, its line in the table of `clients`, in the test there and in
//! `tests/acceptance/install`.
//!
//! Users keep comments, an order and other servers in these files. So parsers only say where things are, and the entry
//! is inserted into the text or cut out of it; the new text must parse, and mean the old one with this entry. A rename
//! replaces the file after one more comparison. A client can still write in between; the backup has the state before.
//! Inline tables of Codex are refused.

mod client;
mod clients;
mod codex_toml;
pub(super) mod config_file;
mod difference;
mod edit;
mod entry;
mod json;
mod link;
mod program;
mod remote;

use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use serde_json::Value;
use tools::metrics::Metrics;
use types::{Secret, visible};

use self::client::{Client, Format, Platform, Variables};
use self::config_file::{ConfigFile, Saved, write_private};
use self::edit::{EditError, Put};
use self::entry::{Entry, Server, Token, input_id, is_own};
use self::json::Place;
use self::program::Program;
use crate::commands::bootstrap;
use crate::commands::cli::{InstallArgs, Scope, UninstallArgs};
use crate::connection;
use crate::settings::{ConfigSources, DatabaseSettings, Settings};
use crate::terminal::{print_error, print_line};

/// The array of VS Code with the questions to its user.
const INPUTS: &str = "inputs";

/// The answer for a file whose format is not edited.
const NOT_EDITED: &str = "YAML is not edited: change it by hand, `countersign install --print` shows the entry";

/// The placeholder for a token in a printed entry.
const TOKEN_PLACEHOLDER: &str = "THE_TOKEN";

pub(crate) async fn install(
    arguments: &InstallArgs,
    sources: &ConfigSources,
    settings: &Settings,
) -> anyhow::Result<()> {
    let (client, name) = (arguments.entry.client.client(), &arguments.entry.place.name);
    let path = path_of(arguments.entry.client.client(), arguments.entry.place.scope)?;
    let (server, program) = server(arguments, sources, settings)?;
    if arguments.print || arguments.link {
        return print(arguments, &server, program.as_ref(), &path);
    }
    let entry = server.entry(client, name)?;
    let file = ConfigFile::at(path, arguments.entry.place.scope == Scope::User)?;
    protect_token(&file, arguments, &server, &entry)?;
    let text = file.text()?;
    let put = put(client, name, &entry, &text, arguments.replace).map_err(|error| file.located(&text, &error))?;
    if let Put::Differs(current) = put {
        bail!(
            "{} has another entry \"{name}\":\n{}\nChoose another --name, or replace it with --replace; nothing was changed",
            file.path.display(),
            difference::lines(&current, &entry.value).join("\n")
        );
    }
    if matches!(put, Put::Written(_)) {
        file.check_writable()?;
    }
    let is_plain = matches!(client.format, Format::Json { comments: false, .. });
    if is_plain && !text.trim().is_empty() && serde_json::from_str::<Value>(&text).is_err() {
        let (label, path) = (client.label, file.path.display());
        print_error(&format!("warning: {path} has comments or trailing commas, which {label} may not accept"));
    }
    if !arguments.no_check {
        check(&server, settings).await?;
    }
    for secret in program.iter().flat_map(|program| &program.secrets) {
        let content = format!("{}\n", secret.secret.expose());
        if write_private(&secret.path, &content, arguments.replace)? {
            print_line(&format!("Wrote {} with the value of {}, for you alone.", secret.path.display(), secret.origin));
        }
    }
    if arguments.entry.place.scope == Scope::User && !file.has_folder() {
        let label = client.label;
        print_error(&format!(
            "warning: the folder of {} does not exist yet: is {label} installed?",
            file.path.display()
        ));
    }
    let saved = file.edit(|text| match self::put(client, name, &entry, text, arguments.replace)? {
        Put::Written(text) => Ok(Some(text)),
        Put::Unchanged => Ok(None),
        Put::Differs(_) => Err(EditError::new(0, "an entry of this name was added meanwhile")),
    })?;
    report(arguments, &file, &saved, program.as_ref());
    Ok(())
}

pub(crate) fn uninstall(arguments: &UninstallArgs) -> anyhow::Result<()> {
    let client = arguments.client.context("give the client with --client")?.client();
    let name = &arguments.place.name;
    let file = ConfigFile::at(path_of(client, arguments.place.scope)?, true)?;
    let text = file.text()?;
    let found = match client.format {
        Format::Json { key, .. } => json::get(&text, key, Place::Member(name)),
        Format::Toml => codex_toml::get(&text, name),
        Format::Yaml => Err(EditError::new(0, NOT_EDITED)),
    };
    let path = file.path.display();
    let Some(current) = found.map_err(|error| file.located(&text, &error))? else {
        print_line(&format!("{path} has no entry \"{name}\": nothing was changed."));
        return Ok(());
    };
    ensure!(
        arguments.force || is_own(client, &current),
        "the entry \"{name}\" of {path} is not one that `countersign install` writes: --force removes it all the same; nothing \
         was changed"
    );
    let saved = file.edit(|text| take(client, name, text))?;
    if let Saved::Replaced(backup) = saved {
        print_line(&format!("Removed \"{name}\" from {path}. The previous file is {}.", backup.display()));
    }
    for file in secret_files(&current) {
        print_line(&format!("{file} has its connection string or key: delete it if no other entry uses it."));
    }
    Ok(())
}

/// The secret files that an entry names and that `install` has created.
fn secret_files(entry: &Value) -> Vec<&str> {
    let folder = crate::settings::config_directory().map(|folder| folder.join("clients"));
    let members = entry.as_object().into_iter().flat_map(|entry| entry.values());
    let words = members.filter_map(Value::as_array).flatten().filter_map(Value::as_str);
    words.filter(|path| folder.as_ref().is_some_and(|folder| Path::new(path).starts_with(folder))).collect()
}

fn path_of(client: &Client, scope: Scope) -> anyhow::Result<PathBuf> {
    ensure!(
        cfg!(not(windows)) || scope == Scope::Project,
        "on Windows, this program does not know the file that a client reads: write the entry by hand, or give --scope project"
    );
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = std::env::current_dir().context("the current folder is not known")?;
    let mut files = client.files(scope, Platform::current(), &variable, &folder)?;
    let used = files.iter().position(|file| file.symlink_metadata().is_ok()).unwrap_or_default();
    Ok(files.swap_remove(used))
}

fn server(
    arguments: &InstallArgs,
    sources: &ConfigSources,
    settings: &Settings,
) -> anyhow::Result<(Server, Option<Program>)> {
    let Some(url) = &arguments.remote else {
        let program = Program::new(arguments, sources, settings)?;
        let (command, arguments) = (program.command.clone(), program.arguments.clone());
        return Ok((Server::Program { command, arguments }, Some(program)));
    };
    if let Some(option) = arguments.given.iter().find(|option| !option.is_variable) {
        bail!("--{} is for a server that the client starts, and --remote names one that is running", option.flag);
    }
    Ok((Server::Remote { url: url.clone(), token: remote::token(arguments)? }, None))
}

fn put(client: &Client, name: &str, entry: &Entry, text: &str, replace: bool) -> Result<Put, EditError> {
    let key = match client.format {
        Format::Json { key, .. } => key,
        Format::Toml => return codex_toml::put(text, name, &entry.value, replace),
        Format::Yaml => return Err(EditError::new(0, NOT_EDITED)),
    };
    let put = json::put(text, key, Place::Member(name), &entry.value, replace)?;
    let Some(input) = &entry.input else { return Ok(put) };
    let with_entry = match &put {
        Put::Differs(_) => return Ok(put),
        Put::Unchanged => text,
        Put::Written(text) => text,
    };
    match json::put(with_entry, INPUTS, Place::Element(&input_id(name)), input, replace)? {
        Put::Unchanged => Ok(put),
        with_input => Ok(with_input),
    }
}

/// Removes the entry, and also VS Code's question for its token unless another server uses the answer.
fn take(client: &Client, name: &str, text: &str) -> Result<Option<String>, EditError> {
    let key = match client.format {
        Format::Json { key, .. } => key,
        Format::Toml => return codex_toml::take(text, name),
        Format::Yaml => return Err(EditError::new(0, NOT_EDITED)),
    };
    let Some(taken) = json::take(text, key, Place::Member(name))? else { return Ok(None) };
    let id = input_id(name);
    if client.variables != Variables::EnvBracesAndInputs || taken.contains(&format!("${{input:{id}}}")) {
        return Ok(Some(taken));
    }
    Ok(Some(json::take(&taken, INPUTS, Place::Element(&id))?.unwrap_or(taken)))
}

/// Refuses to write a token into a file that others can read: a file of a project, or one with a permissive mode.
fn protect_token(file: &ConfigFile, arguments: &InstallArgs, server: &Server, entry: &Entry) -> anyhow::Result<()> {
    let Server::Remote { token: Token::Text(_), .. } = server else { return Ok(()) };
    if entry.input.is_some() {
        return Ok(());
    }
    let path = file.path.display();
    ensure!(
        arguments.entry.place.scope == Scope::User,
        "{path} belongs to the project and would contain the token: use --token-env NAME, or --scope user"
    );
    ensure!(
        !file.is_readable_by_others(),
        "{path} can be read by other users and would contain the token: chmod 600 {path}, or use --token-env NAME"
    );
    Ok(())
}

/// Makes the same checks as a server at its start.
///
/// # Errors
/// The server would not start, or would start without its database.
async fn check(server: &Server, settings: &Settings) -> anyhow::Result<()> {
    match server {
        Server::Remote { url, token } => remote::check(url, token).await.context(
            "the server does not work for this client, so nothing was changed (--no-check writes the entry all the same)",
        ),
        Server::Program { .. } => {
            for name in program::libpq_variables() {
                print_error(&format!(
                    "warning: {name} is set in this shell. The client may not have it: put it into the connection string"
                ));
            }
            bootstrap::check_several(settings, false)?;
            for database in &settings.databases {
                let target = connection::configured(database)?;
                // An installation should not begin with missing tools.
                let strict = DatabaseSettings { strict: true, ..database.clone() };
                let built = connection::answered(database, async {
                    let opened = bootstrap::ToolBuilder::open(&target, settings, database, false, Metrics::new());
                    let builder = opened.await?;
                    builder.tools(&builder.sources(database)?, settings, &strict).await
                });
                built.await.context(
                    "the server would not start, so nothing was changed (--no-check writes the entry all the same)",
                )?;
            }
            Ok(())
        }
    }
}

fn print(arguments: &InstallArgs, server: &Server, program: Option<&Program>, path: &Path) -> anyhow::Result<()> {
    let (client, name) = (arguments.entry.client.client(), &arguments.entry.place.name);
    let has_token = matches!(server, Server::Remote { token: Token::Text(_), .. });
    let shown = match server {
        Server::Remote { url, token: Token::Text(_) } => {
            Server::Remote { url: url.clone(), token: Token::Text(Secret::new(TOKEN_PLACEHOLDER)) }
        }
        other => other.clone(),
    };
    let entry = shown.entry(client, name)?;
    if arguments.link {
        if let Some(secret) = program.and_then(|program| program.secrets.first()) {
            bail!(
                "a link would contain the value of {}: write it into a file that only you can read, and give --{}-file FILE",
                secret.origin,
                secret.flag
            );
        }
        print_line(&link::link(client, name, &entry, has_token)?);
        return Ok(());
    }
    let text = match (client.format, put(client, name, &entry, "", false)) {
        // JSON is YAML.
        (Format::Yaml, _) => format!("extensions:\n  {}: {}", Value::from(name.as_str()), entry.value),
        (_, Ok(Put::Written(text))) => text,
        _ => bail!("the entry cannot be printed"),
    };
    print_line(text.trim_end());
    print_error(&format!("This entry belongs in {}.", path.display()));
    for secret in program.iter().flat_map(|program| &program.secrets) {
        print_error(&format!(
            "Without --print, {} is written with the value of {}.",
            secret.path.display(),
            secret.origin
        ));
    }
    if has_token && entry.input.is_none() {
        print_error(&format!("{TOKEN_PLACEHOLDER} stands for the token."));
    }
    Ok(())
}

fn report(arguments: &InstallArgs, file: &ConfigFile, saved: &Saved, program: Option<&Program>) {
    let (client, name) = (arguments.entry.client.client(), &arguments.entry.place.name);
    let path = file.path.display();
    match saved {
        Saved::Unchanged => {
            print_line(&format!("{path} has this entry \"{name}\" already: nothing was changed."));
            return;
        }
        Saved::Created => print_line(&format!("Made {path} with the entry \"{name}\".")),
        Saved::Replaced(backup) => {
            print_line(&format!("Wrote the entry \"{name}\" into {path}. The previous file is {}.", backup.display()))
        }
    }
    if let Some(program) = program {
        let words = std::iter::once(&program.command).chain(&program.arguments);
        print_line(&format!("It starts: {}", visible(&words.map(String::as_str).collect::<Vec<_>>().join(" "))));
    }
    if arguments.entry.place.scope == Scope::Project {
        print_line("The entry has paths of this machine: think of that before you share the project.");
    }
    print_line(client.next_step);
}
