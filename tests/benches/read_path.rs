//! What does a read cost, at the core (`Reader`), through MCP stdio and over HTTP, against the same statement over bare
//! tokio-postgres: BEGIN READ ONLY, the statement and ROLLBACK pipelined into one round trip, over as many connections?
//!
//! Agents write a new text each time, so each case runs with texts that the server has never seen; the same text again
//! and again (prepared at the bare side) is a case of its own.
//!
//! The sides run in turns against one PostgreSQL, so that a busy machine slows them alike; only the ratios mean anything.
//!
//! Run: `cargo bench -p acceptance --bench read_path`
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_macros,
    clippy::unwrap_used,
    reason = "a benchmark that cannot go on has failed; its result goes to standard output"
)]

use std::fs;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ledger::read::{ReadLimits, ReadRequest, Reader, RowFormat, SearchPath};
use serde_json::{Value, json};
use testkit::{Database, HttpClient, HttpServer, Server, database};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::sync::{Mutex, Semaphore, mpsc};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Statement};

const ROUNDS: usize = 20;
const CALLS_PER_ROUND: usize = 100;
const IN_FLIGHT: usize = 16;
const MANY_ROUNDS: usize = 10;
const LARGE_ROUNDS: usize = 15;

const BY_KEY: &str = "select id, account_id, text from social.tweet where id = $1";
const LARGE: &str = "select i as id, 'row number ' || i as text, i * 1.5 as price from generate_series(1, 10000) i";

/// A text that no side has seen: the numbers go on through all rounds and sides.
fn new_text(id: i64) -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("select id, account_id, text from social.tweet where id = {id} and {number} >= 0")
}

fn key(call: usize) -> i64 {
    i64::try_from(call % 20).unwrap() + 1
}

/// tokio-postgres by hand, on as many connections as a reader has.
struct Bare {
    free: Mutex<mpsc::UnboundedReceiver<(Client, Statement, Statement)>>,
    back: mpsc::UnboundedSender<(Client, Statement, Statement)>,
}

impl Bare {
    async fn new(db: &Database) -> Self {
        let (back, free) = mpsc::unbounded_channel();
        for _ in 0..ReadLimits::default().sessions {
            let client = db.connect().await;
            let by_key = client.prepare(BY_KEY).await.unwrap();
            let large = client.prepare(LARGE).await.unwrap();
            back.send((client, by_key, large)).unwrap();
        }
        Self { free: Mutex::new(free), back }
    }

    async fn by_key(&self, id: i64) {
        let connection = self.free.lock().await.recv().await.unwrap();
        let (client, statement, _) = &connection;
        let params: [&(dyn ToSql + Sync); 1] = [&id];
        let (began, rows, ended) = tokio::join!(
            client.batch_execute("begin read only"),
            client.query(statement, &params),
            client.batch_execute("rollback")
        );
        began.and(ended).unwrap();
        let row = rows.unwrap().remove(0);
        assert_eq!((row.get::<_, i64>(0), row.get::<_, &str>(2).is_empty()), (id, false));
        self.back.send(connection).unwrap();
    }

    async fn new_text(&self, id: i64) {
        let connection = self.free.lock().await.recv().await.unwrap();
        let (client, ..) = &connection;
        let text = new_text(id);
        let (began, rows, ended) = tokio::join!(
            client.batch_execute("begin read only"),
            client.query_typed(&text, &[]),
            client.batch_execute("rollback")
        );
        began.and(ended).unwrap();
        let row = rows.unwrap().remove(0);
        assert_eq!((row.get::<_, i64>(0), row.get::<_, &str>(2).is_empty()), (id, false));
        self.back.send(connection).unwrap();
    }

    async fn large(&self) {
        let connection = self.free.lock().await.recv().await.unwrap();
        let (client, _, statement) = &connection;
        let (began, rows, ended) = tokio::join!(
            client.batch_execute("begin read only"),
            client.query(statement, &[]),
            client.batch_execute("rollback")
        );
        began.and(ended).unwrap();
        assert_eq!(rows.unwrap().len(), 10_000);
        self.back.send(connection).unwrap();
    }
}

async fn core_by_key(reader: &Reader, id: i64) {
    let params = [json!(id)];
    let request = ReadRequest {
        sql: BY_KEY,
        params: &params,
        row_limit: None,
        format: RowFormat::Object,
        account: None,
        trace: None,
    };
    assert_eq!(reader.query(&request).await.unwrap().rows.len(), 1);
}

async fn core_new_text(reader: &Reader, id: i64) {
    let text = new_text(id);
    let request =
        ReadRequest { sql: &text, params: &[], row_limit: None, format: RowFormat::Object, account: None, trace: None };
    assert_eq!(reader.query(&request).await.unwrap().rows.len(), 1);
}

async fn core_large(reader: &Reader) {
    let request = ReadRequest {
        sql: LARGE,
        params: &[],
        row_limit: Some(10_000),
        format: RowFormat::Object,
        account: None,
        trace: None,
    };
    assert_eq!(reader.query(&request).await.unwrap().rows.len(), 10_000);
}

/// A client that only writes lines and counts answers, so that the server is measured and not the client's JSON.
struct Stdio {
    _child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    line: Vec<u8>,
    asked: u64,
}

impl Stdio {
    async fn start(db: &Database) -> Self {
        let mut child = Server::command(db)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("the server");
        let input = child.stdin.take().unwrap();
        let output = BufReader::with_capacity(1 << 16, child.stdout.take().unwrap());
        let mut stdio = Self { _child: child, input, output, line: Vec::new(), asked: 0 };
        let client = json!({"name": "bench", "version": "0"});
        let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client});
        stdio.send(&json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello})).await;
        stdio.receive().await;
        stdio.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
        stdio
    }

    async fn send(&mut self, message: &Value) {
        let mut line = serde_json::to_vec(message).unwrap();
        line.push(b'\n');
        self.input.write_all(&line).await.unwrap();
    }

    async fn receive(&mut self) -> usize {
        self.line.clear();
        self.output.read_until(b'\n', &mut self.line).await.unwrap()
    }

    async fn ask(&mut self, arguments: Value) {
        self.asked += 1;
        let params = json!({"name": "query_database", "arguments": arguments});
        self.send(&json!({"jsonrpc": "2.0", "id": self.asked, "method": "tools/call", "params": params})).await;
    }

    async fn answered(&mut self) {
        assert!(self.receive().await > 100);
        let is_error = self.line.windows(14).any(|part| part == b"\"isError\":true");
        assert!(!is_error, "{}", String::from_utf8_lossy(&self.line));
    }

    async fn call(&mut self, arguments: Value) {
        self.ask(arguments).await;
        self.answered().await;
    }

    fn resident_kib(&self) -> u64 {
        let pid = self._child.id().unwrap();
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_ascii_whitespace().nth(1).unwrap().parse().unwrap()
    }
}

async fn timed(times: &mut Vec<Duration>, work: impl Future<Output = ()>) {
    let started = Instant::now();
    work.await;
    times.push(started.elapsed());
}

fn percentile(times: &mut [Duration], at: f64) -> Duration {
    times.sort_unstable();
    times[((times.len() - 1) as f64 * at) as usize]
}

/// One line of the table: each side, with its ratio to the bare one.
fn report(name: &str, unit: &str, sides: [f64; 4]) {
    let [bare, others @ ..] = sides;
    let others = others.map(|side| format!("{side:>8.0} ({:4.2})", side / bare));
    println!("{name:<28} {bare:>8.0} {unit} {}", others.join(" "));
}

/// The sides of the comparison.
struct Sides {
    bare: Arc<Bare>,
    reader: Reader,
    stdio: Stdio,
    /// Over HTTP, a client for each call under way.
    http: Vec<HttpClient>,
}

/// The arguments of a call, with a text that is new or known.
fn arguments(is_new: bool, call: usize) -> Value {
    let id = key(call);
    if is_new { json!({"query": new_text(id)}) } else { json!({"query": BY_KEY, "params": [id]}) }
}

async fn call_http(client: &HttpClient, call: usize, arguments: Value) {
    let answer = client.try_call(u32::try_from(call).unwrap() + 1, "query_database", &arguments).await.unwrap();
    assert!(answer.body.contains("\"isError\":false"), "{}", answer.body);
}

impl Bare {
    async fn read(&self, is_new: bool, call: usize) {
        if is_new { self.new_text(key(call)).await } else { self.by_key(key(call)).await }
    }
}

async fn core(reader: &Reader, is_new: bool, call: usize) {
    if is_new { core_new_text(reader, key(call)).await } else { core_by_key(reader, key(call)).await }
}

async fn sequential(sides: &mut Sides, is_new: bool) {
    let mut times: [Vec<Duration>; 4] = Default::default();
    for round in 0..=ROUNDS {
        for call in 0..CALLS_PER_ROUND {
            timed(&mut times[0], sides.bare.read(is_new, call)).await;
        }
        for call in 0..CALLS_PER_ROUND {
            timed(&mut times[1], core(&sides.reader, is_new, call)).await;
        }
        for call in 0..CALLS_PER_ROUND {
            timed(&mut times[2], sides.stdio.call(arguments(is_new, call))).await;
        }
        for call in 0..CALLS_PER_ROUND {
            timed(&mut times[3], call_http(&sides.http[0], call, arguments(is_new, call))).await;
        }
        if round == 0 {
            // The first round warms all sides up.
            times = Default::default();
        }
    }
    let text = if is_new { "new text" } else { "seen text" };
    for (name, at) in [("p50", 0.5), ("p99", 0.99)] {
        let sides = times.each_mut().map(|times| percentile(times, at).as_secs_f64() * 1e6);
        report(&format!("{text}, sequential, {name}"), "us", sides);
    }
}

/// Calls a second with [`IN_FLIGHT`] calls under way at any time.
async fn in_flight<F: Future<Output = ()> + Send + 'static>(calls: usize, call: impl Fn(usize) -> F) -> f64 {
    let started = Instant::now();
    let slots = Arc::new(Semaphore::new(IN_FLIGHT));
    let mut tasks = Vec::with_capacity(calls);
    for index in 0..calls {
        let slot = Arc::clone(&slots).acquire_owned().await.unwrap();
        let work = call(index);
        tasks.push(tokio::spawn(async move {
            work.await;
            drop(slot);
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    calls as f64 / started.elapsed().as_secs_f64()
}

async fn throughput(sides: &mut Sides, is_new: bool) {
    const CALLS: usize = 1_000;
    let mut rates: [Vec<f64>; 4] = Default::default();
    for _ in 0..MANY_ROUNDS {
        let side = |index| {
            let bare = Arc::clone(&sides.bare);
            async move { bare.read(is_new, index).await }
        };
        rates[0].push(in_flight(CALLS, side).await);
        let side = |index| {
            let reader = sides.reader.clone();
            async move { core(&reader, is_new, index).await }
        };
        rates[1].push(in_flight(CALLS, side).await);
        let started = Instant::now();
        for call in 0..CALLS + IN_FLIGHT {
            if call >= IN_FLIGHT {
                sides.stdio.answered().await;
            }
            if call < CALLS {
                sides.stdio.ask(arguments(is_new, call)).await;
            }
        }
        rates[2].push(CALLS as f64 / started.elapsed().as_secs_f64());
        let side = |index: usize| {
            let client = sides.http[index % IN_FLIGHT].clone();
            async move { call_http(&client, index, arguments(is_new, index)).await }
        };
        rates[3].push(in_flight(CALLS, side).await);
    }
    let median = |rates: &mut Vec<f64>| {
        rates.sort_unstable_by(f64::total_cmp);
        rates[rates.len() / 2]
    };
    let name = if is_new { "new text, 16 in flight" } else { "seen text, 16 in flight" };
    report(name, "/s", rates.each_mut().map(median));
}

async fn large(sides: &mut Sides) {
    let arguments = json!({"query": LARGE, "row_limit": 10_000});
    let mut times: [Vec<Duration>; 4] = Default::default();
    for round in 0..=LARGE_ROUNDS {
        timed(&mut times[0], sides.bare.large()).await;
        timed(&mut times[1], core_large(&sides.reader)).await;
        timed(&mut times[2], sides.stdio.call(arguments.clone())).await;
        timed(&mut times[3], call_http(&sides.http[0], round, arguments.clone())).await;
        if round == 0 {
            times = Default::default();
        }
    }
    report("10,000 rows, p50", "us", times.each_mut().map(|times| percentile(times, 0.5).as_secs_f64() * 1e6));
}

#[tokio::main]
async fn main() {
    let db = database().await;
    let login = ledger::reader_login(&db.target()).await.unwrap();
    let reader = Reader::new(login, &SearchPath::default(), ReadLimits::default());
    let mut starts = Vec::new();
    for _ in 0..5 {
        timed(&mut starts, async { Stdio::start(&db).await.call(arguments(false, 0)).await }).await;
    }
    println!("start to first answer        {:>9} ms", percentile(&mut starts, 0.5).as_millis());
    let mut stdio = Stdio::start(&db).await;
    stdio.call(arguments(false, 0)).await;
    println!("resident after one answer    {:>9} KiB", stdio.resident_kib());
    let mut command = HttpServer::command(&db);
    command.args(["--http-requests-per-s", "0"]).env("COUNTERSIGN_LOG", "warn,countersign=info");
    let server = HttpServer::start(command).await;
    let http = (0..IN_FLIGHT).map(|_| server.http_client()).collect();
    let mut sides = Sides { bare: Arc::new(Bare::new(&db).await), reader, stdio, http };
    println!("{:<28} {:>8}    {:>15} {:>15} {:>15}", "", "bare", "core", "stdio", "http");
    for is_new in [true, false] {
        sequential(&mut sides, is_new).await;
        throughput(&mut sides, is_new).await;
    }
    large(&mut sides).await;
    println!("resident after these         {:>9} KiB", sides.stdio.resident_kib());
}
