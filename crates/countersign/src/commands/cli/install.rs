//! The arguments of `countersign install` and `countersign uninstall`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::ValueHint;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, ValueEnum};
use http_client::HttpsUrl;

use crate::settings::ServerKeys;

#[derive(Debug, Args)]
pub(crate) struct InstallArgs {
    #[command(flatten)]
    pub(crate) entry: EntryArgs,
    /// Print the entry and change nothing. Standard error says where it belongs.
    #[arg(long, conflicts_with = "link")]
    pub(crate) print: bool,
    /// Print a link that adds the entry when it is opened, and change nothing: for cursor, lm-studio and vscode.
    #[arg(long)]
    pub(crate) link: bool,
    /// Replace an entry of this name that differs, and a file with another connection string.
    #[arg(long)]
    pub(crate) replace: bool,
    /// Write the entry without connecting to the database, or to the server of --remote.
    #[arg(long)]
    pub(crate) no_check: bool,
    /// Program that the client starts. Default: this one.
    #[arg(long, value_name = "PROGRAM", conflicts_with = "remote")]
    pub(crate) command: Option<PathBuf>,
    /// Address of a server that is running, such as https://mcp.example.com/mcp; with /sse at its end for
    /// clients that support only HTTP with SSE. The client starts no program then.
    #[arg(long, value_name = "URL")]
    pub(crate) remote: Option<HttpsUrl>,
    /// File with the token for the server of --remote.
    #[arg(long, value_name = "FILE", requires = "remote", conflicts_with = "token_env")]
    pub(crate) token_file: Option<PathBuf>,
    /// Environment variable in which the client finds the token for the server of --remote. The
    /// client's file then contains only the name.
    #[arg(long, value_name = "NAME", requires = "remote", value_parser = variable_name)]
    pub(crate) token_env: Option<String>,
    /// The options of `serve` that were given, as flags or variables.
    #[arg(skip)]
    pub(crate) given: Vec<GivenOption>,
}

#[derive(Debug, Args)]
pub(crate) struct UninstallArgs {
    /// The client.
    #[arg(long, value_enum, required_unless_present = "ledger")]
    pub(crate) client: Option<ClientName>,
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    /// Instead print what would remove the ledger from the database, with its records, triggers, grants and roles.
    #[arg(long, conflicts_with = "client")]
    pub(crate) ledger: bool,
    /// Remove the ledger. Its records are gone then. The name of the database, to be sure.
    #[arg(long, value_name = "DATABASE", requires = "ledger")]
    pub(crate) run: Option<String>,
    /// Remove the entry also if it is not one that `countersign install` writes.
    #[arg(long)]
    pub(crate) force: bool,
}

/// The entry that a command is about.
#[derive(Debug, Args)]
pub(crate) struct EntryArgs {
    /// The client.
    #[arg(long, value_enum)]
    pub(crate) client: ClientName,
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
}

/// The name of an entry and the file in which it is.
#[derive(Debug, Args)]
pub(crate) struct PlaceArgs {
    /// Name of the entry, as the client shows it.
    #[arg(long, default_value = "countersign", value_parser = entry_name)]
    pub(crate) name: String,
    /// File of the client: of the user, for all projects, or of the project in the current folder.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) scope: Scope,
}

/// A client whose configuration is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ClientName {
    /// Claude Desktop.
    ClaudeDesktop,
    /// Claude Code.
    ClaudeCode,
    /// Cursor.
    Cursor,
    /// Visual Studio Code.
    Vscode,
    /// GitHub Copilot CLI.
    CopilotCli,
    /// Codex.
    Codex,
    /// Gemini CLI.
    Gemini,
    /// Windsurf, before it became Devin Desktop.
    Windsurf,
    /// Devin Desktop.
    DevinDesktop,
    /// Cline, in editors and on the command line.
    Cline,
    /// Zed.
    Zed,
    /// opencode.
    Opencode,
    /// JetBrains Junie, in editors and on the command line.
    Junie,
    /// LM Studio.
    LmStudio,
    /// Google Antigravity.
    Antigravity,
    /// Goose, with --print.
    Goose,
}

/// Whose file an entry is written into.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scope {
    /// The user's.
    #[default]
    User,
    /// The current folder's.
    Project,
}

/// An option of `serve` with its values.
#[derive(Debug, Clone)]
pub(crate) struct GivenOption {
    /// The name of the flag, without dashes.
    pub(crate) flag: String,
    pub(crate) values: Vec<OsString>,
    pub(crate) kind: OptionKind,
    /// It came from an environment variable.
    pub(crate) is_variable: bool,
    /// A value must be attached with `=`.
    pub(crate) needs_equals: bool,
}

/// What the values of an option are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OptionKind {
    Text,
    Path,
    /// A text that must not be shown; the flag with `-file` names a file with it.
    Secret,
}

/// The options of `serve` that were given. A flag for a secret takes precedence over a variable for its file, and the
/// other way round.
pub(super) fn given_options(matches: &ArgMatches) -> Vec<GivenOption> {
    let known = ServerKeys::augment_args(clap::Command::new("serve"));
    let mut given = Vec::new();
    for argument in known.get_arguments() {
        let id = argument.get_id().as_str();
        let source = matches.value_source(id);
        let is_flag = |id: &str| {
            known.get_arguments().any(|one| one.get_id() == id)
                && matches.value_source(id) == Some(ValueSource::CommandLine)
        };
        let (Some(flag), Some(values)) = (argument.get_long(), matches.get_raw(id)) else { continue };
        let is_variable = source == Some(ValueSource::EnvVariable);
        let other = id.strip_suffix("_file").map_or_else(|| format!("{id}_file"), str::to_owned);
        if !is_variable && source != Some(ValueSource::CommandLine) || is_variable && is_flag(&other) {
            continue;
        }
        let kind = match argument.get_value_hint() {
            _ if argument.is_hide_env_values_set() => OptionKind::Secret,
            ValueHint::AnyPath | ValueHint::FilePath | ValueHint::DirPath => OptionKind::Path,
            _ => OptionKind::Text,
        };
        given.push(GivenOption {
            flag: flag.to_owned(),
            values: values.map(OsString::from).collect(),
            kind,
            is_variable,
            needs_equals: argument.is_require_equals_set(),
        });
    }
    given
}

/// A name that every client accepts.
fn entry_name(name: &str) -> Result<String, &'static str> {
    let is_valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if (1..=64).contains(&name.len()) && name.chars().all(is_valid) {
        Ok(name.to_owned())
    } else {
        Err("a name has 1 to 64 letters, digits, _ and -")
    }
}

fn variable_name(name: &str) -> Result<String, &'static str> {
    let is_valid = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.starts_with(|c: char| !c.is_ascii_digit()) && name.chars().all(is_valid) {
        Ok(name.to_owned())
    } else {
        Err("a variable's name has letters, digits and _, and no digit at its start")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_secret_of_a_server_has_a_flag_for_a_file_with_it() {
        let known = ServerKeys::augment_args(clap::Command::new("serve"));
        let has = |flag: String| known.get_arguments().any(|one| one.get_long() == Some(&flag));
        let secrets: Vec<&str> =
            known.get_arguments().filter(|one| one.is_hide_env_values_set()).filter_map(clap::Arg::get_long).collect();
        assert!(secrets.contains(&"database-url"), "{secrets:?}");
        for secret in secrets {
            assert!(has(format!("{secret}-file")), "{secret}");
        }
    }

    #[test]
    fn names_are_those_that_every_client_accepts() {
        for name in ["shop", "Shop_1-a", &"a".repeat(64)] {
            assert_eq!(entry_name(name).as_deref(), Ok(name));
        }
        for name in ["", "a b", "a.b", "ä", "a/b", &"a".repeat(65)] {
            assert!(entry_name(name).is_err(), "{name}");
        }
    }
}
