//! The built binary, served to a real MCP client.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use mcp::{Client, ToolCallResult, UserAnswer};
use serde_json::{Map, Value, json};
use tokio::process::Command;

use crate::cluster::Database;
use crate::pgbouncer::PgBouncer;
use crate::proxy::Proxy;
use crate::repository::repository;

/// The variable that names another build of the binary, of any age.
const PROGRAM: &str = "COUNTERSIGN_TEST_PROGRAM";

/// The built binary, or the one that `COUNTERSIGN_TEST_PROGRAM` names. `cargo test --workspace` builds it beside the
/// tests; `cargo test -p acceptance` does not, so an outdated binary is refused.
pub fn countersign() -> PathBuf {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND
        .get_or_init(|| {
            if let Some(named) = std::env::var_os(PROGRAM) {
                let named = PathBuf::from(named);
                return named.canonicalize().unwrap_or_else(|error| panic!("{PROGRAM}={}: {error}", named.display()));
            }
            let test = std::env::current_exe().expect("the path of this test");
            let folder = test.ancestors().nth(2).expect("target/<profile>");
            let program = folder.join("countersign");
            let built = std::fs::metadata(&program).and_then(|file| file.modified());
            let changed = [
                ("crates", "rs"),
                ("crates", "sh"),
                ("manifests", "toml"),
                ("manifests", "sql"),
                ("migrations", "sql"),
            ]
            .map(|(folder, kind)| last_change(&repository().join(folder), kind));
            assert!(
                built.is_ok_and(|built| changed.iter().flatten().all(|changed| *changed <= built)),
                "{} is missing or older than its source: run `cargo build`, or `cargo test --workspace`",
                program.display()
            );
            program
        })
        .clone()
}

/// The time of the last change to a file with this extension, except tests, and a manifest that is not in the binary.
fn last_change(folder: &Path, kind: &str) -> Option<SystemTime> {
    let entries = std::fs::read_dir(folder).expect("a folder of the repository").map(|entry| entry.expect("an entry"));
    entries
        .filter(|entry| !["tests", "testkit", "dba.toml"].iter().any(|name| entry.file_name() == *name))
        .filter_map(|entry| {
            let (path, file) = (entry.path(), entry.metadata().expect("its metadata"));
            if file.is_dir() {
                last_change(&path, kind)
            } else if path.extension().is_some_and(|extension| extension == kind) {
                file.modified().ok()
            } else {
                None
            }
        })
        .max()
}

/// The arguments of a call.
pub fn arguments(json: Value) -> Map<String, Value> {
    match json {
        Value::Object(arguments) => arguments,
        other => panic!("arguments are an object, not {other}"),
    }
}

/// Whether structured content equals the text content, where a number may be written as the text of its digits (I-2).
fn is_same_with_digits(text: &Value, structured: &Value) -> bool {
    match (text, structured) {
        (Value::Number(number), Value::String(digits)) => number.to_string() == *digits,
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| is_same_with_digits(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            let same = |(name, left)| right.get(name).is_some_and(|right| is_same_with_digits(left, right));
            left.len() == right.len() && left.iter().all(same)
        }
        _ => text == structured,
    }
}

/// How long a person reads before they decline: a faster answer is the client's own.
pub const READING_TIME: Duration = Duration::from_millis(1_100);

#[derive(Debug)]
pub struct Server {
    client: Client,
}

impl Server {
    /// Command that starts `countersign serve` on this database with the social manifest. Tests add arguments.
    pub fn command(database: &Database) -> Command {
        let mut command = Self::bare_command(database);
        command.arg("--manifest").arg(repository().join("manifests/social.toml"));
        command
    }

    /// Like [`Server::command`], but the server connects through a proxy.
    pub fn command_through(proxy: &Proxy, database: &Database) -> Command {
        let mut command = Self::command(database);
        command.env("DATABASE_URL", proxy.url());
        command
    }

    /// Like [`Server::command`], but the server connects through PgBouncer and has the setting for it.
    pub fn command_pooled(pooler: &PgBouncer) -> Command {
        let mut command = Self::command(pooler.database());
        command.env("DATABASE_URL", pooler.url()).env("COUNTERSIGN_POOLER", "transaction");
        command
    }

    /// Like [`Server::command`], but without a manifest.
    pub fn bare_command(database: &Database) -> Command {
        let mut command = Command::new(countersign());
        command.env("DATABASE_URL", database.writer_url()).args(["--log", "warn", "serve"]).kill_on_drop(true);
        // The client of the tests asks nobody.
        command.env("COUNTERSIGN_AGENT_CONFIRMS", "true");
        command
    }

    /// A server with the social manifest, and what `set` adds to its command.
    pub async fn with(database: &Database, set: impl FnOnce(&mut Command) -> &mut Command) -> Self {
        let mut command = Self::command(database);
        set(&mut command);
        Self::start(command).await
    }

    /// Like [`Server::with`], but without a manifest.
    pub async fn bare_with(database: &Database, set: impl FnOnce(&mut Command) -> &mut Command) -> Self {
        let mut command = Self::bare_command(database);
        set(&mut command);
        Self::start(command).await
    }

    pub async fn start(command: Command) -> Self {
        Self { client: Client::start(command).await.expect("an MCP session") }
    }

    /// Starts a server whose questions this user answers. With `None` the user never answers.
    pub async fn with_user(
        command: Command,
        user: impl Fn(&str) -> Option<UserAnswer> + Send + Sync + 'static,
    ) -> Self {
        let user = move |question: &str| {
            let answer = user(question);
            if answer == Some(UserAnswer::Decline) {
                tokio::task::block_in_place(|| std::thread::sleep(READING_TIME));
            }
            answer
        };
        Self { client: Client::start_with_user(command, user).await.expect("an MCP session") }
    }

    /// Command that starts `countersign serve` on this database with the studio manifest.
    pub fn studio_command(database: &Database) -> Command {
        let mut command = Self::bare_command(database);
        command.arg("--manifest").arg(repository().join("manifests/studio.toml"));
        command
    }

    /// A server with the studio manifest on this database.
    pub async fn studio(database: &Database) -> Self {
        Self::start(Self::studio_command(database)).await
    }

    /// Starts the default server on this database.
    pub async fn on(database: &Database) -> Self {
        Self::start(Self::command(database)).await
    }

    /// Starts a server without the deduplication cache: every duplicate reaches the ledger and leaves a record.
    pub async fn without_dedup_cache(database: &Database) -> Self {
        let mut command = Self::command(database);
        command.env("COUNTERSIGN_DUPLICATE_MEMORY_S", "0");
        Self::start(command).await
    }

    pub fn client(&self) -> &Client {
        &self.client
    }

    pub async fn tool_names(&self) -> Vec<String> {
        let tools = self.client.list_tools().await.expect("tools/list");
        tools.iter().map(|tool| tool["name"].as_str().expect("a name").to_owned()).collect()
    }

    /// Calls a tool. Returns its envelope, whose two forms must be equal.
    pub async fn call(&self, tool: &str, json: Value) -> Value {
        let answer: ToolCallResult = self.client.call(tool, arguments(json)).await.expect("an answer");
        let text: Value = serde_json::from_str(&answer.text).expect("text content is JSON");
        let same = is_same_with_digits(&text, &answer.envelope);
        assert!(same, "text and structured content are the same envelope: {text} {}", answer.envelope);
        assert_eq!(text["success"], !answer.is_error, "isError says the same as the envelope");
        text
    }

    /// Calls a tool that must succeed. Returns the envelope.
    pub async fn succeed(&self, tool: &str, json: Value) -> Value {
        let envelope = self.call(tool, json).await;
        assert_eq!(envelope["success"], true, "{tool}: {envelope}");
        envelope
    }

    /// Calls a tool that must fail with this code. Returns its `error`.
    pub async fn fail(&self, tool: &str, json: Value, code: &str) -> Value {
        let envelope = self.call(tool, json).await;
        assert_eq!(envelope["error"]["code"], code, "{tool}: {envelope}");
        envelope["error"].clone()
    }

    /// Runs a query that must succeed. Returns its rows.
    pub async fn query(&self, sql: &str) -> Vec<Value> {
        let envelope = self.succeed("query_database", json!({"query": sql})).await;
        envelope["data"]["rows"].as_array().expect("rows").clone()
    }

    /// The record of a write that was answered with this envelope.
    pub async fn record(&self, envelope: &Value) -> Value {
        let receipt = json!({"correlation_id": envelope["meta"]["correlation_id"]});
        self.succeed("get_mutation_detail", receipt).await["data"].clone()
    }

    /// Calls a tool that must propose its write and write nothing. Returns the proposal.
    pub async fn propose(&self, tool: &str, json: Value) -> Value {
        let envelope = self.succeed(tool, json).await;
        assert_eq!(envelope["data"]["requires_approval"], true, "{envelope}");
        assert_eq!(envelope["data"]["proposal"]["status"], "pending", "{envelope}");
        assert!(envelope["meta"].get("correlation_id").is_none(), "nothing written, so no receipt: {envelope}");
        envelope["data"]["proposal"].clone()
    }

    pub async fn close(self) {
        self.client.close().await.expect("a server that ends well");
    }
}
