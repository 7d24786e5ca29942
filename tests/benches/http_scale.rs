//! How many reads and writes a second several servers over one PostgreSQL answer, by the number of clients, and which part of the
//! machine's work is whose: the servers', PostgreSQL's, the clients'.
//!
//! Everything shares one machine, the clients as well, so only the ratios mean anything, and where they stop growing.
//!
//! Run: `cargo build --release && cargo bench -p acceptance --bench http_scale`; `COUNTERSIGN_BENCH_SECONDS` is the length of each
//! line (3).

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::json;
use testkit::{Database, HttpClient, HttpServer, lone_database};
use tokio::task::JoinSet;
use tokio::time::Instant;

const CLIENTS: [usize; 4] = [1, 16, 64, 200];
const SERVERS: [usize; 3] = [1, 2, 4];

/// What a call does.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Read,
    Write,
}

static NEXT: AtomicU64 = AtomicU64::new(1);

#[tokio::main]
async fn main() {
    let seconds = std::env::var("COUNTERSIGN_BENCH_SECONDS").map_or(3, |it| it.parse().expect("a number"));
    let length = Duration::from_secs(seconds);
    let db = lone_database().await;
    // A cluster of the tests waits for no disk.
    db.run("alter system set fsync = on").await;
    db.run("alter system set synchronous_commit = on").await;
    db.run("select pg_reload_conf()").await;
    println!("{} CPUs, PostgreSQL {}, fsync on", cpus(), db.value("show server_version").await);
    println!("servers clients kind   calls/s   p50 ms   p99 ms | CPUs: servers PostgreSQL clients");
    for servers in SERVERS {
        let one = || async {
            let mut command = HttpServer::command(&db);
            command.args(["--http-requests-per-s", "0"]).env("COUNTERSIGN_LOG", "warn,countersign=info");
            HttpServer::start(command).await
        };
        let servers = futures_util::future::join_all((0..servers).map(|_| one())).await;
        for clients in CLIENTS {
            for kind in [Kind::Read, Kind::Write] {
                line(&db, &servers, clients, kind, length).await;
            }
        }
    }
}

async fn line(db: &Database, servers: &[HttpServer], clients: usize, kind: Kind, length: Duration) {
    let visitors: Vec<HttpClient> = (0..clients).map(|number| servers[number % servers.len()].http_client()).collect();
    play(&visitors, kind, Duration::from_millis(500)).await;
    let before = CpuSeconds::now(db, servers);
    let mut took = play(&visitors, kind, length).await;
    let work = CpuSeconds::now(db, servers).since(&before);
    took.sort_unstable();
    let quantile = |percent: usize| took[(took.len() - 1) * percent / 100].as_secs_f64() * 1000.0;
    let s = length.as_secs_f64();
    println!(
        "{:7} {clients:7} {:6} {:7.0} {:8.1} {:8.1} |       {:7.2} {:10.2} {:7.2}",
        servers.len(),
        format!("{kind:?}").to_lowercase(),
        took.len() as f64 / s,
        quantile(50),
        quantile(99),
        work.servers / s,
        work.postgresql / s,
        work.clients / s,
    );
}

/// How long each call took.
async fn play(visitors: &[HttpClient], kind: Kind, length: Duration) -> Vec<Duration> {
    let end = Instant::now() + length;
    let mut playing = JoinSet::new();
    for visitor in visitors {
        let visitor = visitor.clone();
        playing.spawn(async move {
            let mut took = Vec::new();
            while Instant::now() < end {
                let begun = Instant::now();
                call(&visitor, kind).await;
                took.push(begun.elapsed());
            }
            took
        });
    }
    playing.join_all().await.into_iter().flatten().collect()
}

async fn call(visitor: &HttpClient, kind: Kind) {
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let (tool, arguments) = match kind {
        Kind::Read => (
            "query_database",
            json!({"query": "select id, text from social.tweet where id = $1", "params": [number % 50 + 1]}),
        ),
        Kind::Write => ("post_tweet", json!({"text": format!("scale {number}")})),
    };
    let id = u32::try_from(number).expect("a short benchmark");
    let answer = visitor.try_call(id, tool, &arguments).await.expect("an answer");
    let message = answer.message();
    assert_eq!(message["result"]["structuredContent"]["success"], true, "{message}");
}

/// The CPU time of each part, in seconds.
struct CpuSeconds {
    servers: f64,
    postgresql: f64,
    clients: f64,
}

impl CpuSeconds {
    fn now(db: &Database, servers: &[HttpServer]) -> Self {
        let pid_file =
            std::fs::read_to_string(db.cluster().data_dir().join("postmaster.pid")).expect("PostgreSQL runs");
        let postmaster: u32 = pid_file.lines().next().and_then(|pid| pid.parse().ok()).expect("its process id");
        let processes = std::fs::read_dir("/proc").expect("Linux").filter_map(|entry| {
            let pid: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
            Stat::of(pid)
        });
        let postgresql = processes.filter(|it| it.pid == postmaster || it.parent == postmaster).map(|it| it.seconds);
        let seconds = |pid| Stat::of(pid).expect("it runs").seconds;
        Self {
            servers: servers.iter().map(|server| seconds(server.pid())).sum(),
            postgresql: postgresql.sum(),
            clients: seconds(std::process::id()),
        }
    }

    fn since(&self, before: &Self) -> Self {
        Self {
            servers: self.servers - before.servers,
            postgresql: self.postgresql - before.postgresql,
            clients: self.clients - before.clients,
        }
    }
}

/// The fields of /proc/PID/stat that are needed (proc(5)).
struct Stat {
    pid: u32,
    parent: u32,
    seconds: f64,
}

impl Stat {
    fn of(pid: u32) -> Option<Self> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name of the program, in parentheses, may hold anything.
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        let ticks: f64 = fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?;
        // USER_HZ is 100 wherever Linux runs.
        Some(Self { pid, parent: fields.get(1)?.parse().ok()?, seconds: ticks / 100.0 })
    }
}

fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
