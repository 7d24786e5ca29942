//! `countersign audit list`, `show` and `counts`: what people see, of all accounts.

use serde_json::{Value, json};
use testkit::audit::{audit, insert_failed_records, insert_pending_record, run_audit};
use testkit::social::untouched_tweet;
use testkit::{Database, Server, countersign, database};
use tokio::process::Command;

fn lines(printed: &str) -> Vec<Value> {
    printed.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"))).collect()
}

async fn listed(db: &Database, arguments: &[&str]) -> Vec<Value> {
    lines(&audit(db, &[&["list", "--json"], arguments].concat()).await)
}

/// A like, its duplicate, its reversal, a failure, and a post of another account.
async fn some_records(db: &Database) -> (i64, Vec<String>) {
    let server = Server::forgetful(db).await;
    let tweet = untouched_tweet(db).await;
    let like = json!({"tweet_id": tweet});
    let mut receipts = Vec::new();
    for (tool, arguments) in [("like_tweet", &like), ("like_tweet", &like), ("unlike_tweet", &like)] {
        receipts
            .push(server.succeed(tool, arguments.clone()).await["meta"]["correlation_id"].as_str().unwrap().to_owned());
    }
    server.fail("like_tweet", json!({"tweet_id": 999_999}), "sql_error").await;
    server.close().await;
    let mut command = Server::command(db);
    command.args(["--account", "mei.tanaka", "--actor", "robot"]);
    let server = Server::start(command).await;
    let posted =
        server.succeed("post_tweet", json!({"text": "x\n{\"level\":\"INFO\"}\u{1b}[2K\u{9b}31m\u{202e}"})).await;
    receipts.push(posted["meta"]["correlation_id"].as_str().unwrap().to_owned());
    (tweet, receipts)
}

#[tokio::test(flavor = "multi_thread")]
async fn people_list_the_records_of_all_accounts_with_filters() {
    // A10-06
    let db = database().await;
    assert_eq!(audit(&db, &["list"]).await, "No records.\n");
    some_records(&db).await;
    insert_failed_records(&db, 1, 3).await;
    let all = listed(&db, &[]).await;
    let column = |name: &str| all.iter().map(|record| record[name].clone()).collect::<Vec<_>>();
    assert_eq!(column("id"), [6, 5, 4, 3, 2, 1], "newest first");
    assert_eq!(column("status"), ["failure", "success", "failure", "success", "duplicate", "success"]);
    assert_eq!((&all[1]["account_id"], &all[1]["actor"]), (&json!("mei.tanaka"), &json!("robot")));
    for (arguments, ids) in [
        (&["--limit", "2"][..], &[6, 5][..]),
        (&["--tool", "like_tweet"], &[6, 4, 2, 1]),
        (&["--status", "failure"], &[6, 4]),
        (&["--status", "pending"], &[]),
        (&["--account", "mei.tanaka"], &[5]),
        (&["--since", "2d"], &[5, 4, 3, 2, 1]),
        (&["--since", "1w", "--tool", "like_tweet", "--status", "failure", "--account", "default"], &[6, 4]),
        (&["--tool", "no_such_tool"], &[]),
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
async fn a_list_has_aligned_columns_and_one_line_a_record_whatever_was_stored() {
    // AU11
    let db = database().await;
    let (_, receipts) = some_records(&db).await;
    let table = audit(&db, &["list"]).await;
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
    assert!(audit(&db, &["show", &like]).await.contains(&line("sealed in entry", "1")));
    assert!(audit(&db, &["show", &duplicate]).await.contains(&line("duplicate of", &like)));
    let shown = audit(&db, &["show", &unlike]).await;
    assert!(shown.contains(&line("reverses", &like)), "{shown}");
    assert!(shown.contains("nothing yet: no like_tweet call was made"), "{shown}");

    let record = &lines(&audit(&db, &["show", "--json", &like]).await)[0];
    assert_eq!(record["undo_calls"], json!([{"tool_name": "unlike_tweet", "reversed_by": unlike}]));
    assert_eq!((&record["duplicates"], &record["first_duplicates"]), (&json!(1), &json!([duplicate])));
}

#[tokio::test(flavor = "multi_thread")]
async fn records_are_counted_by_state_in_a_window_overall_and_by_tool() {
    // A9-33, A10-08
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
        (&["list", "--since", "yesterday"], "such as 12h, 90d or 4w"),
        (&["list", "--since", "200000w"], "100 years at most"),
        (&["counts", "--since=-1d"], "such as 12h, 90d or 4w"),
        (&["counts", "--since", "0h"], "an age of zero"),
        (&["show"], "<CORRELATION_ID>"),
        (&["show", "abc"], "a UUID of 36 characters"),
        (&["prune"], "--older-than <AGE>"),
        (&["prune", "--older-than", "23h"], "never pruned: give 1d (24h) or more"),
        (&["prune", "--older-than", "90"], "such as 12h, 90d or 4w"),
        (&["prune", "--older-than", "90m"], "such as 12h, 90d or 4w"),
        (&["verify", "--checkpoint"], "a value is required"),
        (&["seal", "now"], "unexpected argument 'now'"),
        (&["burn"], "unrecognized subcommand 'burn'"),
    ] {
        let ran = run_audit(&db.url(), arguments).await;
        assert!(ran.code == 2 && ran.err.contains(named) && ran.out.is_empty(), "{arguments:?}: {}", ran.err);
    }
    let ran = run_audit(&db.url(), &["show", "00000000-0000-4000-8000-000000000001"]).await;
    assert!(ran.code == 1 && ran.err.contains("no record has the correlation id 00000000-"), "{}", ran.err);
    let ran = run_audit("host=/nowhere user=me dbname=shop", &["verify"]).await;
    assert!(ran.code == 1 && ran.err.contains("Cannot connect to database"), "{}", ran.err);
    let mut command = Command::new(countersign());
    let empty = Database::empty("audit_without_a_ledger").await;
    let output = command.env("DATABASE_URL", empty.url()).args(["audit", "seal"]).output().await.unwrap();
    assert!(String::from_utf8(output.stderr).unwrap().contains("countersign init"));
}
