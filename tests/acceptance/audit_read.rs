//! `countersign audit list`, `show` and `counts`: what people see, of all accounts.

use serde_json::{Value, json};
use testkit::audit::{audit, audit_discrepancy, insert_failed_records, insert_pending_record, run_audit, tamper};
use testkit::social::untouched_tweet;
use testkit::{Database, HttpServer, RawStdioServer, Server, countersign, database};
use tokio::process::Command;

fn lines(printed: &str) -> Vec<Value> {
    printed.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"))).collect()
}

async fn listed(db: &Database, arguments: &[&str]) -> Vec<Value> {
    lines(&audit(db, &[&["list", "--json"], arguments].concat()).await)
}

/// A like, its duplicate, its reversal, a failure, and a post of another account.
async fn some_records(db: &Database) -> (i64, Vec<String>) {
    let server = Server::without_dedup_cache(db).await;
    let tweet = untouched_tweet(db).await;
    let like = json!({"tweet_id": tweet});
    let liked = server.succeed("like_tweet", like.clone()).await;
    let again = server.succeed("like_tweet", like).await;
    let unliked = server.succeed("unlike_tweet", liked["meta"]["rollback"]["undo_params"].clone()).await;
    let receipt = |answer: &Value| answer["meta"]["correlation_id"].as_str().unwrap().to_owned();
    let mut receipts = vec![receipt(&liked), receipt(&again), receipt(&unliked)];
    server.fail("like_tweet", json!({"tweet_id": 999_999}), "sql_error").await;
    server.close().await;
    let server = Server::with(db, |it| it.args(["--account", "mei.tanaka", "--actor", "robot"])).await;
    let posted =
        server.succeed("post_tweet", json!({"text": "x\n{\"level\":\"INFO\"}\u{1b}[2K\u{9b}31m\u{202e}"})).await;
    receipts.push(posted["meta"]["correlation_id"].as_str().unwrap().to_owned());
    (tweet, receipts)
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_list_the_records_of_all_accounts_with_filters() {
    let db = database().await;
    assert_eq!(audit(&db, &["list"]).await, "No records.\n");
    some_records(&db).await;
    insert_failed_records(&db, 1, 3).await;
    let all = listed(&db, &[]).await;
    let column = |name: &str| all.iter().map(|record| record[name].clone()).collect::<Vec<_>>();
    assert_eq!(column("id"), [6, 5, 4, 3, 2, 1], "newest first");
    assert_eq!(column("status"), ["failure", "success", "failure", "success", "duplicate", "success"]);
    assert_eq!((&all[1]["account_id"], &all[1]["actor"]), (&json!("mei.tanaka"), &json!("robot")));
    let session = all[2]["client"]["session_id"].as_str().unwrap().to_owned();
    for (arguments, ids) in [
        (&["--limit", "2"][..], &[6, 5][..]),
        (&["--tool", "like_tweet"], &[6, 4, 2, 1]),
        (&["--status", "failure"], &[6, 4]),
        (&["--status", "pending"], &[]),
        (&["--account", "mei.tanaka"], &[5]),
        (&["--since", "2d"], &[5, 4, 3, 2, 1]),
        (&["--since", "1w", "--tool", "like_tweet", "--status", "failure", "--account", "default"], &[6, 4]),
        (&["--tool", "no_such_tool"], &[]),
        (&["--actor", "robot"], &[5]),
        (&["--actor", "rob"], &[]),
        (&["--until", "2d"], &[6]),
        (&["--since", "1w", "--until", "1h"], &[6]),
        (&["--session", session.get(..8).unwrap()], &[4, 3, 2, 1]),
        (&["--session", "no such session"], &[]),
    ] {
        let found: Vec<_> = listed(&db, arguments).await.iter().map(|record| record["id"].as_i64().unwrap()).collect();
        assert_eq!(found, ids, "{arguments:?}");
    }
    // More than one answer of the database holds.
    insert_failed_records(&db, 1200, 0).await;
    let many = listed(&db, &["--limit", "1100"]).await;
    let found: Vec<_> = many.iter().map(|record| record["id"].as_i64().unwrap()).collect();
    assert_eq!(found, (107..=1206).rev().collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_has_aligned_columns_and_one_line_per_record_for_any_stored_text() {
    let db = database().await;
    let (_, receipts) = some_records(&db).await;
    let table = audit(&db, &["list", "--wide"]).await;
    let rows: Vec<&str> = table.lines().collect();
    assert_eq!(rows.len(), 6, "{table}");
    for (heading, value) in [
        ("STATUS", "success"),
        ("TOOL", "post_tweet"),
        ("ACCOUNT", "mei.tanaka"),
        ("CORRELATION ID", receipts[3].as_str()),
    ] {
        let at = rows[0].find(heading).unwrap();
        assert!(rows[1][at..].starts_with(value), "{heading} stands above {value}:\n{table}");
    }
    let hidden = |text: &str| text.chars().any(|c| (c.is_control() && c != '\n') || c == '\u{202e}');
    for arguments in [&["list"][..], &["list", "--json"], &["show", &receipts[3]], &["show", "--json", &receipts[3]]] {
        let printed = audit(&db, arguments).await;
        assert!(!hidden(&printed) && printed.contains("\\u001b[2K") && printed.contains("\\u009b31m"), "{printed}");
    }
    let shown = &lines(&audit(&db, &["show", "--json", &receipts[3]]).await)[0];
    assert_eq!(shown["params"]["text"], "x\n{\"level\":\"INFO\"}\u{1b}[2K\u{9b}31m\u{202e}", "JSON keeps the value");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_shows_account_and_tool_in_100_columns_and_accepts_a_shortened_id() {
    let db = database().await;
    let (tweet, receipts) = some_records(&db).await;
    let table = audit(&db, &["list"]).await;
    let words = |line: &str| line.split("  ").map(str::trim).filter(|it| !it.is_empty()).map(str::to_owned).collect();
    let rows: Vec<Vec<String>> = table.lines().map(words).collect();
    assert_eq!(rows[0], ["ID", "WHEN", "STATUS", "TOOL", "ACCOUNT", "ACTOR", "WHAT"], "{table}");
    assert_eq!(rows[5][0], receipts[0][..8], "{table}");
    assert!(rows[5][1].ends_with(" s ago"), "{table}");
    assert_eq!(rows[5][2..4], ["reversed", "like_tweet"], "{table}");
    assert_eq!(rows[5].last().unwrap(), &format!("tweet_id={tweet}"), "{table}");
    assert_eq!(rows[2].last().unwrap(), "sql_error: tweet_id=999999", "{table}");
    assert_eq!(rows[1][4..6], ["mei.tanaka", "robot"], "{table}");
    assert!(!table.contains('…'), "nothing is cut in a pipe: {table}");

    let whole = audit(&db, &["show", &receipts[0]]).await;
    for prefix in [8, 20].map(|length| &receipts[0][..length]) {
        assert_eq!(audit(&db, &["show", prefix]).await, whole, "{prefix}");
    }
    for end in ["1", "2"] {
        db.run(&format!(
            "insert into countersign.attempt (slot, correlation_id, account_id, tool_name, fingerprint, params, params_summary) \
             values (countersign.slot_of('default', 'tool_{end}', null, repeat('0', 64)), \
                 'abcdef00-0000-4000-8000-00000000000{end}', 'default', 'tool_{end}', repeat('0', 64), '{{}}', '{{}}')"
        ))
        .await;
    }
    let ran = run_audit(&db.url(), &["show", "abcdef00"]).await;
    assert_eq!((ran.code, ran.out.as_str()), (1, ""));
    assert!(ran.err.contains("several ids begin with abcdef00"), "{}", ran.err);
    for end in ["1", "2"] {
        let named = format!("abcdef00-0000-4000-8000-00000000000{end} 20");
        assert!(ran.err.contains(&named) && ran.err.contains(&format!("pending tool_{end}\n")), "{}", ran.err);
    }
}

/// Calls a tool in a trace, over standard input and output.
async fn call_traced(server: &mut RawStdioServer, id: u32, tool: &str, arguments: Value, traceparent: &str) -> Value {
    let params = json!({"name": tool, "arguments": arguments, "_meta": {"traceparent": traceparent}});
    let answer = server.request(id, "tools/call", params).await;
    answer["result"]["structuredContent"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_names_its_client_session_and_trace() {
    let db = database().await;
    let mut server = RawStdioServer::start(Server::command(&db), "2025-11-25").await;
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let traced = format!("00-{trace}-00f067aa0ba902b7-01");
    let post = async |server: &mut RawStdioServer, id, text: &str, traceparent: &str| {
        let answer = call_traced(server, id, "post_tweet", json!({"text": text}), traceparent).await;
        answer["meta"]["correlation_id"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    };
    let first = post(&mut server, 1, "one", &traced).await;
    post(&mut server, 2, "two", "not a trace").await;
    let recent = call_traced(&mut server, 3, "get_recent_mutations", json!({}), "").await;
    let [two, one] = [0, 1].map(|at: usize| recent["data"]["mutations"][at]["client"].clone());
    let session = one["session_id"].as_str().unwrap();
    assert_eq!(session.len(), 32);
    assert_eq!(one, json!({"name": "test", "version": "0", "session_id": session, "trace_id": trace}));
    assert_eq!(two, json!({"name": "test", "version": "0", "session_id": session}));
    let detail = call_traced(&mut server, 4, "get_mutation_detail", json!({"correlation_id": first}), "").await;
    assert_eq!(detail["data"]["client"], one);
    let shown = audit(&db, &["show", &first]).await;
    for line in [
        "client           test 0\n".to_owned(),
        format!("session          {session}\n"),
        format!("trace            {trace}\n"),
    ] {
        assert!(shown.contains(&line), "{line:?} is missing in:\n{shown}");
    }
    assert!(server.close().await);

    // Over HTTP a session keeps its name on every server of the ledger, and a request without a session has none.
    let servers = [HttpServer::on(&db).await, HttpServer::on(&db).await];
    let visitor = servers[0].session("2025-11-25").await;
    let stateless = servers[0].http_client();
    visitor.call("post_tweet", json!({"text": "three"})).await;
    visitor.connected_to(&servers[1]).call("post_tweet", json!({"text": "four"})).await;
    stateless.call("post_tweet", json!({"text": "five"})).await;
    let all = listed(&db, &[]).await;
    let [five, four, three] = [0, 1, 2].map(|at: usize| all[at]["client"].clone());
    assert_eq!(three, four);
    assert_eq!((three["name"].as_str(), three["session_id"].as_str().map(str::len)), (Some("test"), Some(32)));
    assert!(!visitor.session_id().contains(three["session_id"].as_str().unwrap()), "it opens nothing");
    assert_eq!(five, json!({"name": "test", "version": "0"}));
    // What a client says of itself is sealed with its write.
    assert!(audit(&db, &["verify"]).await.contains("5 records in"));
    tamper(&db, "update countersign.record set client_name = 'x' where id = 1").await;
    assert!(audit_discrepancy(&db, &["verify"]).await.contains("record 1 (correlation id"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_is_shown_with_what_it_is_tied_to() {
    let db = database().await;
    let (tweet, receipts) = some_records(&db).await;
    let [like, duplicate, unlike, _] = <[String; 4]>::try_from(receipts).unwrap();
    let line = |heading: &str, value: &str| format!("{heading:<16} {value}\n");
    let shown = audit(&db, &["show", &like]).await;
    for expected in [
        line("correlation id", &like),
        line("record", "1"),
        line("status", "success"),
        line("reversed by", &format!("{unlike} (unlike_tweet)")),
        line("duplicated by", &duplicate),
        format!("\"tweet_id\": {tweet}"),
        "\"undo_tool\": \"unlike_tweet\"".to_owned(),
    ] {
        assert!(shown.contains(&expected), "{expected:?} is missing in:\n{shown}");
    }
    audit(&db, &["seal"]).await;
    assert!(audit(&db, &["show", &like]).await.contains(&line("entry in the log", "2")));
    assert!(audit(&db, &["show", &duplicate]).await.contains(&line("duplicate of", &like)));
    let shown = audit(&db, &["show", &unlike]).await;
    assert!(shown.contains(&line("reverses", &like)), "{shown}");
    assert!(shown.contains("nothing yet: no like_tweet call was made"), "{shown}");

    // A write whose undo was undone stands again.
    let reversed = async || listed(&db, &["--tool", "like_tweet"]).await.last().unwrap()["is_reversed"].clone();
    assert_eq!(reversed().await, true);
    db.run(&format!("insert into countersign.reversal values ('{unlike}', gen_random_uuid())")).await;
    assert_eq!(reversed().await, false);

    let record = &lines(&audit(&db, &["show", "--json", &like]).await)[0];
    assert_eq!(record["undo_calls"], json!([{"tool_name": "unlike_tweet", "reversed_by": unlike}]));
    assert_eq!((&record["duplicates"], &record["first_duplicates"]), (&json!(1), &json!([duplicate])));
}

#[tokio::test(flavor = "multi_thread")]
async fn records_are_counted_by_state_in_a_window_overall_and_by_tool() {
    let db = database().await;
    some_records(&db).await;
    insert_failed_records(&db, 2, 3).await;
    insert_pending_record(&db, 0).await;
    let counts = lines(&audit(&db, &["counts", "--json"]).await);
    let row = |tool: Value, numbers: [u32; 5]| {
        let [pending, success, failure, duplicate, total] = numbers;
        json!({"tool_name": tool, "pending": pending, "success": success, "failure": failure, "duplicate": duplicate, "total": total})
    };
    let expected = [
        row(json!("like_tweet"), [1, 1, 3, 1, 6]),
        row(json!("post_tweet"), [0, 1, 0, 0, 1]),
        row(json!("unlike_tweet"), [0, 1, 0, 0, 1]),
        row(json!(null), [1, 3, 3, 1, 8]),
    ];
    assert_eq!(counts, expected);
    let today = lines(&audit(&db, &["counts", "--json", "--since", "24h"]).await);
    assert_eq!(today[3], row(json!(null), [1, 3, 1, 1, 6]));
    let table = audit(&db, &["counts", "--since", "1d"]).await;
    let rows: Vec<Vec<&str>> =
        table.lines().map(|line| line.split(' ').filter(|word| !word.is_empty()).collect()).collect();
    assert_eq!(rows[0], ["TOOL", "PENDING", "SUCCESS", "FAILURE", "DUPLICATE", "TOTAL"]);
    assert_eq!(rows[4], ["all", "tools", "1", "3", "1", "1", "6"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_options_are_named_with_what_would_be_right() {
    let db = database().await;
    for (arguments, named) in [
        (&["list", "--limit", "0"][..], "0 is not in 1..=10000"),
        (&["list", "--limit", "10001"], "10001 is not in 1..=10000"),
        (&["list", "--limit", "many"], "invalid digit"),
        (&["list", "--status", "done"], "[possible values: pending, success, failure, duplicate]"),
        (&["list", "--since", "last week"], "such as 30m, '2026-11-22 09:00'"),
        (&["list", "--since", "200000w"], "100 years at most"),
        (&["counts", "--since=-1d"], "such as 30m, '2026-11-22 09:00'"),
        (&["counts", "--since", "0h"], "a span of no time"),
        (&["show"], "<CORRELATION_ID>"),
        (&["show", "abc"], "a UUID of 36 characters"),
        (&["prune", "--every", "1d", "--dry-run"], "cannot be used with"),
        (&["prune", "--every", "often"], "such as 90s, 1h30m or 7d"),
        (&["prune", "--older-than", "23h"], "never pruned: give 1d (24h) or more"),
        (&["prune", "--older-than", "90"], "such as 90s, 1h30m or 7d"),
        (&["prune", "--older-than", "90m"], "never pruned: give 1d (24h) or more"),
        (&["verify", "--checkpoint"], "a value is required"),
        (&["seal", "now"], "unexpected argument 'now'"),
        (&["burn"], "unrecognized subcommand 'burn'"),
    ] {
        let ran = run_audit(&db.url(), arguments).await;
        assert!(ran.code == 2 && ran.err.contains(named) && ran.out.is_empty(), "{arguments:?}: {}", ran.err);
    }
    // N-5: nothing can be in an empty range of time.
    for (range, named) in [
        (["--since", "2999-01-01", "--until", "now"], "begins in the future"),
        (["--since", "1h", "--until", "2h"], "the range of time is empty"),
    ] {
        let ran = run_audit(&db.url(), &[&["list"][..], &range].concat()).await;
        assert!(ran.code == 1 && ran.err.contains(named) && ran.out.is_empty(), "{range:?}: {}", ran.err);
    }
    for since in ["30m", "1 hour ago", "yesterday", "00:00", "2026-11-22 09:00", "2026-11-22T09:00:00+01:00"] {
        let ran = run_audit(&db.url(), &["list", "--since", since]).await;
        assert!(ran.code == 0 && ran.err.is_empty(), "{since}: {}", ran.err);
    }
    let ran = run_audit(&db.url(), &["show", "00000000-0000-4000-8000-000000000001"]).await;
    assert!(ran.code == 1 && ran.err.contains("no record has the correlation id 00000000-"), "{}", ran.err);
    let ran = run_audit("host=/nowhere user=me dbname=shop", &["verify"]).await;
    assert!(ran.code == 2 && ran.err.contains("Cannot connect to database"), "{}", ran.err);
    let mut command = Command::new(countersign());
    let empty = Database::empty("audit_without_a_ledger").await;
    let output = command.env("DATABASE_URL", empty.url()).args(["audit", "seal"]).output().await.unwrap();
    assert!(String::from_utf8(output.stderr).unwrap().contains("countersign init"));
}
