//! Commands of people, which are in the history like the calls of agents.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use chaos_checker::{Id, Outcome, Request};
use nix::sys::signal::Signal;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use testkit::{config_home, countersign, send_signal};
use tokio::process::Command;
use tokio::task::JoinHandle;

use super::history::HistoryFile;

/// How long a command may take; `audit verify` of a long run takes minutes on the binary of a test.
const TIMEOUT: Duration = Duration::from_secs(600);

/// Somebody with a login of the database.
pub(super) struct Person {
    name: &'static str,
    url: String,
    history: Arc<HistoryFile>,
}

/// A command that has been started.
pub(super) struct Started {
    op: u64,
    pid: u32,
    history: Arc<HistoryFile>,
    ending: JoinHandle<Ended>,
}

/// What a command came to.
#[derive(Debug, Default)]
pub(super) struct Ended {
    /// `None`: it was killed.
    pub(super) code: Option<i32>,
    pub(super) out: String,
    pub(super) err: String,
}

/// A line of a command that undoes.
#[derive(Deserialize)]
struct Undone {
    status: String,
    correlation_id: Option<String>,
}

impl Ended {
    /// The receipts of the undos that it has reported.
    pub(super) fn undone(&self) -> impl Iterator<Item = Id> {
        let lines = self.out.lines().filter_map(|line| serde_json::from_str::<Undone>(line).ok());
        lines.filter(|line| line.status == "undone").map(|line| Id::new(line.correlation_id.expect("a receipt")))
    }

    /// The object that it has printed.
    pub(super) fn object<T: DeserializeOwned>(&self) -> T {
        serde_json::from_str(&self.out).unwrap_or_else(|why| panic!("{self:?}: {why}"))
    }

    fn outcome(&self) -> Outcome {
        Outcome::Ended {
            code: self.code,
            undone: self.undone().collect(),
            in_doubt: self.code.is_none() || self.err.contains("is not known"),
            complete: self.code == Some(0) || self.out.contains("was executed before"),
        }
    }
}

impl Person {
    pub(super) fn new(name: &'static str, url: String, history: &Arc<HistoryFile>) -> Self {
        Self { name, url, history: Arc::clone(history) }
    }

    /// Starts a command that does what is asked for.
    pub(super) fn begin(&self, request: &Request, arguments: &[&str]) -> Started {
        let op = self.history.call(self.name, None, request);
        let (pid, ending) = start(&self.url, arguments);
        Started { op, pid, history: Arc::clone(&self.history), ending }
    }

    /// Runs a command that changes nothing, and is not in the history.
    pub(super) async fn look(&self, arguments: &[&str]) -> Ended {
        start(&self.url, arguments).1.await.expect("no panic")
    }
}

impl Started {
    pub(super) async fn ended(mut self) -> Ended {
        self.ended_meanwhile().await
    }

    /// The same, for one that may go on.
    pub(super) async fn ended_meanwhile(&mut self) -> Ended {
        let ended = (&mut self.ending).await.expect("no panic");
        self.history.answer(self.op, &ended.outcome());
        ended
    }

    /// The number of the operation, whose answer the caller writes.
    pub(super) async fn silently_ended(self) -> (u64, Ended) {
        (self.op, self.ending.await.expect("no panic"))
    }

    /// Kills it, if it still runs.
    pub(super) async fn killed(self) -> Ended {
        if !self.ending.is_finished() {
            send_signal(self.pid, Signal::SIGKILL);
        }
        self.ended().await
    }
}

fn start(url: &str, arguments: &[&str]) -> (u32, JoinHandle<Ended>) {
    let mut command = Command::new(countersign());
    command.env("DATABASE_URL", url).env("XDG_CONFIG_HOME", config_home()).args(["--log", "off"]).args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let child = command.spawn().expect("the binary");
    let pid = child.id().expect("it has just been started");
    // Reads all along: what is printed may be more than a pipe holds.
    let ending = tokio::spawn(async move {
        let output = tokio::time::timeout(TIMEOUT, child.wait_with_output()).await;
        let output = output.expect("it ends by itself").expect("its output");
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        Ended { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    });
    (pid, ending)
}
