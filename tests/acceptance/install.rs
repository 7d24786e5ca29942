//! `countersign install` and `uninstall`: every entry is decoded again, and what it says is started with a real MCP client.
//! Nothing else in a client's file changes.

mod files;
mod forms;
mod links;
mod loaded;
mod remote;
mod secrets;

use std::path::{Path, PathBuf};

use serde_json::Value;
use testkit::{Client, CommandOutput, Database, countersign, repository, run};
use tokio::process::Command;

/// The clients by the name of `--client`.
const CLIENTS: [&str; 15] = [
    "claude-desktop",
    "claude-code",
    "cursor",
    "vscode",
    "copilot-cli",
    "codex",
    "gemini",
    "windsurf",
    "devin-desktop",
    "cline",
    "zed",
    "opencode",
    "junie",
    "lm-studio",
    "antigravity",
];

/// A home folder with a project in it.
struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Self {
        let home = Self(tempfile::tempdir().unwrap());
        std::fs::create_dir(home.project()).unwrap();
        std::fs::copy(repository().join("manifests/social.toml"), home.project().join("social.toml")).unwrap();
        home
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn project(&self) -> PathBuf {
        self.path().join("project")
    }

    /// `countersign` in the project, with this home and without a configured database.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.bare(countersign());
        command.current_dir(self.project()).args(["--log", "error"]).args(arguments);
        command
    }

    /// A program as a client starts it: in another folder, and almost without variables.
    fn bare(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env_clear().env("HOME", self.path()).current_dir("/").kill_on_drop(true);
        command.envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
        command
    }

    /// `countersign install` with these arguments, of a server of the social manifest on this database.
    fn install(&self, db: &Database, client: &str, more: &[&str]) -> Command {
        let mut command = self.command(&["install", "--client", client, "--manifest", "social.toml"]);
        command.args(more).env("DATABASE_URL", db.writer_url());
        command
    }

    /// The file of a client.
    fn file(&self, client: &str) -> PathBuf {
        let applications = if cfg!(target_os = "macos") { "Library/Application Support" } else { ".config" };
        let path = match client {
            "claude-desktop" => format!("{applications}/Claude/claude_desktop_config.json"),
            "claude-code" => ".claude.json".to_owned(),
            "cursor" => ".cursor/mcp.json".to_owned(),
            "vscode" => format!("{applications}/Code/User/mcp.json"),
            "copilot-cli" => ".copilot/mcp-config.json".to_owned(),
            "codex" => ".codex/config.toml".to_owned(),
            "gemini" => ".gemini/settings.json".to_owned(),
            "windsurf" => ".codeium/windsurf/mcp_config.json".to_owned(),
            "devin-desktop" => ".config/devin/mcp_config.json".to_owned(),
            "cline" => ".cline/data/settings/cline_mcp_settings.json".to_owned(),
            "zed" => ".config/zed/settings.json".to_owned(),
            "opencode" => ".config/opencode/opencode.jsonc".to_owned(),
            "junie" => ".junie/mcp/mcp.json".to_owned(),
            "lm-studio" => ".lmstudio/mcp.json".to_owned(),
            "antigravity" => ".gemini/config/mcp_config.json".to_owned(),
            other => panic!("{other}"),
        };
        self.path().join(path)
    }

    fn read(&self, client: &str) -> String {
        std::fs::read_to_string(self.file(client)).unwrap()
    }

    /// Writes a client's file as its user has it.
    fn write(&self, client: &str, text: &str) -> PathBuf {
        let file = self.file(client);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, text).unwrap();
        file
    }

    /// The tools of the server that an entry starts.
    async fn tools(&self, entry: &Value) -> Vec<String> {
        let words = command_line(entry);
        let mut command = self.bare(&words[0]);
        command.args(&words[1..]);
        let variables = entry["env"].as_object().into_iter().flatten();
        command.envs(variables.map(|(name, value)| (name, value.as_str().unwrap())));
        let client = Client::start(command).await.unwrap_or_else(|error| panic!("{entry}: {error}"));
        let tools = client.list_tools().await.unwrap();
        client.close().await.unwrap();
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }

    async fn serves_the_social_manifest(&self, entry: &Value) {
        let tools = self.tools(entry).await;
        assert!(tools.contains(&"like_tweet".to_owned()), "{entry}: {tools:?}");
    }
}

/// The object or table of a client's file that has the servers.
fn servers_key(client: &str) -> &'static str {
    match client {
        "codex" => "mcp_servers",
        "vscode" => "servers",
        "zed" => "context_servers",
        "opencode" => "mcp",
        _ => "mcpServers",
    }
}

/// The entry of this name in the text of a client's file.
fn entry(client: &str, text: &str, name: &str) -> Value {
    let document: Value = match client {
        "codex" => toml::from_str(text).unwrap(),
        _ => serde_json::from_str(text).unwrap(),
    };
    document[servers_key(client)][name].clone()
}

/// The program of an entry and its arguments.
fn command_line(entry: &Value) -> Vec<String> {
    let words = |value: &Value| match value {
        Value::Array(words) => words.iter().map(|word| word.as_str().unwrap().to_owned()).collect(),
        word => Vec::from_iter(word.as_str().map(str::to_owned)),
    };
    [&entry["command"], &entry["args"]].into_iter().flat_map(words).collect()
}

async fn succeeds(command: &mut Command) -> CommandOutput {
    let output = run(command).await;
    assert_eq!(output.code, 0, "{}{}", output.out, output.err);
    output
}

/// The files of a folder by name, with their contents.
fn contents(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let mut contents: Vec<_> = entries
        .filter(|entry| entry.path().is_file())
        .map(|entry| (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap()))
        .collect();
    contents.sort();
    contents
}
