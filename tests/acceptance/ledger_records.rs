//! Looking back: get_recent_mutations and get_mutation_detail, and the ledger's own rules.

use serde_json::{Value, json};
use testkit::social::untouched_tweet;
use testkit::{Server, database};

const LISTED: [&str; 10] = [
    "correlation_id",
    "tool_name",
    "status",
    "params_summary",
    "result_summary",
    "error_message",
    "elapsed_ms",
    "client",
    "created_at",
    "completed_at",
];

#[tokio::test(flavor = "multi_thread")]
async fn recent_mutations_are_listed_newest_first_with_these_fields_only() {
    let db = database().await;
    let server = Server::on(&db).await;
    let tweet = untouched_tweet(&db).await;
    server.succeed("like_tweet", json!({"tweet_id": tweet})).await;
    // From another server: the first one would remember, and make no record.
    Server::on(&db).await.succeed("like_tweet", json!({"tweet_id": tweet})).await;
    server.fail("like_tweet", json!({"tweet_id": 999_999}), "sql_error").await;
    server.succeed("post_tweet", json!({"text": "the newest"})).await;
    let listed = server.succeed("get_recent_mutations", json!({})).await;
    let mutations = listed["data"]["mutations"].as_array().unwrap();
    assert_eq!(listed["data"]["count"], 4);
    let field = |name: &str| mutations.iter().map(|mutation| mutation[name].clone()).collect::<Vec<_>>();
    assert_eq!(field("status"), ["success", "failure", "duplicate", "success"]);
    assert_eq!(field("tool_name"), ["post_tweet", "like_tweet", "like_tweet", "like_tweet"]);
    for mutation in mutations {
        assert_eq!(mutation.as_object().unwrap().keys().collect::<Vec<_>>(), LISTED);
        let created = mutation["created_at"].as_str().unwrap();
        assert!(created.len() == 24 && created.ends_with('Z') && created.as_bytes()[19] == b'.', "{created}");
        assert_eq!(mutation["error_message"].is_null(), mutation["status"] != "failure");
        assert!(mutation["elapsed_ms"].is_u64());
        serde_json::from_str::<Value>(mutation["params_summary"].as_str().unwrap()).unwrap();
    }
    for (filter, count) in [
        (json!({"limit": 1}), 1),
        (json!({"tool_name": "like_tweet"}), 3),
        (json!({"status": "duplicate"}), 1),
        (json!({"status": "pending"}), 0),
        (json!({"tool_name": "like_tweet", "status": "success"}), 1),
    ] {
        let listed = server.succeed("get_recent_mutations", filter.clone()).await;
        assert_eq!(listed["data"]["count"], count, "{filter}");
    }
    // An agent cannot name another account, and the number of records has a bound.
    for wrong in [
        json!({"limit": 0}),
        json!({"limit": 101}),
        json!({"limit": 1_000_000_000, "offset": -1}),
        json!({"status": "done"}),
        json!({"account_id": "x"}),
        json!({"principal": "someone-else"}),
    ] {
        server.fail("get_recent_mutations", wrong, "invalid_params").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_is_recorded_while_it_runs_and_its_record_ends_with_its_outcome() {
    let db = database().await;
    let (server, other) = tokio::join!(Server::on(&db), Server::on(&db));
    let call = json!({"tweet_id": untouched_tweet(&db).await});
    let lock = db.lock("social.tweet_like").await;
    let watching = async {
        let blocked = "select 1 from pg_stat_activity where wait_event_type = 'Lock' and query like '%tweet_like%' \
                       and datname = current_database() and pid <> pg_backend_pid()";
        db.first_value(blocked).await;
        // An identical call elsewhere waits for the outcome, and is on record once it has it.
        let second = other.succeed("like_tweet", call.clone());
        let look = async {
            db.first_value("select 1 from countersign.mutation having count(*) = 1").await;
            let listed = server.succeed("get_recent_mutations", json!({"status": "pending"})).await["data"].clone();
            lock.release().await;
            listed
        };
        tokio::join!(second, look)
    };
    let (first, (second, listed)) = tokio::join!(server.succeed("like_tweet", call.clone()), watching);
    let [entry] = listed["mutations"].as_array().unwrap().as_slice() else { panic!("{listed}") };
    assert_eq!(entry["correlation_id"], first["meta"]["correlation_id"], "{listed}");
    assert_eq!((&entry["tool_name"], &entry["status"]), (&json!("like_tweet"), &json!("pending")));
    assert!(entry["created_at"].is_string() && entry["params_summary"].is_string(), "{entry}");
    for field in ["completed_at", "elapsed_ms", "result_summary", "error_message"] {
        assert_eq!(entry[field], Value::Null, "{field}: {entry}");
    }
    let ended = [server.record(&first).await, server.record(&second).await];
    // While it runs, the time is what its server knows.
    let [shown, recorded] = [entry, &ended[0]].map(|record| record["created_at"].as_str().unwrap().to_owned());
    let apart = format!("select abs(extract(epoch from '{shown}'::timestamptz - '{recorded}'::timestamptz)) < 1");
    assert_eq!(db.value(&apart).await, "t", "{shown}, {recorded}");
    for record in &ended {
        let in_order = record["completed_at"].as_str() >= record["created_at"].as_str();
        assert!(in_order && record["elapsed_ms"].is_u64(), "{record}");
    }
    assert_eq!(ended.map(|record| record["status"].clone()), [json!("success"), json!("duplicate")]);
    let timing = "select count(*) from countersign.mutation \
                  where abs(extract(epoch from completed_at - admitted_at) * 1000 - elapsed_ms) < 1000";
    assert_eq!(db.value(timing).await, "2");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_is_found_whole_by_its_receipt() {
    let db = database().await;
    let server = Server::on(&db).await;
    let key = json!({"text": "for the record", "idempotency_key": "abc-1"});
    let posted = server.succeed("post_tweet", key).await;
    let receipt = json!({"correlation_id": posted["meta"]["correlation_id"]});
    let record = server.succeed("get_mutation_detail", receipt).await["data"].clone();
    for field in [
        "id",
        "correlation_id",
        "idempotency_key",
        "tool_name",
        "params_hash",
        "params_summary",
        "status",
        "result_summary",
        "rollback_action",
        "error_message",
        "elapsed_ms",
        "account_id",
        "created_at",
        "completed_at",
    ] {
        assert!(record.get(field).is_some(), "{field}: {record}");
    }
    assert_eq!(record["result"], posted["data"]);
    assert_eq!(record["rollback_action"], posted["meta"]["rollback"]);
    assert_eq!(record["params"], json!({"account_id": "default", "text": "for the record"}));
    assert_eq!((&record["idempotency_key"], &record["account_id"]), (&json!("abc-1"), &json!("default")));
    let hash = record["params_hash"].as_str().unwrap();
    assert!(hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()), "{hash}");

    let unknown = json!({"correlation_id": "00000000-0000-4000-8000-000000000001"});
    assert_eq!(server.fail("get_mutation_detail", unknown, "not_found").await["retryable"], false);
    let error = server.fail("get_mutation_detail", json!({"correlation_id": "abc"}), "invalid_params").await;
    assert!(error["message"].as_str().unwrap().contains("UUID"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_final_record_cannot_be_changed_or_removed() {
    let db = database().await;
    let server = Server::on(&db).await;
    server.succeed("post_tweet", json!({"text": "on record"})).await;
    let client = db.connect().await;
    for (statement, state) in [
        ("update countersign.record set status = 'failure', error_code = 'x'", "42501"),
        ("update countersign.record set result_summary = 'x'", "42501"),
        ("delete from countersign.record", "42501"),
        ("truncate countersign.record cascade", "42501"),
    ] {
        let error = client.batch_execute(statement).await.unwrap_err();
        assert_eq!(error.code().map(|code| code.code().to_owned()).as_deref(), Some(state), "{statement}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ledger_has_its_columns_and_indexes() {
    let db = database().await;
    let columns = db
        .rows(
            "select column_name || ':' || is_nullable from information_schema.columns \
             where table_schema = 'countersign' and table_name = 'record'",
        )
        .await
        .concat();
    for column in [
        "id:NO",
        "correlation_id:NO",
        "idempotency_key:YES",
        "tool_name:NO",
        "fingerprint:NO",
        "params_summary:NO",
        "status:NO",
        "result_summary:YES",
        "rollback:YES",
        "error_message:YES",
        "account_id:NO",
        "admitted_at:NO",
        "completed_at:NO",
    ] {
        assert!(columns.iter().any(|found| found == column), "{column}: {columns:?}");
    }
    let indexes = db
        .rows("select indexdef from pg_indexes where schemaname = 'countersign' and tablename = 'record'")
        .await
        .concat();
    for index in
        ["(id)", "(correlation_id)", "(account_id, id)", "(completed_at)", "(slot, id) WHERE (slot IS NOT NULL)"]
    {
        assert!(indexes.iter().any(|found| found.contains(index)), "{index}: {indexes:?}");
    }
}
