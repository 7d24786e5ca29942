//! Sends JSON-RPC lines to the built binary, including lines that a correct client would never send.

use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

/// A server on pipes, started as Claude Desktop does.
#[derive(Debug)]
pub struct RawStdioServer {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    instructions: String,
}

/// How long an answer may take before the test fails.
const TIMEOUT: Duration = Duration::from_secs(20);

impl RawStdioServer {
    /// Starts a server and opens an MCP session of this protocol version.
    pub async fn start(command: Command, protocol: &str) -> Self {
        Self::logging(command, Stdio::inherit(), protocol).await
    }

    /// Starts a server whose standard error goes to `log`.
    pub async fn logging(command: Command, log: Stdio, protocol: &str) -> Self {
        let mut server = Self::spawn(command, log);
        server.open(protocol, json!({})).await;
        server
    }

    /// Starts a server and opens a session of a client with these capabilities.
    pub async fn capable(command: Command, protocol: &str, capabilities: Value) -> Self {
        let mut server = Self::spawn(command, Stdio::inherit());
        server.open(protocol, capabilities).await;
        server
    }

    async fn open(&mut self, protocol: &str, capabilities: Value) {
        let client = json!({"name": "test", "version": "0"});
        let hello = json!({"protocolVersion": protocol, "capabilities": capabilities, "clientInfo": client});
        let answer = self.request(0, "initialize", hello).await;
        assert_eq!(answer["result"]["protocolVersion"], protocol, "{answer}");
        self.instructions = answer["result"]["instructions"].as_str().unwrap_or_default().to_owned();
        self.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
    }

    /// Starts a server and returns it with its standard error.
    pub async fn start_logged(command: Command, protocol: &str) -> (Self, ChildStderr) {
        let mut server = Self::spawn(command, Stdio::piped());
        let log = server.child.stderr.take().expect("its log");
        server.open(protocol, json!({})).await;
        (server, log)
    }

    /// Starts a server whose session has all tools from the beginning. On a busy machine, a session may begin before
    /// the server has reached its database; such a server is started again.
    pub async fn connected(command: impl Fn() -> Command, protocol: &str) -> Self {
        for _ in 0..10 {
            let server = Self::start(command(), protocol).await;
            if !server.instructions.contains("was not reachable when this session began") {
                return server;
            }
            server.close().await;
        }
        panic!("the server does not reach its database");
    }

    /// The instructions that the server sent at the beginning of the session.
    pub fn instructions(&self) -> &str {
        &self.instructions
    }

    /// Starts a server without opening a session.
    pub fn without_session(command: Command) -> Self {
        Self::spawn(command, Stdio::inherit())
    }

    fn spawn(mut command: Command, log: Stdio) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .expect("the server");
        let input = child.stdin.take().expect("its input");
        let output = BufReader::new(child.stdout.take().expect("its output")).lines();
        Self { child, input, output, instructions: String::new() }
    }

    /// Sends a line unchanged.
    pub async fn send(&mut self, line: &str) {
        self.input.write_all(line.as_bytes()).await.expect("the server reads");
        self.input.write_all(b"\n").await.expect("the server reads");
    }

    /// The next line, which must be JSON.
    pub async fn receive(&mut self) -> Value {
        let line = tokio::time::timeout(TIMEOUT, self.output.next_line()).await.expect("an answer in time");
        let line = line.expect("the server writes UTF-8").expect("the server lives");
        serde_json::from_str(&line)
            .unwrap_or_else(|error| panic!("standard output carries protocol only: {line}: {error}"))
    }

    /// Sends a request and returns the answer to it.
    pub async fn request(&mut self, id: u32, method: &str, params: Value) -> Value {
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string()).await;
        let answer = self.receive().await;
        assert_eq!(answer["id"], id, "{answer}");
        answer
    }

    /// Calls a tool. Returns its envelope.
    pub async fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let answer = self.request(1, "tools/call", json!({"name": tool, "arguments": arguments})).await;
        answer["result"]["structuredContent"].clone()
    }

    /// Closes standard input and waits for the end. Returns the remaining lines, and whether the exit was successful.
    pub async fn close_and_read(self) -> (Vec<Value>, bool) {
        let Self { child, input, output, .. } = self;
        drop(input);
        Self::rest(child, output).await
    }

    /// Waits for the end with standard input open. Returns the remaining lines, and whether the exit was successful.
    pub async fn ended(self) -> (Vec<Value>, bool) {
        let Self { child, input: _input, output, .. } = self;
        Self::rest(child, output).await
    }

    async fn rest(mut child: Child, mut output: Lines<BufReader<ChildStdout>>) -> (Vec<Value>, bool) {
        let ending = async {
            let mut lines = Vec::new();
            while let Some(line) = output.next_line().await.expect("the server writes UTF-8") {
                lines.push(serde_json::from_str(&line).expect("standard output carries protocol only"));
            }
            (lines, child.wait().await.expect("its status").success())
        };
        tokio::time::timeout(TIMEOUT, ending).await.expect("the server ends")
    }

    /// Waits for the end with standard input open. Returns the exit status.
    pub async fn exit_status(self) -> ExitStatus {
        let Self { mut child, input: _input, output: _output, .. } = self;
        tokio::time::timeout(TIMEOUT, child.wait()).await.expect("the server ends").expect("its status")
    }

    /// Closes standard input and waits for the end. Returns whether the exit was successful.
    pub async fn close(self) -> bool {
        let Self { mut child, input, output: _output, .. } = self;
        drop(input);
        tokio::time::timeout(TIMEOUT, child.wait()).await.expect("the server ends").expect("its status").success()
    }

    pub fn pid(&self) -> u32 {
        self.child.id().expect("it runs")
    }
}
