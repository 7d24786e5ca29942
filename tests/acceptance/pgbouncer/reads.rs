//! Reads through the pooler: results, refusals and ends.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::{Value, json};
use testkit::{External, PgBouncer, Server, arguments, database, long_form, skip_without};

use super::behind_a_pooler;

#[tokio::test(flavor = "multi_thread")]
async fn parameters_types_errors_and_limits_are_as_without_a_pooler() {
    if skip_without(&[External::PgBouncer]) {
        return;
    }
    let (pooler, server) = behind_a_pooler().await;
    let direct = Server::on(pooler.database()).await;
    pooler
        .database()
        .run(
            "create type social.pair as (a int, b text[]);
             create table social.pairs as select 7 as id, row(1, array['x'])::social.pair as pair;
             grant select on social.pairs to countersign_reader",
        )
        .await;
    let calls = [
        json!({"query": "select $1::int8 + 1 as n, $2::text[] as t", "params": [9_007_199_254_740_993_i64, ["a", null]]}),
        json!({"query": "select row(1, 'x', row(2.50)) as r, interval '1 day' as i, '\\x00'::bytea as b, 0.1::float8 as f"}),
        json!({"query": "select p.pair, array_agg(p.pair) over () as all from social.pairs p"}),
        json!({"query": "select n from generate_series(1, 100) n", "row_limit": 3}),
        json!({"query": "select row(n, 'x') from generate_series(1, 1000) n", "row_limit": 700}),
        json!({"query": "select 1/0"}),
        json!({"query": "select 1/(n - 40) from generate_series(1, 50) n"}),
        json!({"query": "select $1::int", "params": ["x"]}),
        json!({"query": "selec 1"}),
        json!({"query": "select nothing from social.tweet"}),
        json!({"query": "insert into social.tweet (text) values ('x') returning id"}),
        json!({"query": "delete from social.tweet"}),
        json!({"query": "select pg_cancel_backend(1)"}),
        json!({"query": "select repeat('x', 3000000)"}),
        json!({"query": "show search_path"}),
        json!({"query": "select * from pg_prepared_statements"}),
        json!({"query": "select current_setting('transaction_read_only') as ro, current_setting('jit') as jit, \
                         current_setting('default_transaction_read_only') as d"}),
    ];
    // Three times: described, known, and behind each of the others.
    for call in calls.iter().cycle().take(3 * calls.len()) {
        let (mut pooled, mut own) =
            tokio::join!(server.call("query_database", call.clone()), direct.call("query_database", call.clone()));
        for envelope in [&mut pooled, &mut own] {
            envelope["meta"]["elapsed_ms"] = Value::Null;
            if call["query"].as_str().unwrap().contains("pg_prepared_statements") {
                // What there is of ours differs; what there is of others must not be seen.
                let rows = envelope["data"]["rows"].take();
                let others = rows.as_array().unwrap().iter().filter(|row| {
                    let name = row["name"].as_str().unwrap();
                    !name.starts_with("countersign_") && !row["statement"].as_str().unwrap().contains("pg_prepared")
                });
                assert_eq!(others.count(), 0, "{rows}");
                envelope["data"]["row_count"].take();
            }
        }
        assert_eq!(pooled, own, "{call}");
    }
    let plan = json!({"query": "select * from social.tweet where id = $1", "params": [1]});
    let plans = tokio::join!(server.succeed("explain_query", plan.clone()), direct.succeed("explain_query", plan));
    assert_eq!(plans.0["data"], plans.1["data"]);
    // A row type that changes under a text that is known.
    let pair = json!({"query": "select pair from social.pairs"});
    for _ in 0..2 {
        server.succeed("query_database", pair.clone()).await;
    }
    pooler.database().run("alter type social.pair add attribute c int").await;
    let changed = server.succeed("query_database", pair).await;
    assert_eq!(changed["data"]["rows"][0]["pair"], json!({"a": 1, "b": ["x"], "c": null}));
}

/// The reader's backends that are at work.
const AT_WORK: &str = "select pid from pg_stat_activity where state <> 'idle' and usename = 'countersign_reader' \
                       and datname = current_database()";

#[tokio::test(flavor = "multi_thread")]
async fn a_read_out_of_time_or_without_its_client_frees_its_backend() {
    if skip_without(&[External::PgBouncer]) {
        return;
    }
    let pooler = PgBouncer::with(&database().await, &[("default_pool_size", "1")]).await;
    let mut command = Server::command_pooled(&pooler);
    command.env("COUNTERSIGN_QUERY_TIMEOUT_MS", "1000");
    let server = Server::start(command).await;
    let slow = json!({"query": "select pg_sleep(60)"});
    let started = Instant::now();
    server.fail("query_database", slow.clone(), "timeout").await;
    assert!(started.elapsed() < Duration::from_secs(30));
    assert_eq!(server.query("select 1 as n").await, [json!({"n": 1})], "the only backend is free");

    // Rows of an abandoned read.
    let endless = json!({"query": "select repeat('x', 1000) from generate_series(1, 100000)", "row_limit": 10_000});
    assert_eq!(server.succeed("query_database", endless).await["data"]["truncated"], true);
    assert_eq!(server.query("select 2 as n").await, [json!({"n": 2})]);

    // A client that goes away, and with it the server.
    let mut command = Server::command_pooled(&pooler);
    command.env("COUNTERSIGN_QUERY_TIMEOUT_MS", "60000");
    let leaving = Server::start(command).await;
    let asleep = format!("{AT_WORK} and query like '%pg_sleep%'");
    let call = leaving.client().call("query_database", arguments(slow));
    tokio::select! {
        answer = call => panic!("{answer:?}"),
        _ = pooler.database().first_value(&asleep) => {}
    }
    let left = Instant::now();
    leaving.close().await;
    pooler.database().first_value(&format!("select 1 where not exists ({AT_WORK})")).await;
    assert!(left.elapsed() < Duration::from_secs(30), "{:?}", left.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_never_hits_another_clients_query_on_the_same_backend() {
    if skip_without(&[External::PgBouncer]) {
        return;
    }
    // Invariant 5: reads of a millisecond that are given up at once, beside others that have the same backends by turns.
    let pooler = PgBouncer::with(&database().await, &[("default_pool_size", "2")]).await;
    let mut command = Server::command_pooled(&pooler);
    command.env("COUNTERSIGN_MAX_RESULT_BYTES", "65536");
    let server = Server::start(command).await;
    let bystander = async {
        let client = pooler.connect("countersign_reader").await;
        let mut hit = 0;
        for _ in 0..long_form::choose(150, 400) {
            // Another client gets the cancellation as an error; the server would repeat its read.
            hit += usize::from(client.simple_query("select pg_sleep(0.002)").await.is_err());
        }
        hit
    };
    let given_up = async {
        for _ in 0..long_form::choose(15, 40) {
            // Cut by its bytes: the backend is cancelled while it sends.
            let calls = (0..4).map(|_| {
                let query = "select repeat('x', 10000) from generate_series(1, 200)";
                server.succeed("query_database", json!({"query": query}))
            });
            assert!(join_all(calls).await.iter().all(|envelope| envelope["data"]["truncated"] == true));
        }
    };
    let (hit, ()) = tokio::join!(bystander, given_up);
    assert_eq!(hit, 0, "queries of others were cancelled");
}
