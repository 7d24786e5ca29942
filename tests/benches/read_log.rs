//! What does the log of reads cost? Servers without it, with metadata and with texts answer the same calls in turns, over
//! standard input and output with 16 calls under way, against one PostgreSQL; only the ratios mean anything.
//!
//! A batch is written while the next calls run, so a turn is some seconds long, and the next one starts when the log has all
//! of its entries.
//!
//! Run: `cargo bench -p acceptance --bench read_log`

use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::{Database, Server, database};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout};

const SIDES: [&str; 3] = ["off", "metadata", "text"];
const IN_FLIGHT: u64 = 16;
const TURN: Duration = Duration::from_secs(4);
const ROUNDS: usize = 7;

/// The number of reads in the log, with those that it counts as lost.
const REMEMBERED_SQL: &str =
    "select count(*) filter (where outcome <> 'lost') + coalesce(sum(entries), 0) from countersign.read_log";

/// A client that only writes lines and counts answers.
struct Client {
    _server: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    line: Vec<u8>,
    asked: u64,
}

impl Client {
    async fn start(db: &Database, detail: &str) -> Self {
        let mut command = Server::command(db);
        command.env("COUNTERSIGN_READS_LOG", detail).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut server = command.spawn().expect("the server");
        let input = server.stdin.take().unwrap();
        let output = BufReader::with_capacity(1 << 16, server.stdout.take().unwrap());
        let mut client = Self { _server: server, input, output, line: Vec::new(), asked: 0 };
        let info = json!({"name": "bench", "version": "0"});
        let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info});
        client.send(&json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello})).await;
        client.answered().await;
        client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
        client
    }

    async fn send(&mut self, message: &Value) {
        let mut line = serde_json::to_vec(message).unwrap();
        line.push(b'\n');
        self.input.write_all(&line).await.unwrap();
    }

    async fn answered(&mut self) {
        self.line.clear();
        self.output.read_until(b'\n', &mut self.line).await.unwrap();
        let is_error = self.line.windows(14).any(|part| part == b"\"isError\":true");
        assert!(!is_error && self.line.len() > 100, "{}", String::from_utf8_lossy(&self.line));
    }

    async fn ask(&mut self, is_new: bool) {
        self.asked += 1;
        let id = self.asked % 20 + 1;
        let arguments = if is_new {
            let number = self.asked;
            json!({"query": format!("select id, account_id, text from social.tweet where id = {id} and {number} >= 0")})
        } else {
            json!({"query": "select id, account_id, text from social.tweet where id = $1", "params": [id]})
        };
        let params = json!({"name": "query_database", "arguments": arguments});
        self.send(&json!({"jsonrpc": "2.0", "id": self.asked, "method": "tools/call", "params": params})).await;
    }

    /// Calls a second in one turn.
    async fn turn(&mut self, is_new: bool) -> f64 {
        let (started, before) = (Instant::now(), self.asked);
        for _ in 0..IN_FLIGHT {
            self.ask(is_new).await;
        }
        while started.elapsed() < TURN {
            self.answered().await;
            self.ask(is_new).await;
        }
        for _ in 0..IN_FLIGHT {
            self.answered().await;
        }
        (self.asked - before) as f64 / started.elapsed().as_secs_f64()
    }
}

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

#[tokio::main]
async fn main() {
    let db = database().await;
    let mut clients = Vec::new();
    for detail in SIDES {
        clients.push(Client::start(&db, detail).await);
    }
    let mut logged = 0;
    for is_new in [true, false] {
        let mut rates: [Vec<f64>; 3] = Default::default();
        for round in 0..=ROUNDS {
            for side in 0..SIDES.len() {
                let (client, before) = (&mut clients[side], logged);
                let asked = client.asked;
                let rate = client.turn(is_new).await;
                logged = if side == 0 { before } else { before + client.asked - asked };
                db.until_value(REMEMBERED_SQL, &logged.to_string()).await;
                // The first round warms all sides up.
                if round > 0 {
                    rates[side].push(rate);
                }
            }
        }
        let text = if is_new { "new text" } else { "seen text" };
        for side in 1..SIDES.len() {
            let ratios: Vec<f64> = rates[side].iter().zip(&rates[0]).map(|(with, without)| with / without).collect();
            println!(
                "{text}, {:<9} {:>6.0} /s of {:>6.0} /s without: median ratio {:.3}, from {:.3} to {:.3}",
                SIDES[side],
                median(&rates[side]),
                median(&rates[0]),
                median(&ratios),
                ratios.iter().copied().fold(f64::INFINITY, f64::min),
                ratios.iter().copied().fold(0.0, f64::max)
            );
        }
    }
    println!("lost: {}", db.value("select coalesce(sum(entries), 0) from countersign.read_log").await);
}
