//! The database changes while a server runs: a tool that no longer matches is refused with the reason.

use serde_json::{Value, json};
use testkit::{Database, Server, TestManifest, database};

const ITEMS: &str = "create table social.item (id bigint primary key, name text, price numeric, extra int);
                     create table social.gone (id bigint);
                     insert into social.item values (1, 'one', 1.5, 0); insert into social.gone values (1);
                     grant select on all tables in schema social to public";

const TOOLS: &str = r#"
[[tool]]
name = "rename_item"
access = "write"
description = "Rename it."
sql = "update social.item set name = $2 where id = $1 returning id"
rows = "one"
param = [{ name = "id", description = "Which." }, { name = "name", description = "Its name." }]
undo = { irreversible = "It is." }

[[tool]]
name = "add_item"
access = "write"
description = "Add it."
sql = "insert into social.item (id, price) values ($1, $2) returning *"
rows = "one"
param = [{ name = "id", description = "Which." }, { name = "price", description = "Its price." }]
undo = { irreversible = "It is." }

[[tool]]
name = "empty_gone"
access = "write"
description = "Empty it."
sql = "delete from social.gone returning id"
rows = "any"
max_rows = 10
undo = { irreversible = "It is." }

[[tool]]
name = "read_item"
access = "read"
description = "Read it."
sql = "select * from social.item where id = $1"
rows = "at_most_one"
param = [{ name = "id", description = "Which." }]
"#;

/// Calls every tool once, so that its statements are prepared on a session of the pool.
async fn warm(server: &Server) {
    server.succeed("rename_item", json!({"id": 1, "name": "uno"})).await;
    server.succeed("add_item", json!({"id": 2, "price": 1.5})).await;
    server.succeed("empty_gone", json!({})).await;
    server.succeed("read_item", json!({"id": 1})).await;
}

async fn is_schema_drift(db: &Database, server: &Server, tool: &str, arguments: Value, said: &str) {
    let before = db.social().await;
    // Calls may meet sessions that have prepared the statement as it was; each such session goes with its call.
    let mut plain = false;
    for attempt in 0..9 {
        let error = server.fail(tool, arguments.clone(), "tool_outdated").await;
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("has changed since the server started"), "{attempt}: {message}");
        assert!(message.contains(said) || error["sqlstate"] == "0A000", "{attempt}: {message}");
        plain = message.contains(said);
        assert!(error["hint"].as_str().unwrap().contains("reload"), "{error}");
        assert_eq!(error["retryable"], false);
    }
    assert!(plain, "{tool}: on a fresh session it says what has changed");
    assert_eq!(db.social().await, before, "{tool} changed nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_whose_tables_have_changed_is_refused_until_the_next_start() {
    for warmed in [true, false] {
        let db = database().await;
        db.run(ITEMS).await;
        let manifest = TestManifest::new(TOOLS);
        let server = manifest.serve(&db).await;
        if warmed {
            warm(&server).await;
        }
        db.run(
            "alter table social.item drop column name, alter column price type text, add column note text;
             drop table social.gone",
        )
        .await;
        is_schema_drift(&db, &server, "rename_item", json!({"id": 1, "name": "eins"}), "\"name\"").await;
        is_schema_drift(&db, &server, "add_item", json!({"id": 3, "price": 2}), "name (text) and is price (text) now")
            .await;
        is_schema_drift(&db, &server, "empty_gone", json!({"idempotency_key": "again"}), "\"social.gone\"").await;
        is_schema_drift(&db, &server, "read_item", json!({"id": 1}), "name (text) and is price (text) now").await;
        let codes = "select distinct error_code from countersign.mutation where status = 'failure'";
        assert_eq!(db.rows(codes).await, [["tool_outdated"]]);
        assert!(manifest.compile_error(&db).await.contains("rename_item"), "and the next start names the tools");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parameter_whose_column_has_another_type_is_refused() {
    let db = database().await;
    db.run(ITEMS).await;
    let server = TestManifest::new(TOOLS).serve(&db).await;
    warm(&server).await;
    db.run("alter table social.item alter column id type text").await;
    is_schema_drift(&db, &server, "rename_item", json!({"id": 1, "name": "eins"}), "text = bigint").await;
    is_schema_drift(&db, &server, "add_item", json!({"id": 3, "price": 2}), "id (int8) and is id (text) now").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_a_tool_does_not_see_does_not_stop_it_and_a_function_that_fails_is_no_drift() {
    let db = database().await;
    db.run(ITEMS).await;
    let server = TestManifest::new(TOOLS).serve(&db).await;
    warm(&server).await;
    db.run("alter table social.item drop column extra, add column other text").await;
    server.succeed("rename_item", json!({"id": 1, "name": "eins"})).await;
    db.run(
        "create function social.broken() returns trigger language plpgsql as
         $$ begin perform no_such_column from social.item; return new; end $$;
         create trigger broken before update on social.item for each row execute function social.broken()",
    )
    .await;
    let error = server.fail("rename_item", json!({"id": 1, "name": "zwei"}), "sql_error").await;
    assert_eq!(error["sqlstate"], "42703");
}
