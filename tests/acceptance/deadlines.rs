//! Errors for a slow or unreachable PostgreSQL. In the long form the deadline is the default, 30 seconds.

use std::time::{Duration, Instant};

use serde_json::json;
use testkit::social::untouched_tweet;
use testkit::{Database, Server, database, lone_database, long_form};

/// The deadline of these tests in seconds.
fn deadline_s() -> u64 {
    long_form::choose(3, 30)
}

/// Starts a server with this deadline.
async fn start(db: &Database) -> Server {
    let mut command = Server::command(db);
    if !long_form::is_on() {
        let ms = (deadline_s() * 1000).to_string();
        command.env("COUNTERSIGN_QUERY_TIMEOUT_MS", &ms).env("COUNTERSIGN_CALL_DEADLINE_MS", ms);
    }
    Server::start(command).await
}

/// Whether this is a time after which a deadline ends a call, on a machine with other work, too; what is waited for takes longer.
fn is_deadline(elapsed: Duration) -> bool {
    (deadline_s() - 1..deadline_s() + 20).contains(&elapsed.as_secs())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_that_takes_too_long_is_stopped_at_the_deadline_and_its_backend_is_free() {
    let db = database().await;
    let server = start(&db).await;
    let started = Instant::now();
    let error = server.fail("query_database", json!({"query": "select pg_sleep(60)"}), "timeout").await;
    assert!(is_deadline(started.elapsed()), "{:?}", started.elapsed());
    let message = format!("Database query failed: Query timed out after {} s", deadline_s());
    assert_eq!(error["message"], message);
    assert_eq!(error["retryable"], false);
    assert!(error["hint"].as_str().unwrap().contains("explain_query"), "{error}");
    let free = "select 1 where not exists (select from pg_stat_activity \
                where wait_event = 'PgSleep' and datname = current_database())";
    db.first_value(free).await;
    assert_eq!(server.query("select 1 as n").await, [json!({"n": 1})]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_past_its_deadline_changes_nothing_and_its_duplicate_gets_in_flight() {
    let db = database().await;
    let tweet = untouched_tweet(&db).await;
    let (first, second) = tokio::join!(start(&db), start(&db));
    let lock = db.lock("social.tweet_like").await;
    let like = json!({"tweet_id": tweet});
    // The second call is made first in time by a little: its deadline ends while the first one still runs.
    let running = first.call("like_tweet", like.clone());
    let waiting = async {
        db.first_value("select 1 from countersign.mutation where status = 'pending'").await;
        second.call("like_tweet", like.clone()).await
    };
    let (running, waiting) = tokio::join!(running, waiting);
    lock.release().await;
    assert_eq!(running["error"]["code"], "timeout", "{running}");
    let told = waiting["error"]["code"].as_str().unwrap();
    // In the last moment it may get its own turn, and is out of time then as well.
    assert!(["duplicate_in_flight", "timeout"].contains(&told), "{waiting}");
    assert_eq!(waiting["error"]["retryable"], true);
    assert_eq!(db.value("select count(*) from countersign.mutation where status = 'pending'").await, "0");
    let likes = format!("select count(*) from social.tweet_like where account_id = 'default' and tweet_id = {tweet}");
    assert_eq!(db.value(&likes).await, "0");
    first.succeed("like_tweet", like).await;
    assert_eq!(db.value(&likes).await, "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_report_a_database_outage_and_work_again_after_it() {
    let db = lone_database().await;
    let mut command = Server::command(&db);
    // A read waits that long for the server to come back.
    command.env("COUNTERSIGN_QUERY_TIMEOUT_MS", "2000");
    let server = Server::start(command).await;
    let tweet = untouched_tweet(&db).await;
    server.query("select 1").await;
    db.cluster().stop_immediate().unwrap();
    let started = Instant::now();
    let error = server.fail("query_database", json!({"query": "select 1"}), "database_unavailable").await;
    assert!(error["message"].as_str().unwrap().contains("Cannot connect to database at ["), "{error}");
    let envelope = server.call("like_tweet", json!({"tweet_id": tweet})).await;
    assert_eq!(envelope["error"]["code"], "database_unavailable", "{envelope}");
    assert!(started.elapsed() < Duration::from_secs(25), "{:?}", started.elapsed());
    db.cluster().restart().unwrap();
    assert_eq!(server.query("select 1 as n").await, [json!({"n": 1})]);
    server.succeed("like_tweet", json!({"tweet_id": tweet})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_preview_past_its_deadline_is_reported_and_keeps_no_lock() {
    let db = database().await;
    let server = start(&db).await;
    let tweet = untouched_tweet(&db).await;
    let lock = db.lock("social.tweet_like").await;
    let started = Instant::now();
    let preview = json!({"tool": "like_tweet", "params": {"tweet_id": tweet}});
    let envelope = server.call("preview_mutation", preview.clone()).await;
    assert!(is_deadline(started.elapsed()), "{:?}", started.elapsed());
    let error = &envelope["error"];
    assert_eq!((&error["code"], &error["retryable"]), (&json!("timeout"), &json!(true)), "{envelope}");
    assert_eq!(envelope["meta"].get("correlation_id"), None);
    let waiting = "select 1 where not exists (select from pg_stat_activity \
                   where wait_event_type = 'Lock' and datname = current_database())";
    db.first_value(waiting).await;
    lock.release().await;
    server.succeed("preview_mutation", preview).await;
}
