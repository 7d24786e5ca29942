//! What does a write tool cost over stdio, against a plain UPDATE of the same row over tokio-postgres? With `fsync` on, one by one and 16
//! in flight. Each call has parameters that the server has not seen, and is recorded; the UPDATE is prepared, and records nothing.
//!
//! Both sides run in turns against one PostgreSQL, so that a busy machine slows them alike; only the ratios mean anything.
//!
//! Run: `cargo build --release && cargo bench -p acceptance --bench write_stdio`
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_macros,
    clippy::unwrap_used,
    reason = "a benchmark that cannot go on has failed; its result goes to standard output"
)]

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use ledger::ConnectOptions;
use mcp::Client;
use pg_embedded::{Cluster, Options};
use serde_json::json;
use testkit::{TestManifest, arguments, countersign};
use tokio::process::Command;
use tokio_postgres::{NoTls, Statement};

const ROUNDS: usize = 10;
const WRITES_PER_ROUND: usize = 100;
const IN_FLIGHT: usize = 16;
const ROWS: i64 = 10_000;

const UPDATE: &str = "update public.item set n = $2 where id = $1 returning id";

const TOOLS: &str = r#"
[[tool]]
name = "set_item"
access = "write"
description = "Set the number of an item."
sql = "update public.item set n = $2 where id = $1 returning id"
rows = "one"
param = [{ name = "id", description = "Which." }, { name = "n", description = "The number." }]
undo = { irreversible = "There is no tool for it." }
"#;

static NEXT: AtomicI64 = AtomicI64::new(1);

/// A row and a number that no call had before.
fn next() -> (i64, i64) {
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    (n % ROWS + 1, n)
}

#[tokio::main]
async fn main() {
    let settings = [("fsync", "on"), ("shared_buffers", "256MB"), ("max_wal_size", "8GB"), ("max_connections", "100")];
    let cluster = Cluster::start(Options::ephemeral().settings(&settings), &mut |_| {}).expect("a cluster");
    let url = cluster.connection_string("postgres");
    ledger::init(&ConnectOptions::parse(&url).unwrap(), &ledger::InitOptions::default()).await.expect("the ledger");
    let mut by_hand = Vec::new();
    for _ in 0..IN_FLIGHT {
        let (client, connection) = tokio_postgres::connect(&url, NoTls).await.expect("a connection");
        tokio::spawn(connection);
        by_hand.push(client);
    }
    by_hand[0]
        .batch_execute(&format!(
            "create table public.item (id bigint primary key, n bigint); insert into public.item select g from generate_series(1, {ROWS}) g"
        ))
        .await
        .unwrap();
    by_hand[0].batch_execute("vacuum analyze public.item").await.unwrap();
    let manifest = TestManifest::new(TOOLS);
    let mut command = Command::new(countersign());
    command.env("DATABASE_URL", &url).args(["--log", "off", "serve"]).args(manifest.arguments()).kill_on_drop(true);
    let server = Client::start(command).await.expect("an MCP session");

    let mut statements = Vec::new();
    for client in &by_hand {
        statements.push(client.prepare(UPDATE).await.unwrap());
    }
    let (mut alone, mut together) = ([const { Vec::new() }; 2], [Duration::ZERO; 2]);
    for round in 0..=ROUNDS {
        for _ in 0..WRITES_PER_ROUND {
            let started = Instant::now();
            update(&by_hand[0], &statements[0]).await;
            alone[0].push(started.elapsed());
            let started = Instant::now();
            call(&server).await;
            alone[1].push(started.elapsed());
        }
        let started = Instant::now();
        let workers = by_hand.iter().zip(&statements).map(|(client, statement)| async move {
            for _ in 0..WRITES_PER_ROUND / 4 {
                update(client, statement).await;
            }
        });
        join_all(workers).await;
        together[0] += started.elapsed();
        let started = Instant::now();
        let workers = (0..IN_FLIGHT).map(|_| async {
            for _ in 0..WRITES_PER_ROUND / 4 {
                call(&server).await;
            }
        });
        join_all(workers).await;
        together[1] += started.elapsed();
        if round == 0 {
            alone.iter_mut().for_each(Vec::clear);
            together = [Duration::ZERO; 2];
        }
    }
    let [hand, tool] = alone.map(|mut times| {
        times.sort_unstable();
        times[times.len() / 2].as_secs_f64() * 1e6
    });
    println!(
        "one by one, p50: UPDATE by hand {hand:.0} us, the tool over stdio {tool:.0} us, ratio {:.2}",
        tool / hand
    );
    let [hand, tool] = together.map(|took| took.as_secs_f64());
    println!("{IN_FLIGHT} in flight: throughput of the tool to that of the UPDATE {:.2}", hand / tool);
}

async fn update(client: &tokio_postgres::Client, statement: &Statement) {
    let (id, n) = next();
    client.query_one(statement, &[&id, &n]).await.unwrap();
}

async fn call(server: &Client) {
    let (id, n) = next();
    let answer = server.call("set_item", arguments(json!({"id": id, "n": n}))).await.expect("an answer");
    assert_eq!(answer.envelope["success"], true, "{}", answer.envelope);
}
