//! What does a write through the gate cost, against the same statement and one insert into a log table in a hand-written
//! transaction over tokio-postgres (four round trips one after the other, and one pipeline where 16 are in flight)? With `fsync` on,
//! sequentially and 16 in flight, on an empty ledger and on one with a million records; on a tracked table, and the undo of that write;
//! and with sealing beside it.
//!
//! All sides run in turns in one process against one PostgreSQL, so that a busy machine slows them alike; only the ratios
//! mean anything.
//!
//! Run: `cargo bench -p acceptance --bench write_gate`

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use ledger::{
    ConnectOptions, Gate, Ledger, LedgerOptions, Statement, WriteCall, WriteExecutor, WriteFuture, WriteOutcome,
    WriteOutput, WriteRequest, WriteTx,
};
use pg_embedded::{Cluster, Options};
use serde_json::{Value, json};
use tokio_postgres::{Client, NoTls};
use types::{CorrelationId, Principal, Redaction, Rollback, UndoCall};

const ROUNDS: usize = 15;
const WRITES_PER_ROUND: usize = 100;
const IN_FLIGHT: usize = 16;
/// The pause between two sealings.
const SEAL_EVERY: Duration = Duration::from_millis(250);

/// How many records the second ledger has; `COUNTERSIGN_BENCH_RECORDS` takes another number.
fn records() -> u32 {
    std::env::var("COUNTERSIGN_BENCH_RECORDS").map_or(1_000_000, |number| number.parse().expect("a number"))
}

/// The statement that both sides run.
const INSERT: &str = "insert into public.item (n, note) values ($1, $2) returning id";
const INSERT_TRACKED: &str = "insert into public.tracked_item (n, note) values ($1, $2) returning id";
const UNDO: &str = "select countersign.undo(array[$1]::pg_catalog.uuid[])";
/// Hand-written log table, for comparison.
const LOG: &str = "insert into public.log (tool, params, result) values ($1, $2, $3)";

static NEXT: AtomicI64 = AtomicI64::new(1);

fn next() -> i64 {
    NEXT.fetch_add(1, Ordering::Relaxed)
}

#[tokio::main]
async fn main() {
    let cluster = Cluster::start(
        Options::ephemeral().settings(&[
            ("fsync", "on"),
            ("max_connections", "100"),
            ("shared_buffers", "256MB"),
            ("max_wal_size", "8GB"),
            ("checkpoint_timeout", "30min"),
        ]),
        &mut |_| {},
    )
    .expect("a cluster");
    let empty = Side::make(&cluster, "few", 0).await;
    let full = Side::make(&cluster, "many", records()).await;
    println!("sequential, {} writes a side, fsync on", ROUNDS * WRITES_PER_ROUND);
    sequential(&empty, &full).await;
    println!("{IN_FLIGHT} in flight, {} writes a side", ROUNDS * WRITES_PER_ROUND * 2);
    in_flight(&empty, &full).await;
    for (in_flight, writes) in [(1, 480), (IN_FLIGHT, 3200)] {
        println!("{in_flight} in flight, {} writes a side", ROUNDS * writes);
        sealing(&empty, in_flight, writes).await;
    }
}

/// One database: the gate on its ledger, and hand-written transactions.
struct Side {
    ledger: Ledger,
    gate: Gate,
    by_hand: Vec<Client>,
}

impl Side {
    async fn make(cluster: &Cluster, name: &str, records: u32) -> Self {
        connect(&cluster.connection_string("postgres"))
            .await
            .batch_execute(&format!("create database {name}"))
            .await
            .unwrap();
        let url = cluster.connection_string(name);
        let target = ConnectOptions::parse(&url).unwrap();
        ledger::init(&target, &ledger::InitOptions::default()).await.expect("the ledger");
        let owner = connect(&url).await;
        owner
            .batch_execute(
                "create table public.item (id bigint generated always as identity primary key, n bigint, note text);
                 create table public.tracked_item (like public.item including all);
                 select countersign.track('public.tracked_item');
                 create table public.log (id bigint generated always as identity primary key, at timestamptz default now(),
                                          tool text, params text, result text);
                 grant select, insert, update, delete on public.item, public.tracked_item to countersign_writer;
                 grant usage on all sequences in schema public to countersign_writer;",
            )
            .await
            .unwrap();
        // As many writes of an hour ago.
        owner
            .batch_execute(&format!(
                "insert into countersign.record (correlation_id, account_id, tool_name, fingerprint, params, params_summary,
                     status, result, result_summary, rows_affected, rollback, login, slot, holds_until, xid, admitted_at, completed_at)
                 select gen_random_uuid(), 'default', 'insert_item', encode(sha256(n::text::bytea), 'hex'), '{{\"n\": 1}}', '{{\"n\": 1}}',
                     'success', '{{\"id\": 1}}', '{{\"id\": 1}}', 1, '{{}}', 'countersign_writer', sha256(n::text::bytea), at,
                     pg_current_xact_id(), at, at
                 from generate_series(1, {records}) n, lateral (select now() - interval '1 hour' - n * interval '1 s' as at) t;"
            ))
            .await
            .unwrap();
        for settle in ["vacuum analyze", "checkpoint"] {
            owner.batch_execute(settle).await.unwrap();
        }
        let mut by_hand = Vec::new();
        for _ in 0..IN_FLIGHT {
            by_hand.push(connect(&url).await);
        }
        let ledger = Ledger::new(target.as_role(ledger::DEFAULT_WRITER, None), LedgerOptions::default());
        Self { gate: ledger.gate(), ledger, by_hand }
    }
}

async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("a connection");
    tokio::spawn(connection);
    client
}

/// Does what a manifest tool does, without a manifest.
struct Run {
    sql: &'static str,
    params: Vec<Option<String>>,
}

impl WriteExecutor for Run {
    fn definition(&self) -> String {
        String::new()
    }

    fn execute<'a>(&'a self, tx: &'a mut WriteTx<'_>, _: &'a WriteRequest) -> WriteFuture<'a> {
        Box::pin(async move {
            let statement = Statement::new(self.sql, &self.params);
            let rows = tx.run(&[statement]).await?.remove(0);
            let data = Value::Object(rows.rows.into_iter().next().unwrap_or_default());
            assert_ne!(data["undo"]["status"], "conflict", "{data}");
            let params = data.as_object().cloned().unwrap_or_default();
            let call = UndoCall { tool: "delete_item".to_owned(), params };
            let rollback = Rollback::reversible(vec![call], "Call delete_item to reverse.");
            Ok(WriteOutput::new(data, 1, rollback))
        })
    }
}

/// The receipt.
async fn perform(gate: &Gate, tool: &str, params: Value, key: Option<String>, run: Run) -> CorrelationId {
    let call = WriteCall {
        reason: None,
        tool: tool.to_owned(),
        request: WriteRequest { principal: Principal::default(), params: params.as_object().unwrap().clone() },
        redaction: Redaction::default(),
        idempotency_key: key,
        deadline: tokio::time::Instant::now() + Duration::from_secs(30),
        executor: Arc::new(run),
    };
    match gate.perform(call).await.expect("a write") {
        WriteOutcome::Executed { correlation_id, .. } => correlation_id,
        other @ (WriteOutcome::Duplicate { .. } | WriteOutcome::NeedsApproval(_)) => panic!("{other:?}"),
    }
}

async fn through_the_gate(gate: &Gate, sql: &'static str) -> CorrelationId {
    let n = next();
    let params = vec![Some(n.to_string()), Some("note".to_owned())];
    perform(gate, "insert_item", json!({"n": n, "note": "note"}), None, Run { sql, params }).await
}

async fn undo(gate: &Gate, write: CorrelationId) {
    let (id, key) = (write.to_string(), format!("undo:{write}"));
    let run = Run { sql: UNDO, params: vec![Some(id.clone())] };
    perform(gate, "undo_mutation", json!({"correlation_id": id}), Some(key), run).await;
}

/// BEGIN, the statement, the log, COMMIT: four round trips.
async fn by_hand(client: &Client, statements: &[tokio_postgres::Statement; 2]) {
    let n = next();
    client.batch_execute("begin").await.unwrap();
    let id: i64 = client.query_one(&statements[0], &[&n, &"note"]).await.unwrap().get(0);
    let (params, result) = (json!({"n": n, "note": "note"}).to_string(), json!({"id": id}).to_string());
    client.execute(&statements[1], &[&"insert_item", &params, &result]).await.unwrap();
    client.batch_execute("commit").await.unwrap();
}

/// Runs the hand-written transaction in one pipeline.
async fn in_one_pipeline(client: &Client, statements: &[tokio_postgres::Statement; 2]) {
    let n = next();
    let params = json!({"n": n, "note": "note"}).to_string();
    let (begun, inserted, logged, committed) = futures_util::future::join4(
        client.batch_execute("begin"),
        client.query_one(&statements[0], &[&n, &"note"]),
        client.execute(&statements[1], &[&"insert_item", &params, &params]),
        client.batch_execute("commit"),
    )
    .await;
    begun.and(inserted.map(drop)).and(logged.map(drop)).and(committed).unwrap();
}

async fn prepare(client: &Client) -> [tokio_postgres::Statement; 2] {
    [client.prepare(INSERT).await.unwrap(), client.prepare(LOG).await.unwrap()]
}

async fn sequential(empty: &Side, full: &Side) {
    let statements = prepare(&empty.by_hand[0]).await;
    let mut times = [const { Vec::new() }; 5];
    for round in 0..=ROUNDS {
        for _ in 0..WRITES_PER_ROUND {
            let started = Instant::now();
            by_hand(&empty.by_hand[0], &statements).await;
            times[0].push(started.elapsed());
            let started = Instant::now();
            through_the_gate(&empty.gate, INSERT).await;
            times[1].push(started.elapsed());
            let started = Instant::now();
            through_the_gate(&full.gate, INSERT).await;
            times[2].push(started.elapsed());
            let started = Instant::now();
            let written = through_the_gate(&empty.gate, INSERT_TRACKED).await;
            times[3].push(started.elapsed());
            let started = Instant::now();
            undo(&empty.gate, written).await;
            times[4].push(started.elapsed());
        }
        if round == 0 {
            // The first round warms all sides up, and autovacuum would have been there by then.
            times.iter_mut().for_each(Vec::clear);
            for side in [empty, full] {
                side.by_hand[1].batch_execute("analyze").await.unwrap();
            }
        }
    }
    for (name, at) in [("p50", 0.5), ("p99", 0.99)] {
        let [hand, gate, million, tracked, undo] =
            [0, 1, 2, 3, 4].map(|side: usize| percentile(&mut times[side], at).as_secs_f64() * 1e6);
        println!(
            "{name}  by hand {hand:>6.0} us   gate {gate:>6.0} us   ratio {:.2}   with {} records {million:>6.0} us   ratio to empty {:.2}   \
             tracked {tracked:>6.0} us   ratio to untracked {:.2}   its undo {undo:>6.0} us   ratio to the write {:.2}",
            gate / hand,
            records(),
            million / gate,
            tracked / gate,
            undo / tracked,
        );
    }
}

async fn in_flight(empty: &Side, full: &Side) {
    let mut took = [Duration::ZERO; 3];
    for round in 0..=ROUNDS {
        let each = 2 * WRITES_PER_ROUND / IN_FLIGHT;
        let started = Instant::now();
        let hands = empty.by_hand.iter().map(|client| async move {
            let statements = prepare(client).await;
            for _ in 0..each {
                in_one_pipeline(client, &statements).await;
            }
        });
        futures_util::future::join_all(hands).await;
        let hand = started.elapsed();
        let gates = [&empty.gate, &full.gate].map(|gate| async move {
            let started = Instant::now();
            let writers = (0..IN_FLIGHT).map(|_| async {
                for _ in 0..each {
                    through_the_gate(gate, INSERT).await;
                }
            });
            futures_util::future::join_all(writers).await;
            started.elapsed()
        });
        let [gate, million] = gates;
        let (gate, million) = (gate.await, million.await);
        if round > 0 {
            for (sum, one) in took.iter_mut().zip([hand, gate, million]) {
                *sum += one;
            }
        }
    }
    let [hand, gate, million] = took.map(|took| took.as_secs_f64());
    println!(
        "throughput of the gate to that by hand in one pipeline {:.2}, with {} records to empty {:.2}",
        hand / gate,
        records(),
        gate / million
    );
}

/// The same writes with nothing sealed, and while another session seals everything that is final four times a second; a server
/// seals once a minute. What is left at the end of a turn is sealed within it.
async fn sealing(side: &Side, in_flight: usize, writes: usize) {
    let audit = side.ledger.audit();
    audit.seal().await.expect("what the other turns wrote");
    let mut ratios = Vec::new();
    let mut sealed = (0, Duration::ZERO);
    for round in 0..=ROUNDS {
        let mut took = [Duration::ZERO; 2];
        // Each side goes first in every other round.
        for is_sealed in [round % 2 == 0, round % 2 == 1] {
            let started = Instant::now();
            let writing = async {
                let writers = (0..in_flight).map(|_| async {
                    for _ in 0..writes / in_flight {
                        through_the_gate(&side.gate, INSERT).await;
                    }
                });
                futures_util::future::join_all(writers).await;
            };
            if is_sealed {
                let (done, mut is_done) = tokio::sync::oneshot::channel::<()>();
                let seal = async {
                    loop {
                        let is_last = tokio::time::timeout(SEAL_EVERY, &mut is_done).await.is_ok();
                        let started = Instant::now();
                        sealed.0 += audit.seal().await.expect("to be sealed");
                        sealed.1 += started.elapsed();
                        if is_last {
                            return;
                        }
                    }
                };
                let writing = async {
                    writing.await;
                    drop(done);
                };
                tokio::join!(writing, seal);
            } else {
                writing.await;
            }
            took[usize::from(is_sealed)] = started.elapsed();
            audit.seal().await.expect("to be sealed");
        }
        if round > 0 {
            ratios.push(took[0].as_secs_f64() / took[1].as_secs_f64());
        }
    }
    ratios.sort_unstable_by(f64::total_cmp);
    println!(
        "throughput with sealing to without: median {:.3}, from {:.3} to {:.3}; {:.0} us to seal a record beside the writes",
        ratios[ratios.len() / 2],
        ratios[0],
        ratios[ratios.len() - 1],
        sealed.1.as_secs_f64() * 1e6 / sealed.0 as f64,
    );
}

fn percentile(times: &mut [Duration], at: f64) -> Duration {
    times.sort_unstable();
    times[((times.len() - 1) as f64 * at) as usize]
}
