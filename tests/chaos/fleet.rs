//! Servers on one database: behind one proxy, with or without a pooler, or on the addresses of a configuration file. A
//! killed process is replaced.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use chaos_checker::{Arguments, Id, Outcome, Request};
use futures_util::future::join_all;
use mcp::Client;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::Deserialize;
use serde_json::{Value, json};
use testkit::{Database, PgBouncer, Proxy, Server, Successes, TestManifest, arguments};
use tokio::sync::RwLock;

use super::history::HistoryFile;
use super::{operator, reviewer};

/// Longer than any call may take: its deadline, the grace, and the time to find out its outcome.
const TIMEOUT: Duration = Duration::from_secs(180);

pub(super) struct Fleet {
    db: Database,
    proxy: Proxy,
    route: Route,
    manifest: TestManifest,
    servers: Vec<RwLock<Arc<Client>>>,
    /// Writes that were acknowledged.
    writes: Successes,
}

/// The way to the database.
enum Route {
    Proxy,
    Pooler(PgBouncer),
    /// The configuration of each server.
    Files(Vec<PathBuf>),
}

impl Fleet {
    pub(super) async fn start(db: &Database, servers: usize) -> Self {
        Self::with(db, Proxy::before(db), Route::Proxy, servers).await
    }

    /// The servers are before a pooler, and the proxy is behind it. There are fewer backends than agents.
    pub(super) async fn start_pooled(db: &Database, servers: usize) -> Self {
        let proxy = Proxy::before(db);
        let pooler = PgBouncer::before(&proxy, db, &[("default_pool_size", "4")]).await;
        Self::with(db, proxy, Route::Pooler(pooler), servers).await
    }

    /// One server for each of these configuration files. No proxy is between.
    pub(super) async fn start_configured(db: &Database, files: Vec<PathBuf>) -> Self {
        let servers = files.len();
        Self::with(db, Proxy::before(db), Route::Files(files), servers).await
    }

    async fn with(db: &Database, proxy: Proxy, route: Route, servers: usize) -> Self {
        db.run(&[operator::SCHEMA, reviewer::SCHEMA].concat()).await;
        let mut fleet = Self {
            db: db.clone(),
            proxy,
            route,
            manifest: TestManifest::new(&[operator::TOOLS, reviewer::TOOLS].concat()),
            servers: Vec::new(),
            writes: Successes::default(),
        };
        let started = join_all((0..servers).map(|number| fleet.start_one(number))).await;
        fleet.servers = started.into_iter().map(|server| RwLock::new(Arc::new(server))).collect();
        fleet
    }

    async fn start_one(&self, number: usize) -> Client {
        let mut command = match &self.route {
            Route::Pooler(pooler) => Server::command_pooled(pooler),
            Route::Proxy => Server::command_through(&self.proxy, &self.db),
            Route::Files(files) => {
                let mut command = Server::command(&self.db);
                command.arg("--config").arg(&files[number]);
                command
            }
        };
        command.args(self.manifest.arguments()).env("COUNTERSIGN_ACTOR", operator::ACTOR);
        // This test causes lost connections; their log lines are not shown.
        command.args(["--log", "off"]);
        Client::start(command).await.expect("an MCP session")
    }

    pub(super) fn is_pooled(&self) -> bool {
        matches!(self.route, Route::Pooler(_))
    }

    /// Kills the pooler in the middle of whatever it does.
    pub(super) async fn crash_pooler(&self) {
        let Route::Pooler(pooler) = &self.route else { return };
        pooler.crash().await;
    }

    pub(super) fn len(&self) -> usize {
        self.servers.len()
    }

    pub(super) fn proxy(&self) -> &Proxy {
        &self.proxy
    }

    pub(super) fn writes(&self) -> &Successes {
        &self.writes
    }

    /// Sends a request to one of the servers, and writes it and its answer to the history.
    pub(super) async fn ask(&self, history: &HistoryFile, client: &str, server: usize, request: &Request) -> Outcome {
        let op = history.call(client, Some(server), request);
        let (tool, json) = call_of(request);
        let place = Arc::clone(&*self.servers[server].read().await);
        let answer = tokio::time::timeout(TIMEOUT, place.call(tool, arguments(json))).await;
        let answer = answer.unwrap_or_else(|_| panic!("{tool}: no answer in {TIMEOUT:?}"));
        let outcome = answer.map_or(Outcome::Lost, |answer| outcome_of(request, &answer.envelope));
        if let Outcome::Done { .. } | Outcome::Repeated { .. } = outcome {
            self.writes.add();
        }
        history.answer(op, &outcome);
        outcome
    }

    /// Sends a signal to one of the servers.
    pub(super) async fn signal(&self, server: usize, signal: Signal) {
        let pid = self.servers[server].read().await.pid().expect("a server that has started");
        kill(Pid::from_raw(pid.try_into().expect("a process id")), signal).expect("a process of ours");
    }

    /// Kills one of the servers in the middle of whatever it does.
    pub(super) async fn kill9(&self, server: usize) {
        self.signal(server, Signal::SIGKILL).await;
    }

    /// Starts another one in the place of one that was killed.
    pub(super) async fn replace(&self, server: usize) {
        let mut place = self.servers[server].write().await;
        if let Route::Pooler(pooler) = &self.route {
            // A server does not start without its database.
            pooler.until_ready().await;
        }
        *place = Arc::new(self.start_one(server).await);
    }

    /// Ends them all in good order, so that nothing is on its way any more.
    pub(super) async fn close(self) {
        for server in self.servers {
            let client = Arc::into_inner(server.into_inner()).expect("no call is on its way");
            client.close().await.expect("a server that ends well");
        }
    }
}

/// The tool that a request calls, and its arguments.
fn call_of(request: &Request) -> (&str, Value) {
    let (tool, key, Arguments { text, id, amount }) = match request {
        Request::Write { tool, key, arguments } => (tool, key.clone(), arguments),
        Request::Undo { tool, of, arguments } if tool == "undo_mutation" => {
            assert_eq!(*arguments, Arguments::default(), "an undo by its receipt alone");
            return (tool, json!({"correlation_id": of.as_str()}));
        }
        Request::Undo { tool, of, arguments } => (tool, Some(format!("undo:{}", of.as_str())), arguments),
        Request::Query { sql } | Request::WritingQuery { sql, .. } => return ("query_database", json!({"query": sql})),
        other => panic!("{other:?} is no request to a server"),
    };
    let id_name = if tool.ends_with("_tweet") { "tweet_id" } else { "id" };
    let all = [
        ("text", text.as_ref().map(|text| json!(text))),
        (id_name, id.map(|id| json!(id))),
        ("amount", amount.map(|amount| json!(amount))),
        ("idempotency_key", key.map(|key| json!(key))),
    ];
    (tool, all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect())
}

/// An answer as the protocol has it.
#[derive(Deserialize)]
struct Envelope {
    success: bool,
    #[serde(default)]
    data: Value,
    error: Option<Failure>,
    meta: Meta,
}

#[derive(Deserialize)]
struct Failure {
    code: String,
    retryable: bool,
}

#[derive(Deserialize)]
struct Meta {
    correlation_id: Option<String>,
}

/// The data of a call that had been carried out before.
#[derive(Deserialize)]
struct Duplicate {
    original_correlation_id: String,
    cached_result: Value,
}

/// The data of a call that a person has to approve.
#[derive(Deserialize)]
struct Proposed {
    proposal: Proposal,
}

#[derive(Deserialize)]
struct Proposal {
    proposal_id: String,
}

fn outcome_of(request: &Request, envelope: &Value) -> Outcome {
    let Envelope { success, data, error, meta } =
        Envelope::deserialize(envelope).unwrap_or_else(|why| panic!("{envelope}: {why}"));
    let receipt = meta.correlation_id.map(Id::new);
    if !success {
        let Failure { code, retryable } = error.unwrap_or_else(|| panic!("{envelope} has no error"));
        return match code.as_str() {
            "commit_outcome_unknown" => Outcome::InDoubt { receipt },
            _ => Outcome::Refused { code, receipt, retryable },
        };
    }
    if let Request::Query { .. } | Request::WritingQuery { .. } = request {
        return Outcome::Read;
    }
    if let Ok(Proposed { proposal }) = Proposed::deserialize(&data) {
        return Outcome::Proposed { proposal: Id::new(proposal.proposal_id) };
    }
    let receipt = receipt.unwrap_or_else(|| panic!("{envelope} has no receipt"));
    match Duplicate::deserialize(&data) {
        Ok(Duplicate { original_correlation_id, cached_result: data }) => {
            Outcome::Repeated { receipt, original: Id::new(original_correlation_id), data }
        }
        Err(_) => Outcome::Done { receipt, data },
    }
}
