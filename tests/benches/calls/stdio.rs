//! A server over stdio. The client only writes lines and looks for a few words in answers, so that the server is measured
//! and not the client's JSON.

use std::process::Stdio;

use serde_json::{Value, json};
use testkit::{Database, Server, TestManifest};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::IN_FLIGHT;
use crate::call::{Call, Texts, check_row_answer};

/// A server over stdio with its tool that runs SQL.
pub(crate) struct StdioServer {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    line: Vec<u8>,
    asked: u64,
    /// The tool that runs SQL, of a server that has nothing else.
    tool: Option<&'static str>,
    /// Whether it can change rows.
    pub(crate) writes: bool,
}

impl StdioServer {
    /// This repository's server.
    pub(crate) async fn countersign(db: &Database, manifest: &TestManifest) -> Self {
        let mut command = Server::command(db);
        command.args(manifest.arguments());
        Self::start(command, None).await.expect("an answer of the server")
    }

    /// Starts a server. The error is the reason why it does not answer.
    pub(crate) async fn start(mut command: Command, tool: Option<&'static str>) -> Result<Self, String> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        let input = child.stdin.take().unwrap();
        let output = BufReader::with_capacity(1 << 16, child.stdout.take().unwrap());
        let mut server = Self { child, input, output, line: Vec::new(), asked: 0, tool, writes: true };
        let client = json!({"name": "bench", "version": "0"});
        let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client});
        server.send(&json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello})).await;
        if server.receive().await == 0 {
            return Err(format!("it ended: {:?}", server.child.wait().await));
        }
        server.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
        Ok(server)
    }

    async fn send(&mut self, message: &Value) {
        let mut line = serde_json::to_vec(message).unwrap();
        line.push(b'\n');
        // A server that has ended is found when it does not answer.
        self.input.write_all(&line).await.ok();
    }

    async fn receive(&mut self) -> usize {
        self.line.clear();
        self.output.read_until(b'\n', &mut self.line).await.unwrap()
    }

    async fn ask(&mut self, call: &Call) {
        self.asked += 1;
        let params = match self.tool {
            Some(tool) => json!({"name": tool, "arguments": {"sql": call.sql()}}),
            None => call.params(),
        };
        self.send(&json!({"jsonrpc": "2.0", "id": self.asked, "method": "tools/call", "params": params})).await;
    }

    pub(crate) async fn run(&mut self, call: &Call) {
        self.ask(call).await;
        self.receive().await;
        call.check_answer(&self.line);
    }

    /// Makes calls with [`IN_FLIGHT`] of them under way.
    pub(crate) async fn run_many(&mut self, texts: Texts, calls: usize) {
        for number in 0..calls + IN_FLIGHT {
            if number >= IN_FLIGHT {
                self.receive().await;
                check_row_answer(&self.line);
            }
            if number < calls {
                self.ask(&texts.call(number)).await;
            }
        }
    }

    /// The process of the server, or of the script that started it.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id().unwrap()
    }
}
