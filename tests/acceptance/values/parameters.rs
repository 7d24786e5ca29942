//! Values of parameters, as agents send them and PostgreSQL receives them.

use serde_json::{Value, json};
use testkit::{Server, database};

use super::TYPES;

#[tokio::test(flavor = "multi_thread")]
async fn parameters_of_every_kind_arrive_as_they_were_sent() {
    let db = database().await;
    db.run(TYPES).await;
    let server = Server::on(&db).await;
    for (ty, value) in [
        ("bool", json!(true)),
        ("bool[]", json!([true, null, false])),
        ("int2", json!(-3)),
        ("int4", json!(2_147_483_647)),
        ("int8", json!(9_007_199_254_740_991_i64)),
        ("float4", json!(0.1)),
        ("float8", json!(1.5)),
        ("float8", json!("NaN")),
        ("numeric", serde_json::from_str("12345678901234.5").unwrap()),
        ("numeric[]", serde_json::from_str("[1.10, -0.50]").unwrap()),
        ("text", json!("'); drop table social.tweet; --")),
        ("varchar(3)", json!("abc")),
        ("char(3)", json!("a  ")),
        ("json", json!({"b": [1, null], "a": "é"})),
        ("json", json!([1, [2]])),
        ("jsonb", json!("a string")),
        ("jsonb", json!(5)),
        ("jsonb", json!(false)),
        ("uuid", json!("9b5f3f3e-3c1c-4f6e-8f3a-1f0d3e2b1a00")),
        ("date", json!("2026-01-02")),
        ("date", json!("infinity")),
        ("time", json!("03:04:05")),
        ("timetz", json!("03:04:05+02")),
        ("timestamp", json!("2026-01-02T03:04:05")),
        ("timestamptz", json!("2026-01-02T03:04:05.678+00:00")),
        ("timestamptz[]", json!(["2026-01-02T03:04:05+00:00", null])),
        ("interval", json!("1 day 02:00:00")),
        ("bytea", json!("\\xdeadbeef")),
        ("bytea[]", json!(["\\x", "\\x00"])),
        ("int[]", json!([])),
        ("int[]", json!([1, null, 3])),
        ("int[]", json!([[1, 2], [3, 4]])),
        ("text[]", json!(["a,b", "\"", null, "NULL", ""])),
        ("json[]", json!([{"a": 1}, [1], "x", 5])),
        ("jsonb[]", json!([{"a": 1}, [1]])),
        ("social.mood", json!("ok")),
        ("social.mood[]", json!(["ok", null])),
        ("social.percent", json!(50)),
        ("social.percent[]", json!([50, 1.5])),
        ("social.pairs", json!([1, 2])),
        ("social.pairs[]", json!([[1, 2], [], [3]])),
        ("social.point3", json!({"x": 1, "label": "a (b), \"c\"", "tags": ["t"]})),
        ("social.point3[]", json!([{"x": 1, "label": null, "tags": []}])),
        ("social.nested", json!({"p": {"x": null, "label": "\\", "tags": ["\"", "\\"]}, "moods": ["sad"]})),
        ("social.nothing", json!({})),
        ("inet", json!("10.0.0.1")),
        ("cidr", json!("10.0.0.0/8")),
        ("macaddr", json!("08:00:2b:01:02:03")),
        ("int4range", json!("[1,5)")),
        ("int4multirange", json!("{[1,5),[7,9)}")),
        ("social.textrange", json!("[a,\"b,c\")")),
        ("money", json!("$12.50")),
        ("bit(4)", json!("1010")),
        ("point", json!("(1,2)")),
        ("box[]", json!(["(1,1),(0,0)", "(2,2),(1,1)"])),
        ("xml", json!("<a/>")),
        ("tsvector", json!("'a':1 'b':2")),
        ("regclass", json!("pg_class")),
        ("oid", json!("26")),
        ("pg_lsn", json!("0/16B3740")),
        ("int2vector", json!([1, 2])),
        ("oidvector", json!(["26", "27"])),
        ("citext", json!("CaSe")),
        ("ltree", json!("a.b")),
        ("hstore", Value::Null),
    ] {
        let ask = async |value: &Value| {
            let call = json!({"query": format!("select $1::{ty} as value"), "params": [value]});
            server.succeed("query_database", call).await["data"]["rows"][0]["value"].clone()
        };
        assert_eq!(ask(&value).await, value, "{ty}");
        assert_eq!(ask(&Value::Null).await, Value::Null, "{ty}");
    }
    // What goes in as one form and comes out as another.
    for (ty, value, expected) in [
        ("hstore", json!("a=>1, b=>NULL"), json!({"a": "1", "b": null})),
        ("hstore[]", json!(["a=>1", null]), json!([{"a": "1"}, null])),
        ("social.point3", json!("(7,\"a,b\",{x})"), json!({"x": 7, "label": "a,b", "tags": ["x"]})),
        ("social.point3", json!({"label": "only"}), json!({"x": null, "label": "only", "tags": null})),
        ("int[]", json!("{1,2}"), json!([1, 2])),
        ("int2", json!("12"), json!(12)),
        // I-2: the digits of a number that clients change are text.
        ("int8", json!("9007199254740993"), json!(9_007_199_254_740_993_i64)),
        ("numeric", json!("12345678901234567890.10"), serde_json::from_str("12345678901234567890.10").unwrap()),
        ("int8", serde_json::from_str("7.0").unwrap(), json!(7)),
        ("oid", json!(26), json!("26")),
        ("int2vector", json!("1 2"), json!([1, 2])),
        ("timestamptz", json!("2026-01-02 03:04:05+02"), json!("2026-01-02T01:04:05+00:00")),
    ] {
        let call = json!({"query": format!("select $1::{ty} as value"), "params": [value]});
        let envelope = server.succeed("query_database", call).await;
        assert_eq!(envelope["data"]["rows"][0]["value"], expected, "{ty} {value}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn parameters_that_do_not_fit_are_named() {
    let db = database().await;
    db.run(TYPES).await;
    let server = Server::on(&db).await;
    for (query, params, said) in [
        ("select $1::int", json!([]), "takes 1 parameter(s) and 0 were given"),
        ("select '$1'", json!([1]), "takes 0 parameter(s) and 1 were given"),
        ("select $1::int", json!(["abc"]), "invalid input syntax for type integer"),
        ("select $1::int", json!([1.5]), "parameter $1 is int4 here and takes a whole number"),
        ("select $1::int", json!([3_000_000_000_i64]), "out of range"),
        ("select $1::int", serde_json::from_str("[1e3]").unwrap(), "takes a whole number"),
        ("select $1::int[]", json!([5]), "parameter $1 is int4[] here and takes an array, not the number 5"),
        (
            "select $1::int[]",
            json!([[1, "x", true]]),
            "parameter $1 has an element that is int4 here and takes a whole",
        ),
        ("select $1::social.point3", json!([[1]]), "parameter $1 is point3 here and takes an object, not an array"),
        ("select $1::social.point3", json!([{"y": 1}]), "has no \"y\", only x, label, tags"),
        (
            "select $1::social.point3",
            json!([{"x": "1", "tags": [5]}]),
            "has a field \"tags\" that has an element that is text",
        ),
        ("select $1::social.mood", json!([1]), "parameter $1 is mood here and takes one of its labels as a string"),
        ("select $1::social.mood", json!(["glad"]), "invalid input value for enum"),
        ("select $1::social.percent", json!([101]), "violates check constraint"),
        ("select $1::social.percent", json!([true]), "parameter $1 is percent here and takes a number"),
        ("select $1::hstore", json!([{"a": 1}]), "parameter $1 is hstore here and takes its text form as a string"),
        ("select $1::int4range", json!([[1, 5]]), "parameter $1 is int4range here and takes a string, not an array"),
        (
            "select $1::int2vector",
            json!([[1, "x"]]),
            "parameter $1 is int2vector here and takes an array of whole numbers",
        ),
        ("select $1::date", json!(["2026-02-30"]), "date/time field value out of range"),
        ("select $1::money", json!([12.5]), "parameter $1 is money here and takes a string, not the number 12.5"),
        ("select $1::json", json!(["a\u{0}b"]), "U+0000"),
        ("select $1::int[]", json!([[[1], [1, 2]]]), "malformed array literal"),
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
