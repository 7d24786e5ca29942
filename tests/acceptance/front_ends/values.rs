//! Values in and out are equal for every way to pass a statement.

use serde_json::{Value, json};
use testkit::{Pipe, database};

/// A type, a value of it as JSON, and how it comes back where that is another.
fn values() -> Vec<(&'static str, Value, Option<Value>)> {
    let exact = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    vec![
        ("bool", json!(true), None),
        ("int2", json!(-32768), None),
        ("int4", json!(2_147_483_647), None),
        ("int8", json!(9_007_199_254_740_993_i64), None),
        ("float4", json!(1.5), None),
        ("float8", json!("NaN"), None),
        ("float8", json!("-Infinity"), None),
        ("numeric", exact("1.10"), None),
        ("numeric", exact("123456789012345678901234567890.123456789"), None),
        ("numeric", json!("NaN"), None),
        ("text", json!("a\"b\\c\n'é"), None),
        ("varchar(5)", json!("abc"), None),
        ("char(3)", json!("ab"), Some(json!("ab "))),
        ("name", json!("n"), None),
        ("money", json!("$1.50"), None),
        ("json", json!({"a": [1, null, {"b": "c"}]}), None),
        ("jsonb", json!({"a": [1, null, {"b": "c"}]}), None),
        ("uuid", json!("0b9f7c52-6d3e-4a57-9b0a-1f2e3d4c5b6a"), None),
        ("date", json!("2024-02-29"), None),
        ("date", json!("infinity"), None),
        ("time", json!("12:34:56.789"), None),
        ("timetz", json!("12:34:56+02"), Some(json!("12:34:56+02"))),
        ("timestamp", json!("2024-02-29T12:34:56.5"), None),
        ("timestamptz", json!("2024-02-29T12:34:56+00:00"), None),
        ("interval", json!("1 mon 2 days 03:04:05"), None),
        ("bytea", json!("\\x00ff"), None),
        ("int4[]", json!([1, null, 3]), None),
        ("int4[]", json!([[1, 2], [3, 4]]), None),
        ("text[]", json!(["a,b", "\"q\"", null, ""]), None),
        ("mood", json!("happy"), None),
        ("inet", json!("10.0.0.1/8"), None),
        ("cidr", json!("10.0.0.0/8"), None),
        ("macaddr", json!("08:00:2b:01:02:03"), None),
        ("int4range", json!("[1,5)"), None),
        ("int4multirange", json!("{[1,3),[5,9)}"), None),
        ("pair", json!({"a": 1, "b": "x,y"}), None),
        ("pair[]", json!([{"a": 1, "b": null}, {"a": null, "b": "z"}]), None),
        ("positive", json!(7), None),
        ("bit(4)", json!("1010"), None),
        ("point", json!("(1,2)"), None),
        ("xml", json!("<a/>"), None),
        ("tsquery", json!("'a' & 'b'"), None),
        ("tsvector", json!("'a' 'b'"), None),
        ("oid", json!("26"), None),
        ("regclass", json!("pg_class"), None),
        ("pg_lsn", json!("0/16B3748"), None),
    ]
}

const TYPES: &str = "create type mood as enum ('sad', 'happy'); create type pair as (a int, b text); \
                     create domain positive as int check (value > 0)";

#[tokio::test]
async fn every_type_comes_back_as_it_went_in() {
    let db = database().await;
    db.run(TYPES).await;
    db.run("alter database postgres set timezone = 'UTC'").await;
    let mut pipe = Pipe::on(&db);
    for (ty, value, comes_back) in values() {
        let expected = comes_back.unwrap_or_else(|| value.clone());
        for value in [value, Value::Null] {
            let expected = if value.is_null() { Value::Null } else { expected.clone() };
            for sql in [
                format!("select $1::{ty} as v"),
                format!("select $1::{ty} as v;"),
                format!("values ($1::{ty})"),
                format!("with x as (select $1::{ty} as v) table x"),
            ] {
                let event = pipe.run_with("a", &sql, json!({"params": [value]})).await;
                let row = event["rows"][0].as_object().unwrap_or_else(|| panic!("{sql}: {event}"));
                // Spelled as JSON, so that 1.10 is not 1.1.
                assert_eq!(row.values().next().unwrap().to_string(), expected.to_string(), "{sql}: {event}");
            }
        }
    }
    pipe.finish().await;
}

#[tokio::test]
async fn returned_rows_of_a_write_are_converted_like_those_of_a_read() {
    // Through RETURNING and CALL. SHOW and EXPLAIN give text.
    let db = database().await;
    db.run(&format!("drop schema countersign cascade; {TYPES}")).await;
    let mut pipe = Pipe::on(&db);
    for (index, (ty, value, comes_back)) in values().into_iter().enumerate() {
        let expected = comes_back.unwrap_or_else(|| value.clone());
        db.run(&format!(
            "create table t{index} (v {ty}); \
            create procedure p{index}(inout v {ty}) language plpgsql as $$ begin end $$"
        ))
        .await;
        for sql in [format!("insert into t{index} values ($1) returning v"), format!("call p{index}($1::{ty})")] {
            let more = json!({"params": [value], "options": {"read_only": false}});
            let event = pipe.run_with("a", &sql, more).await;
            assert_eq!(event["rows"][0]["v"].to_string(), expected.to_string(), "{ty} {sql}: {event}");
        }
    }
    for (sql, column) in [("show server_encoding", "server_encoding"), ("explain (costs off) select 1;", "QUERY PLAN")]
    {
        let event = pipe.run("b", sql).await;
        assert!(event["rows"][0][column].is_string(), "{sql}: {event}");
    }
    assert_eq!(pipe.run("c", "select pg_sleep(0) as v").await["rows"][0]["v"], "");
    pipe.finish().await;
}

#[tokio::test]
async fn columns_of_one_name_and_records_are_not_lost() {
    let db = database().await;
    let mut pipe = Pipe::on(&db);
    let event = pipe.run("a", "select 1 as a, 2 as a, row(1, 'x'::text, null) as r").await;
    assert_eq!(event["rows"], json!([{"a": 1, "a_2": 2, "r": {"f1": 1, "f2": "x", "f3": null}}]));
    let names: Vec<&Value> = event["columns"].as_array().unwrap().iter().map(|column| &column["name"]).collect();
    assert_eq!(names, ["a", "a_2", "r"]);
    let sql = "select row(i, 'x') as r from generate_series(1, 2000) i";
    let event = pipe.run_with("b", sql, json!({"options": {"inline_max_rows": 2000}})).await;
    assert_eq!(
        (&event["row_count"], &event["rows"][1999]["r"]["f1"]),
        (&json!(2000), &json!(2000)),
        "{}",
        event["code"]
    );
    pipe.finish().await;
}
