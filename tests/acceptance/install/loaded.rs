//! The clients themselves, from npm: each reads what was installed, and those whose command line can connect are connected.

use std::env::consts::ARCH;

use serde_json::{Value, json};
use testkit::{CommandOutput, External, database, external, long_form, skip_without};
use tokio::process::Command;

use super::remote::protected;
use super::{Home, run, succeeds};

/// The clients, whether their command line connects, and whether they support HTTP with SSE.
const INSTALLED: [(&str, bool, bool); 6] = [
    ("claude-code", true, true),
    ("gemini", true, true),
    ("opencode", true, true),
    ("codex", false, false),
    ("copilot-cli", false, true),
    ("cline", false, true),
];

impl Home {
    /// A client's own program, in this home and with the token in a variable.
    fn client(&self, client: &str, token: &str) -> Command {
        let modules = External::InstalledClients.expected_path();
        let (system, of_codex) =
            if cfg!(target_os = "macos") { ("darwin", "apple-darwin") } else { ("linux", "unknown-linux-musl") };
        let platform = format!("{system}-{}", if ARCH == "aarch64" { "arm64" } else { "x64" });
        let program = modules.join(match client {
            "claude-code" => format!("@anthropic-ai/claude-code-{platform}/claude"),
            "gemini" => "@google/gemini-cli/bundle/gemini.js".to_owned(),
            "opencode" => format!("opencode-{platform}/bin/opencode"),
            "codex" => format!("@openai/codex-{platform}/vendor/{ARCH}-{of_codex}/bin/codex"),
            "copilot-cli" => format!("@github/copilot-{platform}/copilot"),
            "cline" => format!("@cline/cli-{platform}/bin/cline"),
            other => panic!("{other}"),
        });
        let mut command = if client == "gemini" {
            let mut command = self.bare(external::node(&External::NodeModules.expected_path()).expect("a Node.js"));
            command.arg(program);
            command
        } else {
            self.bare(program)
        };
        // Gemini CLI connects only in folders that its user trusts. Nothing is sent or fetched.
        command.current_dir(self.project()).env("GEMINI_CLI_TRUST_WORKSPACE", "true").env("SHOP_TOKEN", token);
        command.env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1").env("OPENCODE_DISABLE_AUTOUPDATE", "1");
        command
    }

    /// Everything that a client prints.
    async fn shown(&self, client: &str, token: &str, arguments: &[&str]) -> String {
        let CommandOutput { code, out, err } = run(self.client(client, token).args(arguments)).await;
        assert_eq!(code, 0, "{client}: {out}{err}");
        format!("{out}{err}")
    }
}

/// Whether a list of servers has one as connected.
fn is_connected(client: &str, list: &str, name: &str) -> bool {
    let mark = match client {
        "claude-code" => format!("{name}: "),
        _ => format!("✓ {name}"),
    };
    let line = list.lines().find(|line| line.contains(&mark));
    line.is_some_and(|line| line.contains("onnected") && !line.contains("Disconnected"))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "outer: .ci/run runs it"]
async fn clients_from_npm_read_every_entry_and_connect() {
    // I-9
    if skip_without(&[External::NodeModules, External::InstalledClients]) || long_form::is_left_out() {
        return;
    }
    let (db, home) = (database().await, Home::new());
    let (server, token) = protected(&home).await;
    for (client, connects, sse) in INSTALLED {
        succeeds(&mut home.install(&db, client, &["--name", "shop"])).await;
        let remotes = [("far", "/mcp"), ("old", "/sse")].into_iter().take(if sse { 2 } else { 1 });
        for (name, path) in remotes.clone() {
            let url = server.url(path);
            let install = ["install", "--client", client, "--name", name, "--remote", &url];
            // Cline's command line reads no variable.
            let given = if client == "cline" { ["--token-file", "token"] } else { ["--token-env", "SHOP_TOKEN"] };
            succeeds(home.command(&install).args(given).env("SHOP_TOKEN", &token)).await;
        }
        if !connects {
            continue;
        }
        let list = home.shown(client, &token, &["mcp", "list"]).await;
        for (name, _) in remotes.chain([("shop", "")]) {
            assert!(is_connected(client, &list, name), "{client}, {name}: {list}");
        }
        let refused = home.shown(client, "wrong", &["mcp", "list"]).await;
        assert!(
            is_connected(client, &refused, "shop") && !is_connected(client, &refused, "far"),
            "{client}: {refused}"
        );
    }

    let program = testkit::countersign().canonicalize().unwrap();
    let list = succeeds(home.client("codex", &token).args(["mcp", "list", "--json"])).await.out;
    let list: Value = serde_json::from_str(&list).unwrap();
    let transport = |name: &str| {
        let entry = list.as_array().unwrap().iter().find(|entry| entry["name"] == name);
        entry.unwrap_or_else(|| panic!("{name}: {list}"))["transport"].clone()
    };
    assert_eq!((&transport("shop")["type"], &transport("shop")["command"]), (&json!("stdio"), &json!(program)));
    let far = transport("far");
    assert_eq!((&far["type"], &far["url"]), (&json!("streamable_http"), &json!(server.url("/mcp"))));
    assert_eq!(far["bearer_token_env_var"], "SHOP_TOKEN");

    let list = home.shown("copilot-cli", &token, &["mcp", "list"]).await;
    for line in ["shop (local)", "far (http)", "old (sse)"] {
        assert!(list.contains(line), "{list}");
    }
    let far = home.shown("copilot-cli", &token, &["mcp", "get", "far", "--show-secrets"]).await;
    assert!(far.contains(&server.url("/mcp")) && far.contains("Bearer ${SHOP_TOKEN}"), "{far}");

    let list = succeeds(home.client("cline", &token).args(["config", "mcp", "--json"])).await.out;
    let list: Value = serde_json::from_str(&list).unwrap();
    let transports = list.as_array().unwrap().iter().map(|entry| [&entry["name"], &entry["transportType"]]);
    let transports: Vec<_> = transports.collect();
    assert_eq!(json!(transports), json!([["far", "streamableHttp"], ["old", "sse"], ["shop", "stdio"]]));
}
