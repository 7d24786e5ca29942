//! The shop of the samples: from `init` to the first write, as README.md says it.

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use pg_embedded::{Cluster, Options};
use serde_json::{Value, json};
use testkit::{Server, countersign};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use super::sample;

pub(super) const TABLES: &str = "create schema shop;
    create table shop.orders (id bigint primary key, status text not null, placed date not null);
    create table shop.customers (id bigint primary key, email text);
    insert into shop.orders values (17, 'paid', '2026-02-01'), (18, 'open', '2025-12-31')";

/// A database `shop` of a cluster of its own, and a folder with the manifest of README.md.
pub(super) struct Shop {
    cluster: Arc<Cluster>,
    folder: tempfile::TempDir,
}

impl Shop {
    /// The tables, and no ledger.
    pub(super) async fn new() -> Self {
        let shop = Self::without_tables().await;
        shop.run(TABLES).await;
        shop
    }

    /// An empty database.
    pub(super) async fn without_tables() -> Self {
        let start = || Arc::new(testkit::start_cluster(Options::ephemeral()));
        let cluster = tokio::task::spawn_blocking(start).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("shop.toml"), sample("README.md", "name = \"shop\"")).unwrap();
        let shop = Self { cluster, folder };
        // One at a time: a database is not created in a transaction.
        shop.run_in("postgres", "create role me superuser login").await;
        shop.run_in("postgres", "create database shop").await;
        shop
    }

    /// A shop with the ledger, a tracked table, and the privileges that the writer needs.
    pub(super) async fn ready() -> Self {
        let shop = Self::new().await;
        for arguments in [vec!["init"], vec!["track", "shop.orders"]] {
            let ran =
                Command::new(countersign()).env("DATABASE_URL", shop.url("me")).args(arguments).output().await.unwrap();
            assert!(ran.status.success(), "{ran:?}");
        }
        shop.run("grant usage on schema shop to countersign_writer; grant select, update on shop.orders to countersign_writer")
            .await;
        // As it is from version 15 on: `check` warns otherwise.
        shop.run("revoke create on schema public from public").await;
        shop
    }

    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(super) fn manifest(&self) -> String {
        self.folder.path().join("shop.toml").to_str().unwrap().to_owned()
    }

    pub(super) fn url(&self, user: &str) -> String {
        let host = self.cluster.socket_dir().display().to_string().replace('/', "%2F");
        format!("postgresql://{user}@{host}:{}/shop", self.cluster.port())
    }

    /// What a sample says with the places that it leaves open.
    pub(super) fn filled_in(&self, text: &str) -> String {
        text.replace("postgresql://me@localhost:5432/shop", &self.url("me"))
            .replace("postgresql://countersign_writer:secret@localhost:5432/shop", &self.url("countersign_writer"))
            .replace("/path/to/countersign", countersign().to_str().unwrap())
            .replace("/path/to/shop.toml", &self.manifest())
            .replace("/path/to/url", self.folder().join("url").to_str().unwrap())
    }

    pub(super) async fn run(&self, sql: &str) {
        self.run_in("shop", sql).await;
    }

    pub(super) async fn run_in(&self, database: &str, sql: &str) {
        let url = self.cluster.connection_string(database);
        let client = testkit::connect(&url).await;
        client.batch_execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    }

    /// A shell command in the shop's folder that finds `countersign`; its standard output.
    pub(super) async fn shell(&self, script: &str, input: &str) -> String {
        let bin = self.folder().join("bin");
        std::fs::create_dir_all(&bin).unwrap();
        let link = bin.join("countersign");
        if !link.exists() {
            std::os::unix::fs::symlink(countersign(), link).unwrap();
        }
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
        // Without a terminal of its own, so that psql reads a password from standard input.
        let mut child = Command::new("setsid")
            .args(["--wait", "bash", "-euo", "pipefail", "-c", script])
            .current_dir(self.folder())
            .env("PATH", path)
            .env("PGHOST", self.cluster.socket_dir())
            .env("PGPORT", self.cluster.port().to_string())
            .env("PGUSER", "me")
            .env("HOME", self.folder())
            .env("XDG_CONFIG_HOME", self.folder())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        // A command that reads nothing may have ended by now.
        drop(child.stdin.take().unwrap().write_all(input.as_bytes()).await);
        let output = child.wait_with_output().await.unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "{script}\n{}{}", text(&output.stdout), text(&output.stderr));
        text(&output.stdout)
    }

    /// The server that `install` has given to Cursor under this name.
    async fn installed(&self, name: &str) -> Server {
        let file = std::fs::read_to_string(self.folder().join(".cursor/mcp.json")).unwrap();
        let file: Value = serde_json::from_str(&file).unwrap();
        let entry = &file["mcpServers"][name];
        let mut command = Command::new(entry["command"].as_str().unwrap());
        command.args(entry["args"].as_array().unwrap().iter().map(|argument| argument.as_str().unwrap()));
        command.env_remove("DATABASE_URL").kill_on_drop(true);
        Server::start(command).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_of_the_readme_lets_an_agent_read() {
    let shop = Shop::new().await;
    shop.run("create role agent login; grant usage on schema shop to agent; grant select on shop.orders to agent")
        .await;
    let command = sample("README.md", "countersign install --client cursor --name reads");
    shop.shell(&format!("export DATABASE_URL='{}'\n{command}", shop.url("agent")), "").await;
    let server = shop.installed("reads").await;
    assert_eq!(server.query("select status from shop.orders where id = 17").await, [json!({"status": "paid"})]);
    assert_eq!(server.tool_names().await, ["query_database", "describe_database", "explain_query"]);
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_two_commands_of_the_readme_let_an_agent_propose_a_write() {
    let shop = Shop::new().await;
    let commands = sample("README.md", "countersign init --schema shop");
    shop.shell(&format!("export DATABASE_URL='{}'\n{commands}", shop.url("me")), "").await;
    let server = shop.installed("shop").await;
    let call = json!({"sql": "update shop.orders set status = $1 where id = 17", "params": ["shipped"]});
    let shown = server.propose("execute_sql", call).await;
    let row = &shown["preview"]["effects"]["rows"][0]["columns"]["status"];
    assert_eq!(row, &json!({"before": "paid", "after": "shipped"}), "{shown}");
    let id = shown["proposal_id"].as_str().unwrap();
    shop.shell(&format!("export DATABASE_URL='{}'\ncountersign proposals approve {id} --yes", shop.url("me")), "")
        .await;
    let answer = json!({"proposal_id": id, "digest": shown["digest"]});
    let written = server.succeed("confirm_proposal", answer).await;
    assert_eq!(written["meta"]["rollback"]["undo_tool"], "undo_mutation", "{written}");
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_readme_from_init_to_the_first_write_and_back() {
    let shop = Shop::new().await;
    let script = sample("README.md", "export DATABASE_URL=postgresql://me");
    shop.shell(&shop.filled_in(&script), "secret\nsecret\n").await;

    let install = sample("README.md", "countersign install --client cursor --name shop --manifest");
    shop.shell(&format!("export DATABASE_URL='{}'\n{install}", shop.url("countersign_writer")), "").await;
    let server = shop.installed("shop").await;
    let call = json!({"id": 17, "status": "shipped"});
    let mut written = server.succeed("set_order_status", call).await;
    let mut shown: Value = serde_json::from_str(&sample("README.md", "{\"success\": true,")).unwrap();
    let undo = written["meta"]["rollback"]["undo_params"].clone();
    // What differs from one call to the next.
    for answer in [&mut written, &mut shown] {
        let receipt = answer["meta"]["correlation_id"].clone();
        let undo = answer["meta"]["rollback"]["undo_params"].as_object_mut().unwrap();
        assert_eq!(undo.remove("correlation_id"), Some(receipt));
        for name in ["elapsed_ms", "correlation_id"] {
            assert!(answer["meta"].as_object_mut().unwrap().remove(name).is_some(), "{answer}");
        }
    }
    assert_eq!(written, shown);
    server.succeed("undo_mutation", undo).await;
    let order = server.query("select status from shop.orders where id = 17").await;
    assert_eq!(order[0]["status"], "paid");

    let query = sample("README.md", "countersign query --dbname shop");
    let result: Value = serde_json::from_str(&shop.shell(&query, "").await).unwrap();
    assert_eq!(result["rows"], json!([{"orders": 1}]), "{result}");
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sample_configuration_starts_a_server() {
    // The profile of the sample names a tool of the manifest in README.md.
    let shop = Shop::ready().await;
    let place = shop.folder().to_str().unwrap().to_owned();
    std::fs::write(shop.folder().join("countersign-database-url"), shop.url("countersign_writer")).unwrap();
    std::fs::write(shop.folder().join("countersign-fingerprint-key"), "sixteen characters or more").unwrap();
    let export = format!("export DATABASE_URL='{}'", shop.url("me"));
    shop.shell(&format!("{export}; countersign audit keys new --signing-key {place}/countersign-log.key"), "").await;
    let sample = sample("docs/setup/configure.md", "# countersign.toml").replace("/run/secrets", &place);
    let over_http = sample.replace("127.0.0.1:7777", "127.0.0.1:0");
    assert_ne!(over_http, sample);
    std::fs::write(shop.folder().join("countersign.toml"), over_http).unwrap();
    let mut command = Command::new(countersign());
    command.arg("--config").arg(shop.folder().join("countersign.toml")).arg("serve").kill_on_drop(true);
    let server = testkit::HttpServer::listening(command).await;
    server.logged(" ready ").await;
}
