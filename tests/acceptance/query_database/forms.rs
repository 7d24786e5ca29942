//! Reads in every syntax are accepted, since the server does not parse the text.

use serde_json::json;
use testkit::{Server, database};

#[tokio::test(flavor = "multi_thread")]
async fn a_query_is_taken_in_any_case_behind_blanks_comments_and_parentheses() {
    let db = database().await;
    let server = Server::on(&db).await;
    for query in [
        "SELECT 1",
        "sElEcT 1;",
        " \t\r\n\u{c}select 1 ; ",
        "select 1; -- the end",
        "-- insert into x\nselect 1",
        "/* /* delete */ update */select/**/1",
        "WITH a AS (SELECT 1 AS n) SELECT n FROM a",
        "with recursive a (n) as (values (1) union select n from a) table a",
        "(select 1)",
        "((values (1)))",
        "Values (1)",
    ] {
        let call = json!({"query": query, "row_format": "array"});
        assert_eq!(server.succeed("query_database", call).await["data"]["rows"], json!([[1]]), "{query}");
    }
    for (query, column) in [
        ("\n Explain select 1", "QUERY PLAN"),
        ("explain (analyze, format json) table social.tweet;", "QUERY PLAN"),
        (" SHOW transaction_read_only", "transaction_read_only"),
        ("/* */ show all", "name"),
        ("Table social.tweet", "id"),
    ] {
        let data = server.succeed("query_database", json!({"query": query})).await["data"].clone();
        assert_eq!(data["columns"][0]["name"], column, "{query}: {data}");
        assert_ne!(data["row_count"], 0, "{query}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tables_are_listed_by_what_postgresql_has_for_it() {
    let db = database().await;
    let server = Server::on(&db).await;
    let tables = db.rows("select tablename from pg_tables where schemaname = 'social' order by 1").await.concat();
    assert!(tables.len() > 5, "{tables:?}");
    for query in [
        "select table_name::text as name from information_schema.tables where table_schema = 'social' order by 1",
        "select tablename::text as name from pg_tables where schemaname = 'social' order by 1",
    ] {
        let rows = server.query(query).await;
        let names: Vec<&str> = rows.iter().map(|row| row["name"].as_str().unwrap()).collect();
        assert_eq!(names, tables, "{query}");
    }
}
