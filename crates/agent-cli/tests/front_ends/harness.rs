//! A pipe in this process, and command lines.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use countersign_agent_cli::{Exit, FrontEnd, StopSignals, parse, run};
use pg::ConnectEnvironment;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines};
use tokio::task::JoinHandle;

use crate::fake::Fake;

pub(crate) struct Pipe {
    pub(crate) input: DuplexStream,
    pub(crate) output: Lines<BufReader<DuplexStream>>,
    pub(crate) fake: Fake,
    pub(crate) stop: StopSignals,
    pub(crate) ended: JoinHandle<Exit>,
}

/// How long anything may take before the test fails.
const TIMEOUT: Duration = Duration::from_secs(60);

/// How much of the output may lie unread.
const ROOM: usize = 1 << 20;

pub(crate) fn env(pairs: &[(&str, &str)]) -> HashMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

impl Pipe {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::with_room(arguments, ROOM)
    }

    pub(crate) fn with_room(arguments: &[&str], room: usize) -> Self {
        let arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let env = env(&[("COUNTERSIGN_PASSWORD_SECRET", "hunter2")]);
        let invocation = parse(FrontEnd::Pipe, &arguments, env).unwrap();
        let (fake, stop) = (Fake::default(), StopSignals::default());
        let (input, stdin) = tokio::io::duplex(4 << 20);
        let (stdout, output) = tokio::io::duplex(room);
        let running = run(
            invocation,
            Arc::new(fake.clone()),
            ConnectEnvironment::empty(),
            stdin,
            stdout,
            std::future::pending(),
            stop.clone(),
        );
        let ended = tokio::spawn(running);
        Self { input, output: BufReader::new(output).lines(), fake, stop, ended }
    }

    pub(crate) async fn send(&mut self, line: &str) {
        in_time(self.input.write_all(format!("{line}\n").as_bytes())).await.unwrap();
    }

    pub(crate) async fn query(&mut self, id: &str, sql: &str, rest: &str) {
        self.send(&format!(r#"{{"code":"query","id":"{id}","sql":"{sql}"{rest}}}"#)).await;
    }

    /// The next event; `None` at the end.
    pub(crate) async fn try_next(&mut self) -> Option<Value> {
        let line = in_time(self.output.next_line()).await.unwrap()?;
        Some(serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}")))
    }

    pub(crate) async fn next(&mut self) -> Value {
        self.try_next().await.expect("an event")
    }

    /// The next events as `code id`, with what distinguishes them.
    pub(crate) async fn brief(&mut self, count: usize) -> Vec<String> {
        let mut brief = Vec::new();
        for _ in 0..count {
            brief.push(self::brief(&self.next().await));
        }
        brief
    }

    /// Waits until this query is being run, by pinging until it is noted.
    pub(crate) async fn until_noted(&mut self, wanted: &str) -> Vec<String> {
        let (mut notes, started) = (Vec::new(), Instant::now());
        loop {
            assert!(started.elapsed() < TIMEOUT, "{wanted}: {notes:?}");
            notes.extend(self.fake.notes());
            if notes.iter().any(|note| note.starts_with(wanted)) {
                return notes;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Closes the input; what is left to read, and the exit code.
    pub(crate) async fn finish(mut self) -> (Vec<String>, u8, Fake) {
        // The other half of this is what the pipe reads.
        self.input.shutdown().await.unwrap();
        let mut left = Vec::new();
        while let Some(event) = self.try_next().await {
            left.push(brief(&event));
        }
        (left, in_time(self.ended).await.unwrap().code, self.fake)
    }
}

/// Fails the test if it takes too long.
pub(crate) async fn in_time<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(TIMEOUT, work).await.expect("in time")
}

/// An event in short.
pub(crate) fn brief(event: &Value) -> String {
    let text = |key: &str| event[key].as_str().unwrap_or_default().to_owned();
    let what = [text("error_code"), text("command_tag"), text("sqlstate")].concat();
    [text("code"), text("id"), what].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

/// What a command line gives: its events, its exit code and what the executor did.
pub(crate) async fn command(front_end: FrontEnd, arguments: &[&str], stdin: &str) -> (Vec<String>, u8, Fake) {
    command_in(front_end, arguments, stdin, &[]).await
}

pub(crate) async fn command_in(
    front_end: FrontEnd,
    arguments: &[&str],
    stdin: &str,
    variables: &[(&str, &str)],
) -> (Vec<String>, u8, Fake) {
    let fake = Fake::default();
    let arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
    let (text, code) = match parse(front_end, &arguments, env(variables)) {
        Err(exit) => (String::from_utf8(exit.stdout).unwrap(), exit.code),
        Ok(invocation) => {
            let (stdout, mut output) = tokio::io::duplex(ROOM);
            let stop = StopSignals::default();
            let executor = Arc::new(fake.clone());
            let (environment, stays) = (ConnectEnvironment::empty(), std::future::pending());
            let running = run(invocation, executor, environment, stdin.as_bytes(), stdout, stays, stop);
            let code = in_time(running).await.code;
            let mut text = String::new();
            in_time(output.read_to_string(&mut text)).await.unwrap();
            (text, code)
        }
    };
    (text.lines().map(str::to_owned).collect(), code, fake)
}

/// The line with what differs from run to run taken out; fields stay in their order.
pub(crate) fn settled(line: &str) -> String {
    let mut event: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    for key in ["duration_ms", "uptime_s"] {
        if let Some(value) = event.get_mut("trace").and_then(|trace| trace.get_mut(key)) {
            *value = Value::from(0);
        }
    }
    event.to_string()
}
