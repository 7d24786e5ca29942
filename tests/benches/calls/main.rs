//! What does a call cost? A read at the core (`Reader`), through MCP stdio and over HTTP, and an audited write over stdio,
//! against the same statement over bare tokio-postgres: BEGIN READ ONLY, the statement and ROLLBACK pipelined into one
//! round trip, or one prepared UPDATE. And what does it cost with the smallest MCP server ([`smallest`]) and with others for
//! PostgreSQL ([`peers`]), which audit nothing?
//!
//! Agents write a new text each time, so each case runs with texts that the server has never seen; the same text again
//! and again (prepared at the bare side) is a case of its own.
//!
//! The sides run in turns against one PostgreSQL, so that a busy machine slows them alike; only the ratios mean anything.
//!
//! Run: `cargo build --release && cargo bench -p acceptance --bench calls`; with `COUNTERSIGN_BENCH_PEERS=1` against the
//! peers as well. `COUNTERSIGN_BENCH_SIDES=bare,stdio` leaves the other sides out.

mod bare;
mod baseline;
mod call;
mod http;
mod peers;
mod smallest;
mod stdio;

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ledger::read::{ReadLimits, ReadRequest, Reader, RowFormat, SearchPath};
use ledger::{Ledger, LedgerOptions};
use serde_json::json;
use testkit::{Database, HttpServer, ProcessMemory, TestManifest, lone_database_on_disk};
use tokio::sync::Semaphore;

use bare::Bare;
use baseline::Baseline;
use call::{BY_KEY, Call, ITEMS, LARGE, LARGE_ROWS, TOOLS, Texts};
use http::{HttpClients, Protocol};
use stdio::StdioServer;

const ROUNDS: usize = 20;
const CALLS_PER_ROUND: usize = 100;
const IN_FLIGHT: usize = 16;
const MANY_ROUNDS: usize = 10;
const CALLS_PER_MANY: usize = 1_000;
const LARGE_ROUNDS: usize = 15;

/// What is compared.
enum Side {
    Bare(Arc<Bare>),
    Core(Reader),
    Stdio(Box<StdioServer>),
    /// With the process of the server.
    Http(HttpClients, u32),
}

impl Side {
    async fn run(&mut self, call: &Call) {
        match self {
            Self::Bare(bare) => bare.run(call).await,
            Self::Core(reader) => read(reader, call).await,
            Self::Stdio(server) => server.run(call).await,
            Self::Http(clients, _) => clients.run(call).await,
        }
    }

    /// Makes calls with [`IN_FLIGHT`] of them under way.
    async fn run_many(&mut self, texts: Texts, calls: usize) {
        match self {
            Self::Bare(bare) => {
                in_flight(calls, |number| {
                    let bare = Arc::clone(bare);
                    async move { bare.run(&texts.call(number)).await }
                })
                .await;
            }
            Self::Core(reader) => {
                in_flight(calls, |number| {
                    let reader = reader.clone();
                    async move { read(&reader, &texts.call(number)).await }
                })
                .await;
            }
            Self::Stdio(server) => server.run_many(texts, calls).await,
            Self::Http(clients, _) => clients.run_many(texts, calls).await,
        }
    }

    /// Whether it makes such calls. A read over HTTP stands for what HTTP adds to a call.
    fn can_make(&self, texts: Texts) -> bool {
        match self {
            Self::Core(_) | Self::Http(..) => !texts.is_write(),
            Self::Stdio(server) => !texts.is_write() || server.writes,
            Self::Bare(_) => true,
        }
    }

    /// The process of the server, if there is one.
    fn pid(&self) -> Option<u32> {
        match self {
            Self::Bare(_) | Self::Core(_) => None,
            Self::Stdio(server) => Some(server.pid()),
            Self::Http(_, pid) => Some(*pid),
        }
    }
}

async fn read(reader: &Reader, call: &Call) {
    let (sql, params, row_limit, rows) = match call {
        Call::Seen(id) => (BY_KEY, vec![json!(id)], None, 1),
        Call::New(_, text) => (text.as_str(), Vec::new(), None, 1),
        Call::Large => (LARGE, Vec::new(), Some(LARGE_ROWS), LARGE_ROWS),
        Call::Write(..) => unreachable!("the reader writes nothing"),
    };
    let request = ReadRequest { row_limit, ..ReadRequest::new(sql, &params, RowFormat::Object) };
    assert_eq!(reader.read(&request).await.unwrap().rows.len(), rows as usize);
}

/// Makes calls with [`IN_FLIGHT`] of them under way.
async fn in_flight<F: Future<Output = ()> + Send + 'static>(calls: usize, call: impl Fn(usize) -> F) {
    let slots = Arc::new(Semaphore::new(IN_FLIGHT));
    let mut tasks = Vec::with_capacity(calls);
    for number in 0..calls {
        let slot = Arc::clone(&slots).acquire_owned().await.unwrap();
        let work = call(number);
        tasks.push(tokio::spawn(async move {
            work.await;
            drop(slot);
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
}

/// The sides, in the order of the columns. The first one is what the others are compared with.
struct Table {
    sides: Vec<(&'static str, Side)>,
    baseline: Baseline,
}

impl Table {
    async fn new(db: &Database, manifest: &TestManifest, server: &HttpServer) -> Self {
        let login = Ledger::new(db.target(), LedgerOptions::default()).reader_login().await.unwrap();
        let reader = Reader::new(login, &SearchPath::default(), ReadLimits::default());
        let mut sides = vec![
            ("bare", Side::Bare(Arc::new(Bare::new(db).await))),
            ("smallest", Side::Stdio(Box::new(smallest::start(db).await))),
            ("core", Side::Core(reader)),
            ("stdio", Side::Stdio(Box::new(StdioServer::countersign(db, manifest).await))),
        ];
        for (name, protocol) in [("http", Protocol::Stateless), ("http session", Protocol::Session)] {
            sides.push((name, Side::Http(HttpClients::connect(server, protocol).await, server.pid())));
        }
        sides.extend(peers::start(db).await.into_iter().map(|(name, peer)| (name, Side::Stdio(Box::new(peer)))));
        if let Ok(chosen) = std::env::var("COUNTERSIGN_BENCH_SIDES") {
            sides.retain(|(name, _)| chosen.split(',').any(|chosen| chosen == *name));
        }
        Self { sides, baseline: Baseline::load() }
    }

    fn print_head(&self) {
        let names: Vec<String> = self.sides.iter().map(|(name, _)| format!("{name:>15}")).collect();
        println!("{:<28}    {}", "", names.join(" "));
    }

    /// One line: each side, with its ratio to the first one.
    fn print(&mut self, name: &str, unit: &str, figures: &[f64]) {
        let sides: Vec<_> = self.sides.iter().zip(figures).map(|((side, _), figure)| (*side, *figure)).collect();
        self.baseline.compare(name, unit == "/s", &sides);
        let figures: Vec<String> = figures.iter().map(|figure| cell(*figure, figure / figures[0])).collect();
        println!("{name:<28} {unit:<2} {}", figures.join(" "));
    }

    /// The resident memory of each server.
    fn print_resident(&self, name: &str) {
        let resident = |side: &Side| side.pid().map(|pid| ProcessMemory::of(pid).idle_kib() as f64 / 1024.0);
        let cells: Vec<String> = self
            .sides
            .iter()
            .map(|(_, side)| resident(side).map_or(format!("{:>15}", "-"), |mib| format!("{mib:>15.1}")))
            .collect();
        println!("{name:<27} MiB {}", cells.join(" "));
    }

    /// The times of single calls.
    async fn sequential(&mut self, texts: Texts) {
        let mut times = vec![Vec::new(); self.sides.len()];
        for round in 0..=ROUNDS {
            for ((_, side), times) in self.sides.iter_mut().zip(&mut times) {
                let calls = if side.can_make(texts) { CALLS_PER_ROUND } else { 0 };
                for number in 0..calls {
                    times.push(timed(side.run(&texts.call(number))).await);
                }
            }
            if round == 0 {
                // The first round warms all sides up.
                times.iter_mut().for_each(Vec::clear);
            }
        }
        for (name, at) in [("p50", 0.5), ("p99", 0.99)] {
            self.print(&format!("{}, sequential, {name}", texts.name()), "us", &percentiles(&mut times, at));
        }
    }

    /// Calls a second with [`IN_FLIGHT`] calls under way at any time.
    async fn throughput(&mut self, texts: Texts) {
        let mut times = vec![Vec::new(); self.sides.len()];
        for _ in 0..MANY_ROUNDS {
            for ((_, side), times) in self.sides.iter_mut().zip(&mut times) {
                if side.can_make(texts) {
                    times.push(timed(side.run_many(texts, CALLS_PER_MANY)).await);
                }
            }
        }
        let rates: Vec<f64> =
            percentiles(&mut times, 0.5).into_iter().map(|us| CALLS_PER_MANY as f64 / us * 1e6).collect();
        self.print(&format!("{}, {IN_FLIGHT} in flight", texts.name()), "/s", &rates);
    }

    async fn large(&mut self) {
        let mut times = vec![Vec::new(); self.sides.len()];
        for round in 0..=LARGE_ROUNDS {
            for ((_, side), times) in self.sides.iter_mut().zip(&mut times) {
                times.push(timed(side.run(&Call::Large)).await);
            }
            if round == 0 {
                times.iter_mut().for_each(Vec::clear);
            }
        }
        self.print("10,000 rows, p50", "us", &percentiles(&mut times, 0.5));
    }
}

async fn timed(work: impl Future<Output = ()>) -> Duration {
    let started = Instant::now();
    work.await;
    started.elapsed()
}

fn cell(figure: f64, ratio: f64) -> String {
    if figure.is_finite() { format!("{figure:>8.0} ({ratio:4.2})") } else { format!("{:>15}", "-") }
}

/// This percentile of the times of each side, in microseconds. Not a number for a side without times.
fn percentiles(times: &mut [Vec<Duration>], at: f64) -> Vec<f64> {
    let of_side = |times: &mut Vec<Duration>| {
        times.sort_unstable();
        if times.is_empty() {
            return f64::NAN;
        }
        times[((times.len() - 1) as f64 * at) as usize].as_secs_f64() * 1e6
    };
    times.iter_mut().map(of_side).collect()
}

#[tokio::main]
async fn main() {
    if std::env::args().nth(1).is_some_and(|argument| argument == smallest::ARGUMENT) {
        return smallest::serve().await;
    }
    let db = lone_database_on_disk().await;
    for statement in ITEMS.split("; ") {
        db.run(statement).await;
    }
    let manifest = TestManifest::new(TOOLS);
    let mut starts = [Vec::new()];
    for _ in 0..5 {
        let started = async { StdioServer::countersign(&db, &manifest).await.run(&Call::Seen(1)).await };
        starts[0].push(timed(started).await);
    }
    println!("start to first answer over stdio: {:.0} ms", percentiles(&mut starts, 0.5)[0] / 1000.0);
    let server = http::start(&db).await;
    let mut table = Table::new(&db, &manifest, &server).await;
    table.print_head();
    for (_, side) in &mut table.sides {
        side.run(&Call::Seen(1)).await;
    }
    table.print_resident("resident after one answer");
    for texts in [Texts::New, Texts::Seen, Texts::Write, Texts::TrackedWrite] {
        table.sequential(texts).await;
        table.throughput(texts).await;
    }
    table.large().await;
    table.print_resident("resident after these");
    table.baseline.finish();
}
