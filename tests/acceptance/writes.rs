//! Writes through the gate: recorded before they start, once, or not at all (promises A1 to A4, A8).

use std::time::Duration;

use serde_json::{Value, json};
use testkit::{Database, RawServer, Server, database};

/// A tweet that the default account has not liked, retweeted or bookmarked.
pub(crate) async fn untouched_tweet(db: &Database) -> i64 {
    let sql = "select min(id) from social.tweet t where not exists (
                   select from social.tweet_like l where l.tweet_id = t.id and l.account_id = 'default')
               and not exists (select from social.retweet l where l.tweet_id = t.id and l.account_id = 'default')
               and not exists (select from social.bookmark l where l.tweet_id = t.id and l.account_id = 'default')";
    db.value(sql).await.parse().unwrap()
}

async fn likes(db: &Database, tweet: i64) -> String {
    let sql = format!("select count(*) from social.tweet_like where account_id = 'default' and tweet_id = {tweet}");
    db.value(&sql).await
}

async fn records(db: &Database) -> Vec<Vec<String>> {
    db.rows("select tool_name, status, coalesce(error_code, '') from countersign.mutation_audit order by id").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_answers_with_receipt_row_count_and_undo() {
    // A2-01 to A2-09
    let db = database().await;
    let server = Server::on(&db).await;
    let tweet = untouched_tweet(&db).await;
    let envelope = server.succeed("like_tweet", json!({"tweet_id": tweet})).await;
    assert_eq!(envelope["data"], json!({"tweet_id": tweet, "liked": true}));
    let meta = &envelope["meta"];
    assert_eq!((&meta["tool_version"], &meta["rows_affected"]), (&json!("1.0"), &json!(1)));
    assert!(meta["elapsed_ms"].as_u64().unwrap() < 10_000);
    let id = meta["correlation_id"].as_str().unwrap();
    assert_eq!((id.len(), &id[14..15]), (36, "4"));
    assert_eq!(meta["rollback"]["reversible"], true);
    assert_eq!(meta["rollback"]["undo_tool"], "unlike_tweet");
    assert_eq!(meta["rollback"]["undo_params"], json!({"tweet_id": tweet}));
    assert!(!meta["rollback"]["note"].as_str().unwrap().is_empty());
    assert_eq!(likes(&db, tweet).await, "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_call_again_is_a_duplicate_also_in_another_server() {
    // A1-04, A1-07, A4-01 to A4-07
    let db = database().await;
    let tweet = untouched_tweet(&db).await;
    let first = Server::on(&db).await;
    let original = first.succeed("like_tweet", json!({"tweet_id": tweet})).await;
    first.close().await;
    let second = Server::on(&db).await;
    let duplicate = second.succeed("like_tweet", json!({"tweet_id": tweet})).await;
    assert_eq!(
        duplicate["data"],
        json!({
            "duplicate": true,
            "original_correlation_id": original["meta"]["correlation_id"],
            "cached_result": original["data"],
            "message": "Identical like_tweet was already executed successfully. Returning cached result.",
        })
    );
    assert_ne!(duplicate["meta"]["correlation_id"], original["meta"]["correlation_id"]);
    assert_eq!(likes(&db, tweet).await, "1");
    // The same parameters on another tool are another call.
    let other = second.succeed("bookmark_tweet", json!({"tweet_id": tweet})).await;
    assert_eq!(other["data"]["duplicate"], Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cached_result_is_whole_however_long_it_is() {
    // A4-04
    let db = database().await;
    let server = Server::on(&db).await;
    let texts: Vec<String> = (0..20).map(|n| format!("{n}: {}", "é😀\"\\".repeat(20))).collect();
    let original = server.succeed("post_thread", json!({"tweets": texts})).await;
    let duplicate = server.succeed("post_thread", json!({"tweets": texts})).await;
    assert_eq!(duplicate["data"]["cached_result"].to_string(), original["data"].to_string());
    let summary = "select max(octet_length(result_summary)) <= 500 and max(octet_length(params_summary)) <= 500 \
                   from countersign.mutation_audit";
    assert_eq!(db.value(summary).await, "t");
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_identical_calls_at_once_through_three_servers_write_once() {
    // A1-01, X-01, ID01
    let db = database().await;
    let tweet = untouched_tweet(&db).await;
    let (a, b, c) = tokio::join!(Server::on(&db), Server::on(&db), Server::on(&db));
    let servers = [a, b, c];
    let calls = (0..20).map(|n| servers[n % 3].succeed("like_tweet", json!({"tweet_id": tweet})));
    let answers = join_all(calls).await;
    let (duplicates, originals): (Vec<&Value>, Vec<&Value>) =
        answers.iter().partition(|answer| answer["data"]["duplicate"] == true);
    assert_eq!((originals.len(), duplicates.len()), (1, 19));
    let original = &originals[0]["meta"]["correlation_id"];
    assert!(duplicates.iter().all(|answer| &answer["data"]["original_correlation_id"] == original));
    assert_eq!(likes(&db, tweet).await, "1");
    let statuses = "select string_agg(status || ' ' || n, ', ' order by status) from \
                    (select status, count(*) as n from countersign.mutation_audit group by 1) as s";
    // One call of each server reached the ledger; the others joined it there (A1-05).
    assert_eq!(db.value(statuses).await, "duplicate 2, success 1");
}

/// All at once, on this task: enough to have them on the wire together.
async fn join_all<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut futures: Vec<_> = futures.map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(|cx| {
        let mut all = true;
        for (future, output) in &mut futures {
            if output.is_none() {
                match future.as_mut().poll(cx) {
                    std::task::Poll::Ready(ready) => *output = Some(ready),
                    std::task::Poll::Pending => all = false,
                }
            }
        }
        if all { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    futures.into_iter().filter_map(|(_, output)| output).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn reversed_writes_no_longer_count_also_when_another_server_reversed_them() {
    let db = database().await;
    let tweet = untouched_tweet(&db).await;
    let (here, there) = tokio::join!(Server::on(&db), Server::on(&db));
    let call = json!({"tweet_id": tweet});
    let first = here.succeed("like_tweet", call.clone()).await;
    let undo = there.succeed("unlike_tweet", call.clone()).await;
    let second = here.succeed("like_tweet", call.clone()).await;
    assert_eq!(second["data"]["liked"], true, "{second}");
    assert_eq!(likes(&db, tweet).await, "1");
    there.succeed("unlike_tweet", call.clone()).await;
    there.succeed("like_tweet", call).await;
    assert_eq!(likes(&db, tweet).await, "1");
    let id = first["meta"]["correlation_id"].clone();
    let detail = here.succeed("get_mutation_detail", json!({"correlation_id": id})).await;
    assert_eq!(detail["data"]["reversed_by"], json!([undo["meta"]["correlation_id"]]));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_window_is_300_seconds() {
    // A1-02
    let db = database().await;
    let server = Server::on(&db).await;
    let post = json!({"text": "again and again"});
    server.succeed("post_tweet", post.clone()).await;
    let age = |seconds: u32| {
        format!("update countersign.idempotency_guard set expires_at = expires_at - interval '{seconds} s'")
    };
    db.run(&age(290)).await;
    assert_eq!(server.succeed("post_tweet", post.clone()).await["data"]["duplicate"], true);
    db.run(&age(11)).await;
    assert_eq!(server.succeed("post_tweet", post).await["data"]["duplicate"], Value::Null);
    assert_eq!(db.value("select count(*) from social.tweet where text = 'again and again'").await, "2");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_of_the_callers_own_names_one_write_and_one_only() {
    // A11-15, ID02, ID05
    let db = database().await;
    let server = Server::on(&db).await;
    let keyed = |text: &str| json!({"text": text, "idempotency_key": "order-1"});
    let first = server.succeed("post_tweet", keyed("keyed")).await;
    let again = server.succeed("post_tweet", keyed("keyed")).await;
    assert_eq!(again["data"]["original_correlation_id"], first["meta"]["correlation_id"]);
    let error = server.fail("post_tweet", keyed("other"), "idempotency_key_reused").await;
    assert!(!error.to_string().contains("keyed"), "the stored call is not shown: {error}");
    // Another key is another write, although everything else is the same.
    let other = json!({"text": "keyed", "idempotency_key": "order-2"});
    assert_eq!(server.succeed("post_tweet", other).await["data"]["duplicate"], Value::Null);
    assert_eq!(db.value("select count(*) from social.tweet where text in ('keyed', 'other')").await, "2");
    // A failure frees the key for the same arguments and keeps it bound to them.
    let missing = |id: i64| json!({"tweet_id": id, "idempotency_key": "like-1"});
    server.fail("like_tweet", missing(999_999), "sql_error").await;
    server.fail("like_tweet", missing(999_999), "sql_error").await;
    server.fail("like_tweet", missing(999_998), "idempotency_key_reused").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_write_leaves_a_record_and_nothing_else_and_can_be_repeated_at_once() {
    // A1-22, A1-23, A3, A8-04, A10-13, X-09
    let db = database().await;
    let server = Server::on(&db).await;
    let before = db.social().await;
    let envelope = server.call("like_tweet", json!({"tweet_id": 999_999})).await;
    let error = &envelope["error"];
    assert_eq!(
        (&error["code"], &error["sqlstate"], &error["retryable"]),
        (&json!("sql_error"), &json!("23503"), &json!(false))
    );
    assert_eq!(error["detail"], Value::Null, "DETAIL quotes rows that the caller may not read");
    let id = envelope["meta"]["correlation_id"].clone();
    let detail = server.succeed("get_mutation_detail", json!({"correlation_id": id})).await;
    assert_eq!((&detail["data"]["status"], &detail["data"]["error_sqlstate"]), (&json!("failure"), &json!("23503")));
    assert_eq!(db.social().await, before);

    let tweet = untouched_tweet(&db).await;
    server.fail("unlike_tweet", json!({"tweet_id": tweet}), "row_count_mismatch").await;
    server.succeed("like_tweet", json!({"tweet_id": tweet})).await;
    server.succeed("unlike_tweet", json!({"tweet_id": tweet})).await;
    assert_eq!(db.social().await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_valid_is_refused_before_the_gate() {
    // A1-17, AR02, AR03, AR06, MA05, ID11
    let db = database().await;
    let server = Server::on(&db).await;
    for (tool, arguments, said) in [
        ("like_tweet", json!({}), "missing argument \"tweet_id\""),
        ("like_tweet", json!({"tweet_id": "1; drop table x"}), "argument \"tweet_id\""),
        ("like_tweet", json!({"tweet_id": 1.5}), "argument \"tweet_id\""),
        ("like_tweet", json!({"tweet_id": 1, "account_id": "other"}), "unknown argument \"account_id\""),
        ("post_tweet", json!({"text": ""}), "argument \"text\""),
        ("post_tweet", json!({"text": "x".repeat(281)}), "argument \"text\""),
        ("post_tweet", json!({"text": "a\u{0}b"}), "U+0000"),
        ("post_tweet", json!({"text": "a", "idempotency_key": ""}), "idempotency_key"),
        ("post_tweet", json!({"text": "a", "idempotency_key": "a b\n"}), "idempotency_key"),
        ("post_thread", json!({"tweets": "one"}), "argument \"tweets\""),
        ("post_thread", json!({"tweets": ["a", 5]}), "argument \"tweets.1\""),
    ] {
        let envelope = server.call(tool, arguments).await;
        assert_eq!(envelope["error"]["code"], "invalid_params", "{envelope}");
        assert!(envelope["error"]["message"].as_str().unwrap().contains(said), "{envelope}");
        assert_eq!(envelope["meta"]["correlation_id"], Value::Null);
    }
    assert_eq!(records(&db).await, Vec::<Vec<String>>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deferred_constraint_is_a_failure_and_not_a_success() {
    // CR08
    let db = database().await;
    db.run(
        "create table social.late_parent (id int primary key);
         alter table social.tweet_like add column parent int default 7;
         alter table social.tweet_like add constraint late foreign key (parent)
             references social.late_parent deferrable initially deferred not valid",
    )
    .await;
    let server = Server::on(&db).await;
    let tweet = untouched_tweet(&db).await;
    let error = server.fail("like_tweet", json!({"tweet_id": tweet}), "sql_error").await;
    assert_eq!(error["sqlstate"], "23503");
    assert_eq!(likes(&db, tweet).await, "0");
    assert_eq!(records(&db).await, [["like_tweet", "failure", "sql_error"]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backend_killed_in_the_middle_leaves_the_truth_in_the_record() {
    // CR03
    let db = database().await;
    let server = Server::on(&db).await;
    let tweet = untouched_tweet(&db).await;
    let mut blocker = db.connect().await;
    let lock = blocker.transaction().await.unwrap();
    lock.batch_execute("lock table social.tweet_like in access exclusive mode").await.unwrap();
    let call = server.call("like_tweet", json!({"tweet_id": tweet}));
    let kill = async {
        // The write waits for the lock: its record is there, and pending.
        let waiting = "select pid from pg_stat_activity where wait_event_type = 'Lock' and query like '%tweet_like%' \
                       and datname = current_database() and pid <> pg_backend_pid()";
        let pid = until_some(&db, waiting).await;
        assert_eq!(records(&db).await, [["like_tweet", "pending", ""]]);
        db.run(&format!("select pg_terminate_backend({pid})")).await;
        until_some(&db, "select 1 from countersign.mutation_audit where status = 'failure'").await;
        lock.rollback().await.unwrap();
    };
    let (envelope, ()) = tokio::join!(call, kill);
    assert_eq!(
        (&envelope["error"]["code"], &envelope["error"]["retryable"]),
        (&json!("in_doubt_aborted"), &json!(true))
    );
    assert_eq!(likes(&db, tweet).await, "0");
    server.succeed("like_tweet", json!({"tweet_id": tweet})).await;
    assert_eq!(records(&db).await, [["like_tweet", "failure", "in_doubt_aborted"], ["like_tweet", "success", ""]]);
}

/// The one value of a query, as soon as it has a row.
pub(crate) async fn until_some(db: &Database, sql: &str) -> String {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(row) = db.rows(sql).await.into_iter().next() {
            return row.into_iter().next().unwrap();
        }
        assert!(tokio::time::Instant::now() < deadline, "never: {sql}");
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_server_left_pending_is_ended_by_the_next_one_and_can_be_repeated() {
    // X-02, CR06: nothing stays pending, and nothing is replayed blindly.
    let db = database().await;
    let tweet = untouched_tweet(&db).await;
    let mut killed = RawServer::start(Server::command(&db), "2025-06-18").await;
    let mut blocker = db.connect().await;
    let lock = blocker.transaction().await.unwrap();
    lock.batch_execute("lock table social.tweet_like in access exclusive mode").await.unwrap();
    let params = json!({"name": "like_tweet", "arguments": {"tweet_id": tweet}});
    killed.send(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string()).await;
    let waiting = "select pid from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()";
    let pid = until_some(&db, waiting).await;
    drop(killed);
    lock.rollback().await.unwrap();
    until_some(&db, &format!("select 1 where not exists (select from pg_stat_activity where pid = {pid})")).await;
    assert_eq!(records(&db).await, [["like_tweet", "pending", ""]]);
    // An hour later, as far as the record knows.
    db.run(
        "set session_replication_role = replica; \
         update countersign.mutation_audit set created_at = created_at - interval '1 hour'",
    )
    .await;
    let next = Server::on(&db).await;
    until_some(&db, "select 1 from countersign.mutation_audit where status = 'failure'").await;
    assert_eq!(records(&db).await, [["like_tweet", "failure", "in_doubt_aborted"]]);
    assert_eq!(next.succeed("like_tweet", json!({"tweet_id": tweet})).await["data"]["liked"], true);
    assert_eq!(likes(&db, tweet).await, "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_swept_while_it_waits_takes_nothing_with_it() {
    // A server may stand still for longer than the sweep is patient: a laptop that sleeps, a debugger.
    let db = database().await;
    let (running, waiting) = tokio::join!(Server::on(&db), Server::on(&db));
    let call = json!({"tweet_id": untouched_tweet(&db).await});
    let mut blocker = db.connect().await;
    let lock = blocker.transaction().await.unwrap();
    lock.batch_execute("lock table social.tweet_like in access exclusive mode").await.unwrap();
    let first = running.call("like_tweet", call.clone());
    let rest = async {
        let blocked = "select pid from pg_stat_activity where wait_event_type = 'Lock' and query like '%tweet_like%' \
                       and datname = current_database() and pid <> pg_backend_pid()";
        let pid = until_some(&db, blocked).await;
        let second = waiting.call("like_tweet", call.clone());
        let sweep = async {
            until_some(&db, "select 1 from countersign.mutation_audit where status = 'pending' having count(*) = 2")
                .await;
            // The first one is locked by its T2, so it is the second one that goes.
            until_some(&db, "select countersign.sweep(interval '0', 10)").await;
            db.run(&format!("select pg_terminate_backend({pid})")).await;
            until_some(
                &db,
                "select 1 where not exists (select from countersign.mutation_audit where status = 'pending')",
            )
            .await;
            lock.rollback().await.unwrap();
        };
        tokio::join!(second, sweep).0
    };
    let (first, second) = tokio::join!(first, rest);
    for envelope in [first, second] {
        assert_eq!(envelope["error"]["code"], "in_doubt_aborted", "{envelope}");
    }
    // Nobody holds the guard: the same call runs.
    assert_eq!(waiting.succeed("like_tweet", call).await["data"]["liked"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn accounts_do_not_share_duplicates_or_records() {
    // A11-18, X-08, ID03, ID12
    let db = database().await;
    let other_account =
        db.value("select account_id from social.account where account_id <> 'default' order by 1 limit 1").await;
    let mut command = Server::command(&db);
    command.args(["--account", &other_account]);
    let (mine, other) = tokio::join!(Server::on(&db), Server::start(command));
    let post = json!({"text": "the same words", "idempotency_key": "k"});
    let first = mine.succeed("post_tweet", post.clone()).await;
    let second = other.succeed("post_tweet", post).await;
    assert_eq!(second["data"]["duplicate"], Value::Null);
    let listed = other.succeed("get_recent_mutations", json!({})).await;
    assert_eq!(listed["data"]["count"], 1);
    let foreign = json!({"correlation_id": first["meta"]["correlation_id"]});
    other.fail("get_mutation_detail", foreign, "not_found").await;
}
