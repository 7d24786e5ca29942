//! What a manifest cannot do, whatever its text says.

use serde_json::json;
use testkit::{Database, TestManifest, database};

/// A write tool with this statement and these further lines.
fn tool(sql: &str, more: &str) -> TestManifest {
    let start = "[[tool]]\nname = \"change_it\"\naccess = \"write\"\ndescription = \"Change it.\"";
    let undo = if more.contains("undo") { "" } else { "undo = { irreversible = \"It is.\" }\n" };
    TestManifest::new(&format!("{start}\nsql = '''{sql}'''\n{undo}{more}\n"))
}

async fn refused(db: &Database, manifest: &TestManifest, said: &str) {
    let before = (db.social().await, db.rows("select * from countersign.mutation").await);
    let message = manifest.compile_error(db).await;
    assert!(message.contains("change_it") && message.contains(said), "{message}");
    assert_eq!((db.social().await, db.rows("select * from countersign.mutation").await), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_that_cannot_be_run_as_it_is_stops_the_start() {
    let db = database().await;
    let one = "rows = \"one\"";
    for (sql, more, said) in [
        // A manifest has no templates: a name in it cannot bring a statement of its own.
        (r#"update social."tweet""; drop table social.tweet;--" set text = '' returning id"#, one, "42P01"),
        ("update social.{table} set text = '' returning id", one, "42601"),
        ("update social.tweet set text = 'x' returning id; drop table social.media", one, "42601"),
        ("update social.tweet set text = 'x' returning id", "rows = \"any\"", "needs max_rows"),
        (
            "update social.tweet set text = text where id = 1 returning id",
            "rows = \"one\"\nundo = { tool = \"change_it\", params = { id = \"$row.nope\" } }",
            "\"$row.nope\" is not param.x, result.x or before.x",
        ),
        ("delete from social.media where id = 1", one, "add RETURNING"),
        // The ledger is out of reach: by table, by function, by a function within an expression, and by a view.
        ("update countersign.record set result_summary = 'x' returning id", one, "schema countersign"),
        ("delete from countersign.attempt returning tool_name", "rows = \"any\"\nmax_rows = 5", "schema countersign"),
        ("select * from countersign.sweep(interval '0', 1000)", "rows = \"any\"\nmax_rows = 5", "schema countersign"),
        (
            "update social.tweet set text = text where countersign.claim_attempt(gen_random_uuid(), null) is null returning id",
            one,
            "schema countersign",
        ),
        ("select countersign.fail(gen_random_uuid(), null, 'b', 'c', 'd') as done", one, "schema countersign"),
        ("select id from social.innocent", "rows = \"any\"\nmax_rows = 5", "schema countersign"),
        // Words for no row where none is wrong; two ways to carry out one write.
        (
            "select id from social.tweet",
            "rows = \"any\"\nmax_rows = 5\nnot_found = \"No tweets\"",
            "rows = \"any\" is content with no row",
        ),
        (
            "update social.tweet set text = text where id = 1 returning id",
            "executor = \"x\"",
            "sql or an executor, not both",
        ),
        // A proposal shows its rows to a reviewer, locks them and keeps its parameters.
        (
            "update social.tweet set text = 'x' where id = 1 returning id",
            "rows = \"one\"\ntier = \"confirm\"",
            "nobody could see what they agree to",
        ),
        (
            "delete from social.media where id = 1 returning id",
            "rows = \"one\"\ntier = \"approve\"\nbefore = \"select id from social.media where id = 1\"",
            "before does not lock the rows",
        ),
        (
            "insert into social.tweet (account_id, text) values ('default', $1) returning id",
            "rows = \"one\"\ntier = \"confirm\"\nparam = [{ name = \"text\", description = \"It.\", sensitive = true }]",
            "parameter text: a proposal keeps its parameters",
        ),
        // What has no plan may do anything.
        ("commit", one, "only SELECT, INSERT"),
        ("call social.anything(null)", one, "makes no plan"),
    ] {
        db.run(
            "create or replace view social.innocent as select id from countersign.mutation;
             create or replace procedure social.anything(inout x int) language sql as 'select 1'",
        )
        .await;
        refused(&db, &tool(sql, more), said).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_of_more_rows_than_its_bound_is_rolled_back() {
    let db = database().await;
    let shout = "update social.tweet set text = upper(text) where id <= $1 returning id";
    let param = "param = [{ name = \"up_to\", description = \"The last id.\" }]";
    let server = tool(shout, &format!("rows = \"some\"\nmax_rows = 3\n{param}")).serve(&db).await;
    db.run("update social.tweet set text = 'low'").await;
    let ids = db.rows("select id from social.tweet order by id limit 4").await.concat();
    let before = db.social().await;
    let error = server.fail("change_it", json!({"up_to": ids[3].parse::<i64>().unwrap()}), "row_count_mismatch").await;
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("4 row(s)") && message.contains("at most 3 (max_rows)"), "{message}");
    assert_eq!(db.social().await, before);
    let done = server.succeed("change_it", json!({"up_to": ids[2].parse::<i64>().unwrap()})).await;
    assert_eq!((&done["data"]["row_count"], &done["meta"]["rows_affected"]), (&json!(3), &json!(3)));

    // Of several statements the sum counts, although the last one returns few rows.
    let two = "'update social.tweet set text = upper(text) where id <= $1', 'select count(*) as n from social.tweet'";
    let text =
        tool("x", &format!("rows = \"any\"\nmax_rows = 3\n{param}")).text().replace("'''x'''", &format!("[{two}]"));
    let server = TestManifest::from_text(&text).serve(&db).await;
    let call = |id: &str| json!({"up_to": id.parse::<i64>().unwrap(), "idempotency_key": "of-two-statements"});
    server.fail("change_it", call(&ids[2]), "row_count_mismatch").await;
    server.succeed("change_it", json!({"up_to": ids[1].parse::<i64>().unwrap()})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_table_in_front_of_the_search_path_takes_a_write() {
    let db = database().await;
    let name = db.name();
    db.run(&format!(
        "create schema evil; create table evil.tweet (like social.tweet including all);
         create table public.tweet (like social.tweet including all);
         alter database {name} set search_path = evil, public, social"
    ))
    .await;
    let insert = "insert into social.tweet (account_id, text) values ('default', lower('MINE')) returning id";
    db.run("create function evil.lower(text) returns text language sql as $$ select 'evil' $$").await;
    let server = tool(insert, "rows = \"one\"").serve(&db).await;
    server.succeed("change_it", json!({})).await;
    assert_eq!(db.value("select count(*) from social.tweet where text = 'mine'").await, "1");
    assert_eq!(db.value("select (select count(*) from evil.tweet) + (select count(*) from public.tweet)").await, "0");
    // What is not qualified is not looked for anywhere.
    refused(&db, &tool("delete from tweet returning id", "rows = \"one\""), "42P01").await;
}
