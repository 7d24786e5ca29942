//! The clients: where each keeps its servers, and in which form.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::cli::{ClientName, Scope};

/// The operating system of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Platform {
    MacOs,
    Windows,
    /// Linux and other systems that follow the XDG Base Directory Specification.
    Xdg,
}

impl Platform {
    pub(super) fn current() -> Self {
        match std::env::consts::OS {
            "macos" => Self::MacOs,
            "windows" => Self::Windows,
            _ => Self::Xdg,
        }
    }
}

/// The form of a client's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// JSON, with the servers as an object at this key of the root.
    Json(&'static str),
    /// The tables of Codex.
    Toml,
}

/// How a client writes the value of an environment variable into a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Variables {
    /// `${NAME}`.
    Braces,
    /// `${env:NAME}`.
    EnvBraces,
    /// Texts are taken as they are.
    None,
}

impl ClientName {
    /// Its name for people.
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::ClaudeDesktop => "Claude Desktop",
            Self::ClaudeCode => "Claude Code",
            Self::Cursor => "Cursor",
            Self::Vscode => "VS Code",
            Self::Codex => "Codex",
            Self::Gemini => "Gemini CLI",
        }
    }

    pub(super) fn format(self) -> Format {
        match self {
            Self::ClaudeDesktop | Self::ClaudeCode | Self::Cursor | Self::Gemini => Format::Json("mcpServers"),
            Self::Vscode => Format::Json("servers"),
            Self::Codex => Format::Toml,
        }
    }

    pub(super) fn variables(self) -> Variables {
        match self {
            Self::ClaudeCode | Self::Gemini => Variables::Braces,
            Self::Cursor | Self::Vscode => Variables::EnvBraces,
            Self::ClaudeDesktop | Self::Codex => Variables::None,
        }
    }

    /// Whether its file is documented as plain JSON, without comments and trailing commas.
    pub(super) fn reads_plain_json(self) -> bool {
        matches!(self, Self::ClaudeDesktop | Self::ClaudeCode)
    }

    /// What its user does to use the new entry.
    pub(super) fn next_step(self) -> &'static str {
        match self {
            Self::ClaudeDesktop => "Quit Claude Desktop and start it again.",
            Self::ClaudeCode => "Claude Code reads it when it starts; /mcp in it shows the server.",
            Self::Cursor => "Cursor shows the server in its settings, where it can be switched on.",
            Self::Vscode => "VS Code asks whether you trust the server; `MCP: List Servers` shows and starts it.",
            Self::Codex => "Codex reads it when it starts; /mcp in it shows the server.",
            Self::Gemini => "Gemini CLI reads it when it starts; /mcp in it shows the server.",
        }
    }

    /// The file of a scope. `variable` is the environment, `folder` the current folder.
    pub(super) fn file(
        self,
        scope: Scope,
        platform: Platform,
        variable: &dyn Fn(&str) -> Option<PathBuf>,
        folder: &Path,
    ) -> anyhow::Result<PathBuf> {
        match scope {
            Scope::User => self.user_file(platform, variable),
            Scope::Project => Ok(folder.join(self.project_file()?)),
        }
    }

    fn project_file(self) -> anyhow::Result<&'static str> {
        Ok(match self {
            Self::ClaudeDesktop => bail!("Claude Desktop has no configuration for projects: leave out --scope project"),
            Self::ClaudeCode => ".mcp.json",
            Self::Cursor => ".cursor/mcp.json",
            Self::Vscode => ".vscode/mcp.json",
            Self::Codex => ".codex/config.toml",
            Self::Gemini => ".gemini/settings.json",
        })
    }

    fn user_file(self, platform: Platform, variable: &dyn Fn(&str) -> Option<PathBuf>) -> anyhow::Result<PathBuf> {
        // Programs ignore a relative path there, or take it as relative to wherever they were started.
        let folder = |name: &str| variable(name).filter(|path| path.is_absolute());
        let home = || {
            let name = if platform == Platform::Windows { "USERPROFILE" } else { "HOME" };
            folder(name).with_context(|| format!("{name} is not set to the path of your home folder"))
        };
        let applications = || match platform {
            Platform::MacOs => Ok(home()?.join("Library/Application Support")),
            Platform::Windows => match folder("APPDATA") {
                Some(folder) => Ok(folder),
                None => Ok(home()?.join("AppData").join("Roaming")),
            },
            Platform::Xdg => match folder("XDG_CONFIG_HOME") {
                Some(folder) => Ok(folder),
                None => anyhow::Ok(home()?.join(".config")),
            },
        };
        Ok(match self {
            Self::ClaudeDesktop => applications()?.join("Claude").join("claude_desktop_config.json"),
            Self::ClaudeCode => match folder("CLAUDE_CONFIG_DIR") {
                Some(folder) => folder.join(".claude.json"),
                None => home()?.join(".claude.json"),
            },
            Self::Cursor => home()?.join(".cursor").join("mcp.json"),
            Self::Vscode => match (folder("VSCODE_PORTABLE"), folder("VSCODE_APPDATA")) {
                (Some(portable), _) => portable.join("user-data"),
                (None, Some(folder)) => folder.join("Code"),
                (None, None) => applications()?.join("Code"),
            }
            .join("User")
            .join("mcp.json"),
            Self::Codex => match folder("CODEX_HOME") {
                Some(folder) => folder.join("config.toml"),
                None => home()?.join(".codex").join("config.toml"),
            },
            Self::Gemini => folder("GEMINI_CLI_HOME").map_or_else(home, Ok)?.join(".gemini").join("settings.json"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(client: ClientName, platform: Platform, variables: &[(&str, &str)]) -> String {
        let variable = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, path)| path.into());
        let file = client.file(Scope::User, platform, &variable, Path::new("/work"));
        file.map_or_else(|error| error.to_string(), |file| file.display().to_string())
    }

    #[test]
    fn the_file_of_a_client_is_where_the_client_looks_for_it() {
        use ClientName::{ClaudeCode, ClaudeDesktop, Codex, Cursor, Gemini, Vscode};
        use Platform::{MacOs, Windows, Xdg};
        let home = ("HOME", "/h");
        for (client, platform, variables, path) in [
            (ClaudeDesktop, MacOs, &[home] as &[_], "/h/Library/Application Support/Claude/claude_desktop_config.json"),
            (ClaudeDesktop, Xdg, &[home], "/h/.config/Claude/claude_desktop_config.json"),
            (ClaudeDesktop, Xdg, &[home, ("XDG_CONFIG_HOME", "/x")], "/x/Claude/claude_desktop_config.json"),
            (ClaudeDesktop, Windows, &[("APPDATA", "/a")], "/a/Claude/claude_desktop_config.json"),
            (ClaudeDesktop, Windows, &[("USERPROFILE", "/u")], "/u/AppData/Roaming/Claude/claude_desktop_config.json"),
            (ClaudeCode, MacOs, &[home], "/h/.claude.json"),
            (ClaudeCode, Xdg, &[home, ("CLAUDE_CONFIG_DIR", "/c")], "/c/.claude.json"),
            (ClaudeCode, Windows, &[("USERPROFILE", "/u")], "/u/.claude.json"),
            (Cursor, Xdg, &[home, ("XDG_CONFIG_HOME", "/x")], "/h/.cursor/mcp.json"),
            (Cursor, MacOs, &[home], "/h/.cursor/mcp.json"),
            (Vscode, Xdg, &[home], "/h/.config/Code/User/mcp.json"),
            (Vscode, MacOs, &[home], "/h/Library/Application Support/Code/User/mcp.json"),
            (Vscode, Windows, &[("APPDATA", "/a")], "/a/Code/User/mcp.json"),
            (Vscode, Xdg, &[home, ("VSCODE_APPDATA", "/v")], "/v/Code/User/mcp.json"),
            (Vscode, Xdg, &[home, ("VSCODE_PORTABLE", "/p")], "/p/user-data/User/mcp.json"),
            (Codex, Xdg, &[home], "/h/.codex/config.toml"),
            (Codex, MacOs, &[home, ("CODEX_HOME", "/c")], "/c/config.toml"),
            (Gemini, Xdg, &[home], "/h/.gemini/settings.json"),
            (Gemini, Xdg, &[home, ("GEMINI_CLI_HOME", "/g")], "/g/.gemini/settings.json"),
            (Cursor, Xdg, &[], "HOME is not set to the path of your home folder"),
            (Cursor, Xdg, &[("HOME", "relative")], "HOME is not set to the path of your home folder"),
        ] {
            assert_eq!(file(client, platform, variables), path, "{client:?} on {platform:?}");
        }
    }
}
