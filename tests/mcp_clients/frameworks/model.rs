//! A framework in a process of its own, and its model, which is the test: it gets what the framework shows to a model, and
//! says what to call next.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use testkit::{Database, External, HttpServer, countersign, external, repository};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

/// Where a framework finds the server.
#[derive(Debug)]
pub(super) enum Target<'a> {
    /// It starts a program.
    Program { command: String, arguments: Vec<String> },
    /// It connects to a running server.
    Http(&'a HttpServer),
}

impl Target<'_> {
    /// The server itself, started with these arguments.
    pub(super) fn stdio(arguments: &[String]) -> Self {
        let arguments = ["--log", "warn", "serve"].map(ToOwned::to_owned).into_iter().chain(arguments.iter().cloned());
        Self::Program { command: countersign().to_str().unwrap().to_owned(), arguments: arguments.collect() }
    }

    /// `mcp-remote`, which a client on standard input and output starts as its way to a server on the network.
    pub(super) fn bridge(server: &HttpServer) -> Self {
        let modules = External::NodeModules.expected_path();
        let node = external::node(&modules).unwrap().to_str().unwrap().to_owned();
        let script = modules.join("mcp-remote/dist/proxy.js").to_str().unwrap().to_owned();
        Self::Program { command: node, arguments: vec![script, server.url("/mcp"), "--allow-http".to_owned()] }
    }

    fn describe(&self, db: &Database, has_user: bool) -> Value {
        match self {
            Self::Program { command, arguments } => json!({
                "command": command, "args": arguments, "user": has_user,
                // mcp-remote keeps its files in the home.
                "env": {"DATABASE_URL": db.writer_url(), "HOME": std::env::temp_dir()},
            }),
            Self::Http(server) => json!({"url": server.url("/mcp"), "user": has_user}),
        }
    }
}

/// A line of a script.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Offered(Offered),
    Asked(String),
    #[serde(untagged)]
    Shown(Shown),
}

/// The tools as one of the framework's converters makes them for a model: the schemas of the parameters by name.
#[derive(Debug, Deserialize)]
pub(super) struct Offered {
    pub(super) by: String,
    pub(super) tools: BTreeMap<String, Value>,
}

/// What a model gets for a call.
#[derive(Debug, Deserialize)]
pub(super) struct Shown {
    shown: Value,
    /// Whether the framework says that the call failed; `None` where it has no place for that.
    pub(super) failed: Option<bool>,
}

impl Shown {
    /// All of it, as text: a model reads no JSON but text.
    pub(super) fn text(&self) -> String {
        match &self.shown {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        }
    }

    /// The word that follows this key, whatever the quoting: frameworks show JSON, JSON in JSON, or Python's notation.
    pub(super) fn word(&self, key: &str) -> String {
        let text = self.text();
        let value = text.match_indices(key).find_map(|(at, _)| {
            let rest = text[at + key.len()..].trim_start_matches('\\');
            rest.strip_prefix(['"', '\''])?.strip_prefix(':')
        });
        let is_word = |character: char| character.is_alphanumeric() || "_-".contains(character);
        let value = value.unwrap_or_else(|| panic!("no {key}: {text}"));
        value.trim_start_matches(|character| !is_word(character)).chars().take_while(|&it| is_word(it)).collect()
    }
}

/// How long a framework may take for one step: it imports hundreds of modules, beside other tests.
const PATIENCE: Duration = Duration::from_secs(180);

async fn next(lines: &mut Lines<BufReader<ChildStdout>>) -> Option<String> {
    timeout(PATIENCE, lines.next_line()).await.expect("the framework says something").unwrap()
}

/// A running framework.
#[derive(Debug)]
pub(super) struct Model {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    calls: ChildStdin,
    pub(super) offered: Vec<Offered>,
    /// What the user was asked, in order; the user accepts.
    pub(super) asked: Vec<String>,
}

impl Model {
    pub(super) fn start(external: External, script: &str, db: &Database, to: &Target<'_>, has_user: bool) -> Self {
        Self::spawn(external, script, &to.describe(db, has_user))
    }

    /// Starts a framework that also loads the skills of this repository.
    pub(super) fn with_skills(external: External, script: &str, db: &Database, to: &Target<'_>) -> Self {
        let mut server = to.describe(db, false);
        server["skills"] = json!(repository().join("skills"));
        Self::spawn(external, script, &server)
    }

    fn spawn(external: External, script: &str, server: &Value) -> Self {
        let path = external.expected_path();
        let mut command = if external == External::NodeModules {
            let mut node = Command::new(external::node(&path).unwrap());
            node.env(external.variable(), &path).arg(repository().join("tests/clients/frameworks").join(script));
            node
        } else {
            let mut python = Command::new(path);
            python.arg("-W").arg("ignore").arg(repository().join("tests/python/frameworks").join(script));
            python
        };
        command.arg(server.to_string()).kill_on_drop(true);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let calls = child.stdin.take().unwrap();
        Self { child, lines, calls, offered: Vec::new(), asked: Vec::new() }
    }

    /// The next line that is an answer to a call; `None` if there is none.
    async fn shown(&mut self) -> Option<Shown> {
        while let Some(line) = next(&mut self.lines).await {
            match serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}")) {
                Line::Shown(shown) => return Some(shown),
                Line::Offered(offered) => self.offered.push(offered),
                Line::Asked(question) => self.asked.push(question),
            }
        }
        None
    }

    /// Calls a tool; what the framework then shows.
    pub(super) async fn call(&mut self, tool: &str, arguments: Value) -> Shown {
        let call = json!({"tool": tool, "arguments": arguments});
        self.calls.write_all(format!("{call}\n").as_bytes()).await.unwrap();
        self.shown().await.unwrap_or_else(|| panic!("the framework ended at {call}"))
    }

    /// Ends the conversation, after which the framework must end well.
    pub(super) async fn finish(self) {
        let Self { mut child, mut lines, calls, .. } = self;
        drop(calls);
        if let Some(line) = next(&mut lines).await {
            panic!("more is shown: {line}");
        }
        let status = timeout(PATIENCE, child.wait()).await.expect("the framework ends").unwrap();
        assert!(status.success(), "{status}");
    }
}
