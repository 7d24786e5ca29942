//! Cancellation: an abandoned or overdue call frees its backend, and a late cancel never
//! hits the next query (ARCHITECTURE.md, invariant 5).
//!
//! What is measured is the time from the moment the client acts to the moment at which `pg_stat_activity` shows the backend
//! idle or gone: `cargo test -p acceptance cancel:: -- --nocapture`.

mod late;
mod over_tcp;
mod ways;

use std::process::Stdio;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use testkit::{Database, RawStdioServer, Server, TestManifest, database, exclusive, long_form, newest_meta};
use tokio::process::{Child, Command};
use tokio::task::spawn_blocking;
use tokio_postgres::Client;

/// What a backend may take to be idle or gone.
const ALLOWED: Duration = Duration::from_millis(200);

const HANDSHAKE: &str = "2025-06-18";
const NO_HANDSHAKE: &str = "2026-07-28";

/// How often backends are looked at: far more often than they may take time.
const BETWEEN_LOOKS: Duration = Duration::from_millis(2);

/// Looks at the backends of one database.
struct Watch {
    client: Client,
}

impl Watch {
    async fn on(db: &Database) -> Self {
        Self { client: db.connect().await }
    }

    /// The first backend of these. There may be two: PostgreSQL still lists one that ends beside the next one at work.
    async fn first(&self, sql: &str) -> Option<i32> {
        self.client.query(sql, &[]).await.unwrap().first().map(|row| row.get(0))
    }

    /// The backend that runs a text like this, as soon as one does.
    async fn backend(&self, like: &str) -> i32 {
        let sql = format!(
            "select pid from pg_stat_activity where state = 'active' and query like '%{like}%' \
             and datname = current_database() and pid <> pg_backend_pid() limit 1"
        );
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            if let Some(pid) = self.first(&sql).await {
                return pid;
            }
            assert!(Instant::now() < deadline, "nothing runs {like}");
            tokio::time::sleep(BETWEEN_LOOKS).await;
        }
    }

    /// How long from `since` until this backend is idle, with no transaction open, or gone.
    async fn until_free(&self, pid: i32, since: Instant) -> Duration {
        let sql = format!("select pid from pg_stat_activity where pid = {pid} and state <> 'idle'");
        while self.first(&sql).await.is_some() {
            assert!(since.elapsed() < Duration::from_secs(20), "backend {pid} is still at work");
            tokio::time::sleep(BETWEEN_LOOKS).await;
        }
        since.elapsed()
    }
}

/// Waits for microseconds, as a race needs it: the runtime's clock counts milliseconds.
async fn sleep_us(us: u64) {
    spawn_blocking(move || std::thread::sleep(Duration::from_micros(us))).await.unwrap();
}

/// Prints the median and the longest, and holds the median to what is allowed. A single one may take longer where a dozen
/// other tests share the processors.
fn report(name: &str, mut times: Vec<Duration>) {
    times.sort();
    let (median, longest) = (times[times.len() / 2], times[times.len() - 1]);
    println!("{name:<58} p50 {:>5.1} ms  max {:>5.1} ms  of {}", ms(median), ms(longest), times.len());
    assert!(median <= ALLOWED && longest <= 5 * ALLOWED, "{name}: {median:?}, {longest:?}");
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// A server on pipes in one of the two eras of the protocol.
struct Session {
    server: RawStdioServer,
    protocol: &'static str,
    last_id: u32,
}

impl Session {
    async fn start(command: Command, protocol: &'static str) -> Self {
        let server = match protocol {
            NO_HANDSHAKE => RawStdioServer::without_session(command),
            _ => RawStdioServer::start(command, protocol).await,
        };
        Self { server, protocol, last_id: 0 }
    }

    fn request(&mut self, tool: &str, arguments: &Value) -> String {
        self.last_id += 1;
        let mut params = json!({"name": tool, "arguments": arguments});
        if self.protocol == NO_HANDSHAKE {
            params["_meta"] = newest_meta();
        }
        json!({"jsonrpc": "2.0", "id": self.last_id, "method": "tools/call", "params": params}).to_string()
    }

    /// Sends a call; its id.
    async fn begin(&mut self, tool: &str, arguments: Value) -> u32 {
        let request = self.request(tool, &arguments);
        self.server.send(&request).await;
        self.last_id
    }

    async fn query(&mut self, sql: &str) -> u32 {
        self.begin("query_database", json!({"query": sql})).await
    }

    async fn cancel(&mut self, id: u32) {
        let params = json!({"requestId": id});
        let line = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}).to_string();
        self.server.send(&line).await;
    }

    /// The next answer, which must be this call's: one that was cancelled gets none.
    async fn answer(&mut self, id: u32) -> Value {
        let answer = self.server.receive().await;
        assert_eq!(answer["id"], id, "{answer}");
        answer["result"]["structuredContent"].clone()
    }

    /// The server answers the next call and nothing else.
    async fn lives(&mut self) {
        let id = self.query("select 1 as n").await;
        assert_eq!(self.answer(id).await["data"]["rows"], json!([{"n": 1}]));
    }
}

fn signal(pid: u32, signal: Signal) {
    kill(Pid::from_raw(pid.try_into().unwrap()), signal).unwrap();
}

/// What starts a server without manifests. rmcp warns of every call that is cancelled.
fn quick(db: &Database) -> Command {
    let mut command = Server::bare_command(db);
    command.env("RUST_BACKTRACE", "0");
    command
}
