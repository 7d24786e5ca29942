//! Servers on one database: behind one proxy, with or without a pooler, or on the addresses of a configuration file. A
//! killed process is replaced.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use mcp::{Client, ClientError};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use testkit::{Database, PgBouncer, Proxy, Server, Successes, TestManifest, arguments};
use tokio::sync::RwLock;

use super::operator;

/// Longer than any call may take: its deadline, the grace, and the time to find out its outcome.
const TIMEOUT: Duration = Duration::from_secs(180);

pub(super) struct Fleet {
    db: Database,
    proxy: Proxy,
    route: Route,
    manifest: TestManifest,
    servers: Vec<RwLock<Arc<Client>>>,
    calls: AtomicUsize,
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
        Self::with(db, Proxy::before(db), Route::Proxy, servers, operator::SCHEMA, operator::TOOLS).await
    }

    /// The servers are before a pooler, and the proxy is behind it. There are fewer backends than agents.
    pub(super) async fn start_pooled(db: &Database, servers: usize) -> Self {
        let proxy = Proxy::before(db);
        let pooler = PgBouncer::before(&proxy, db, &[("default_pool_size", "4")]).await;
        Self::with(db, proxy, Route::Pooler(pooler), servers, operator::SCHEMA, operator::TOOLS).await
    }

    /// One server for each of these configuration files, with more tables and tools. No proxy is between.
    pub(super) async fn start_configured(db: &Database, files: Vec<PathBuf>, schema: &str, tools: &str) -> Self {
        let servers = files.len();
        let (schema, tools) = ([operator::SCHEMA, schema].concat(), [operator::TOOLS, tools].concat());
        Self::with(db, Proxy::before(db), Route::Files(files), servers, &schema, &tools).await
    }

    async fn with(db: &Database, proxy: Proxy, route: Route, servers: usize, schema: &str, tools: &str) -> Self {
        db.run(schema).await;
        let mut fleet = Self {
            db: db.clone(),
            proxy,
            route,
            manifest: TestManifest::new(tools),
            servers: Vec::new(),
            calls: AtomicUsize::new(0),
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

    pub(super) fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }

    pub(super) fn writes(&self) -> &Successes {
        &self.writes
    }

    /// Calls a tool on one of the servers; the envelope.
    pub(super) async fn call(&self, server: usize, tool: &str, json: Value) -> Result<Value, ClientError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let client = Arc::clone(&*self.servers[server].read().await);
        let answer = tokio::time::timeout(TIMEOUT, client.call(tool, arguments(json))).await;
        answer.unwrap_or_else(|_| panic!("{tool}: no answer in {TIMEOUT:?}")).map(|answer| answer.envelope)
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
