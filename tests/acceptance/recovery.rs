//! PostgreSQL restarts, crashes or loses a backend: the server repeats the read on a new connection, unseen by the agent.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::future::join_all;
use pg_embedded::Cluster;
use reqwest::Method;
use serde_json::json;
use testkit::{Database, HttpServer, Server, lone_database};

type Stop = fn(&Cluster) -> Result<(), pg_embedded::Error>;

/// In order, at once, and by SIGKILL; each followed by a start.
const RESTARTS: [(&str, Stop); 3] =
    [("fast", |_| Ok(())), ("immediate", Cluster::stop_immediate), ("kill -9", Cluster::kill9)];

async fn restart(db: &Database, stop: Stop) {
    let cluster = Arc::clone(db.cluster());
    tokio::task::spawn_blocking(move || stop(&cluster).and_then(|()| cluster.restart())).await.unwrap().unwrap();
}

/// A read that waits for this lock, which a test holds.
const WAITING: &str = "select pg_advisory_lock_shared(7), 'read' as it";

/// The backend of the read that waits, other than this one.
async fn waiting_backend(db: &Database, other_than: &str) -> String {
    db.first_value(&format!("select pid from pg_stat_activity where wait_event = 'advisory' and pid <> {other_than}"))
        .await
}

async fn locked(db: &Database) -> tokio_postgres::Client {
    let client = db.connect().await;
    client.batch_execute("select pg_advisory_lock(7)").await.unwrap();
    client
}

#[tokio::test(flavor = "multi_thread")]
async fn no_call_notices_that_postgresql_was_restarted_between_two_calls() {
    // All idle connections are dead at once.
    let db = lone_database().await;
    let server = Server::on(&db).await;
    for (how, stop) in RESTARTS {
        let lock = locked(&db).await;
        let filling = join_all((0..8).map(|_| server.query(WAITING)));
        let release = async {
            let eight = "select 1 where (select count(*) from pg_stat_activity where wait_event = 'advisory') = 8";
            db.first_value(eight).await;
            lock.batch_execute("select pg_advisory_unlock(7)").await.unwrap();
        };
        tokio::join!(filling, release);
        restart(&db, stop).await;
        let reads = join_all((0..16).map(|_| server.query("select 1 as n")));
        let (reads, written) = tokio::join!(reads, server.call("post_tweet", json!({"text": how})));
        assert!(reads.iter().all(|rows| *rows == [json!({"n": 1})]), "{how}: {reads:?}");
        assert_eq!(written["success"], true, "{how}: {written}");
    }
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_read_that_runs_notices_that_postgresql_is_restarted() {
    let db = lone_database().await;
    let server = Server::on(&db).await;
    for (how, stop) in RESTARTS {
        let _lock = locked(&db).await;
        let reads = join_all((0..4).map(|_| server.query(WAITING)));
        let plan = async {
            waiting_backend(&db, "0").await;
            restart(&db, stop).await;
        };
        let (reads, ()) = tokio::join!(reads, plan);
        assert!(reads.iter().all(|rows| rows[0]["it"] == "read"), "{how}: {reads:?}");
    }
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_wait_for_a_server_that_is_down_and_starts_within_their_deadline() {
    let db = lone_database().await;
    let server = Server::on(&db).await;
    for tool in ["query_database", "explain_query", "describe_database"] {
        db.cluster().stop_immediate().unwrap();
        let arguments = if tool == "describe_database" { json!({}) } else { json!({"query": "select 1 as n"}) };
        let starting = async {
            // It has been refused at least once by now, or soon will be.
            tokio::task::yield_now().await;
            restart(&db, |_| Ok(())).await;
        };
        let (answer, ()) = tokio::join!(server.call(tool, arguments), starting);
        assert_eq!(answer["success"], true, "{tool}: {answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stays_down_is_named_within_the_deadline_and_the_next_call_after_it_is_back_works() {
    let db = lone_database().await;
    let server = Server::with(&db, |it| it.env("COUNTERSIGN_QUERY_TIMEOUT_MS", "1200")).await;
    server.query("select 1").await;
    db.cluster().stop_immediate().unwrap();
    let started = Instant::now();
    let ask = || server.fail("query_database", json!({"query": "select 1"}), "database_unavailable");
    for error in join_all((0..12).map(|_| ask())).await {
        assert!(error["message"].as_str().unwrap().contains("Cannot connect to database at ["), "{error}");
        assert_eq!(error["retryable"], true);
    }
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    restart(&db, |_| Ok(())).await;
    assert_eq!(server.query("select 1 as n").await, [json!({"n": 1})]);
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_is_one_line_of_the_log_and_streams_outlive_it() {
    // N-32: the worker of proposals asks the ledger every second.
    let db = lone_database().await;
    let server = HttpServer::on(&db).await;
    let client = server.session("2025-11-25").await;
    let read = json!({"query": "select 1 as n"});
    assert_eq!(client.call("query_database", read.clone()).await["success"], true);
    let open = async |path: &str| client.request(Method::GET, path).send().await.unwrap().bytes_stream();
    let mut streams = [open("/mcp").await, open("/sse").await];
    let before = server.log().lines().count();
    db.cluster().stop_immediate().unwrap();

    let started = Instant::now();
    let refused = client.call("query_database", read.clone()).await;
    assert_eq!(refused["error"]["code"], "database_unavailable", "{refused}");
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    // A comment, every 15 s.
    for stream in &mut streams {
        let beat = async { while !stream.next().await.expect("it goes on").unwrap().starts_with(b":") {} };
        tokio::time::timeout(Duration::from_secs(20), beat).await.expect("a heartbeat");
    }
    let log = server.log();
    let logged: Vec<&str> = log.lines().skip(before).filter(|line| !line.contains(" INFO ")).collect();
    assert_eq!(logged.len(), 1, "{logged:#?}");

    restart(&db, |_| Ok(())).await;
    server.logged("the database answers again").await;
    assert_eq!(client.call("query_database", read).await["success"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_whose_backend_an_operator_kills_or_cancels_runs_once_more() {
    // Sessions that cancel each other gain nothing.
    let db = lone_database().await;
    let server = Server::on(&db).await;
    for (end, how) in [("pg_terminate_backend", "killed"), ("pg_cancel_backend", "cancelled")] {
        let lock = locked(&db).await;
        let plan = async {
            let first = waiting_backend(&db, "0").await;
            let asked = format!("select query_start from pg_stat_activity where pid = {first}");
            let started = db.value(&asked).await;
            db.run(&format!("select {end}({first})")).await;
            let again =
                format!("select pid from pg_stat_activity where wait_event = 'advisory' and query_start > '{started}'");
            db.first_value(&again).await;
            lock.batch_execute("select pg_advisory_unlock(7)").await.unwrap();
        };
        let (answer, ()) = tokio::join!(server.call("query_database", json!({"query": WAITING})), plan);
        assert_eq!(answer["data"]["rows"][0]["it"], "read", "{how}: {answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_killed_or_cancelled_twice_fails_and_the_agent_gets_the_reason() {
    // The agent gets PostgreSQL's first error.
    let db = lone_database().await;
    let server = Server::on(&db).await;
    let _lock = locked(&db).await;
    for (end, code, said) in [
        ("pg_terminate_backend", "database_unavailable", "terminating connection due to administrator command"),
        ("pg_cancel_backend", "sql_error", "canceling statement due to user request"),
    ] {
        let plan = async {
            let mut started = "-infinity".to_owned();
            for _ in 0..2 {
                let waiting = format!(
                    "select query_start from pg_stat_activity where wait_event = 'advisory' and query_start > '{started}'"
                );
                started = db.first_value(&waiting).await;
                db.run(&format!("select {end}(pid) from pg_stat_activity where wait_event = 'advisory'")).await;
            }
        };
        let (error, ()) = tokio::join!(server.fail("query_database", json!({"query": WAITING}), code), plan);
        assert!(error["message"].as_str().unwrap().contains(said), "{error}");
        assert_eq!(error["retryable"], true, "{error}");
        assert_eq!(server.query("select 1 as n").await, [json!({"n": 1})]);
    }
}
