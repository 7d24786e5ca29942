//! All answers have one shape, for every tool and every outcome.

mod failures;
mod receipts;

use std::collections::BTreeSet;

use serde_json::{Value, json};
use testkit::social::every_write;
use testkit::{Database, Server, database, repository};

fn keys(object: &Value) -> Vec<&str> {
    object.as_object().unwrap_or_else(|| panic!("no object: {object}")).keys().map(String::as_str).collect()
}

/// A server with every tool that there is: the demo's, the studio's and `execute_sql`.
async fn with_every_tool(db: &Database) -> Server {
    let mut command = Server::command(db);
    command.args(["--profile", "admin", "--execute-sql=any", "--execute-sql-tier", "auto"]);
    command.arg("--manifest").arg(repository().join("manifests/studio.toml"));
    Server::start(command).await
}

/// These write through a proposal, or not at all: `proposals.rs` and `schema_changes.rs` have them.
const PROPOSING: [&str; 8] = [
    "upsert_package",
    "delete_package",
    "delete_package_photo",
    "create_booking",
    "cancel_booking",
    "confirm_proposal",
    "reject_proposal",
    "propose_schema_change",
];

#[tokio::test(flavor = "multi_thread")]
async fn every_write_tool_answers_in_the_same_shape_and_leaves_one_record() {
    let db = database().await;
    let server = with_every_tool(&db).await;
    let own = db.value("insert into social.tweet (account_id, text) values ('default', 'own') returning id").await;
    let mut calls = every_write(&db, &json!(own.parse::<i64>().unwrap())).await.to_vec();
    calls.push(("manage_working_hours", json!({"weekday": 6, "opens": "10:00", "closes": "12:00"})));
    calls.push(("execute_sql", json!({"sql": "delete from social.media"})));
    let listed = server.client().list_tools().await.unwrap();
    let name = |tool: &Value| tool["name"].as_str().unwrap().to_owned();
    let all: BTreeSet<String> = listed.iter().map(name).collect();
    let writes = listed.iter().filter(|tool| tool["annotations"]["readOnlyHint"] == false).map(name);
    let called: BTreeSet<String> = calls.iter().map(|call| call.0).chain(PROPOSING).map(str::to_owned).collect();
    let mut writes: BTreeSet<String> = writes.collect();
    assert!(writes.remove("undo_mutation") && writes.remove("undo_run"), "the tests of undo call them");
    assert_eq!(called, writes, "every write tool is called");

    let mut receipts = Vec::new();
    for (tool, arguments) in &calls {
        let envelope = server.succeed(tool, arguments.clone()).await;
        assert_eq!(keys(&envelope), ["success", "data", "meta"], "{tool}");
        let meta = &envelope["meta"];
        assert_eq!(
            keys(meta),
            ["tool_version", "elapsed_ms", "correlation_id", "rows_affected", "rollback"],
            "{tool}: {meta}"
        );
        let advice = &meta["rollback"];
        assert!(!advice["note"].as_str().unwrap().trim().is_empty(), "{tool}: {advice}");
        if advice["reversible"] == true {
            assert!(all.contains(advice["undo_tool"].as_str().unwrap()), "{tool}: {advice}");
            assert!(advice["undo_params"].is_object(), "{tool}: {advice}");
        } else {
            // What a manifest says of itself, or what the ledger found.
            let found: &[&str] = match *tool {
                "execute_sql" => &["reversible", "checked", "reason", "note"],
                _ => &["reversible", "note"],
            };
            assert_eq!(keys(advice), found, "{tool}");
            assert!(["delete_tweet", "upload_media", "execute_sql"].contains(tool), "{tool}: {advice}");
        }
        receipts.insert(0, [(*tool).to_owned(), meta["correlation_id"].as_str().unwrap().to_owned()]);
    }
    assert_eq!(receipts.iter().map(|[_, id]| id).collect::<BTreeSet<_>>().len(), calls.len());
    let listed = server.succeed("get_recent_mutations", json!({})).await["data"]["mutations"].clone();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let recorded: Vec<[String; 2]> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| [text(&entry["tool_name"]), text(&entry["correlation_id"])])
        .collect();
    assert_eq!(recorded, receipts, "one record each, newest first");
    let hashes = "select count(distinct fingerprint) from countersign.mutation where fingerprint ~ '^[0-9a-f]{64}$'";
    assert_eq!(db.value(hashes).await, calls.len().to_string());
}
