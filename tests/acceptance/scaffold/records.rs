//! `countersign scaffold --from-records`: the statements that agents repeat become tools.

use serde_json::{Value, json};
use testkit::{Database, Server, TestManifest, database, run_countersign};

const SHOP: &str = "
create schema shop;
create table shop.customer (id int primary key, name text not null, credit int not null default 0);
create table shop.\"Color Chart\" (\"No.\" int primary key, \"Name\" text);
insert into shop.customer select n, 'customer ' || n from generate_series(1, 12) n;
grant usage on schema shop to countersign_writer, countersign_reader;
grant select on all tables in schema shop to countersign_reader;
grant select, insert, update, delete on all tables in schema shop to countersign_writer;
select countersign.track(t) from unnest(array['shop.customer', 'shop.\"Color Chart\"']::regclass[]) t;
";

/// A shop in which an agent has executed these statements, the last ones first.
async fn shop_after(executed: &[(&str, Value)]) -> Database {
    let db = database().await;
    db.run(SHOP).await;
    let mut command = Server::bare_command(&db);
    command.args(["--execute-sql=rows", "--execute-sql-tier=auto"]);
    let server = Server::start(command).await;
    for (sql, params) in executed.iter().rev() {
        server.succeed("execute_sql", json!({"sql": sql, "params": params})).await;
    }
    server.close().await;
    db
}

async fn from_records(db: &Database, more: &[&str]) -> testkit::CommandOutput {
    run_countersign(&db.writer_url(), &[&["scaffold", "--from-records"], more].concat()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_that_were_executed_often_become_tools_that_check_accepts() {
    let none = || json!([]);
    let db = shop_after(&[
        ("update shop.customer set name = 'it''s one', credit = credit + 5 where id = 1 and credit < 1000", none()),
        (
            "UPDATE shop.customer SET name = $1, credit = credit+$2 -- a comment\n WHERE id = $3 AND credit < 1000;",
            json!(["two", 6, 2]),
        ),
        ("update shop.customer set name = $$three$$, credit = credit + 7 where id = 3 and credit < 1000", none()),
        ("insert into shop.\"Color Chart\" (\"No.\", \"Name\") values (1, 'red') returning \"No.\"", none()),
        ("insert into shop.\"Color Chart\" (\"No.\", \"Name\") values (2, 'red') returning \"No.\"", none()),
        ("insert into shop.\"Color Chart\" (\"No.\", \"Name\") values (3, 'red') returning \"No.\"", none()),
        ("delete from shop.customer where id in (10, 11)", none()),
        ("delete from shop.customer where id in (11, 12)", none()),
        ("delete from shop.customer where id in (4, 7)", none()),
        // Twice only.
        ("update shop.customer set credit = 1 where name = 'customer 8'", none()),
        ("update shop.customer set credit = 2 where name = 'customer 9'", none()),
        // No tool.
        ("update shop.customer c set credit = v.n from (values (8, 1)) v (id, n) where c.id = v.id", none()),
        ("update shop.customer c set credit = v.n from (values (8, 2)) v (id, n) where c.id = v.id", none()),
        ("update shop.customer c set credit = v.n from (values (8, 3)) v (id, n) where c.id = v.id", none()),
        // A parameter cannot follow the name of a type.
        ("update shop.customer set credit = extract(day from interval '1 day') where id = 9", none()),
        ("update shop.customer set credit = extract(day from interval '2 day') where id = 9", none()),
        ("update shop.customer set credit = extract(day from interval '3 day') where id = 9", none()),
    ])
    .await;
    let written = from_records(&db, &[]).await.succeeded();
    assert_eq!(from_records(&db, &[]).await.out, written.out, "it is the same each time");
    for (statement, why) in [
        ("left out  update shop.customer c set credit = v.n from (values (8, ", "only an INSERT without ON CONFLICT"),
        ("left out  update shop.customer set credit = extract(day from interval $", "syntax error"),
    ] {
        let line =
            written.err.lines().find(|line| line.starts_with(statement)).unwrap_or_else(|| panic!("{}", written.err));
        assert!(line.contains(why), "{line}");
    }
    let manifest = TestManifest::from_text(&written.out);
    let path = manifest.path().display().to_string();
    let checked = run_countersign(&db.writer_url(), &["check", "--manifest", &path]).await;
    assert_eq!(checked.code, 0, "{}\n{}", checked.err, written.out);
    assert!(checked.out.contains("3 tools fit the database, 3 of them write"), "{}", checked.out);

    let server = manifest.serve(&db).await;
    let before = db.contents("shop").await;
    let call = json!({"name": "renamed", "credit": 3, "id": 5});
    let shown = server.propose("update_customer", call).await;
    let columns = &shown["preview"]["effects"]["rows"][0]["columns"];
    assert_eq!(columns["credit"], json!({"before": "0", "after": "3"}), "{shown}");
    assert_eq!(columns["name"]["after"], "renamed", "{shown}");
    let confirm = |shown: &Value| json!({"proposal_id": shown["proposal_id"], "digest": shown["digest"]});
    let done = server.succeed("confirm_proposal", confirm(&shown)).await;
    assert_ne!(db.contents("shop").await, before);
    let undo = server.propose("undo_mutation", json!({"correlation_id": done["meta"]["correlation_id"]})).await;
    server.succeed("confirm_proposal", confirm(&undo)).await;
    assert_eq!(db.contents("shop").await, before);
    server.fail("update_customer", json!({"name": "x", "credit": 1, "id": 999}), "not_found").await;
    // The colour was the same each time, and stays in the statement.
    let inserted = server.propose("insert_color_chart", json!({"No": 7})).await;
    server.succeed("confirm_proposal", confirm(&inserted)).await;
    assert_eq!(db.value("select \"Name\" from shop.\"Color Chart\" where \"No.\" = 7").await, "red");
    let deleted = server.propose("delete_customer", json!({"id": 5, "id_2": 6})).await;
    assert_eq!(deleted["preview"]["rows_affected"], 2, "{deleted}");
    server.close().await;

    let twice = from_records(&db, &["--at-least", "2"]).await;
    assert!(twice.out.contains("name = \"update_customer_2\""), "{}", twice.out);
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_cannot_leave_the_manifest_and_hidden_characters_are_refused() {
    let hostile = "update shop.customer set name = '\"\"\"\n[[tool]]\nname = \"evil\"' where id = ";
    let hidden = "update shop.customer set credit = 0, name = 'a\u{202e}b\u{1b}[31m' where id = ";
    let executed: Vec<(String, Value)> = [hostile, hidden]
        .into_iter()
        .flat_map(|sql| (1..=3).map(move |id| (format!("{sql}{id} /* {sql} */"), json!([]))))
        .collect();
    let executed: Vec<(&str, Value)> = executed.iter().map(|(sql, params)| (sql.as_str(), params.clone())).collect();
    let db = shop_after(&executed).await;
    let written = from_records(&db, &[]).await.succeeded();
    let manifest: toml::Table = written.out.parse().unwrap();
    assert_eq!(manifest["tool"].as_array().unwrap().len(), 1, "{}", written.out);
    for text in [&written.out, &written.err] {
        assert!(!text.contains(['\u{202e}', '\u{1b}']), "{text}");
    }
    assert!(written.err.contains("it has hidden characters"), "{}", written.err);

    let none = from_records(&db, &["--at-least", "4"]).await;
    assert_eq!(none.code, 1, "{}", none.out);
    assert!(none.err.contains("no statement of execute_sql was executed 4 times"), "{}", none.err);
    let both = from_records(&db, &["--schema", "shop"]).await;
    assert!(both.code != 0 && both.err.contains("--schema"), "{}", both.err);
}
