//! The pool: the number of connections, the order of waiting calls, and the state that calls leave in a connection.

mod misbehaving;
mod silent;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use testkit::{Database, FakeServer, Misbehaviour, RawStdioServer, Server, database};

/// A server with these limits.
async fn limited(db: &Database, limits: &[(&str, &str)]) -> Server {
    Server::with(db, |it| it.envs(limits.iter().map(|(name, value)| (format!("COUNTERSIGN_{name}"), value)))).await
}

/// The reader's backends on this database.
const BACKENDS: &str = "select count(*) from pg_stat_activity \
                        where usename = 'countersign_reader' and datname = current_database()";

/// Looks again and again how many backends of the reader there are, until told to stop; the most that there were.
async fn most_backends(db: Database, over: Arc<AtomicBool>) -> u64 {
    let client = db.connect().await;
    let mut most = 0;
    while !over.load(Ordering::SeqCst) {
        let count: i64 = client.query_one(BACKENDS, &[]).await.unwrap().get(0);
        most = most.max(u64::try_from(count).unwrap());
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    most
}

/// A lock that reads can be made to wait for.
async fn barrier(db: &Database) -> tokio_postgres::Client {
    let client = db.connect().await;
    client.batch_execute("select pg_advisory_lock(7)").await.unwrap();
    client
}

/// A read that waits for it.
const WAITING: &str = "select pg_advisory_lock_shared(7), 1 as n";

const HAVE_COME: &str = "select count(*) from pg_stat_activity where wait_event = 'advisory' \
                         and datname = current_database() and usename = 'countersign_reader'";

#[tokio::test(flavor = "multi_thread")]
async fn calls_one_after_the_other_share_a_backend() {
    let db = database().await;
    let server = limited(&db, &[("READ_SESSIONS", "1")]).await;
    let mut pids = BTreeSet::new();
    for _ in 0..30 {
        pids.insert(server.query("select pg_backend_pid() as pid").await[0]["pid"].as_i64().unwrap());
        server.fail("query_database", json!({"query": "select 1/0"}), "sql_error").await;
    }
    assert_eq!(pids.len(), 1, "{pids:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_beyond_the_limit_wait_and_run_and_there_are_never_more_backends_than_the_limit() {
    let db = database().await;
    let server = limited(&db, &[("READ_SESSIONS", "2")]).await;
    let over = Arc::new(AtomicBool::new(false));
    let watching = tokio::spawn(most_backends(db.clone(), Arc::clone(&over)));
    let lock = barrier(&db).await;
    let reads = join_all((0..9).map(|_| server.query(WAITING)));
    let release = async {
        db.first_value(&format!("select 1 where ({HAVE_COME}) = 2")).await;
        lock.batch_execute("select pg_advisory_unlock(7)").await.unwrap();
    };
    let (answers, ()) = tokio::join!(reads, release);
    assert!(answers.iter().all(|rows| rows[0]["n"] == 1), "{answers:?}");

    // Reads that fail, are cut off or run out of time give their places up only when their backends are gone.
    let failing = join_all((0..40).map(async |number| match number % 4 {
        0 => server.call("query_database", json!({"query": "select 1/0"})).await,
        1 => server.call("query_database", json!({"query": "select repeat('x', 3000000)"})).await,
        2 => {
            let query = "select repeat('x', 1000) from generate_series(1, 5000)";
            server.call("query_database", json!({"query": query, "row_limit": 9999})).await
        }
        _ => server.call("query_database", json!({"query": "select 1 as n"})).await,
    }));
    failing.await;
    over.store(true, Ordering::SeqCst);
    assert_eq!(watching.await.unwrap(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_that_is_refused_while_the_server_runs_is_not_to_be_tried_again() {
    let db = database().await;
    let [writer, reader] = ["writes", "reads"].map(|role| format!("{role}_{}", db.name()));
    db.run(&format!(
        "create role {writer} login in role countersign_writer; create role {reader} login in role countersign_reader"
    ))
    .await;
    let url = |role: &str| db.url_as(role);
    let mut command = Server::command(&db);
    command.env("DATABASE_URL", url(&writer)).args(["--read-url", &url(&reader)]);
    let server = Server::start(command).await;
    assert_eq!(server.query("select 1 as n").await, [json!({"n": 1})]);
    // In a transaction of its own: until it has committed, new sessions may still begin.
    db.run(&format!("alter role {writer} nologin; alter role {reader} nologin")).await;
    let end = "select pg_terminate_backend(pid, 10000) from pg_stat_activity where usename in";
    db.run(&format!("{end} ('{writer}', '{reader}')")).await;
    for (tool, arguments) in [("query_database", json!({"query": "select 1"})), ("post_tweet", json!({"text": "x"}))] {
        let error = server.fail(tool, arguments, "database_unavailable").await;
        assert_eq!(error["retryable"], false, "{error}");
        assert!(error["message"].as_str().unwrap().contains("not permitted to log in"), "{error}");
        assert!(error["hint"].as_str().unwrap().contains("operator"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_without_a_free_connection_in_time_fails_with_a_hint() {
    let db = database().await;
    let server = limited(&db, &[("READ_SESSIONS", "1"), ("QUERY_TIMEOUT_MS", "700")]).await;
    let sleeping = server.call("query_database", json!({"query": "select pg_sleep(60)"}));
    let second = async {
        let pid = "select pid from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database()";
        let pid = Pid::from_raw(db.first_value(pid).await.parse().unwrap());
        // A backend that does not even hear that it is cancelled keeps its place beyond its deadline.
        kill(pid, Signal::SIGSTOP).unwrap();
        let error = server.fail("query_database", json!({"query": "select 1"}), "database_unavailable").await;
        kill(pid, Signal::SIGCONT).unwrap();
        error
    };
    let (first, second) = tokio::join!(sleeping, second);
    assert_eq!(first["error"]["code"], "timeout", "{first}");
    assert_eq!(second["retryable"], true);
    let message = second["message"].as_str().unwrap();
    assert!(message.contains("all 1 connections of this server were in use"), "{second}");
    let hint = second["hint"].as_str().unwrap();
    assert!(hint.contains("read_sessions") && hint.contains("query_timeout_ms"), "{second}");
    assert_eq!(server.query("select 1 as n").await, [json!({"n": 1})]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_without_a_free_connection_in_time_fails_and_leaves_no_record() {
    let db = database().await;
    let limits = [("WRITE_SESSIONS", "2"), ("CALL_DEADLINE_MS", "900")];
    let server = limited(&db, &limits).await;
    let blocker = db.lock("social.tweet").await;
    let waiting = |text| server.call("post_tweet", json!({"text": text}));
    let last = async {
        let pids = "select min(pid) || ' ' || max(pid) from pg_stat_activity where wait_event_type = 'Lock' \
                    and datname = current_database() and usename = 'countersign_writer' having count(*) = 2";
        let pids = db.first_value(pids).await;
        let signal =
            |signal| pids.split(' ').for_each(|pid| kill(Pid::from_raw(pid.parse().unwrap()), signal).unwrap());
        signal(Signal::SIGSTOP);
        let error = server.fail("post_tweet", json!({"text": "last"}), "database_unavailable").await;
        signal(Signal::SIGCONT);
        error
    };
    let (_, _, last) = tokio::join!(waiting("first"), waiting("second"), last);
    blocker.release().await;
    assert!(last["hint"].as_str().unwrap().contains("write_sessions"), "{last}");
    assert_eq!(db.value("select count(*) from countersign.mutation").await, "2");
    server.succeed("post_tweet", json!({"text": "last"})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_read_its_responses_keeps_no_transaction_open() {
    let db = database().await;
    let mut stalled = RawStdioServer::start(Server::command(&db), "2025-06-18").await;
    let query = "select repeat('x', 1000) from generate_series(1, 900)";
    let params = json!({"name": "query_database", "arguments": {"query": query, "row_limit": 900}});
    for id in 1..=20 {
        // The answers stay unread, and a pipe has room for less than one of them.
        let call = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
        stalled.send(&call.to_string()).await;
    }
    // They have been asked for, and every one is at its end.
    db.first_value(&format!("select 1 where ({BACKENDS}) > 0")).await;
    let idle = format!(
        "select 1 where ({BACKENDS} and (state <> 'idle' or backend_xmin is not null)) = 0 and ({BACKENDS}) > 0"
    );
    db.first_value(&idle).await;
    db.run("create table public.free ()").await;
    for id in 1..=20 {
        assert_eq!(stalled.receive().await["result"]["isError"], false, "{id}");
    }
}
