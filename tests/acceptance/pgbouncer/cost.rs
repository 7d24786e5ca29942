//! Cost of the setting and of the pooler against a direct connection: one write through the gate and one read, by turns in one
//! run. Only the ratios mean anything: `cargo test --release -p acceptance pgbouncer::cost -- --ignored --nocapture`.

use std::time::{Duration, Instant};

use serde_json::json;
use testkit::{External, PgBouncer, Server, database, skip_without};

const ROUNDS: usize = 40;
const CALLS: usize = 10;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "it measures"]
async fn a_write_and_a_read_by_turns() {
    if skip_without(&[External::PgBouncer]) {
        return;
    }
    let db = database().await;
    let pooler = PgBouncer::start(&db).await;
    let mut only_set = Server::command(&db);
    only_set.env("COUNTERSIGN_POOLER", "transaction");
    let servers = [Server::command(&db), only_set, Server::command_pooled(&pooler)];
    let mut servers = futures_util::future::join_all(servers.map(Server::start)).await;
    let names = ["direct", "direct, with the setting", "through PgBouncer"];
    let mut times = vec![(Vec::new(), Vec::new()); servers.len()];
    for round in 0..ROUNDS {
        for (number, server) in servers.iter_mut().enumerate() {
            let started = Instant::now();
            for call in 0..CALLS {
                server.succeed("post_tweet", json!({"text": format!("{number} {round} {call}")})).await;
            }
            times[number].0.push(started.elapsed());
            let started = Instant::now();
            for call in 0..CALLS {
                let query = json!({"query": "select text from social.tweet where id = $1", "params": [call]});
                server.succeed("query_database", query).await;
            }
            times[number].1.push(started.elapsed());
        }
    }
    let median = |times: &mut Vec<Duration>| {
        times.sort();
        times[times.len() / 2].as_secs_f64() / CALLS as f64 * 1000.0
    };
    let medians: Vec<(f64, f64)> = times.iter_mut().map(|(writes, reads)| (median(writes), median(reads))).collect();
    for (name, (write, read)) in names.iter().zip(&medians) {
        let (of_write, of_read) = (write / medians[0].0, read / medians[0].1);
        println!("{name:<26} write {write:.2} ms ({of_write:.2}x)   read {read:.2} ms ({of_read:.2}x)");
    }
}
