//! A read tool of a manifest: a fixed query with typed parameters, on the read path.

use serde_json::{Value, json};
use testkit::{Server, database};

const MANIFEST: &str = r#"
name = "reads"
version = "2.0"

[[tool]]
name = "list_tweets_of"
access = "read"
description = "The tweets of an account."
sql = "select id, text from social.tweet where account_id = $1 order by id"

[[tool.param]]
name = "author"
description = "The account."

[[tool]]
name = "find_account"
access = "read"
description = "One account by its handle."
sql = "select account_id, handle from social.account where handle = $1"
rows = "one"

[[tool.param]]
name = "handle"
description = "The handle."
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_read_tool_answers_rows_without_a_record_and_judges_their_number() {
    let db = database().await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("reads.toml");
    std::fs::write(&path, MANIFEST).unwrap();
    let server =
        Server::bare_with(&db, |it| it.args(["--profile", "readonly", "--manifest", path.to_str().unwrap()])).await;

    let listed = server.succeed("list_tweets_of", json!({"author": "default"})).await;
    let expected = db.value("select count(*) from social.tweet where account_id = 'default'").await;
    assert_eq!(listed["data"]["row_count"].to_string(), expected);
    assert_eq!(listed["meta"]["tool_version"], "2.0");
    assert_eq!(listed["meta"]["correlation_id"], Value::Null);

    let handle = db.value("select handle from social.account where account_id = 'default'").await;
    let found = server.succeed("find_account", json!({"handle": handle})).await;
    assert_eq!(found["data"], json!({"account_id": "default", "handle": handle}));
    let error = server.fail("find_account", json!({"handle": "nobody at all"}), "row_count_mismatch").await;
    assert_eq!(error["message"], "the query gave 0 row(s) where one is right");
    server.fail("find_account", json!({"handle": 5}), "invalid_params").await;
    assert_eq!(db.value("select count(*) from countersign.mutation").await, "0");
}
