//! Every write tool declares its undo, and the declaration is correct. The test writes, makes the calls that the
//! envelope names, compares every table with the state before, and writes once more.

use serde_json::{Value, json};
use testkit::social::untouched_tweet;
use testkit::{Server, TestManifest, database};

/// The row that the default account has for these arguments.
fn arguments_of_default(arguments: &Value) -> Value {
    let mut row = json!({"account_id": "default"});
    row.as_object_mut().unwrap().extend(arguments.as_object().unwrap().clone());
    row
}

/// The undo calls that an envelope names, in order.
fn undo_calls(envelope: &Value) -> Vec<(String, Value)> {
    let rollback = &envelope["meta"]["rollback"];
    let call = |tool: &Value, params: &Value| (tool.as_str().expect("an undo tool").to_owned(), params.clone());
    match rollback["undo_calls"].as_array() {
        Some(calls) => calls.iter().map(|entry| call(&entry["tool"], &entry["params"])).collect(),
        None => vec![call(&rollback["undo_tool"], &rollback["undo_params"])],
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_reversible_tool_is_undone_by_exactly_the_calls_that_it_names() {
    let db = database().await;
    let server = Server::on(&db).await;
    let tweet = untouched_tweet(&db).await;
    let stranger = db
        .value(
            "select min(user_id) from social.account a where account_id <> 'default' and not exists (
                 select from social.follow f where f.account_id = 'default' and f.target_user_id = a.user_id)",
        )
        .await
        .parse::<i64>()
        .unwrap();
    let on_tweet = json!({"tweet_id": tweet});
    let on_user = json!({"target_user_id": stranger});
    let matrix = [
        ("post_tweet", json!({"text": "hello"}), "delete_tweet"),
        ("reply_to_tweet", json!({"text": "a reply", "in_reply_to_id": tweet}), "delete_tweet"),
        ("quote_tweet", json!({"text": "a quote", "quoted_tweet_id": tweet}), "delete_tweet"),
        ("post_thread", json!({"tweets": ["one", "two", "three"]}), "delete_tweet"),
        ("like_tweet", on_tweet.clone(), "unlike_tweet"),
        ("retweet", on_tweet.clone(), "unretweet"),
        ("bookmark_tweet", on_tweet.clone(), "unbookmark_tweet"),
        ("follow_user", on_user.clone(), "unfollow_user"),
    ];
    for (tool, arguments, undo_tool) in &matrix {
        let before = db.social().await;
        let done = server.succeed(tool, arguments.clone()).await;
        let after = db.social().await;
        assert_ne!(after, before, "{tool} wrote");
        for (undo, params) in undo_calls(&done) {
            assert_eq!(&undo, undo_tool, "{tool}");
            server.succeed(&undo, params).await;
        }
        assert_eq!(db.social().await, before, "{tool} was undone");
        // The same call may be a retry; with a key of its own it is a new write.
        server.fail(tool, arguments.clone(), "superseded").await;
        let mut again = arguments.clone();
        again["idempotency_key"] = "again".into();
        assert_eq!(server.succeed(tool, again).await["data"]["duplicate"], Value::Null, "{tool} runs again");
    }
    // And the other direction: what takes away is undone by what gives.
    for (tool, arguments, undo_tool) in [
        ("unlike_tweet", &on_tweet, "like_tweet"),
        ("unretweet", &on_tweet, "retweet"),
        ("unbookmark_tweet", &on_tweet, "bookmark_tweet"),
        ("unfollow_user", &on_user, "follow_user"),
    ] {
        let before = db.social().await;
        let done = server.succeed(tool, arguments.clone()).await;
        assert_ne!(db.social().await, before, "{tool} wrote");
        let calls = undo_calls(&done);
        assert_eq!(calls[0].0, undo_tool);
        let detail = json!({"correlation_id": done["meta"]["correlation_id"]});
        let detail = server.succeed("get_mutation_detail", detail).await;
        let removed = json!([arguments_of_default(arguments)]);
        assert_eq!(
            (&detail["data"]["before_image"], &detail["data"]["after_image"]),
            (&removed, &json!([])),
            "{tool}: the row that was removed, and that it is gone"
        );
        server.succeed(undo_tool, calls[0].1.clone()).await;
        assert_eq!(db.social().await, before, "{tool} was undone");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thread_is_undone_last_tweet_first() {
    let db = database().await;
    let server = Server::on(&db).await;
    let done = server.succeed("post_thread", json!({"tweets": ["one", "two", "three"]})).await;
    let ids: Vec<i64> =
        done["data"]["rows"].as_array().unwrap().iter().map(|row| row["id"].as_i64().unwrap()).collect();
    let undone: Vec<i64> = undo_calls(&done).iter().map(|(_, params)| params["tweet_id"].as_i64().unwrap()).collect();
    assert_eq!(undone, ids.iter().rev().copied().collect::<Vec<_>>());
    assert_eq!((&done["data"]["row_count"], &done["meta"]["rows_affected"]), (&json!(3), &json!(3)));
    let chain = format!(
        "select string_agg(text, ' ' order by id) from social.tweet where id = {} or in_reply_to_id = any ('{{{},{}}}')",
        ids[0], ids[0], ids[1]
    );
    assert_eq!(db.value(&chain).await, "one two three");
}

const TAGS: &str = r#"
[[tool]]
name = "add_tags"
access = "write"
description = "Add the tags that are not there yet."
sql = "insert into social.tag (name) select unnest($1::text[]) on conflict do nothing returning name"
rows = "any"
max_rows = 10
param = [{ name = "names", description = "Which." }]
undo = { tool = "drop_tag", params = { name = "result.name" }, for_each = "result" }

[[tool]]
name = "drop_tag"
access = "write"
description = "Drop a tag."
sql = "delete from social.tag where name = $1 returning name"
rows = "one"
param = [{ name = "name", description = "Which." }]
undo = { tool = "add_tags", params = { names = "before.names" } }
before = "select array[name] as names from social.tag where name = $1 for update"
"#;

#[tokio::test(flavor = "multi_thread")]
async fn only_the_rows_that_were_really_inserted_are_undone() {
    let db = database().await;
    db.run("create table social.tag (name text primary key); insert into social.tag values ('old')").await;
    let server = TestManifest::new(TAGS).serve(&db).await;
    let before = db.social().await;
    let done = server.succeed("add_tags", json!({"names": ["new", "old", "newer"]})).await;
    assert_eq!(done["meta"]["rows_affected"], 2);
    let calls = undo_calls(&done);
    let key = |n: usize| format!("undo:{}/{n}", done["meta"]["correlation_id"].as_str().unwrap());
    let expected = ["newer", "new"].into_iter().zip(1..);
    let expected = expected.map(|(name, n)| ("drop_tag".to_owned(), json!({"name": name, "idempotency_key": key(n)})));
    assert_eq!(calls, expected.collect::<Vec<_>>());
    for (undo, params) in calls {
        server.succeed(&undo, params).await;
    }
    assert_eq!(db.social().await, before);
    let nothing = server.succeed("add_tags", json!({"names": ["old"]})).await;
    let rollback = &nothing["meta"]["rollback"];
    assert_eq!(rollback.as_object().unwrap().keys().collect::<Vec<_>>(), ["reversible", "note"], "{nothing}");
    assert_eq!(rollback["note"], "Nothing was changed, so there is nothing to undo.");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_cannot_be_undone_gives_the_reason() {
    let db = database().await;
    let server = Server::on(&db).await;
    let posted = server.succeed("post_tweet", json!({"text": "short-lived"})).await;
    let deleted = server.succeed("delete_tweet", json!({"tweet_id": posted["data"]["id"]})).await;
    let media = json!({"media_type": "image/png", "data": "\\x89504e47"});
    let uploaded = server.succeed("upload_media", media).await;
    let detail = json!({"correlation_id": deleted["meta"]["correlation_id"]});
    let record = server.succeed("get_mutation_detail", detail).await["data"].clone();
    assert_eq!(record["before_image"][0]["text"], "short-lived", "{record}");
    assert_eq!(record["before_image"][0]["id"], posted["data"]["id"]);
    assert_eq!(record["after_image"], json!([]));
    for envelope in [deleted, uploaded] {
        let rollback = envelope["meta"]["rollback"].as_object().unwrap();
        assert_eq!(rollback["reversible"], false);
        assert_eq!(rollback.keys().collect::<Vec<_>>(), ["reversible", "note"]);
        assert!(!rollback["note"].as_str().unwrap().is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_undo_refuses_when_others_depend_on_the_row_by_now() {
    let db = database().await;
    let server = Server::on(&db).await;
    let posted = server.succeed("post_tweet", json!({"text": "liked by a stranger soon"})).await;
    let id = posted["data"]["id"].as_i64().unwrap();
    db.run(&format!(
        "insert into social.tweet_like (account_id, tweet_id) \
         select min(account_id), {id} from social.account where account_id <> 'default'"
    ))
    .await;
    let before = db.social().await;
    let error = server.fail("delete_tweet", json!({"tweet_id": id}), "sql_error").await;
    assert_eq!(error["sqlstate"], "23503");
    assert_eq!(db.social().await, before);
}
