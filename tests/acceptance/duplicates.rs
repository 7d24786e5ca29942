//! Identity of calls, and the answer to a repeated call.

mod arguments;
mod killed;

use serde_json::{Value, json};
use testkit::social::{likes, untouched_tweet};
use testkit::{Database, Server, TestManifest, database};

/// How many records there are of each status.
async fn statuses(db: &Database) -> String {
    let sql = "select coalesce(string_agg(status || ' ' || n, ', ' order by status), '') from \
               (select status, count(*) as n from countersign.mutation group by 1) as s";
    db.value(sql).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_call_again_is_a_duplicate_also_in_another_server() {
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
    // Equal parameters of another tool are another call.
    let other = second.succeed("bookmark_tweet", json!({"tweet_id": tweet})).await;
    assert_eq!(other["data"]["duplicate"], Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cached_result_is_whole_however_long_it_is() {
    let db = database().await;
    let server = Server::on(&db).await;
    let texts: Vec<String> = (0..20).map(|n| format!("{n}: {}", "é😀\"\\".repeat(20))).collect();
    let original = server.succeed("post_thread", json!({"tweets": texts})).await;
    let duplicate = server.succeed("post_thread", json!({"tweets": texts})).await;
    assert_eq!(duplicate["data"]["cached_result"].to_string(), original["data"].to_string());
    let summary = "select max(octet_length(result_summary)) <= 500 and max(octet_length(params_summary)) <= 500 \
                   from countersign.mutation";
    assert_eq!(db.value(summary).await, "t");
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_identical_calls_at_once_through_three_servers_write_once() {
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
                    (select status, count(*) as n from countersign.mutation group by 1) as s";
    // One call of each server reached the ledger; the others joined it there.
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
async fn reversed_writes_answer_no_duplicates_also_when_another_server_reversed_them() {
    let db = database().await;
    let tweet = untouched_tweet(&db).await;
    let (here, there) = tokio::join!(Server::on(&db), Server::on(&db));
    let call = json!({"tweet_id": tweet});
    let first = here.succeed("like_tweet", call.clone()).await;
    let undoing = first["meta"]["rollback"]["undo_params"].clone();
    let undo = there.succeed("unlike_tweet", undoing).await;
    // Never a silent success, and never a second execution of what may be a retry.
    let superseded = here.fail("like_tweet", call.clone(), "superseded").await;
    assert!(superseded["message"].as_str().unwrap().contains("was undone by the write"), "{superseded}");
    assert_eq!(likes(&db, tweet).await, "0");
    let again = json!({"tweet_id": tweet, "idempotency_key": "again"});
    assert_eq!(here.succeed("like_tweet", again).await["data"]["liked"], true);
    assert_eq!(likes(&db, tweet).await, "1");
    let id = first["meta"]["correlation_id"].clone();
    let detail = here.succeed("get_mutation_detail", json!({"correlation_id": id})).await;
    assert_eq!(detail["data"]["reversed_by"], json!([undo["meta"]["correlation_id"]]));
    // And the other way round: the chain can be followed from both ends.
    let undoing = json!({"correlation_id": undo["meta"]["correlation_id"]});
    let detail = there.succeed("get_mutation_detail", undoing).await;
    assert_eq!(detail["data"]["reverses"], json!([first["meta"]["correlation_id"]]));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_window_is_300_seconds() {
    let db = database().await;
    let server = Server::on(&db).await;
    let post = json!({"text": "again and again"});
    server.succeed("post_tweet", post.clone()).await;
    let age = |seconds: u32| {
        format!(
            "set session_replication_role = replica; \
             update countersign.record set holds_until = holds_until - interval '{seconds} s'"
        )
    };
    db.run(&age(290)).await;
    assert_eq!(server.succeed("post_tweet", post.clone()).await["data"]["duplicate"], true);
    db.run(&age(11)).await;
    assert_eq!(server.succeed("post_tweet", post).await["data"]["duplicate"], Value::Null);
    assert_eq!(db.value("select count(*) from social.tweet where text = 'again and again'").await, "2");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idempotency_key_of_the_caller_names_exactly_one_write() {
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
async fn accounts_do_not_share_duplicates_or_records() {
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

#[tokio::test(flavor = "multi_thread")]
async fn within_half_a_minute_the_server_itself_remembers_and_makes_no_record() {
    let db = database().await;
    let server = Server::on(&db).await;
    let call = json!({"text": "once"});
    let original = server.succeed("post_tweet", call.clone()).await;
    let duplicate = server.succeed("post_tweet", call.clone()).await;
    let receipt = &original["meta"]["correlation_id"];
    assert_eq!(
        (&duplicate["data"]["duplicate"], &duplicate["data"]["cached_result"]),
        (&json!(true), &original["data"])
    );
    assert_eq!(&duplicate["data"]["original_correlation_id"], receipt);
    assert_eq!(&duplicate["meta"]["correlation_id"], receipt, "a receipt that finds a record");
    assert_eq!(statuses(&db).await, "success 1");
    // A server without the result in memory asks the ledger, which records the duplicate.
    let other = Server::without_dedup_cache(&db).await.succeed("post_tweet", call).await;
    assert_eq!(&other["data"]["original_correlation_id"], receipt);
    assert_ne!(&other["meta"]["correlation_id"], receipt);
    assert_eq!(statuses(&db).await, "duplicate 1, success 1");
}

#[tokio::test(flavor = "multi_thread")]
async fn identical_calls_without_the_memory_layer_are_arbitrated_by_the_ledger_alone() {
    let db = database().await;
    let tweet = untouched_tweet(&db).await;
    let server = Server::without_dedup_cache(&db).await;
    let calls = (0..24).map(|_| server.succeed("like_tweet", json!({"tweet_id": tweet, "idempotency_key": "k"})));
    let answers = join_all(calls).await;
    assert_eq!(answers.iter().filter(|answer| answer["data"]["duplicate"] == true).count(), 23);
    assert_eq!(likes(&db, tweet).await, "1");
    assert_eq!(statuses(&db).await, "duplicate 23, success 1");
    // The key has expired: one of them runs again, and only one. The row is gone, so that it can.
    db.run("set session_replication_role = replica; update countersign.record set holds_until = '-infinity' where slot is not null")
        .await;
    db.run(&format!("delete from social.tweet_like where account_id = 'default' and tweet_id = {tweet}")).await;
    let calls = (0..24).map(|_| server.succeed("like_tweet", json!({"tweet_id": tweet, "idempotency_key": "k"})));
    join_all(calls).await;
    assert_eq!(likes(&db, tweet).await, "1");
    assert_eq!(statuses(&db).await, "duplicate 46, success 2");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_remembered_result_is_used_only_while_the_ledger_agrees() {
    let db = database().await;
    let server = Server::on(&db).await;
    let call = json!({"text": "for a moment"});
    server.succeed("post_tweet", call.clone()).await;
    db.run("set session_replication_role = replica; update countersign.record set holds_until = clock_timestamp()")
        .await;
    assert_eq!(server.succeed("post_tweet", call).await["data"]["duplicate"], Value::Null);
    assert_eq!(statuses(&db).await, "success 2");
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_failover_to_a_database_that_lacks_the_write_it_is_made_again_when_the_ledger_was_forked() {
    // The name suddenly leads to another database, as after a failover that lost the last commits.
    let (db, behind) = (database().await, database().await);
    let server = Server::on(&db).await;
    let call = json!({"text": "lost in the failover"});
    server.succeed("post_tweet", call.clone()).await;
    let maintenance = Database::existing("postgres");
    let (name, other) = (db.name(), behind.name());
    // The server opens sessions by itself, so none may come back before the names are changed.
    for database in [name, other] {
        maintenance.run(&format!("alter database {database} allow_connections false")).await;
    }
    let end = "select pg_terminate_backend(pid, 10000) from pg_stat_activity where datname in";
    maintenance.run(&format!("{end} ('{name}', '{other}')")).await;
    maintenance.run(&format!("alter database {name} rename to {name}_before")).await;
    maintenance.run(&format!("alter database {other} rename to {name}")).await;
    maintenance.run(&format!("alter database {name} allow_connections true")).await;
    let posted = "select count(*) from social.tweet where text = 'lost in the failover'";
    assert_eq!(db.value(posted).await, "0", "this is the other database");
    server.fail("post_tweet", call.clone(), "db_error").await;
    db.run("select countersign.fork(true)").await;
    assert_eq!(server.succeed("post_tweet", call).await["data"]["duplicate"], Value::Null);
    assert_eq!(db.value(posted).await, "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn keyed_fingerprints_reveal_nothing_and_agree_between_servers_with_the_key() {
    let db = database().await;
    let keyed = |key: &str| {
        let mut command = Server::command(&db);
        command.env("COUNTERSIGN_FINGERPRINT_KEY", key).env("COUNTERSIGN_DUPLICATE_MEMORY_S", "0");
        Server::start(command)
    };
    let call = json!({"text": "078-05-1120"});
    let (here, there) = tokio::join!(keyed("the same key, everywhere"), keyed("the same key, everywhere"));
    here.succeed("post_tweet", call.clone()).await;
    assert_eq!(there.succeed("post_tweet", call.clone()).await["data"]["duplicate"], true);
    Server::without_dedup_cache(&db).await.succeed("post_tweet", call).await;
    let hashes = db.rows("select distinct fingerprint from countersign.mutation").await.concat();
    assert_eq!(hashes.len(), 2, "with a key and without: {hashes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_integer_has_one_meaning_however_it_is_spelled() {
    let db = database().await;
    let server = Server::without_dedup_cache(&db).await;
    let tweet = untouched_tweet(&db).await;
    server.succeed("like_tweet", json!({"tweet_id": tweet})).await;
    for spelling in [format!("{tweet}.0"), format!("{tweet}e0"), format!("{tweet}.00")] {
        let same: Value = serde_json::from_str(&format!("{{\"tweet_id\": {spelling}}}")).unwrap();
        assert_eq!(server.succeed("like_tweet", same).await["data"]["duplicate"], true, "{spelling}");
    }
    assert_eq!(statuses(&db).await, "duplicate 3, success 1");
}

#[tokio::test(flavor = "multi_thread")]
async fn few_connections_serve_many_calls_in_turn() {
    // A call that waits holds none: otherwise the waiting ones would keep those that they wait for from finishing.
    let db = database().await;
    let mut command = Server::command(&db);
    command.args(["--write-sessions", "2", "--read-sessions", "1", "--duplicate-memory-s", "0"]);
    let server = Server::start(command).await;
    let calls = (0..24).map(|n| server.succeed("post_tweet", json!({"text": format!("in turn {}", n % 12)})));
    let answers = join_all(calls).await;
    assert_eq!(answers.iter().filter(|answer| answer["data"]["duplicate"] == true).count(), 12);
    let reads = (0..12).map(|_| server.query("select pg_backend_pid() as pid"));
    let pids: std::collections::HashSet<String> =
        join_all(reads).await.iter().map(|rows| rows[0]["pid"].to_string()).collect();
    assert_eq!(pids.len(), 1);
    let connections = "select count(*) <= 2 from pg_stat_activity where datname = current_database() and usename = 'countersign_writer'";
    assert_eq!(db.value(connections).await, "t");
}

/// One write that two calls undo, in any order.
const PAIRS: &str = r#"
[[tool]]
name = "add_pair"
access = "write"
description = "Add two rows."
sql = "insert into social.half (n) values (1), (2) returning n"
rows = "some"
max_rows = 2
undo = { tool = "drop_half", params = { n = "result.n" }, for_each = "result" }

[[tool]]
name = "drop_half"
access = "write"
description = "Drop one of them."
sql = "delete from social.half where n = $1 returning n"
rows = "one"
param = [{ name = "n", description = "Which." }]
undo = { irreversible = "It is a test." }
"#;

#[tokio::test(flavor = "multi_thread")]
async fn undo_calls_that_finish_together_still_reverse_their_write() {
    let db = database().await;
    db.run("create table social.half (n int primary key)").await;
    let manifest = TestManifest::new(PAIRS);
    let (here, there) = tokio::join!(manifest.serve(&db), manifest.serve(&db));
    let added = here.succeed("add_pair", json!({})).await;
    assert_eq!(added["meta"]["rollback"]["undo_calls"].as_array().unwrap().len(), 2);
    let calls = added["meta"]["rollback"]["undo_calls"].clone();
    let receipt = added["meta"]["correlation_id"].as_str().unwrap();
    assert_eq!(calls[0]["params"], json!({"n": 2, "idempotency_key": format!("undo:{receipt}/1")}));
    // A call under the number of another one is no part of the undo.
    let swapped = json!({"n": 1, "idempotency_key": format!("undo:{receipt}/1")});
    here.fail("drop_half", swapped, "undo_conflict").await;
    assert_eq!(db.value("select count(*) from social.half").await, "2");

    // Both have dropped their row, and neither has finished, when the record of the write comes free.
    let mut blocker = db.connect().await;
    let lock = blocker.transaction().await.unwrap();
    lock.batch_execute("select from countersign.record where tool_name = 'add_pair' for update").await.unwrap();
    let params = |n: usize| calls[n]["params"].clone();
    let both = async { tokio::join!(here.succeed("drop_half", params(0)), there.succeed("drop_half", params(1))) };
    let release = async {
        let waiting = "select 1 from (select count(*) as n from pg_stat_activity where wait_event_type = 'Lock' \
                       and usename = 'countersign_writer' and datname = current_database()) s where n = 2";
        db.first_value(waiting).await;
        lock.rollback().await.unwrap();
    };
    tokio::join!(both, release);
    assert_eq!(db.value("select count(*) from countersign.reversal").await, "1");
    here.fail("add_pair", json!({}), "superseded").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_record_returns_the_memory_that_it_takes() {
    let db = database().await;
    db.run("create table social.blob (id int primary key, body text)").await;
    let rows = |count: u32| {
        let sql = format!(
            "insert into social.blob select n, repeat('x', 900000) from generate_series(1, {count}) n returning id, body"
        );
        TestManifest::new(&format!(
            "[[tool]]\nname = \"fill\"\naccess = \"write\"\ndescription = \"Fill.\"\nsql = \"{sql}\"\nrows = \"some\"\n\
             max_rows = 100\nundo = {{ irreversible = \"No.\" }}\n"
        ))
    };
    let refused = rows(5).serve(&db).await.fail("fill", json!({}), "result_too_large").await;
    assert!(refused["message"].as_str().unwrap().contains("a record keeps 4194304; nothing was written"), "{refused}");
    assert_eq!(db.value("select count(*) from social.blob").await, "0");

    let manifest = rows(4);
    let server = manifest.serve(&db).await;
    let original = server.succeed("fill", json!({})).await;
    assert_eq!(server.succeed("fill", json!({})).await["data"]["cached_result"], original["data"], "from memory");
    let other = manifest.serve(&db).await;
    assert_eq!(other.succeed("fill", json!({})).await["data"]["cached_result"], original["data"], "from the ledger");
    let receipt = json!({"correlation_id": original["meta"]["correlation_id"], "rows": "all"});
    // N-25: the text of the other rows is that of the first one.
    let mut expected = original["data"].clone();
    let others = expected["rows"].as_array_mut().unwrap().iter_mut().skip(1);
    others.for_each(|row| row["body"] = json!({"same_as": "result.rows.0.body"}));
    assert_eq!(server.succeed("get_mutation_detail", receipt).await["data"]["result"], expected);
}
