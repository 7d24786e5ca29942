//! The properties of a client: where it keeps its servers, and in which format. The table is in [`super::clients`].

use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::commands::cli::Scope;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Platform {
    MacOs,
    /// Linux and other systems that follow the XDG Base Directory Specification.
    Xdg,
}

impl Platform {
    pub(super) fn current() -> Self {
        if cfg!(target_os = "macos") { Self::MacOs } else { Self::Xdg }
    }
}

#[derive(Debug)]
pub(super) struct Client {
    pub(super) label: &'static str,
    pub(super) user_files: UserFiles,
    /// The files of a project, relative to its folder: the first that exists, otherwise the first. Empty if the
    /// client has none.
    pub(super) project_files: &'static [&'static str],
    pub(super) format: Format,
    /// The members of an entry that starts a program.
    pub(super) program: &'static [Member],
    pub(super) remote: Remote,
    pub(super) variables: Variables,
    pub(super) link: Option<Link>,
    /// What the user must do to use the new entry.
    pub(super) next_step: &'static str,
}

#[derive(Debug)]
pub(super) struct UserFiles {
    /// Environment variables that name another folder, and the path below it. The first variable that is set applies.
    pub(super) variables: &'static [(&'static str, &'static str)],
    pub(super) base: Base,
    /// The files below the folder: the first that exists, otherwise the first.
    pub(super) paths: &'static [&'static str],
}

/// A folder of the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Base {
    Home,
    /// `XDG_CONFIG_HOME`, or `~/.config` if it is not set.
    Xdg,
    /// The same on Linux; `~/.config` on macOS.
    XdgOnLinux,
    /// The same on Linux; `~/Library/Application Support` on macOS.
    Applications,
}

/// The form of a client's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// JSON, with the servers as an object at this key of the root.
    Json {
        key: &'static str,
        /// Whether comments and trailing commas are documented to be accepted.
        comments: bool,
    },
    /// The tables of Codex.
    Toml,
    /// The mapping of Goose, which is printed only.
    Yaml,
}

/// A member of an entry: its key and its value.
pub(super) type Member = (&'static str, Part);

/// A value of an entry. A member is left out if the entry has no value for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Text(&'static str),
    Texts(&'static [&'static str]),
    True,
    Number(u32),
    Name,
    /// The path of the program.
    Command,
    Arguments,
    /// The path and the arguments in one list.
    CommandLine,
    Url,
    /// The client's name for the transport.
    Transport {
        http: &'static str,
        sse: &'static str,
    },
    /// The headers, with the token.
    Headers,
    /// The name of the variable with the token.
    TokenVariable,
}

/// How a client connects to a running server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Remote {
    Entry {
        members: &'static [Member],
        /// Whether it supports HTTP with SSE.
        sse: bool,
    },
    /// The client only starts programs; a bridge program connects to the server.
    Bridge,
}

/// How a client inserts the value of an environment variable into a text of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Variables {
    /// As `${NAME}`.
    Braces,
    /// As `${env:NAME}`.
    EnvBraces,
    /// As `${env:NAME}`, and `${input:ID}` for the user's answer to a question.
    EnvBracesAndInputs,
    /// As `{env:NAME}`.
    Env,
    /// [`Part::TokenVariable`] names the variable with the token. Texts are used as they are.
    Named,
    /// Texts are used as they are.
    None,
}

impl Variables {
    /// The reference that the client replaces with the value of a variable.
    pub(super) fn reference(self, name: &str) -> Option<String> {
        match self {
            Self::Braces => Some(format!("${{{name}}}")),
            Self::EnvBraces | Self::EnvBracesAndInputs => Some(format!("${{env:{name}}}")),
            Self::Env => Some(format!("{{env:{name}}}")),
            Self::Named | Self::None => None,
        }
    }

    /// The characters that begin a reference. The client would change a text that contains them.
    pub(super) fn mark(self) -> Option<&'static str> {
        match self {
            Self::Braces | Self::EnvBraces | Self::EnvBracesAndInputs => Some("$"),
            // `{file:` begins a reference too.
            Self::Env => Some("{"),
            Self::Named | Self::None => None,
        }
    }
}

/// How a client adds a server from a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Link {
    /// This address, with the name and the entry in Base64.
    Base64(&'static str),
    /// VS Code's format.
    Json,
}

impl Client {
    /// The files of a scope. The client reads the first that exists. `variable` looks up an environment variable;
    /// `folder` is the current folder.
    ///
    /// # Errors
    /// The client has no file for the scope, or the home folder is not known.
    pub(super) fn files(
        &self,
        scope: Scope,
        platform: Platform,
        variable: &dyn Fn(&str) -> Option<PathBuf>,
        folder: &Path,
    ) -> anyhow::Result<Vec<PathBuf>> {
        match scope {
            Scope::User => self.user_files.resolve(platform, variable),
            Scope::Project => {
                let label = self.label;
                let files: Vec<PathBuf> = self.project_files.iter().map(|path| folder.join(path)).collect();
                (!files.is_empty())
                    .then_some(files)
                    .with_context(|| format!("{label} has no configuration for projects: leave out --scope project"))
            }
        }
    }
}

impl UserFiles {
    fn resolve(&self, platform: Platform, variable: &dyn Fn(&str) -> Option<PathBuf>) -> anyhow::Result<Vec<PathBuf>> {
        // Relative paths are not used: programs ignore them or resolve them against their own working directory.
        let folder = |name: &str| variable(name).filter(|path| path.is_absolute());
        let named = self.variables.iter().find_map(|(name, below)| folder(name).map(|place| (place, *below)));
        if let Some((place, below)) = named {
            return Ok(vec![if below.is_empty() { place } else { place.join(below) }]);
        }
        let home = || folder("HOME").context("HOME is not set to the path of your home folder");
        let xdg = || folder("XDG_CONFIG_HOME").map_or_else(|| anyhow::Ok(home()?.join(".config")), Ok);
        let base = match (self.base, platform) {
            (Base::Home, _) => home()?,
            (Base::Xdg, _) | (Base::XdgOnLinux | Base::Applications, Platform::Xdg) => xdg()?,
            (Base::XdgOnLinux, Platform::MacOs) => home()?.join(".config"),
            (Base::Applications, Platform::MacOs) => home()?.join("Library/Application Support"),
        };
        Ok(self.paths.iter().map(|path| base.join(path)).collect())
    }
}
