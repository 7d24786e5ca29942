//! What does `query_database` over MCP stdio cost, against the same statement over bare tokio-postgres?
//!
//! Both sides run in turns in one process against one PostgreSQL, so that a busy machine slows both alike; only the
//! ratio means anything. Bare: BEGIN READ ONLY, the statement (prepared) and ROLLBACK, pipelined into one round trip.
//!
//! Run: `cargo build --release && cargo bench -p acceptance`
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_macros,
    clippy::unwrap_used,
    reason = "a benchmark that cannot go on has failed; its result goes to standard output"
)]

use std::time::{Duration, Instant};

use serde_json::json;
use testkit::{Database, Server, database};

const ROUNDS: usize = 20;
const CALLS_PER_ROUND: usize = 100;

#[tokio::main]
async fn main() {
    let db = database().await;
    let server = Server::on(&db).await;
    let bare = db.connect().await;
    let statement = bare.prepare("select id, account_id, text from social.tweet where id = $1").await.unwrap();
    let (mut bare_times, mut stdio_times) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        for call in 0..CALLS_PER_ROUND {
            let id = i64::try_from(call % 20).unwrap() + 1;
            let started = Instant::now();
            let by_key: [&(dyn tokio_postgres::types::ToSql + Sync); 1] = [&id];
            let (began, rows, ended) = tokio::join!(
                bare.batch_execute("begin read only"),
                bare.query(&statement, &by_key),
                bare.batch_execute("rollback")
            );
            began.and(ended).unwrap();
            assert_eq!(rows.unwrap().len(), 1);
            bare_times.push(started.elapsed());
        }
        for call in 0..CALLS_PER_ROUND {
            let query = "select id, account_id, text from social.tweet where id = $1";
            let started = Instant::now();
            let envelope = server.succeed("query_database", json!({"query": query, "params": [call % 20 + 1]})).await;
            stdio_times.push(started.elapsed());
            assert_eq!(envelope["data"]["row_count"], 1);
        }
        if round == 0 {
            // The first round warms both sides up.
            bare_times.clear();
            stdio_times.clear();
        }
    }
    println!("select by key, sequential, {} calls a side", bare_times.len());
    for (name, at) in [("p50", 0.5), ("p99", 0.99)] {
        let (bare, stdio) = (percentile(&mut bare_times, at), percentile(&mut stdio_times, at));
        let ratio = stdio.as_secs_f64() / bare.as_secs_f64();
        println!(
            "{name}  bare tokio-postgres {:>6} us   MCP stdio {:>6} us   ratio {ratio:.2}",
            bare.as_micros(),
            stdio.as_micros()
        );
    }
    println!("start to first answer   {:>6} ms", start_to_first_answer(&db).await.as_millis());
}

fn percentile(times: &mut [Duration], at: f64) -> Duration {
    times.sort_unstable();
    times[((times.len() - 1) as f64 * at) as usize]
}

async fn start_to_first_answer(db: &Database) -> Duration {
    let started = Instant::now();
    let server = Server::on(db).await;
    server.query("select 1").await;
    started.elapsed()
}
