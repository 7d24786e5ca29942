//! A server killed during a write does not block other servers.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::json;
use testkit::{RawStdioServer, TestManifest, database, poll, send_signal};

const SLOW: &str = r#"
[[tool]]
name = "add"
access = "write"
description = "Add a row, once the lock is free."
sql = "insert into social.added select $1 from pg_advisory_xact_lock(65) returning n"
rows = "one"
param = [{ name = "n", description = "Which." }]
undo = { irreversible = "It is a test." }
"#;

#[tokio::test(flavor = "multi_thread")]
async fn the_identical_call_goes_on_within_two_seconds_after_a_server_was_killed_in_mid_write() {
    assert_eq!(records_after_a_kill(false).await, "success");
    assert_eq!(records_after_a_kill(true).await, "failure in_doubt_aborted, success");
}

/// What is on record of the call of a server that was killed, and of the identical one that wrote.
async fn records_after_a_kill(is_durable: bool) -> String {
    let db = database().await;
    db.run("create table social.added (n int)").await;
    let manifest = TestManifest::new(SLOW);
    let mut command = manifest.command(&db);
    command.args(is_durable.then_some("--durable-admission"));
    let mut killed = RawStdioServer::start(command, "2025-06-18").await;
    let other = manifest.serve(&db).await;
    let lock = db.connect().await;
    lock.batch_execute("select pg_advisory_lock(65)").await.unwrap();
    killed.send(r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"add","arguments":{"n":1}}}"#).await;
    let waiting = "select coalesce(min(pid), 0) from pg_stat_activity where wait_event = 'advisory' and datname = current_database()";
    poll::until("the write waits", async || db.value(waiting).await != "0").await;
    let first = db.value(waiting).await;

    send_signal(killed.pid(), Signal::SIGKILL);
    let began = Instant::now();
    let again = async {
        // The identical call waits for the lock itself: it was admitted and runs.
        let second = format!("{waiting} and pid <> {first}");
        poll::until("the identical call runs", async || db.value(&second).await != "0").await;
        let took = began.elapsed();
        lock.batch_execute("select pg_advisory_unlock(65)").await.unwrap();
        took
    };
    let (answer, took) = tokio::join!(other.succeed("add", json!({"n": 1})), again);
    assert!(took < Duration::from_secs(2), "{took:?}");
    assert_eq!(
        (&answer["data"], db.value("select count(*) from social.added").await),
        (&json!({"n": 1}), "1".to_owned())
    );
    let records =
        "select string_agg(status || coalesce(' ' || error_code, ''), ', ' order by id) from countersign.record";
    db.value(records).await
}
