//! Every effective argument is part of a call's identity, also an optional one.

use serde_json::{Value, json};
use testkit::{Server, TestManifest, database};

use super::statuses;

const NOTE: &str = r#"
[[tool]]
name = "note"
access = "write"
description = "Note it."
sql = "insert into social.noted (text, size, kind, tags) values ($1, $2, $3, $4) returning text, size, kind, tags"
rows = "one"
param = [
    { name = "text", description = "What." },
    { name = "size", description = "How large.", optional = true },
    { name = "kind", description = "Of which kind.", default = "plain" },
    { name = "tags", description = "Some words.", optional = true },
]
undo = { irreversible = "It is a test." }
"#;

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_differ_in_one_optional_argument_are_different_calls() {
    let db = database().await;
    db.run("create table social.noted (text text, size numeric, kind text, tags text[])").await;
    let manifest = TestManifest::new(NOTE);
    let mut command = manifest.command(&db);
    command.env("COUNTERSIGN_DUPLICATE_MEMORY_S", "0");
    let server = Server::start(command).await;
    let long = "\u{e9}".repeat(2000);
    let different = [
        json!({"text": long}),
        json!({"text": format!("{long}x")}),
        json!({"text": long, "size": 0}),
        json!({"text": long, "kind": "fine"}),
        json!({"text": long, "tags": []}),
        json!({"text": long, "tags": [""]}),
        json!({"text": long, "tags": ["a", "b"]}),
        json!({"text": long, "tags": ["b", "a"]}),
    ];
    for call in &different {
        assert_eq!(server.succeed("note", call.clone()).await["data"]["duplicate"], Value::Null, "{call}");
    }
    let count = different.len();
    assert_eq!(db.value("select count(*) from social.noted").await, count.to_string());
    // What the server fills in makes no difference, and neither does the spelling of a number.
    let same = [json!({"text": long, "kind": "plain"}), json!({"kind": "plain", "size": 0.0, "text": long})];
    for call in different.iter().chain(&same) {
        assert_eq!(server.succeed("note", call.clone()).await["data"]["duplicate"], true, "{call}");
    }
    assert_eq!(statuses(&db).await, format!("duplicate {}, success {count}", count + same.len()));
}
