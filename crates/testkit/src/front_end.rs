//! The agent-first front ends as an agent starts them: JSON lines in and out, and nothing on standard error.

use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

use crate::cluster::Database;
use crate::server::countersign;

/// The time limit for an event.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Command that starts `countersign query`, `pipe` or `psql` without any configuration.
pub fn bare_front_end(name: &str) -> Command {
    let mut command = Command::new(countersign());
    let surroundings = std::env::vars_os().map(|(name, _)| name);
    for variable in surroundings.filter(|it| {
        let it = it.to_string_lossy();
        it.starts_with("PG") || it.starts_with("COUNTERSIGN_") || it == "DATABASE_URL"
    }) {
        command.env_remove(variable);
    }
    command.arg(name).kill_on_drop(true);
    command
}

/// Like [`bare_front_end`], but on this database as its superuser.
pub fn front_end(name: &str, database: &Database) -> Command {
    let mut command = bare_front_end(name);
    command.arg("--conninfo-secret").arg(database.url());
    command
}

/// Output of a front end that has ended.
#[derive(Debug)]
pub struct FrontEndOutput {
    /// Every line of standard output.
    pub events: Vec<Value>,
    pub status: i32,
}

impl FrontEndOutput {
    /// Runs the command to its end. Standard error must be empty.
    pub async fn of(command: &mut Command) -> Self {
        let output = tokio::time::timeout(TIMEOUT, command.stdin(Stdio::null()).output()).await.expect("it ends");
        let output = output.expect("the binary");
        let said = String::from_utf8(output.stdout).expect("UTF-8");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "nothing on standard error; standard output: {said}");
        Self { events: said.lines().map(parse).collect(), status: output.status.code().expect("no signal") }
    }

    /// The event, if there is exactly one.
    pub fn single_event(self) -> Value {
        let [event] = <[Value; 1]>::try_from(self.events).unwrap_or_else(|events| panic!("one event, not {events:?}"));
        event
    }
}

fn parse(line: &str) -> Value {
    let event = serde_json::from_str(line);
    let event = event.unwrap_or_else(|error| panic!("standard output carries events only: {line}: {error}"));
    assert!(is_well_formed(&event), "no event of docs/topics/agent-cli.md: {event}");
    event
}

/// Whether the event has a known code and, if it is a failure, an error code for programs.
fn is_well_formed(event: &Value) -> bool {
    let is_text = |key: &str| event[key].as_str().is_some_and(|text| !text.is_empty());
    let has_trace = event["trace"].is_object();
    match event["code"].as_str().unwrap_or_default() {
        "error" => {
            let is_code = event["error_code"].as_str().is_some_and(|code| ERROR_CODES.contains(&code));
            is_code && is_text("error") && event["retryable"].is_boolean() && has_trace
        }
        "sql_error" | "notice" => {
            event["sqlstate"].as_str().is_some_and(|it| it.len() == 5) && is_text("message") && has_trace
        }
        "result_start" | "result_rows" | "config" => true,
        "result" | "result_end" | "dry_run" | "pong" | "close" | "log" => has_trace,
        _ => false,
    }
}

const ERROR_CODES: [&str; 11] = [
    "invalid_request",
    "invalid_params",
    "connect_failed",
    "connect_timeout",
    "auth_failed",
    "result_too_large",
    "cancelled",
    "connection_lost",
    "commit_outcome_unknown",
    "unsupported",
    "internal_error",
];

#[derive(Debug)]
pub struct Pipe {
    child: Child,
    input: Option<ChildStdin>,
    output: Lines<BufReader<ChildStdout>>,
    errors: ChildStderr,
    /// Events that were received but not returned yet.
    waiting: Vec<Value>,
}

impl Pipe {
    /// A pipe on this database, as its superuser.
    pub fn on(database: &Database) -> Self {
        Self::start(front_end("pipe", database))
    }

    pub fn start(mut command: Command) -> Self {
        let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = pipes.spawn().expect("the binary");
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("its output")).lines();
        let errors = child.stderr.take().expect("its errors");
        Self { child, input, output, errors, waiting: Vec::new() }
    }

    pub fn id(&self) -> u32 {
        self.child.id().expect("it runs")
    }

    /// Sends a line unchanged.
    pub async fn line(&mut self, line: &str) {
        let input = self.input.as_mut().expect("its input is open");
        input.write_all(line.as_bytes()).await.expect("it reads");
        input.write_all(b"\n").await.expect("it reads");
    }

    pub async fn send(&mut self, command: Value) {
        self.line(&command.to_string()).await;
    }

    /// Sends a query without parameters or options.
    pub async fn query(&mut self, id: &str, sql: &str) {
        self.send(json!({"code": "query", "id": id, "sql": sql})).await;
    }

    /// The next event on standard output.
    pub async fn next(&mut self) -> Option<Value> {
        let line = tokio::time::timeout(TIMEOUT, self.output.next_line()).await.expect("an event in time");
        line.expect("UTF-8").map(|line| parse(&line))
    }

    /// Returns the next event that matches. Other events stay queued.
    pub async fn event(&mut self, is_wanted: impl Fn(&Value) -> bool) -> Value {
        if let Some(index) = self.waiting.iter().position(&is_wanted) {
            return self.waiting.remove(index);
        }
        loop {
            let event = self.next().await.unwrap_or_else(|| panic!("no such event before the end; {:?}", self.waiting));
            if is_wanted(&event) {
                return event;
            }
            self.waiting.push(event);
        }
    }

    /// The next event with this code.
    pub async fn event_with_code(&mut self, code: &str) -> Value {
        self.event(|event| event["code"] == code).await
    }

    /// The terminal event of a command.
    pub async fn last_event_of(&mut self, id: &str) -> Value {
        self.event(|event| event["id"] == id && is_terminal(event)).await
    }

    /// Runs a query to its terminal event.
    pub async fn run(&mut self, id: &str, sql: &str) -> Value {
        self.query(id, sql).await;
        self.last_event_of(id).await
    }

    /// Like [`Pipe::run`], with more keys in the command.
    pub async fn run_with(&mut self, id: &str, sql: &str, more: Value) -> Value {
        let mut command = json!({"code": "query", "id": id, "sql": sql});
        for (key, value) in more.as_object().expect("keys") {
            command[key] = value.clone();
        }
        self.send(command).await;
        self.last_event_of(id).await
    }

    /// Closes standard input.
    pub fn end_input(&mut self) {
        self.input = None;
    }

    /// Closes the input, and returns the remaining events and the exit status. Standard error must be empty.
    pub async fn finish(mut self) -> FrontEndOutput {
        self.end_input();
        self.rest().await
    }

    /// Reads to the end like [`Pipe::finish`], but keeps the input open.
    pub async fn rest(mut self) -> FrontEndOutput {
        let mut events = std::mem::take(&mut self.waiting);
        while let Some(event) = self.next().await {
            events.push(event);
        }
        let status = tokio::time::timeout(TIMEOUT, self.child.wait()).await.expect("it ends").expect("its status");
        let mut said = String::new();
        self.errors.read_to_string(&mut said).await.expect("UTF-8");
        assert_eq!(said, "", "nothing on standard error");
        FrontEndOutput { events, status: status.code().expect("no signal") }
    }
}

/// Whether the event is the last one of its command.
pub fn is_terminal(event: &Value) -> bool {
    matches!(event["code"].as_str(), Some("result" | "result_end" | "sql_error" | "error" | "dry_run"))
}
