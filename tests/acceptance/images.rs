//! The rows as a write found them and as it left them are in its record.

use serde_json::{Value, json};
use testkit::{TestManifest, database};

const NOTES: &str = "create table social.note (id bigint primary key, body text);
                     insert into social.note values (1, 'one'), (2, 'two')";

const RENAME: &str = r#"
[[tool]]
name = "rename_note"
access = "write"
description = "Change what a note says."
before = "select id, body from social.note where id = $1 for update"
sql = "update social.note set body = $2 where id = $1 returning id"
rows = "one"
param = [{ name = "id", description = "Which." }, { name = "body", description = "What it says." }]
undo = { tool = "rename_note", params = { id = "param.id", body = "before.body" } }

[[tool]]
name = "add_note"
access = "write"
description = "Add a note."
after = "select id, body from social.note where id = $1"
sql = "insert into social.note (id, body) values ($1, $2) returning id"
rows = "one"
param = [{ name = "id", description = "Which." }, { name = "body", description = "What it says." }]
undo = { irreversible = "No tool deletes notes." }

[[tool]]
name = "renumber_note"
access = "write"
description = "Give a note another number."
before = "select id, body from social.note where id = $1 for update"
after = "select id from social.note where id = $2"
sql = "update social.note set id = $2 where id = $1 returning id"
rows = "one"
param = [{ name = "id", description = "Which." }, { name = "new_id", description = "Its new number." }]
undo = { tool = "renumber_note", params = { id = "param.new_id", new_id = "before.id" } }
"#;

#[tokio::test(flavor = "multi_thread")]
async fn the_row_after_is_the_row_that_deferred_triggers_leave() {
    let db = database().await;
    db.run(NOTES).await;
    db.run(
        "create function social.shout() returns trigger language plpgsql as $$
         begin
             update social.note set body = upper(body) where id = new.id and body <> upper(body);
             return null;
         end $$;
         create constraint trigger shout after update on social.note deferrable initially deferred
             for each row execute function social.shout()",
    )
    .await;
    let server = TestManifest::new(RENAME).serve(&db).await;
    let call = json!({"id": 1, "body": "first"});
    let loud = json!([{"id": 1, "body": "FIRST"}]);
    let shown = server.succeed("preview_mutation", json!({"tool": "rename_note", "params": call})).await;
    assert_eq!(shown["data"]["after"], loud);
    let done = server.succeed("rename_note", call).await;
    assert_eq!(server.record(&done).await["after_image"], loud);
    assert_eq!(db.value("select body from social.note where id = 1").await, "FIRST");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_update_is_on_record_with_the_row_before_and_the_row_after() {
    let db = database().await;
    db.run(NOTES).await;
    let server = TestManifest::new(RENAME).serve(&db).await;
    let done = server.succeed("rename_note", json!({"id": 1, "body": "first"})).await;
    let undo = &done["meta"]["rollback"]["undo_params"];
    assert_eq!((&undo["id"], &undo["body"]), (&json!(1), &json!("one")), "before.x is the image before");
    assert_eq!(done["meta"]["rows_affected"], 1, "what the images look at is not counted");
    let found = server.record(&done).await;
    assert_eq!(found["before_image"], json!([{"id": 1, "body": "one"}]));
    assert_eq!(found["after_image"], json!([{"id": 1, "body": "first"}]));

    // A query of its own for the rows after, with and without one for the rows before.
    let moved = server.record(&server.succeed("renumber_note", json!({"id": 2, "new_id": 7})).await).await;
    assert_eq!(
        (&moved["before_image"], &moved["after_image"]),
        (&json!([{"id": 2, "body": "two"}]), &json!([{"id": 7}]))
    );
    let added = server.record(&server.succeed("add_note", json!({"id": 3, "body": "three"})).await).await;
    assert_eq!((&added["before_image"], &added["after_image"]), (&Value::Null, &json!([{"id": 3, "body": "three"}])));
}

#[tokio::test(flavor = "multi_thread")]
async fn two_tools_of_different_parameters_may_have_the_same_query_for_their_images() {
    let db = database().await;
    db.run(NOTES).await;
    let drop = r#"
[[tool]]
name = "drop_note"
access = "write"
description = "Delete a note."
before = "select id, body from social.note where id = $1 for update"
sql = "delete from social.note where id = $1 returning id"
rows = "one"
param = [{ name = "id", description = "Which." }]
undo = { tool = "add_note", params = { id = "before.id", body = "before.body" } }
"#;
    let server = TestManifest::new(&format!("{RENAME}{drop}")).serve(&db).await;
    // One after the other, so on one session.
    server.succeed("rename_note", json!({"id": 1, "body": "first"})).await;
    let dropped = server.record(&server.succeed("drop_note", json!({"id": 1})).await).await;
    assert_eq!(dropped["before_image"], json!([{"id": 1, "body": "first"}]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_whose_images_are_too_large_for_a_record_does_not_happen() {
    let db = database().await;
    db.run(NOTES).await;
    let server = TestManifest::new(RENAME).serve(&db).await;
    let half = "x".repeat(524_000);
    db.run("update social.note set body = repeat('x', 524000) where id = 1").await;
    // Each image alone would do.
    server.succeed("rename_note", json!({"id": 1, "body": "short"})).await;
    db.run("update social.note set body = repeat('x', 524600) where id = 1").await;
    let error = server.fail("rename_note", json!({"id": 1, "body": half}), "result_too_large").await;
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("rename_note") && message.contains("before") && message.contains("1048576"), "{message}");
    // One row that no answer may hold: the transaction cannot go on, and the record says what became of it.
    db.run("update social.note set body = repeat('x', 2000000) where id = 1").await;
    let error = server.fail("rename_note", json!({"id": 1, "body": "shorter"}), "result_too_large").await;
    assert!(error["message"].as_str().unwrap().contains("before"), "{error}");
    assert_eq!(db.value("select length(body) from social.note where id = 1").await, "2000000");
    assert_eq!(
        db.rows("select status from countersign.mutation order by id").await,
        [["success"], ["failure"], ["failure"]]
    );
}
