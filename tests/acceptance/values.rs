//! Values in and out: what `to_jsonb` says, every digit (promises B4, B5).

use serde_json::{Value, json};
use testkit::{Server, database};

const TYPES: &str = "
create type social.mood as enum ('sad', 'ok', 'happy');
create domain social.percent as numeric check (value between 0 and 100);
create type social.point3 as (x int8, label text, tags text[]);
create type social.nested as (p social.point3, moods social.mood[]);
";

/// Expressions whose JSON must be what `to_jsonb` makes of them.
const LIKE_TO_JSONB: &[&str] = &[
    "true",
    "32767::int2",
    "(-2147483648)::int4",
    "9007199254740993::int8",
    "1.10::numeric",
    "123456789012345678901234567890.1234567890::numeric",
    "0.1::float4",
    "1e20::float8",
    "1e-7::float8",
    "'NaN'::float8",
    "'-Infinity'::numeric",
    "12.5::money",
    "'a\"b\\\\c é 😀'::text",
    "'x'::\"char\"",
    "'ab'::char(4)",
    "'name'::name",
    "'\\x00ff'::bytea",
    "'2026-01-02'::date",
    "'0044-03-15 BC'::date",
    "'infinity'::date",
    "'03:04:05.678'::time",
    "'03:04:05+02'::timetz",
    "'2026-01-02 03:04:05.678901'::timestamp",
    "'2026-01-02 03:04:05+02'::timestamptz",
    "'-infinity'::timestamptz",
    "'0044-03-15 12:00 BC'::timestamp",
    "'1 year 2 mons 3 days 04:05:06.7'::interval",
    "'9b5f3f3e-3c1c-4f6e-8f3a-1f0d3e2b1a00'::uuid",
    "'192.168.0.1/24'::inet",
    "'10.0.0.0/8'::cidr",
    "'08:00:2b:01:02:03'::macaddr",
    "'{\"b\": [1.50, null, {\"a\": 9007199254740993}]}'::json",
    "'{\"b\": [1.50, null], \"a\": \"é\"}'::jsonb",
    "B'1010'",
    "'(1.5,2)'::point",
    "'((0,0),(1,1))'::box",
    "array['((0,0),(1,1))'::box, '((2,2),(3,3))'::box]",
    "'<a/>'::xml",
    "to_tsvector('simple', 'a b a')",
    "'a & b'::tsquery",
    "array[1, null, 3]",
    "array[[1, 2], [3, 4]]",
    "'[0:1]={7,8}'::int[]",
    "array['a,b', 'c\"d', 'NULL', null, '', '{}']::text[]",
    "array[1.10, 2.0]::numeric[]",
    "array['{\"a\": 1}'::jsonb]",
    "array['2026-01-02 03:04:05+00'::timestamptz]",
    "'{}'::int[]",
    "int4range(1, 5)",
    "'{[1,3), [5,7)}'::int4multirange",
    "array[int4range(1, 5), null]",
    "'happy'::social.mood",
    "array['sad', 'ok']::social.mood[]",
    "12.50::social.percent",
    "row(9007199254740993, 'a \"quoted\" (b), c', array['x', null])::social.point3",
    "array[row(1, null, '{}')::social.point3]",
    "row(row(1, 'a', null)::social.point3, array['ok']::social.mood[])::social.nested",
    "26::oid",
    "'pg_class'::regclass",
    "'0/16B3740'::pg_lsn",
    "'1 2 3'::int2vector",
    "'26 27'::oidvector",
    "null::jsonb",
    "relacl from pg_class where relname = 'tweet'",
    "a from social.account a where account_id = 'default'",
];

#[tokio::test(flavor = "multi_thread")]
async fn every_value_reads_as_to_jsonb_would_have_it() {
    let db = database().await;
    db.run(TYPES).await;
    let server = Server::on(&db).await;
    for expression in LIKE_TO_JSONB {
        let (value, from) = expression.split_once(" from ").unwrap_or((expression, "(values (1)) as one"));
        // An interval has no ISO form in JSON: it is PostgreSQL's own text, as to_jsonb has it too.
        let rows =
            server.query(&format!("select {value} as value, to_jsonb({value})::text as expected from {from}")).await;
        let expected = match &rows[0]["expected"] {
            Value::String(text) => serde_json::from_str::<Value>(text).unwrap(),
            other => other.clone(),
        };
        assert_eq!(canonical(&rows[0]["value"]), canonical(&expected), "{expression}");
    }
}

/// jsonb sorts keys; the order of columns is right in ours.
fn canonical(value: &Value) -> String {
    match value {
        Value::Object(entries) => {
            let mut entries: Vec<String> =
                entries.iter().map(|(key, value)| format!("{key:?}:{}", canonical(value))).collect();
            entries.sort();
            format!("{{{}}}", entries.join(","))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(canonical).collect::<Vec<_>>().join(",")),
        // jsonb writes 1e+20 out; the number is the same.
        Value::Number(number) if number.to_string().contains('e') => number.as_f64().unwrap().to_string(),
        other => other.to_string(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn parameters_of_every_kind_arrive_as_they_were_sent() {
    let db = database().await;
    db.run(TYPES).await;
    let server = Server::on(&db).await;
    for (ty, value) in [
        ("bool", json!(true)),
        ("int2", json!(-3)),
        ("int8", json!(9_007_199_254_740_993_i64)),
        ("float8", json!(1.5)),
        ("numeric", serde_json::from_str("123456789012345678901234567890.10").unwrap()),
        ("text", json!("'); drop table social.tweet; --")),
        ("varchar(3)", json!("abc")),
        ("json", json!({"a": [1, null]})),
        ("jsonb", json!("a string")),
        ("uuid", json!("9b5f3f3e-3c1c-4f6e-8f3a-1f0d3e2b1a00")),
        ("date", json!("2026-01-02")),
        ("time", json!("03:04:05")),
        ("timestamp", json!("2026-01-02T03:04:05")),
        ("interval", json!("1 day 02:00:00")),
        ("bytea", json!("\\xdeadbeef")),
        ("int[]", json!([1, null, 3])),
        ("int[]", json!([[1, 2], [3, 4]])),
        ("text[]", json!(["a,b", "\"", null, "NULL", ""])),
        ("jsonb[]", json!([{"a": 1}, [1]])),
        ("social.mood", json!("ok")),
        ("social.percent", json!(50)),
        ("social.point3", json!({"x": 1, "label": "a (b), \"c\"", "tags": ["t"]})),
        ("social.point3[]", json!([{"x": 1, "label": null, "tags": []}])),
        ("inet", json!("10.0.0.1")),
        ("int4range", json!("[1,5)")),
        ("money", json!("$12.50")),
        ("int8", Value::Null),
        ("social.point3", Value::Null),
    ] {
        let call = json!({"query": format!("select $1::{ty} as value"), "params": [value]});
        let envelope = server.succeed("query_database", call).await;
        assert_eq!(envelope["data"]["rows"][0]["value"], value, "{ty}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn parameters_that_do_not_fit_are_named() {
    // B4-02, B4-04, AR02 to AR06
    let db = database().await;
    let server = Server::on(&db).await;
    for (query, params, said) in [
        ("select $1::int", json!([]), "takes 1 parameter(s) and 0 were given"),
        ("select '$1'", json!([1]), "takes 0 parameter(s) and 1 were given"),
        ("select $1::int", json!(["abc"]), "invalid input syntax for type integer"),
        ("select $1::int", json!([1.5]), "parameter $1 is int4 here and takes a whole number"),
        ("select $1::int", json!([3_000_000_000_i64]), "out of range"),
        ("select $1::text, $2::bool", json!(["a", 1]), "parameter $2 is bool here and takes true or false"),
        ("select $1::text", json!([5]), "takes a string, not the number 5"),
        ("select $1::text", json!(["a\u{0}b"]), "U+0000"),
        ("select $1::uuid", json!(["x"]), "invalid input syntax for type uuid"),
        ("select $1::float8", serde_json::from_str("[1e400]").unwrap(), "out of range"),
    ] {
        let error = server.fail("query_database", json!({"query": query, "params": params}), "invalid_params").await;
        assert!(error["message"].as_str().unwrap().contains(said), "{query}: {error}");
    }
    let shape = server.fail("query_database", json!({"query": "select 1", "params": {"a": 1}}), "invalid_params").await;
    assert!(shape["message"].as_str().unwrap().contains("params"), "{shape}");
}

#[tokio::test(flavor = "multi_thread")]
async fn columns_keep_their_order_and_none_of_the_same_name_is_lost() {
    // X-34, X-35
    let db = database().await;
    let server = Server::on(&db).await;
    let envelope = server.succeed("query_database", json!({"query": "select 2 as b, 1 as a, 3 as b, 4"})).await;
    assert_eq!(envelope["data"]["rows"][0].to_string(), r#"{"b":2,"a":1,"b_2":3,"?column?":4}"#);
    let names: Vec<&str> =
        envelope["data"]["columns"].as_array().unwrap().iter().map(|column| column["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["b", "a", "b_2", "?column?"]);
}
