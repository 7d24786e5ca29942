//! Values that take more than their text (anonymous records, types with a cast to json): the bounds and errors of that;
//! types that change; what no client could read.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::{Server, arguments, database};

#[tokio::test(flavor = "multi_thread")]
async fn a_field_that_has_no_binary_form_is_named_with_the_way_out() {
    let db = database().await;
    let server = Server::on(&db).await;
    let from = "from pg_class where relname = 'tweet'";
    let query = format!("select row(relname, relacl) as r {from}");
    let error = server.fail("query_database", json!({"query": query}), "sql_error").await;
    assert_eq!(error["sqlstate"], "42883");
    assert!(error["message"].as_str().unwrap().contains("aclitem"), "{error}");
    assert!(error["hint"].as_str().unwrap().contains("Cast that field to text"), "{error}");
    let rows = server.query(&format!("select row(relname, relacl::text) as r {from}")).await;
    assert_eq!(rows[0]["r"]["f1"], "tweet");
    // The same error of a function that does not exist is another mistake.
    let error = server.fail("query_database", json!({"query": "select row(no_such(1))"}), "sql_error").await;
    assert!(!error.to_string().contains("Cast that field"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_are_converted_have_the_limits_of_all_rows() {
    let db = database().await;
    db.run("create extension hstore").await;
    let server = Server::on(&db).await;
    // More rows than come in one portion, and more values than go into one statement.
    for count in [63, 64, 65, 500, 501, 1700] {
        for value in ["row(i, i::numeric / 4, 'x'::text)", "hstore('n', i::text)"] {
            let query = format!("select i, {value} as v from generate_series(1, {count}) as i");
            let call = json!({"query": query, "row_limit": 1000});
            let data = server.succeed("query_database", call).await["data"].clone();
            let rows = data["rows"].as_array().unwrap();
            assert_eq!(rows.len(), count.min(1000), "{query}");
            assert_eq!(data["truncated"], count > 1000, "{query}");
            for row in rows {
                let number = &row["i"];
                let inner =
                    row["v"].get("f1").cloned().unwrap_or_else(|| row["v"]["n"].as_str().unwrap().parse().unwrap());
                assert_eq!(inner, *number, "{row}");
            }
        }
    }
    // Rows of 20 kB: the first megabyte of them, whether a portion holds it or not.
    for count in [60, 400] {
        let query = format!("select row(repeat('x', 20000), now()) as r from generate_series(1, {count})");
        let call = json!({"query": query, "row_limit": 500});
        let data = server.succeed("query_database", call).await["data"].clone();
        assert_eq!((&data["row_count"], &data["truncated"]), (&json!(52), &json!(true)));
        // Without a number of rows the answer is for a model.
        let data = server.succeed("query_database", json!({"query": query})).await["data"].clone();
        assert_eq!((&data["row_count"], &data["truncated_by"]), (&json!(3), &json!("max_bytes")));
        assert!(data["hint"].as_str().unwrap().contains("give a row_limit for a larger answer"), "{}", data["hint"]);
    }
    // A first row is there, whatever its size up to the limit.
    let query = json!({"query": "select repeat('x', 200000) as long from generate_series(1, 2)"});
    let data = server.succeed("query_database", query).await["data"].clone();
    assert_eq!((&data["row_count"], &data["truncated"]), (&json!(1), &json!(true)));
    // 2 kB that become 40 kB: the answer is cut where the JSON of its rows exceeds the limit, not their text.
    db.run(
        "create type social.tick as enum ('t');
         create function social.tick_json(social.tick) returns json language sql as
           $$ select to_json(repeat('x', 400)) $$;
         create cast (social.tick as json) with function social.tick_json(social.tick)",
    )
    .await;
    let ticks = "array_fill('t'::social.tick, array[100]) as ticks";
    let query = format!("select {ticks} from generate_series(1, 50)");
    let call = json!({"query": query, "row_limit": 500});
    let data = server.succeed("query_database", call).await["data"].clone();
    assert_eq!((&data["row_count"], &data["truncated"]), (&json!(26), &json!(true)));
    assert_eq!(data["rows"][25]["ticks"][99].as_str().map(str::len), Some(400));
    // One row alone is too much.
    let query = format!("select array_fill('t'::social.tick, array[3000]) as ticks, {ticks}");
    server.fail("query_database", json!({"query": query}), "result_too_large").await;
    server.fail("query_database", json!({"query": "select row(repeat('x', 2000000))"}), "result_too_large").await;
    // The sessions are as good as before.
    for _ in 0..10 {
        assert_eq!(server.query("select 1 as one, row(now()) is null as two").await[0]["one"], 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cast_that_fails_or_never_ends_is_an_error_of_the_query() {
    let db = database().await;
    db.run(
        "create type social.slow as enum ('slow', 'bad');
         create function social.slow_json(social.slow) returns json language plpgsql as
           $$ begin if $1 = 'slow' then perform pg_sleep(3600); end if; raise exception 'not today'; end $$;
         create cast (social.slow as json) with function social.slow_json(social.slow)",
    )
    .await;
    let server = Server::with(&db, |it| it.env("COUNTERSIGN_QUERY_TIMEOUT_MS", "2000")).await;
    let error = server.fail("query_database", json!({"query": "select 'bad'::social.slow"}), "sql_error").await;
    assert!(error["message"].as_str().unwrap().contains("not today"), "{error}");
    assert!(error["hint"].as_str().unwrap().contains("Cast it to text"), "{error}");
    assert_eq!(server.query("select 'bad'::social.slow::text as value").await[0]["value"], "bad");
    let call = json!({"query": "select 'slow'::social.slow, 'conversion that never ends'"});
    server.fail("query_database", call, "timeout").await;
    let busy = "select count(*) from pg_stat_activity where query like '%to_json%' and state = 'active' \
                and pid <> pg_backend_pid() and datname = current_database()";
    let freed = db.until_value(busy, "0");
    tokio::time::timeout(Duration::from_secs(5), freed).await.expect("the backend is freed");
    assert_eq!(server.query("select 1 as one").await[0]["one"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_type_that_has_changed_shows_at_once() {
    let db = database().await;
    let grants = "grant select on social.pair to public";
    db.run(&format!("create table social.pair (a int, b text); insert into social.pair values (1, 'x'); {grants}"))
        .await;
    let server = Server::on(&db).await;
    let queries = [
        "select p from social.pair p",
        "select array[p] as p from social.pair p",
        "select row(p) as p from social.pair p",
    ];
    let check = async |expected: Value| {
        for query in queries {
            let row = server.query(query).await.remove(0);
            let value = row["p"].get(0).or_else(|| row["p"].get("f1")).unwrap_or(&row["p"]);
            assert_eq!(value.to_string(), expected.to_string(), "{query}");
        }
    };
    check(json!({"a": 1, "b": "x"})).await;
    db.run("alter table social.pair rename column a to first").await;
    check(json!({"first": 1, "b": "x"})).await;
    db.run("alter table social.pair add column c numeric default 1.50").await;
    check(serde_json::from_str(r#"{"first": 1, "b": "x", "c": 1.50}"#).unwrap()).await;
    db.run("alter table social.pair drop column b").await;
    check(serde_json::from_str(r#"{"first": 1, "c": 1.50}"#).unwrap()).await;
    // And a parameter of such a type.
    let parameter = async |value: Value| {
        let call = json!({"query": "select $1::social.pair as p", "params": [value]});
        server.succeed("query_database", call).await["data"]["rows"][0]["p"].to_string()
    };
    assert_eq!(parameter(json!({"first": 1})).await, r#"{"first":1,"c":null}"#);
    db.run("alter table social.pair add column d int").await;
    assert_eq!(parameter(json!({"first": 1})).await, r#"{"first":1,"c":null,"d":null}"#);
    assert_eq!(parameter(json!({"d": 5})).await, r#"{"first":null,"c":null,"d":5}"#);
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_that_the_query_changes_are_those_of_its_values() {
    let db = database().await;
    let server = Server::on(&db).await;
    let value = async |setting: &str, value: &str, expression: &str| {
        let query = format!(
            "select set_config('{setting}', '{value}', true) as s, {expression} as plain, row({expression}) as inside, \
             to_jsonb({expression}) as expected"
        );
        let row = server.query(&query).await.remove(0);
        assert_eq!(row["inside"]["f1"], row["expected"], "{query}");
        (row["plain"].clone(), row["expected"].clone())
    };
    for (setting, setting_value, expression) in [
        ("TimeZone", "Asia/Kathmandu", "'2026-01-02 03:04:05.5+00'::timestamptz"),
        ("TimeZone", "Europe/Berlin", "'1800-01-02 03:04:05+00'::timestamptz"),
        ("IntervalStyle", "iso_8601", "'1 year 2 days 03:04:05'::interval"),
        ("IntervalStyle", "sql_standard", "'1 year 2 days 03:04:05'::interval"),
        ("bytea_output", "escape", "'\\x00ff41'::bytea"),
        ("extra_float_digits", "-5", "0.123456789012345::float8"),
        ("lc_monetary", "C", "12.5::money"),
    ] {
        let (plain, expected) = value(setting, setting_value, expression).await;
        assert_eq!(plain, expected, "{setting} {setting_value}");
    }
    // A style of dates that the query asks for is the one that it gets, but inside a record they are ISO 8601.
    for (style, date) in [("SQL, DMY", "02/01/2026"), ("German", "02.01.2026"), ("Postgres, MDY", "01-02-2026")] {
        assert_eq!(value("DateStyle", style, "'2026-01-02'::date").await, (json!(date), json!("2026-01-02")));
        value("DateStyle", style, "'2026-01-02 03:04:05'::timestamp").await;
        value("DateStyle", style, "'2026-01-02 03:04:05+00'::timestamptz").await;
    }
    // Nothing of it is left.
    assert_eq!(server.query("select '2026-01-02'::date as d").await[0]["d"], "2026-01-02");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_client_can_read_every_answer() {
    // serde_json stops at 128 levels, and with it this client.
    let db = database().await;
    db.run("create type social.boxed as (a json[])").await;
    let server = Server::on(&db).await;
    for depth in [90, 99, 100, 101, 110, 120, 127, 128, 129, 1000] {
        let deep = format!("(repeat('[', {depth}) || repeat(']', {depth}))");
        for value in [
            "X::json",
            "X::jsonb",
            "array[X::json]",
            "row(array[X::json])::social.boxed",
            "row(row(X::json, X::jsonb))",
        ] {
            let call = arguments(json!({"query": format!("select {} as v", value.replace('X', &deep))}));
            let answer =
                tokio::time::timeout(Duration::from_secs(20), server.client().call("query_database", call)).await;
            let envelope = answer.unwrap_or_else(|_| panic!("{value} {depth}")).unwrap().envelope;
            let text = envelope["data"]["rows"][0]["v"].to_string();
            let as_text = text.matches(&"[".repeat(100)).count() > 0 && text.contains("\"[");
            assert_eq!(as_text, depth > 99 + usize::from(value.starts_with('X')), "{value} {depth}: {text}");
        }
    }
    let nested = (0..150).fold("1".to_owned(), |inner, _| format!("row({inner})"));
    // The plan of such a thing takes twice the room with each step.
    let query = json!({"query": format!("select {nested} as v")});
    let error = server.fail("query_database", query, "result_too_large").await;
    assert!(error["message"].as_str().unwrap().contains("plan"), "{error}");
    let nested = (0..12).fold("1".to_owned(), |inner, _| format!("row({inner})"));
    assert_eq!(server.query(&format!("select {nested} as v")).await[0]["v"].to_string().matches("f1").count(), 12);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_high_byte_in_a_char_breaks_nothing() {
    let db = database().await;
    let server = Server::on(&db).await;
    for query in [
        "select (-1)::int4::\"char\" as v",
        "select row((-1)::int4::\"char\") as v",
        "select array[(-1)::int4::\"char\"] as v",
    ] {
        let answer = server.call("query_database", json!({"query": query})).await;
        assert!(answer["success"] == true || answer["error"]["code"] == "sql_error", "{query}: {answer}");
    }
    assert_eq!(server.query("select 1 as one").await[0]["one"], 1);
}
