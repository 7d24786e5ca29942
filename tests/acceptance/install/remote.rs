//! Entries for a running server: each reaches it with the token, over HTTP and over HTTP with SSE.

use std::os::unix::fs::PermissionsExt;

use mcp::{Client, ProtocolGeneration};
use serde_json::{Value, json};
use testkit::{External, HttpClient, HttpServer, database, node_script, skip_without, startup_error};
use tokio::process::Command;

use super::{CLIENTS, Home, entry, succeeds};
use crate::http::sse::Session;

const BRIDGE: &str = "mcp-remote/dist/proxy.js";

/// A server that requires a token, the token, and a file with it in the project.
pub(super) async fn protected(home: &Home) -> (HttpServer, String) {
    let db = database().await;
    let (token, table) = HttpServer::token("default", &[]).await;
    let config = home.project().join("server.toml");
    std::fs::write(&config, table).unwrap();
    let mut command = HttpServer::command(&db);
    command.arg("--config").arg(config);
    std::fs::write(home.project().join("token"), format!("{token}\n")).unwrap();
    (HttpServer::start(command).await, token)
}

/// The header that a client sends for an entry, once it has replaced its own variables.
fn authorization(client: &str, entry: &Value, token: &str) -> String {
    let headers = if client == "codex" { "http_headers" } else { "headers" };
    let header = entry[headers]["Authorization"].as_str().unwrap_or_else(|| panic!("{entry}"));
    header.replace("${input:shop-token}", token)
}

/// The clients that are not known to support HTTP with SSE.
const WITHOUT_SSE: [&str; 5] = ["codex", "zed", "junie", "lm-studio", "antigravity"];

/// The address of an entry, and whether it speaks HTTP with SSE: as a member says, or else as the address says.
fn address(entry: &Value) -> (String, bool) {
    let text = |key: &str| entry[key].as_str().map(str::to_owned);
    let url = text("url").or_else(|| text("serverUrl")).unwrap_or_else(|| panic!("{entry}"));
    let transport = text("transport").or_else(|| text("type").filter(|kind| kind != "remote"));
    let is_sse = transport.map_or_else(|| url.ends_with("/sse"), |transport| transport == "sse");
    (url, is_sse)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_remote_entry_reaches_the_server_with_its_token() {
    let home = Home::new();
    let (server, token) = protected(&home).await;
    for path in ["/mcp", "/sse"] {
        for client in CLIENTS.into_iter().filter(|client| *client != "claude-desktop") {
            let url = server.url(path);
            let arguments =
                ["install", "--client", client, "--name", "shop", "--remote", &url, "--token-file", "token"];
            let mut command = home.command(&arguments);
            if path == "/sse" && WITHOUT_SSE.contains(&client) {
                let said = startup_error(&mut command).await;
                assert!(said.contains("is not known to support HTTP with SSE"), "{said}");
                continue;
            }
            let said = succeeds(command.arg("--replace")).await;
            assert!(!said.out.contains(&token) && !said.err.contains(&token), "{said:?}");
            let text = home.read(client);
            assert_eq!(text.contains(&token), client != "vscode", "{client}: {text}");
            let entry = entry(client, &text, "shop");
            let bearer = authorization(client, &entry, &token);
            assert_eq!(address(&entry), (url.clone(), path == "/sse"), "{client}: {entry}");
            if path == "/sse" {
                let mut session = Session::open(server.http_client().with("authorization", &bearer)).await;
                let tools = session.try_request(1, "tools/list", json!({})).await.unwrap();
                assert!(tools.to_string().contains("like_tweet"), "{client}: {tools}");
            } else {
                let bearer = bearer.strip_prefix("Bearer ").unwrap();
                let session = Client::connect_with_user(&url, bearer, ProtocolGeneration::Handshake, |_| None).await;
                assert!(!session.unwrap().list_tools().await.unwrap().is_empty(), "{client}");
            }
        }
    }
    // VS Code asks for the token, and the question goes with the entry.
    let text: Value = serde_json::from_str(&home.read("vscode")).unwrap();
    assert_eq!(text["inputs"][0]["id"], "shop-token");
    succeeds(&mut home.command(&["uninstall", "--client", "vscode", "--name", "shop"])).await;
    let text: Value = serde_json::from_str(&home.read("vscode")).unwrap();
    assert_eq!(text, json!({"servers": {}, "inputs": []}));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "outer: .ci/run runs it"]
async fn claude_desktop_reaches_it_through_the_bridge() {
    if skip_without(&[External::NodeModules]) {
        return;
    }
    let home = Home::new();
    let (server, token) = protected(&home).await;
    for path in ["/mcp", "/sse"] {
        let url = server.url(path);
        let arguments =
            ["install", "--client", "claude-desktop", "--replace", "--remote", &url, "--token-file", "token"];
        succeeds(&mut home.command(&arguments)).await;
        let entry = entry("claude-desktop", &home.read("claude-desktop"), "countersign");
        let arguments: Vec<&str> = entry["args"].as_array().unwrap().iter().map(|one| one.as_str().unwrap()).collect();
        assert_eq!((&entry["command"], &arguments[..2]), (&json!("npx"), &["-y", "mcp-remote@0.15.1"][..]));
        assert!(arguments.iter().all(|argument| !argument.contains(&token)), "{arguments:?}");
        // The package as installed here, without a request to the registry.
        let node = node_script(BRIDGE);
        let mut command: Command = home.bare(node.as_std().get_program());
        command.args(node.as_std().get_args()).args(&arguments[2..]);
        command.env("AUTHORIZATION", entry["env"]["AUTHORIZATION"].as_str().unwrap());
        let client = Client::start(command).await.unwrap();
        let tools = client.list_tools().await.unwrap();
        assert!(tools.iter().any(|tool| tool["name"] == "like_tweet"), "{tools:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_not_written_where_others_read_it() {
    let home = Home::new();
    let (server, token) = protected(&home).await;
    let url = server.url("/mcp");
    let install = |client: &str, more: &[&str]| {
        let mut command = home.command(&["install", "--client", client, "--remote", &url]);
        command.args(more);
        command
    };
    let file = home.write("cursor", "{}\n");
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).unwrap();
    let said = startup_error(&mut install("cursor", &["--token-file", "token"])).await;
    assert!(said.contains("chmod 600") && said.contains("--token-env NAME"), "{said}");
    let said = startup_error(&mut install("cursor", &["--token-file", "token", "--scope", "project"])).await;
    assert!(said.contains("belongs to the project and would contain the token"), "{said}");
    let printed = succeeds(&mut install("gemini", &["--token-file", "token", "--print"])).await;
    assert!(printed.out.contains("Bearer THE_TOKEN") && !printed.out.contains(&token), "{}", printed.out);

    for (client, key, value) in [
        ("claude-code", "headers", json!({"Authorization": "Bearer ${SHOP_TOKEN}"})),
        ("cursor", "headers", json!({"Authorization": "Bearer ${env:SHOP_TOKEN}"})),
        ("vscode", "headers", json!({"Authorization": "Bearer ${env:SHOP_TOKEN}"})),
        ("codex", "bearer_token_env_var", json!("SHOP_TOKEN")),
        ("gemini", "headers", json!({"Authorization": "Bearer ${SHOP_TOKEN}"})),
        ("copilot-cli", "headers", json!({"Authorization": "Bearer ${SHOP_TOKEN}"})),
        ("windsurf", "headers", json!({"Authorization": "Bearer ${env:SHOP_TOKEN}"})),
        ("opencode", "headers", json!({"Authorization": "Bearer {env:SHOP_TOKEN}"})),
    ] {
        succeeds(install(client, &["--token-env", "SHOP_TOKEN"]).env("SHOP_TOKEN", &token)).await;
        assert_eq!(entry(client, &home.read(client), "countersign")[key], value, "{client}");
    }
    for client in ["claude-desktop", "cline", "devin-desktop", "zed", "junie", "lm-studio", "antigravity"] {
        let said = startup_error(&mut install(client, &["--token-env", "SHOP_TOKEN"])).await;
        assert!(said.contains("use --token-file"), "{client}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_does_not_answer_or_refuses_the_token_is_not_installed() {
    let home = Home::new();
    let (server, _token) = protected(&home).await;
    std::fs::write(home.project().join("wrong"), "wrongwrongwrongwrong").unwrap();
    std::fs::write(home.project().join("two"), "one two").unwrap();
    let install = |url: &str, more: &[&str]| {
        let mut command = home.command(&["install", "--client", "codex", "--remote", url]);
        command.args(more);
        command
    };
    let (mcp, dead) = (server.url("/mcp"), "http://127.0.0.1:1/mcp");
    for (mut command, said) in [
        (install(&mcp, &["--token-file", "wrong"]), "refuses the token (status 401"),
        (install(&mcp, &["--token-file", "two"]), "is not one word of ASCII characters"),
        (
            install(&server.url("/nowhere"), &["--token-file", "token"]),
            "does not answer as an MCP server does (status 404",
        ),
        (install(dead, &["--token-file", "token"]), "http://127.0.0.1:1/mcp does not answer"),
        (install(&mcp, &["--profile", "write"]), "--profile is for a server that the client starts"),
    ] {
        let error = startup_error(&mut command).await;
        assert!(error.contains(said) && !error.contains("wrongwrong"), "{said}: {error}");
    }
    assert!(!home.file("codex").exists());
    succeeds(&mut install(dead, &["--token-file", "token", "--no-check"])).await;
    let insecure = super::run(&mut install("http://mcp.example.com/mcp", &[])).await;
    assert!(insecure.code == 2 && insecure.err.contains("must begin with https://"), "{insecure:?}");
    // Without a token the client signs in with OAuth.
    assert_eq!(HttpClient::at(server.url("")).post(&json!({})).await.status, 401);
    succeeds(&mut install(&mcp, &["--replace"])).await;
}
