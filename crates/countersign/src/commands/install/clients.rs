//! The table of clients. `docs/setup/clients.md` lists the same places, and also those on Windows, where this program
//! does not run.

use super::client::{Base, Client, Format, Link, Member, Part, Remote, UserFiles, Variables};
use crate::commands::cli::ClientName;

/// The command and the arguments, as most clients have them.
const COMMAND: &[Member] = &[("command", Part::Command), ("args", Part::Arguments)];

/// The same with the type of the server.
const TYPED_COMMAND: &[Member] =
    &[("type", Part::Text("stdio")), ("command", Part::Command), ("args", Part::Arguments)];

/// The address of a server. The client detects the transport.
const URL: &[Member] = &[("url", Part::Url), ("headers", Part::Headers)];

/// The same with the transport.
const TYPED_URL: &[Member] =
    &[("type", Part::Transport { http: "http", sse: "sse" }), ("url", Part::Url), ("headers", Part::Headers)];

/// The same under another key.
const SERVER_URL: &[Member] = &[("serverUrl", Part::Url), ("headers", Part::Headers)];

/// The object of servers of most clients.
const MCP_SERVERS: Format = Format::Json { key: "mcpServers", comments: false };

/// The same, in a file that may have comments.
const MCP_SERVERS_WITH_COMMENTS: Format = Format::Json { key: "mcpServers", comments: true };

const CLAUDE_DESKTOP: Client = Client {
    label: "Claude Desktop",
    user_files: UserFiles { variables: &[], base: Base::Applications, paths: &["Claude/claude_desktop_config.json"] },
    project_files: &[],
    format: MCP_SERVERS,
    program: COMMAND,
    remote: Remote::Bridge,
    variables: Variables::None,
    link: None,
    next_step: "Quit Claude Desktop and start it again.",
};

const CLAUDE_CODE: Client = Client {
    label: "Claude Code",
    user_files: UserFiles {
        variables: &[("CLAUDE_CONFIG_DIR", ".claude.json")],
        base: Base::Home,
        paths: &[".claude.json"],
    },
    project_files: &[".mcp.json"],
    format: MCP_SERVERS,
    program: TYPED_COMMAND,
    remote: Remote::Entry { members: TYPED_URL, sse: true },
    variables: Variables::Braces,
    link: None,
    next_step: "Claude Code reads it when it starts; /mcp in it shows the server.",
};

const CURSOR: Client = Client {
    label: "Cursor",
    user_files: UserFiles { variables: &[], base: Base::Home, paths: &[".cursor/mcp.json"] },
    project_files: &[".cursor/mcp.json"],
    format: MCP_SERVERS_WITH_COMMENTS,
    program: TYPED_COMMAND,
    remote: Remote::Entry { members: URL, sse: true },
    variables: Variables::EnvBraces,
    link: Some(Link::Base64("cursor://anysphere.cursor-deeplink/mcp/install")),
    next_step: "Cursor shows the server in its settings, where it can be switched on.",
};

const VSCODE: Client = Client {
    label: "VS Code",
    user_files: UserFiles {
        variables: &[("VSCODE_PORTABLE", "user-data/User/mcp.json"), ("VSCODE_APPDATA", "Code/User/mcp.json")],
        base: Base::Applications,
        paths: &["Code/User/mcp.json"],
    },
    project_files: &[".vscode/mcp.json"],
    format: Format::Json { key: "servers", comments: true },
    program: TYPED_COMMAND,
    remote: Remote::Entry { members: TYPED_URL, sse: true },
    variables: Variables::EnvBracesAndInputs,
    link: Some(Link::Json),
    next_step: "VS Code asks whether you trust the server; `MCP: List Servers` shows and starts it.",
};

const COPILOT_CLI: Client = Client {
    label: "Copilot CLI",
    user_files: UserFiles {
        variables: &[("COPILOT_HOME", "mcp-config.json")],
        base: Base::Home,
        paths: &[".copilot/mcp-config.json"],
    },
    project_files: &[".github/mcp.json"],
    format: MCP_SERVERS,
    program: &[
        ("type", Part::Text("local")),
        ("command", Part::Command),
        ("args", Part::Arguments),
        ("tools", Part::Texts(&["*"])),
    ],
    remote: Remote::Entry {
        members: &[
            ("type", Part::Transport { http: "http", sse: "sse" }),
            ("url", Part::Url),
            ("headers", Part::Headers),
            ("tools", Part::Texts(&["*"])),
        ],
        sse: true,
    },
    variables: Variables::Braces,
    link: None,
    next_step: "Copilot CLI reads it when it starts; /mcp in it shows the server.",
};

const CODEX: Client = Client {
    label: "Codex",
    user_files: UserFiles {
        variables: &[("CODEX_HOME", "config.toml")],
        base: Base::Home,
        paths: &[".codex/config.toml"],
    },
    project_files: &[".codex/config.toml"],
    format: Format::Toml,
    program: COMMAND,
    remote: Remote::Entry {
        members: &[("url", Part::Url), ("http_headers", Part::Headers), ("bearer_token_env_var", Part::TokenVariable)],
        sse: false,
    },
    variables: Variables::Named,
    link: None,
    next_step: "Codex reads it when it starts; /mcp in it shows the server.",
};

const GEMINI: Client = Client {
    label: "Gemini CLI",
    user_files: UserFiles {
        variables: &[("GEMINI_CLI_HOME", ".gemini/settings.json")],
        base: Base::Home,
        paths: &[".gemini/settings.json"],
    },
    project_files: &[".gemini/settings.json"],
    format: MCP_SERVERS_WITH_COMMENTS,
    program: COMMAND,
    remote: Remote::Entry { members: TYPED_URL, sse: true },
    variables: Variables::Braces,
    link: None,
    next_step: "Gemini CLI reads it when it starts, in folders that it trusts; /mcp in it shows the server.",
};

const WINDSURF: Client = Client {
    label: "Windsurf",
    user_files: UserFiles { variables: &[], base: Base::Home, paths: &[".codeium/windsurf/mcp_config.json"] },
    project_files: &[],
    format: MCP_SERVERS,
    program: COMMAND,
    remote: Remote::Entry { members: SERVER_URL, sse: true },
    variables: Variables::EnvBraces,
    link: None,
    next_step: "Windsurf shows the server in the MCP list of its Cascade panel, where the list can be read again.",
};

const DEVIN_DESKTOP: Client = Client {
    label: "Devin Desktop",
    user_files: UserFiles { variables: &[], base: Base::XdgOnLinux, paths: &["devin/mcp_config.json"] },
    project_files: &[".devin/mcp_config.json"],
    format: MCP_SERVERS,
    program: COMMAND,
    remote: Remote::Entry {
        members: &[
            ("url", Part::Url),
            ("transport", Part::Transport { http: "http", sse: "sse" }),
            ("headers", Part::Headers),
        ],
        sse: true,
    },
    variables: Variables::None,
    link: None,
    next_step: "Devin Desktop shows the server in the MCP list of its agent panel.",
};

const CLINE: Client = Client {
    label: "Cline",
    user_files: UserFiles {
        variables: &[
            ("CLINE_MCP_SETTINGS_PATH", ""),
            ("CLINE_DATA_DIR", "settings/cline_mcp_settings.json"),
            ("CLINE_DIR", "data/settings/cline_mcp_settings.json"),
        ],
        base: Base::Home,
        paths: &[".cline/data/settings/cline_mcp_settings.json"],
    },
    project_files: &[],
    format: MCP_SERVERS,
    program: TYPED_COMMAND,
    remote: Remote::Entry {
        members: &[
            ("type", Part::Transport { http: "streamableHttp", sse: "sse" }),
            ("url", Part::Url),
            ("headers", Part::Headers),
        ],
        sse: true,
    },
    // Its command line sends `${env:NAME}` as it stands.
    variables: Variables::None,
    link: None,
    next_step: "Cline connects to the server when its file changes; its MCP page shows it.",
};

const ZED: Client = Client {
    label: "Zed",
    user_files: UserFiles { variables: &[], base: Base::XdgOnLinux, paths: &["zed/settings.json"] },
    project_files: &[".zed/settings.json"],
    format: Format::Json { key: "context_servers", comments: true },
    program: COMMAND,
    remote: Remote::Entry { members: URL, sse: false },
    variables: Variables::None,
    link: None,
    next_step: "Zed starts the server when its settings change; Settings > AI > MCP Servers shows it.",
};

const OPENCODE: Client = Client {
    label: "opencode",
    user_files: UserFiles {
        variables: &[],
        base: Base::Xdg,
        paths: &["opencode/opencode.jsonc", "opencode/opencode.json"],
    },
    project_files: &["opencode.jsonc", "opencode.json"],
    format: Format::Json { key: "mcp", comments: true },
    program: &[("type", Part::Text("local")), ("command", Part::CommandLine)],
    remote: Remote::Entry {
        members: &[("type", Part::Text("remote")), ("url", Part::Url), ("headers", Part::Headers)],
        sse: true,
    },
    variables: Variables::Env,
    link: None,
    next_step: "opencode reads it when it starts; `opencode mcp list` shows the server.",
};

const JUNIE: Client = Client {
    label: "Junie",
    user_files: UserFiles { variables: &[], base: Base::Home, paths: &[".junie/mcp/mcp.json"] },
    project_files: &[".junie/mcp/mcp.json"],
    format: MCP_SERVERS,
    program: COMMAND,
    remote: Remote::Entry { members: URL, sse: false },
    variables: Variables::None,
    link: None,
    next_step: "Junie shows the server in Settings > Tools > Junie > MCP Settings, and in /mcp of its command line.",
};

const LM_STUDIO: Client = Client {
    label: "LM Studio",
    user_files: UserFiles { variables: &[], base: Base::Home, paths: &[".lmstudio/mcp.json"] },
    project_files: &[],
    format: MCP_SERVERS,
    program: COMMAND,
    remote: Remote::Entry { members: URL, sse: false },
    variables: Variables::None,
    link: Some(Link::Base64("lmstudio://add_mcp")),
    next_step: "LM Studio shows the server in its Program tab, where it can be switched on.",
};

const ANTIGRAVITY: Client = Client {
    label: "Antigravity",
    user_files: UserFiles {
        variables: &[],
        base: Base::Home,
        paths: &[".gemini/config/mcp_config.json", ".gemini/antigravity/mcp_config.json"],
    },
    project_files: &[],
    format: MCP_SERVERS,
    program: COMMAND,
    remote: Remote::Entry { members: SERVER_URL, sse: false },
    variables: Variables::None,
    link: None,
    next_step: "Antigravity shows the server under MCP Servers of its agent panel, where the list can be read again.",
};

/// The time that Goose waits for an answer; also its own default.
const SECONDS: Part = Part::Number(300);

const GOOSE: Client = Client {
    label: "Goose",
    user_files: UserFiles { variables: &[], base: Base::Xdg, paths: &["goose/config.yaml"] },
    project_files: &[],
    format: Format::Yaml,
    program: &[
        ("enabled", Part::True),
        ("type", Part::Text("stdio")),
        ("name", Part::Name),
        ("description", Part::Text("PostgreSQL, through countersign")),
        ("cmd", Part::Command),
        ("args", Part::Arguments),
        ("timeout", SECONDS),
    ],
    remote: Remote::Entry {
        members: &[
            ("enabled", Part::True),
            ("type", Part::Text("streamable_http")),
            ("name", Part::Name),
            ("description", Part::Text("PostgreSQL, through countersign")),
            ("uri", Part::Url),
            ("headers", Part::Headers),
            ("timeout", SECONDS),
        ],
        sse: false,
    },
    variables: Variables::None,
    link: None,
    next_step: "Goose reads it when a session starts; `goose configure` switches extensions on and off.",
};

impl ClientName {
    pub(super) const fn client(self) -> &'static Client {
        match self {
            Self::ClaudeDesktop => &CLAUDE_DESKTOP,
            Self::ClaudeCode => &CLAUDE_CODE,
            Self::Cursor => &CURSOR,
            Self::Vscode => &VSCODE,
            Self::CopilotCli => &COPILOT_CLI,
            Self::Codex => &CODEX,
            Self::Gemini => &GEMINI,
            Self::Windsurf => &WINDSURF,
            Self::DevinDesktop => &DEVIN_DESKTOP,
            Self::Cline => &CLINE,
            Self::Zed => &ZED,
            Self::Opencode => &OPENCODE,
            Self::Junie => &JUNIE,
            Self::LmStudio => &LM_STUDIO,
            Self::Antigravity => &ANTIGRAVITY,
            Self::Goose => &GOOSE,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::commands::cli::Scope;
    use crate::commands::install::client::Platform;

    fn files(client: ClientName, platform: Platform, variables: &[(&str, &str)]) -> Vec<String> {
        let variable = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, path)| path.into());
        let files = client.client().files(Scope::User, platform, &variable, Path::new("/work"));
        files.map_or_else(
            |error| vec![error.to_string()],
            |files| files.iter().map(|file| file.display().to_string()).collect(),
        )
    }

    #[test]
    fn the_file_of_a_client_is_where_the_client_looks_for_it() {
        use ClientName::{
            Antigravity, ClaudeCode, ClaudeDesktop, Cline, Codex, CopilotCli, Cursor, DevinDesktop, Gemini, Junie,
            LmStudio, Opencode, Vscode, Windsurf, Zed,
        };
        use Platform::{MacOs, Xdg};
        let (home, xdg) = (("HOME", "/h"), ("XDG_CONFIG_HOME", "/x"));
        for (client, platform, variables, paths) in [
            (ClaudeDesktop, MacOs, &[home] as &[_], "/h/Library/Application Support/Claude/claude_desktop_config.json"),
            (ClaudeDesktop, Xdg, &[home], "/h/.config/Claude/claude_desktop_config.json"),
            (ClaudeDesktop, Xdg, &[home, xdg], "/x/Claude/claude_desktop_config.json"),
            (ClaudeCode, MacOs, &[home], "/h/.claude.json"),
            (ClaudeCode, Xdg, &[home, ("CLAUDE_CONFIG_DIR", "/c")], "/c/.claude.json"),
            (Cursor, Xdg, &[home, xdg], "/h/.cursor/mcp.json"),
            (Cursor, MacOs, &[home], "/h/.cursor/mcp.json"),
            (Vscode, Xdg, &[home], "/h/.config/Code/User/mcp.json"),
            (Vscode, MacOs, &[home], "/h/Library/Application Support/Code/User/mcp.json"),
            (Vscode, Xdg, &[home, ("VSCODE_APPDATA", "/v")], "/v/Code/User/mcp.json"),
            (Vscode, Xdg, &[home, ("VSCODE_PORTABLE", "/p")], "/p/user-data/User/mcp.json"),
            (CopilotCli, Xdg, &[home, xdg], "/h/.copilot/mcp-config.json"),
            (CopilotCli, MacOs, &[home, ("COPILOT_HOME", "/c")], "/c/mcp-config.json"),
            (Codex, Xdg, &[home], "/h/.codex/config.toml"),
            (Codex, MacOs, &[home, ("CODEX_HOME", "/c")], "/c/config.toml"),
            (Gemini, Xdg, &[home], "/h/.gemini/settings.json"),
            (Gemini, Xdg, &[home, ("GEMINI_CLI_HOME", "/g")], "/g/.gemini/settings.json"),
            (Windsurf, MacOs, &[home], "/h/.codeium/windsurf/mcp_config.json"),
            (DevinDesktop, MacOs, &[home, xdg], "/h/.config/devin/mcp_config.json"),
            (DevinDesktop, Xdg, &[home, xdg], "/x/devin/mcp_config.json"),
            (Cline, Xdg, &[home], "/h/.cline/data/settings/cline_mcp_settings.json"),
            (Cline, Xdg, &[home, ("CLINE_DIR", "/c")], "/c/data/settings/cline_mcp_settings.json"),
            (Cline, Xdg, &[home, ("CLINE_DATA_DIR", "/c")], "/c/settings/cline_mcp_settings.json"),
            (Cline, Xdg, &[home, ("CLINE_MCP_SETTINGS_PATH", "/c.json")], "/c.json"),
            (Zed, Xdg, &[home, xdg], "/x/zed/settings.json"),
            (Zed, MacOs, &[home, xdg], "/h/.config/zed/settings.json"),
            (Opencode, MacOs, &[home, xdg], "/x/opencode/opencode.jsonc /x/opencode/opencode.json"),
            (Junie, MacOs, &[home], "/h/.junie/mcp/mcp.json"),
            (LmStudio, Xdg, &[home], "/h/.lmstudio/mcp.json"),
            (Antigravity, Xdg, &[home], "/h/.gemini/config/mcp_config.json /h/.gemini/antigravity/mcp_config.json"),
            (Cursor, Xdg, &[], "HOME is not set to the path of your home folder"),
            (Cursor, Xdg, &[("HOME", "relative")], "HOME is not set to the path of your home folder"),
        ] {
            assert_eq!(files(client, platform, variables).join(" "), paths, "{client:?} on {platform:?}");
        }
    }
}
