//! Writes through the gate: recorded before they start, once, or not at all.

use serde_json::{Value, json};
use testkit::social::{likes, untouched_tweet};
use testkit::{Database, RawStdioServer, Server, TestManifest, database, poll};

async fn records(db: &Database) -> Vec<Vec<String>> {
    db.rows("select tool_name, status, coalesce(error_code, '') from countersign.mutation order by id").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_answers_with_receipt_row_count_and_undo() {
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
    let undo = json!({"tweet_id": tweet, "idempotency_key": format!("undo:{id}")});
    assert_eq!(meta["rollback"]["undo_params"], undo);
    assert!(!meta["rollback"]["note"].as_str().unwrap().is_empty());
    assert_eq!(likes(&db, tweet).await, "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_write_leaves_a_record_and_nothing_else_and_can_be_repeated_at_once() {
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
    let definition =
        "Constraint tweet_like_tweet_id_fkey of social.tweet_like: FOREIGN KEY (tweet_id) REFERENCES social.tweet(id)";
    assert!(error["hint"].as_str().is_some_and(|hint| hint.starts_with(definition)), "{error}");
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
async fn invalid_calls_are_refused_before_the_gate() {
    let db = database().await;
    let server = Server::on(&db).await;
    for (tool, arguments, said) in [
        ("like_tweet", json!({}), "missing argument \"tweet_id\""),
        ("like_tweet", json!({"tweet_id": "1; drop table x"}), "argument \"tweet_id\""),
        ("like_tweet", json!({"tweet_id": 1.5}), "argument \"tweet_id\""),
        // I-2, I-10: the message has the pattern of the schema.
        ("like_tweet", json!({"tweet_id": 9_007_199_254_740_993_u64}), "argument \"tweet_id\""),
        ("post_tweet", json!({"text": "a", "idempotency_key": "a b"}), "\"^[!-~]+$\""),
        ("like_tweet", json!({"tweet_id": 1, "account_id": "other"}), "unknown argument \"account_id\""),
        ("post_tweet", json!({"text": ""}), "argument \"text\""),
        ("post_tweet", json!({"text": "x".repeat(281)}), "argument \"text\""),
        ("post_tweet", json!({"text": "a\u{0}b"}), "U+0000"),
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
async fn what_a_framework_fills_in_for_arguments_that_were_left_out_is_absent() {
    // I-1: null; I-5: empty values.
    let db = database().await;
    let server = Server::on(&db).await;
    for filled in [Value::Null, json!("")] {
        let text = format!("with {filled}");
        server.succeed("post_tweet", json!({"text": text, "idempotency_key": filled})).await;
        server.succeed("describe_database", json!({"schema": filled, "table": filled, "search": filled})).await;
    }
    for filled in [Value::Null, json!([])] {
        server.succeed("describe_database", json!({"tables": filled})).await;
        let query = json!({"query": "select 1", "params": filled, "after": filled, "row_limit": null});
        server.succeed("query_database", query).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_javascript_client_reads_and_writes_every_digit() {
    // I-2: structured content is parsed with doubles, sent back, and names the same row.
    let db = database().await;
    db.run("create table social.exact (id bigint primary key, price numeric)").await;
    db.run("grant select on social.exact to countersign_reader").await;
    db.run("insert into social.exact values (9007199254740992, 0), (9007199254740993, 1.10)").await;
    let manifest = TestManifest::new(EXACT);
    let mut server = RawStdioServer::start(manifest.command(&db), "2025-11-25").await;
    let query = json!({"query": "select id, price from social.exact order by id", "row_limit": 1});
    let first = server.call("query_database", query.clone()).await;
    assert_eq!(first["data"]["rows"], json!([{"id": "9007199254740992", "price": "0"}]), "{first}");
    let mut next = query;
    next["after"] = first["data"]["next"]["after"].clone();
    let second = server.call("query_database", next).await;
    let row = second["data"]["rows"][0].clone();
    assert_eq!(row, json!({"id": "9007199254740993", "price": "1.10"}), "{second}");
    assert_eq!(server.call("find_exact", json!({"id": row["id"]})).await["data"], row);

    let number = server.call("set_price", json!({"id": 9_007_199_254_740_993_u64, "price": 1})).await;
    assert_eq!(number["error"]["code"], "invalid_params", "{number}");
    assert!(number["error"]["hint"].as_str().unwrap().contains("as text"), "{number}");
    let param = json!({"query": "select $1::numeric", "params": [0.123_456_789_012_345_68]});
    assert_eq!(server.call("query_database", param).await["error"]["code"], "invalid_params");

    let written = server.call("set_price", json!({"id": row["id"], "price": "2.50"})).await;
    assert_eq!(written["data"], json!({"id": "9007199254740993", "price": "2.50"}), "{written}");
    let undo = &written["meta"]["rollback"]["undo_params"];
    assert_eq!((&undo["id"], &undo["price"]), (&json!("9007199254740993"), &json!("1.10")), "{written}");
    assert_eq!(server.call("set_price", undo.clone()).await["success"], true);
    let rows = db.rows("select id, price from social.exact order by id").await;
    assert_eq!(rows, [["9007199254740992", "0"], ["9007199254740993", "1.10"]]);
    assert!(server.close().await);
}

const EXACT: &str = r#"
[[tool]]
name = "find_exact"
access = "read"
description = "One."
sql = "select id, price from social.exact where id = $1"
rows = "one"
param = [{ name = "id", description = "Which." }]

[[tool]]
name = "set_price"
access = "write"
description = "Set it."
before = "select price from social.exact where id = $1 for update"
sql = "update social.exact set price = $2 where id = $1 returning id, price"
rows = "one"
param = [{ name = "id", description = "Which." }, { name = "price", description = "How much." }]
undo = { tool = "set_price", params = { id = "param.id", price = "before.price" } }
"#;

const STOCK: &str = r#"
[[tool]]
name = "sell"
access = "write"
description = "Sell some of it."
sql = [
    "update social.stock set pieces = pieces - 1 where item = $1 returning item",
    "insert into social.sale (item, buyer) values ($1, $2)",
    "update social.buyer set bought = bought + 1 where name = $2 returning name, bought",
]
rows = "one"
param = [{ name = "item", description = "What." }, { name = "buyer", description = "Who." }]
undo = { irreversible = "It is sold." }

[[tool]]
name = "add_buyers"
access = "write"
description = "Add several."
sql = "insert into social.buyer select unnest($1::text[]), 0 returning name"
rows = "some"
max_rows = 10
param = [{ name = "names", description = "Who." }]
undo = { irreversible = "They stay." }
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_write_of_several_steps_happens_completely_or_not_at_all() {
    let db = database().await;
    db.run(
        "create table social.stock (item text primary key, pieces int);
         create table social.sale (item text, buyer text check (buyer <> 'nobody'));
         create table social.buyer (name text primary key, bought int);
         insert into social.stock values ('lamp', 5); insert into social.buyer values ('ana', 0)",
    )
    .await;
    let server = TestManifest::new(STOCK).serve(&db).await;
    let before = db.social().await;
    for (tool, arguments, code) in [
        // The second step is an error, the third touches no row, and of four items the third is there already.
        ("sell", json!({"item": "lamp", "buyer": "nobody"}), "sql_error"),
        ("sell", json!({"item": "lamp", "buyer": "stranger"}), "row_count_mismatch"),
        ("add_buyers", json!({"names": ["bob", "cid", "ana", "dan"]}), "sql_error"),
    ] {
        let envelope = server.call(tool, arguments).await;
        assert_eq!(envelope["error"]["code"], code, "{envelope}");
        assert_eq!(db.social().await, before, "{envelope}");
        let record = server.record(&envelope).await;
        assert_eq!((&record["status"], &record["error_code"]), (&json!("failure"), &json!(code)), "{record}");
    }
    let sold = server.succeed("sell", json!({"item": "lamp", "buyer": "ana"})).await;
    assert_eq!(sold["data"], json!({"name": "ana", "bought": 1}));
    assert_eq!(db.value("select pieces || ' ' || (select count(*) from social.sale) from social.stock").await, "4 1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deferred_constraint_is_a_failure_and_not_a_success() {
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
    let definition = "Constraint late of social.tweet_like: FOREIGN KEY (parent) REFERENCES social.late_parent(id)";
    assert!(error["hint"].as_str().is_some_and(|hint| hint.starts_with(definition)), "{error}");
    assert_eq!(likes(&db, tweet).await, "0");
    assert_eq!(records(&db).await, [["like_tweet", "failure", "sql_error"]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_message_of_a_trigger_that_refuses_at_commit_is_returned_and_recorded() {
    // The trigger is deferred until COMMIT.
    let db = database().await;
    db.run(
        "create table social.checked (n int);
         grant insert on social.checked to countersign_writer;
         create function social.refuse() returns trigger language plpgsql as
             $$ begin raise 'a tweet may not be liked on sundays' using errcode = 'PT001'; end $$;
         create constraint trigger refuse after insert on social.checked deferrable initially deferred
             for each row execute function social.refuse();
         create function social.check_later() returns trigger language plpgsql as
             $$ begin set constraints all deferred; insert into social.checked values (1); return null; end $$;
         create constraint trigger check_later after insert on social.tweet_like deferrable initially deferred
             for each row execute function social.check_later()",
    )
    .await;
    let server = Server::on(&db).await;
    let tweet = untouched_tweet(&db).await;
    let envelope = server.call("like_tweet", json!({"tweet_id": tweet})).await;
    let error = &envelope["error"];
    assert_eq!(
        (&error["code"], &error["sqlstate"], &error["retryable"]),
        (&json!("sql_error"), &json!("PT001"), &json!(false)),
        "{envelope}"
    );
    assert_eq!(error["message"], "a tweet may not be liked on sundays");
    assert_eq!(likes(&db, tweet).await, "0");
    let id = &envelope["meta"]["correlation_id"];
    let record = server.succeed("get_mutation_detail", json!({"correlation_id": id})).await["data"].clone();
    assert_eq!(
        (&record["status"], &record["error_sqlstate"], &record["error_message"]),
        (&json!("failure"), &json!("PT001"), &error["message"]),
        "{record}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backend_killed_in_the_middle_leaves_the_truth_in_the_record() {
    let db = database().await;
    let server = Server::on(&db).await;
    let tweet = untouched_tweet(&db).await;
    let lock = db.lock("social.tweet_like").await;
    let call = server.call("like_tweet", json!({"tweet_id": tweet}));
    let kill = async {
        // The write waits for the lock: others see it, as pending.
        db.first_value("select 1 from countersign.mutation where status = 'pending'").await;
        let waiting = "select pid from pg_stat_activity where wait_event_type = 'Lock' and query like '%tweet_like%' \
                       and datname = current_database() and pid <> pg_backend_pid()";
        let pid = db.first_value(waiting).await;
        assert_eq!(records(&db).await, [["like_tweet", "pending", ""]]);
        db.run(&format!("select pg_terminate_backend({pid})")).await;
        db.first_value("select 1 from countersign.mutation where status = 'failure'").await;
        lock.release().await;
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

#[tokio::test(flavor = "multi_thread")]
async fn the_next_server_ends_pending_writes_of_a_killed_server_and_they_can_be_repeated() {
    // No write stays pending, and the server repeats none by itself.
    let db = database().await;
    let tweet = untouched_tweet(&db).await;
    let mut killed = RawStdioServer::start(Server::command(&db), "2025-06-18").await;
    let lock = db.lock("social.tweet_like").await;
    let params = json!({"name": "like_tweet", "arguments": {"tweet_id": tweet}});
    killed.send(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string()).await;
    db.first_value("select 1 from countersign.mutation where status = 'pending'").await;
    let waiting = "select pid from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()";
    let pid = db.first_value(waiting).await;
    drop(killed);
    lock.release().await;
    db.first_value(&format!("select 1 where not exists (select from pg_stat_activity where pid = {pid})")).await;
    assert_eq!(records(&db).await, [["like_tweet", "pending", ""]]);
    // An hour later, as far as the attempt knows.
    db.run("update countersign.attempt set admitted_at = admitted_at - interval '1 hour'").await;
    let next = Server::on(&db).await;
    db.first_value("select 1 from countersign.mutation where status = 'failure'").await;
    assert_eq!(records(&db).await, [["like_tweet", "failure", "in_doubt_aborted"]]);
    assert_eq!(next.succeed("like_tweet", json!({"tweet_id": tweet})).await["data"]["liked"], true);
    assert_eq!(likes(&db, tweet).await, "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn sweeping_a_waiting_call_changes_nothing_else() {
    // A server may stand still for longer than the sweep is patient: a laptop that sleeps, a debugger.
    let db = database().await;
    let (running, waiting) = tokio::join!(Server::on(&db), Server::on(&db));
    let call = json!({"tweet_id": untouched_tweet(&db).await});
    let lock = db.lock("social.tweet_like").await;
    let first = running.call("like_tweet", call.clone());
    let rest = async {
        let blocked = "select pid from pg_stat_activity where wait_event_type = 'Lock' and query like '%tweet_like%' \
                       and datname = current_database() and pid <> pg_backend_pid()";
        let pid = db.first_value(blocked).await;
        let second = waiting.call("like_tweet", call.clone());
        let sweep = async {
            // The first one is being carried out, so it is not swept; the second one records nothing while it waits.
            assert_eq!(db.value("select count(*) from countersign.sweep(interval '0', 10)").await, "0");
            db.run(&format!("select pg_terminate_backend({pid})")).await;
            lock.release().await;
        };
        tokio::join!(second, sweep).0
    };
    let (first, second) = tokio::join!(first, rest);
    assert_eq!(first["error"]["code"], "in_doubt_aborted", "{first}");
    // It takes the place of the one that was lost.
    assert_eq!(second["data"]["liked"], true, "{second}");
}

/// What a function of the operator's does to its session, beyond its transaction.
const LEAVES_TRACES: &str = r#"
[[tool]]
name = "leave_traces"
access = "write"
description = "Leave traces in the session."
sql = "select public.leave_traces($1) as done"
rows = "one"
param = [{ name = "n", description = "Which." }]
undo = { irreversible = "It is a test." }

[[tool]]
name = "look_for_traces"
access = "write"
description = "Look for traces in the session."
sql = "select public.look_for_traces($1) as found"
rows = "one"
param = [{ name = "n", description = "Which." }]
undo = { irreversible = "It is a test." }
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_write_leaves_no_state_in_its_session_for_the_next_account() {
    // M9: a setting that policies go by, a temporary table, an advisory lock.
    let db = database().await;
    db.run(
        "create function public.leave_traces(n integer) returns integer language plpgsql as $$ begin \
         perform set_config('app.user', 'anna', false); perform pg_advisory_lock(7); \
         create temporary table trace as select 1 as id; return pg_backend_pid(); end $$; \
         create function public.look_for_traces(n integer) returns text language plpgsql as $$ begin \
         return concat_ws(' ', pg_backend_pid(), nullif(current_setting('app.user', true), ''), to_regclass('pg_temp.trace')); end $$; \
         grant temporary on database current_database to countersign_writer"
            .replace("database current_database", &format!("database {}", db.name()))
            .as_str(),
    )
    .await;
    let server = TestManifest::new(LEAVES_TRACES).serve(&db).await;
    let pid = server.succeed("leave_traces", json!({"n": 1})).await["data"]["done"].to_string();
    // The pool may lend another session first.
    let mut n = 0;
    let in_that_session = async || {
        n += 1;
        let found = server.succeed("look_for_traces", json!({"n": n})).await["data"]["found"].clone();
        found.as_str().filter(|found| found.starts_with(&pid)).map(str::to_owned)
    };
    let found = poll::until_some("the same session serves another write", in_that_session).await;
    assert_eq!(found, pid, "nothing is left in it");
    assert_eq!(db.value("select count(*) from pg_locks where locktype = 'advisory' and objid = 7").await, "0");
    server.close().await;
}
