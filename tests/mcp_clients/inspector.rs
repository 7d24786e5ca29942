//! The inspector's command line (`--cli`), with which developers and scripts try a server.

use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::{
    Database, External, HttpServer, countersign, database, long_form, node_script, repository, skip_without,
};
use tokio::process::Command;

const SCRIPT: &str = "@modelcontextprotocol/inspector/clients/launcher/build/index.js";

/// Its exit code for an answer with `isError`, and for a server that wants another token.
const TOOL_FAILED: i32 = 5;
const NOT_LET_IN: i32 = 3;

/// The inspector with the arguments that lead to a server, in a protocol era.
struct Inspector {
    to: Vec<String>,
    era: &'static str,
    home: TempDir,
}

/// The output of the inspector, with its exit code.
struct InspectorOutput {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl InspectorOutput {
    /// The result of a request that went well.
    fn result(&self) -> Value {
        assert_eq!(self.code, Some(0), "{}{}", self.stdout, self.stderr);
        let answer: Value =
            serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {}", self.stdout));
        answer["result"].clone()
    }
}

impl Inspector {
    fn new(to: &[&str], era: &'static str) -> Self {
        let to = to.iter().map(|&argument| argument.to_owned()).collect();
        Self { to, era, home: tempfile::tempdir().unwrap() }
    }

    /// Of a server that it starts itself, from a configuration file as desktop clients have them.
    fn over_stdio(db: &Database, era: &'static str) -> Self {
        let inspector = Self::new(&[], era);
        let config = inspector.home.path().join("mcp.json");
        let server = json!({
            "command": countersign(),
            "args": ["--log", "warn", "serve", "--manifest", repository().join("manifests/social.toml")],
            "env": {"DATABASE_URL": db.writer_url()},
        });
        std::fs::write(&config, json!({"mcpServers": {"countersign": server}}).to_string()).unwrap();
        let to = ["--config", config.to_str().unwrap(), "--server", "countersign"].map(ToOwned::to_owned);
        Self { to: to.to_vec(), ..inspector }
    }

    /// Of one that listens.
    fn over_http(server: &HttpServer, path: &str, era: &'static str) -> Self {
        Self::new(&["--server-url", &server.url(path)], era)
    }

    /// Runs the inspector with this bearer token.
    fn with_token(mut self, token: &str) -> Self {
        self.to.extend([
            "--header".to_owned(),
            format!("Authorization: Bearer {token}"),
            "--stored-auth-only".to_owned(),
        ]);
        self
    }

    /// Sends a request and takes the answer.
    async fn ask(&self, method: &str, more: &[&str]) -> InspectorOutput {
        let mut command: Command = node_script(SCRIPT);
        command.env("HOME", self.home.path()).arg("--cli").args(&self.to);
        command.args(["--protocol-era", self.era, "--format", "json", "--quiet", "--method", method]).args(more);
        let output = command.output().await.unwrap();
        let [stdout, stderr] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        InspectorOutput { code: output.status.code(), stdout, stderr }
    }

    async fn call(&self, tool: &str, arguments: &Value) -> InspectorOutput {
        self.ask("tools/call", &["--tool-name", tool, "--tool-args-json", &arguments.to_string()]).await
    }

    /// Lists, reads and writes.
    async fn goes_through(&self, db: &Database) {
        // --strict refuses schemas that some clients cannot use.
        let tools = self.ask("tools/list", &["--strict"]).await.result();
        let named: Vec<&str> =
            tools["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
        assert!(["query_database", "like_tweet"].iter().all(|name| named.contains(name)), "{named:?}");

        let query = json!({"query": "select 'é' as text, min(id) as first from social.tweet"});
        let read = self.call("query_database", &query).await.result();
        let first = db.value("select min(id) from social.tweet").await.parse::<i64>().unwrap();
        assert_eq!(read["structuredContent"]["data"]["rows"], json!([{"text": "é", "first": first}]), "{read}");

        let resources = self.ask("resources/list", &[]).await.result();
        let tweet = "countersign://database/social/tweet";
        assert!(resources["resources"].as_array().unwrap().iter().any(|it| it["uri"] == tweet), "{resources}");
        let content = self.ask("resources/read", &["--uri", tweet]).await.result();
        let text: Value = serde_json::from_str(content["contents"][0]["text"].as_str().unwrap()).unwrap();
        assert_eq!(text["table"]["name"], "tweet", "{content}");
        self.writes(db).await;
    }

    /// Writes once, and the same once more; and a read that would write is refused.
    async fn writes(&self, db: &Database) {
        let tweets = "select count(*) from social.tweet where text = 'Written by the inspector'";
        for duplicate in [json!(null), json!(true)] {
            let post = json!({"text": "Written by the inspector"});
            let written = self.call("post_tweet", &post).await.result();
            assert_eq!(written["structuredContent"]["data"]["duplicate"], duplicate, "{written}");
            assert_eq!(db.value(tweets).await, "1");
        }
        let refused = self.call("query_database", &json!({"query": "delete from social.tweet"})).await;
        assert_eq!(refused.code, Some(TOOL_FAILED), "{}{}", refused.stdout, refused.stderr);
        assert!(refused.stdout.contains("not_read_only"), "{}", refused.stdout);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_inspector_lists_reads_and_writes_over_stdio() {
    if skip_without(&[External::NodeModules]) {
        return;
    }
    let db = database().await;
    Inspector::over_stdio(&db, "legacy").goes_through(&db).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_inspector_writes_over_stdio_in_the_newest_protocol() {
    if long_form::is_left_out() {
        return;
    }
    if skip_without(&[External::NodeModules]) {
        return;
    }
    let db = database().await;
    Inspector::over_stdio(&db, "modern").writes(&db).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_inspector_lists_reads_and_writes_over_streamable_http_in_both_protocol_eras() {
    if long_form::is_left_out() {
        return;
    }
    if skip_without(&[External::NodeModules]) {
        return;
    }
    for era in ["legacy", "modern"] {
        let db = database().await;
        let server = HttpServer::on(&db).await;
        Inspector::over_http(&server, "/mcp", era).goes_through(&db).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_inspector_lists_reads_and_writes_over_sse() {
    if long_form::is_left_out() {
        return;
    }
    if skip_without(&[External::NodeModules]) {
        return;
    }
    let db = database().await;
    let server = HttpServer::on(&db).await;
    Inspector::over_http(&server, "/sse", "legacy").goes_through(&db).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_inspector_connects_with_its_token_and_reports_the_refusal_of_another() {
    if long_form::is_left_out() {
        return;
    }
    if skip_without(&[External::NodeModules]) {
        return;
    }
    let db = database().await;
    let folder = tempfile::tempdir().unwrap();
    let (token, table) = HttpServer::token("default", &["--profile", "readonly"]).await;
    let server = HttpServer::configured(&db, &folder, &table).await;
    for path in ["/mcp", "/sse"] {
        let inspector = Inspector::over_http(&server, path, "legacy").with_token(&token);
        let said = inspector.ask("tools/list", &[]).await;
        let tools = said.result().to_string();
        assert!(tools.contains("\"query_database\"") && !tools.contains("\"post_tweet\""), "{tools}");
        let said = Inspector::over_http(&server, path, "legacy").with_token("wrong").ask("tools/list", &[]).await;
        assert_eq!(said.code, Some(NOT_LET_IN), "{}{}", said.stdout, said.stderr);
        // It shows nothing of what is answered where it wants a stream of events.
        let words = if path == "/mcp" { "the token is unknown or has expired" } else { "(401)" };
        assert!(said.stderr.contains(words), "{path}: {}", said.stderr);
    }
}
