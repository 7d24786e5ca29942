//! What do the agent-first front ends cost?
//!
//! ```text
//! small queries   the pipe (sent one by one, and 32 in flight) · bare tokio-postgres: BEGIN READ ONLY, the statement (prepared)
//!                 and ROLLBACK pipelined, over as many connections · the same without a transaction · psql started each time
//!                 · a line to cat and back, which is what another process costs whatever it does
//! many rows       1,000,000 rows as JSON · psql with COPY .. TO STDOUT
//! ```
//! The sides run in turns against one PostgreSQL, so that a busy machine slows them alike; only the ratios mean anything.
//!
//! Run: `cargo build --release && cargo bench -p acceptance --bench front_ends`

use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::json;
use testkit::{Database, cluster, database, front_end};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Statement};

const ROUNDS: usize = 10;
const QUERIES: usize = 1000;
const IN_FLIGHT: usize = 32;
const CONNECTIONS: usize = 5;
const PSQL_RUNS: usize = 20;
const STREAM_ROUNDS: usize = 5;

const SMALL: &str = "select id, account_id, text from social.tweet where id = $1";
const MANY: &str = "select i as id, 'row number ' || i as text from generate_series(1, 1000000) i";

fn key(call: usize) -> i64 {
    i64::try_from(call % 20).unwrap() + 1
}

/// A client that only writes lines and counts answers.
struct Pipe {
    _child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    line: Vec<u8>,
    sent: u64,
}

impl Pipe {
    fn start(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the binary");
        let input = child.stdin.take().unwrap();
        let output = BufReader::with_capacity(1 << 16, child.stdout.take().unwrap());
        Self { _child: child, input, output, line: Vec::new(), sent: 0 }
    }

    async fn send(&mut self, id: i64) {
        self.sent += 1;
        let mut line = json!({"code": "query", "id": self.sent.to_string(), "sql": SMALL, "params": [id]}).to_string();
        line.push('\n');
        self.input.write_all(line.as_bytes()).await.unwrap();
    }

    async fn line(&mut self) {
        self.line.clear();
        self.output.read_until(b'\n', &mut self.line).await.unwrap();
    }

    async fn answered(&mut self) {
        self.line().await;
        assert!(self.line.starts_with(b"{\"code\":\"result\""), "{}", String::from_utf8_lossy(&self.line));
    }

    async fn one_by_one(&mut self) {
        for call in 0..QUERIES {
            self.send(key(call)).await;
            self.answered().await;
        }
    }

    /// What is sent comes back.
    async fn echoed(&mut self) {
        for call in 0..QUERIES {
            self.send(key(call)).await;
            self.line().await;
        }
    }

    async fn in_flight(&mut self) {
        for call in 0..QUERIES + IN_FLIGHT {
            if call < QUERIES {
                self.send(key(call)).await;
            }
            if call >= IN_FLIGHT {
                self.answered().await;
            }
        }
    }
}

async fn bare_one(client: &Client, statement: &Statement, id: i64) {
    let params: [&(dyn ToSql + Sync); 1] = [&id];
    let (began, rows, ended) = tokio::join!(
        client.batch_execute("begin read only"),
        client.query(statement, &params),
        client.batch_execute("rollback")
    );
    began.and(ended).unwrap();
    assert_eq!(rows.unwrap()[0].get::<_, i64>(0), id);
}

async fn psql(db: &Database, sql: &str) -> usize {
    let mut command = Command::new(cluster().binaries().program("psql"));
    command.args(["-qXAt", "-d", &db.url(), "-c", sql]).stdin(Stdio::null()).stdout(Stdio::piped());
    let child = command.spawn().expect("psql, which comes with PostgreSQL's client programs");
    read_to_end(child).await
}

async fn read_to_end(mut child: Child) -> usize {
    let mut output = child.stdout.take().unwrap();
    let (mut buffer, mut bytes) = (vec![0; 1 << 16], 0);
    loop {
        match output.read(&mut buffer).await.unwrap() {
            0 => break,
            more => bytes += more,
        }
    }
    assert!(child.wait().await.unwrap().success());
    bytes
}

async fn timed<T>(total: &mut Duration, work: impl Future<Output = T>) -> T {
    let started = Instant::now();
    let outcome = work.await;
    *total += started.elapsed();
    outcome
}

async fn small(db: &Database) {
    let mut pipe = Pipe::start(front_end("pipe", db));
    let mut cat = Pipe::start(Command::new("cat"));
    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS {
        let client = db.connect().await;
        let statement = client.prepare(SMALL).await.unwrap();
        clients.push((client, statement));
    }
    let mut times = [Duration::ZERO; 6];
    for round in 0..=ROUNDS {
        if round == 1 {
            // The first round warmed up.
            times = Default::default();
        }
        let (client, statement) = &clients[0];
        timed(&mut times[0], async {
            for call in 0..QUERIES {
                bare_one(client, statement, key(call)).await;
            }
        })
        .await;
        timed(&mut times[1], pipe.one_by_one()).await;
        timed(&mut times[5], cat.echoed()).await;
        timed(&mut times[2], async {
            let shares = clients.iter().map(|(client, statement)| async move {
                for call in 0..QUERIES / CONNECTIONS {
                    bare_one(client, statement, key(call)).await;
                }
            });
            futures_util::future::join_all(shares).await;
        })
        .await;
        timed(&mut times[3], pipe.in_flight()).await;
        timed(&mut times[4], async {
            for call in 0..QUERIES {
                assert_eq!(client.query(statement, &[&key(call)]).await.unwrap().len(), 1);
            }
        })
        .await;
    }
    let mut started = Duration::ZERO;
    for call in 0..PSQL_RUNS {
        let sql = SMALL.replace("$1", &key(call).to_string());
        timed(&mut started, psql(db, &sql)).await;
    }
    let each = times.map(|time| time.as_secs_f64() * 1e6 / (ROUNDS * QUERIES) as f64);
    let [bare, pipe_alone, bare_many, pipe_many, plain, hop] = each;
    let psql = started.as_secs_f64() * 1e6 / PSQL_RUNS as f64;
    println!("one by one      bare {bare:.0} us   pipe {pipe_alone:.0} us ({:.2})", pipe_alone / bare);
    println!("                to cat and back {hop:.0} us: pipe ({:.2} of bare and that)", pipe_alone / (bare + hop));
    println!("                without a transaction {plain:.0} us: pipe ({:.2})", pipe_alone / plain);
    println!("                psql started each time {psql:.0} us: pipe ({:.3})", pipe_alone / psql);
    println!(
        "{CONNECTIONS} connections   bare {bare_many:.0} us   pipe {pipe_many:.0} us ({:.2})",
        pipe_many / bare_many
    );
}

async fn many(db: &Database) {
    let mut times = [Duration::ZERO; 2];
    let mut bytes = [0; 2];
    for _ in 0..STREAM_ROUNDS {
        let copy = format!("copy ({MANY}) to stdout");
        bytes[0] = timed(&mut times[0], psql(db, &copy)).await;
        bytes[1] = timed(&mut times[1], async {
            let mut command = front_end("query", db);
            command.args(["--stream-rows", "--sql", MANY]).stdin(Stdio::null()).stdout(Stdio::piped());
            read_to_end(command.spawn().unwrap()).await
        })
        .await;
    }
    let [copy, json] = times.map(|time| time.as_secs_f64() * 1e3 / STREAM_ROUNDS as f64);
    let [copy_bytes, json_bytes] = bytes.map(|bytes| bytes / 1_000_000);
    println!(
        "1,000,000 rows  psql COPY {copy:.0} ms ({copy_bytes} MB)   query --stream-rows {json:.0} ms ({json_bytes} MB) ({:.2})",
        json / copy
    );
}

#[tokio::main]
async fn main() {
    let db = database().await;
    small(&db).await;
    many(&db).await;
}
