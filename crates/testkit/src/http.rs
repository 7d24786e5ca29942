//! The built binary over HTTP, and clients that can send arbitrary requests.

use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;

use crate::cluster::Database;
use crate::poll;
use crate::repository::repository;
use crate::server::countersign;

/// The time limit of each wait.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A server over HTTP on a free port.
#[derive(Debug)]
pub struct HttpServer {
    child: Child,
    base: String,
    log: watch::Receiver<Vec<String>>,
}

/// What every request of protocol 2026-07-28 brings along.
pub fn newest_meta() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "0"},
        "io.modelcontextprotocol/clientCapabilities": {},
    })
}

impl HttpServer {
    /// Command that starts `countersign serve --http` on this database with the social manifest. Tests add arguments.
    pub fn command(database: &Database) -> Command {
        let mut command = Command::new(countersign());
        command.env("DATABASE_URL", database.writer_url()).args(["--log", "info", "serve", "--http", "127.0.0.1:0"]);
        command.arg("--manifest").arg(repository().join("manifests/social.toml")).kill_on_drop(true);
        // The client of the tests asks nobody.
        command.env("COUNTERSIGN_AGENT_CONFIRMS", "true");
        command
    }

    /// Starts the server and waits until it is ready.
    pub async fn start(command: Command) -> Self {
        let server = Self::listening(command).await;
        server.until_ready().await;
        server
    }

    /// Starts the default server on this database.
    pub async fn on(database: &Database) -> Self {
        Self::start(Self::command(database)).await
    }

    /// Starts a server with a configuration file of this text, which is kept in `folder`.
    pub async fn configured(database: &Database, folder: &tempfile::TempDir, config: &str) -> Self {
        let path = folder.path().join("countersign.toml");
        std::fs::write(&path, config).expect("a configuration file");
        let mut command = Self::command(database);
        command.arg("--config").arg(path);
        Self::start(command).await
    }

    /// A token of an account, made by `countersign token new` with these arguments, and its table for the
    /// configuration.
    pub async fn token(account: &str, more: &[&str]) -> (String, String) {
        let mut command = Command::new(countersign());
        let output = command.args(["token", "new", "--json", "--account", account]).args(more).output().await;
        let made: Value = serde_json::from_slice(&output.expect("a token").stdout).expect("a token as JSON");
        let [token, table] = ["token", "toml"].map(|key| made[key].as_str().expect("text").to_owned());
        (token, table)
    }

    /// Starts the server and waits until it listens.
    pub async fn listening(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the server");
        let mut lines = BufReader::new(child.stderr.take().expect("its log")).lines();
        let (log, seen) = watch::channel(Vec::new());
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                log.send_modify(|lines| lines.push(line));
            }
        });
        let mut server = Self { child, base: String::new(), log: seen };
        let line = server.logged("listening on ").await;
        let url = line.split("listening on ").nth(1).and_then(|rest| rest.split("/mcp").next());
        server.base = url.expect("an address").to_owned();
        server
    }

    /// Waits for a line of the log with these words. Returns the first one.
    pub async fn logged(&self, words: &str) -> String {
        let mut log = self.log.clone();
        let has = |lines: &Vec<String>| lines.iter().any(|line| line.contains(words));
        let waited = tokio::time::timeout(TIMEOUT, log.wait_for(has)).await;
        let lines = match waited {
            Ok(Ok(lines)) => lines.clone(),
            Ok(Err(_)) => panic!("the server ended, and its log never said {words:?}:\n{}", self.log()),
            Err(_) => panic!("the log never says {words:?}:\n{}", self.log()),
        };
        lines.iter().find(|line| line.contains(words)).cloned().unwrap_or_default()
    }

    /// The log so far.
    pub fn log(&self) -> String {
        self.log.borrow().join("\n")
    }

    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    /// `host:port`.
    pub fn address(&self) -> String {
        self.base.split("://").nth(1).unwrap_or_default().to_owned()
    }

    pub async fn until_ready(&self) {
        self.until_status("/readyz", StatusCode::OK).await;
    }

    /// Polls a path until it has this status. Returns the body.
    pub async fn until_status(&self, path: &str, wanted: StatusCode) -> String {
        let (client, url) = (reqwest::Client::new(), self.url(path));
        let answer = async || {
            let answer = client.get(&url).send().await.expect("the server listens");
            (answer.status() == wanted).then_some(answer)
        };
        let answer = poll::until_some(&format!("{path} answers {wanted}"), answer).await;
        answer.text().await.expect("its body")
    }

    /// A client without a token and without a session.
    pub fn http_client(&self) -> HttpClient {
        HttpClient::at(self.base.clone())
    }

    /// A client with a session of this protocol version.
    pub async fn session(&self, protocol: &str) -> HttpClient {
        self.http_client().open(protocol, json!({})).await
    }

    pub fn pid(&self) -> u32 {
        self.child.id().expect("it runs")
    }

    /// Kills the server with SIGKILL.
    pub async fn kill(&mut self) {
        self.child.kill().await.expect("it runs");
    }

    /// Waits until the server has ended.
    pub async fn ended(&mut self) -> ExitStatus {
        tokio::time::timeout(TIMEOUT, self.child.wait()).await.expect("the server ends").expect("its status")
    }
}

/// An HTTP client that can send arbitrary requests.
#[derive(Debug, Clone)]
pub struct HttpClient {
    http: reqwest::Client,
    base: String,
    headers: HeaderMap,
}

#[derive(Debug)]
pub struct HttpAnswer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: String,
}

impl HttpAnswer {
    async fn of(response: Response) -> Self {
        let (status, headers) = (response.status(), response.headers().clone());
        Self { status, headers, body: response.text().await.expect("the whole body") }
    }

    /// The last JSON-RPC message in the body, as JSON or as an event.
    pub fn message(&self) -> Value {
        let mut events = self.body.lines().filter_map(|line| line.strip_prefix("data: "));
        let text = events.next_back().unwrap_or(&self.body);
        serde_json::from_str(text).unwrap_or_else(|error| panic!("{}: {}: {error}", self.status, self.body))
    }

    /// A header's text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("text"))
    }
}

impl HttpClient {
    /// A client of the server, or of a proxy, at this base URL.
    pub fn at(base: String) -> Self {
        let headers = HeaderMap::from_iter([
            (reqwest::header::ACCEPT, HeaderValue::from_static("application/json, text/event-stream")),
            (reqwest::header::CONTENT_TYPE, HeaderValue::from_static("application/json")),
        ]);
        Self { http: reqwest::Client::new(), base, headers }
    }

    /// A copy of this client that sends its requests to another server.
    #[must_use]
    pub fn connected_to(&self, server: &HttpServer) -> Self {
        Self { base: server.base.clone(), ..self.clone() }
    }

    /// Adds this header to all requests.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        let name: HeaderName = name.parse().expect("the name of a header");
        self.headers.insert(name, value.parse().expect("the value of a header"));
        self
    }

    /// Adds this bearer token to all requests.
    #[must_use]
    pub fn with_token(self, token: &str) -> Self {
        self.with("authorization", &format!("Bearer {token}"))
    }

    pub fn session_id(&self) -> &str {
        self.headers.get("mcp-session-id").expect("a session").to_str().expect("text")
    }

    /// Whether the client has a session. Without one it speaks protocol 2026-07-28.
    pub fn has_session(&self) -> bool {
        self.headers.contains_key("mcp-session-id")
    }

    /// Opens a session, with these capabilities of the client.
    pub async fn open(self, protocol: &str, capabilities: Value) -> Self {
        let client = json!({"name": "test", "version": "0"});
        let params = json!({"protocolVersion": protocol, "capabilities": capabilities, "clientInfo": client});
        let answer = self.post(&json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
        assert_eq!(answer.message()["result"]["protocolVersion"], protocol, "{}", answer.body);
        let id = answer.header("mcp-session-id").expect("a session").to_owned();
        let opened = self.with("mcp-session-id", &id).with("mcp-protocol-version", protocol);
        let initialized = opened.post(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
        assert_eq!(initialized.status, StatusCode::ACCEPTED, "{}", initialized.body);
        opened
    }

    /// A request, not sent yet.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, format!("{}{path}", self.base)).headers(self.headers.clone())
    }

    /// Sends a message to `/mcp`.
    pub async fn post(&self, message: &Value) -> HttpAnswer {
        self.send(self.request(Method::POST, "/mcp").body(message.to_string())).await
    }

    pub async fn send(&self, request: RequestBuilder) -> HttpAnswer {
        let sending = async { HttpAnswer::of(request.send().await.expect("an answer")).await };
        tokio::time::timeout(TIMEOUT, sending).await.expect("an answer in time")
    }

    /// Request that calls a tool; in protocol 2026-07-28 if there is no session.
    pub fn calling(&self, id: u32, tool: &str, arguments: &Value) -> RequestBuilder {
        let mut params = json!({"name": tool, "arguments": arguments});
        let mut request = self.request(Method::POST, "/mcp");
        if !self.has_session() {
            params["_meta"] = newest_meta();
            let headers = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call"), ("mcp-name", tool)];
            for (name, value) in headers {
                request = request.header(name, value);
            }
        }
        request.body(json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string())
    }

    /// Calls a tool and reads the whole body of the response, which may get lost.
    ///
    /// # Errors
    /// The connection was lost before the end of the response.
    pub async fn try_call(&self, id: u32, tool: &str, arguments: &Value) -> reqwest::Result<HttpAnswer> {
        let response = self.calling(id, tool, arguments).timeout(TIMEOUT).send().await?;
        let (status, headers) = (response.status(), response.headers().clone());
        Ok(HttpAnswer { status, headers, body: response.text().await? })
    }

    /// Calls a tool. Returns its envelope.
    pub async fn call(&self, tool: &str, arguments: Value) -> Value {
        let answer = self.send(self.calling(1, tool, &arguments)).await;
        let message = answer.message();
        let envelope = &message["result"]["structuredContent"];
        assert!(envelope.is_object(), "{}: {message}", answer.status);
        envelope.clone()
    }
}
