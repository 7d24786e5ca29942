//! Values in and out are equal to `to_jsonb`, with every digit.

mod parameters;

use serde_json::{Number, Value, json};
use testkit::{Server, database};

const TYPES: &str = r#"
create type social.mood as enum ('sad', 'ok', 'happy');
create domain social.percent as numeric check (value between 0 and 100);
create type social.point3 as (x int8, label text, tags text[]);
create type social.nested as (p social.point3, moods social.mood[]);
create extension hstore;
create extension citext;
create extension ltree;
create extension cube;
create extension seg;
create extension isn;
create type social.nothing as ();
create type social.only as (a int);
create domain social.pairs as int[];
create domain social.attributes as hstore check (value is null or not value ? 'forbidden');
create type social.tagged as (name text, attributes hstore, more social.attributes[], pairs social.pairs[]);
create type social.textrange as range (subtype = text, collation = "C");
create type social.shade as enum ('light', 'dark');
create function social.shade_json(social.shade) returns json language sql immutable as
  $$ select json_build_object('shade', $1::text) $$;
create cast (social.shade as json) with function social.shade_json(social.shade);
create type social.thrice as (deep social.nested[]);
create table social.changed (a int, gone int, b text, c int generated always as (a * 2) stored);
alter table social.changed drop column gone;
alter table social.changed add column "d ""q"" \ é" timestamptz[];
insert into social.changed values (1, E'x\\y"z\n(,)', default, array['2026-01-02 03:04:05+00', null]::timestamptz[]);
grant select on social.changed to public;
"#;

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
    // Records say what they are value by value; what their fields become, the server says.
    "row(1, 'a', null)",
    "row()",
    "row(1.10, 9007199254740993, true, 'é'::text, '\\x00ff'::bytea, '2026-01-02 03:04:05.5+02'::timestamptz, 0.1::float4)",
    "row('{\"b\": 1.50, \"a\": [2]}'::json, '{\"b\": 1.50}'::jsonb, 'NaN'::numeric, 'infinity'::date, '1 day'::interval)",
    "row(row(1, row('x', array[1.5, null])), array[row(1, 2), row(3, null)])",
    "array[row(1, 'a'), null, row(2, null)]",
    "array[array[row(1)], array[row(2)]]",
    "array[]::record[]",
    "row('a=>1'::hstore, 'sad'::social.mood, 50::social.percent, row(1, 'a', '{}')::social.point3, array['x=>y'::hstore])",
    "row('pg_class'::regclass, 'x'::name, 'c'::char(3), 'v'::varchar, 'i'::citext, 'a.b'::ltree, '(1,2)'::cube)",
    "row(int4range(1, 5), '{[1,3)}'::int4multirange, '1 2'::int2vector, '1 2'::oidvector, B'10', '<a/>'::xml, 'c'::\"char\")",
    "row(null, null)",
    "null::record",
    "row(pg_sleep(0))",
    "row(conbin, 1) from pg_constraint where conbin is not null limit 1",
    // Types with a cast to json.
    "'a=>1, \"b \\\" c\"=>NULL'::hstore",
    "''::hstore",
    "null::hstore",
    "array['a=>1'::hstore, null, 'b=>2']",
    "array[array['a=>1'::hstore], array['b=>2'::hstore]]",
    "'x=>y'::social.attributes",
    "array['x=>y'::social.attributes]",
    "row('n', 'a=>\"1,2\"', array['x=>y', null]::social.attributes[], array['{1,2}', '{3}']::social.pairs[])::social.tagged",
    "array[row('n', 'a=>1', null, null)::social.tagged, null]",
    "'dark'::social.shade",
    "array['dark', null, 'light']::social.shade[]",
    // Extension types without one.
    "'CaSe'::citext",
    "array['CaSe'::citext]",
    "'a.b.c'::ltree",
    "'a.*'::lquery",
    "'(1,2),(3,4)'::cube",
    "'1.5 .. 2'::seg",
    "array['1.5 .. 2'::seg, null]",
    "'978-0-393-04002-9'::isbn13",
    // What else there is.
    "row()::social.nothing",
    "row(null)::social.only",
    "row(3)::social.only",
    "'{1,2}'::social.pairs",
    "array['{1,2}', '{}', null]::social.pairs[]",
    "array[row(row(1, null, array['a,b', 'c\"d', 'e\\f', E'g\\nh', ' ', '']), array['ok', null]::social.mood[])::social.nested]",
    "row(array[row(row(1, 'a\"\\(,)', array[E'\\t', null, 'NULL', 'null']), null)::social.nested])::social.thrice",
    "social.textrange('a', 'b,\"c')",
    "array[social.textrange('a', null)]",
    "social.textmultirange(social.textrange('a', 'b'))",
    "'[2:3][-1:0]={{1,2},{3,4}}'::int[]",
    "array_fill(1.10::numeric, array[1, 2, 1, 2, 1, 2])",
    "array['{1,2}'::int[]::social.pairs]",
    "''::\"char\"",
    "'\\001'::\"char\"",
    "'1800-01-02 03:04:05'::timestamp at time zone 'Europe/Berlin'",
    "'294276-12-31 23:59:59.999999'::timestamp",
    "'4713-01-01 BC'::date",
    "'24:00:00'::time",
    "'03:04:05.678-15:59:59'::timetz",
    "'-1 year -2 mons +3 days -04:05:06.7'::interval",
    "'-0'::float8",
    "1e300::float8",
    "1.5e-300::float8",
    "'3.4028235e38'::float4",
    "array['NaN', 'Infinity', 0.1]::float4[]",
    "(repeat('9', 1000) || '.' || repeat('1', 1000))::numeric",
    "'-92233720368547758.08'::money",
    "'{\"a\": {\"a\": []}, \"\": \"\\u00e9\\n\"}'::json",
    "array['1'::json, 'null', null, '\"x\"']",
    "'\"\\ud83d\\ude00\"'::json",
    "'$.a[*] ? (@ > 1)'::jsonpath",
    "'10:20:10,15'::txid_snapshot",
    "'10:20:10,15'::pg_snapshot",
    "'(1,2)'::tid",
    "'12'::xid",
    "'12'::xid8",
    "'12'::cid",
    "'portal'::refcursor",
    "'now'::regproc",
    "'lower(text)'::regprocedure",
    "'+(int,int)'::regoperator",
    "'int4'::regtype",
    "'english'::regconfig",
    "pg_sleep(0)",
    "'{\"(1,2)\",\"(3,4)\"}'::point[]",
    "'[(0,0),(1,1)]'::path",
    "'<(0,0),1>'::circle",
    "'{1,-1,0}'::line",
    "'08:00:2b:01:02:03:04:05'::macaddr8",
    "B'1010'::varbit",
    "'''a'' & !''b'':*'::tsquery",
    "conbin from pg_constraint where conbin is not null limit 1",
    "c from social.changed c",
    "array[c] from social.changed c",
    "row(c, 1) from social.changed c",
    "relacl from pg_class where relname = 'tweet'",
    "a from social.account a where account_id = 'default'",
];

#[tokio::test(flavor = "multi_thread")]
async fn every_value_reads_as_to_jsonb_would_have_it() {
    let db = database().await;
    db.run(TYPES).await;
    let server = Server::on(&db).await;
    let mut wrong = Vec::new();
    for expression in LIKE_TO_JSONB {
        let (value, from) = expression.split_once(" from ").unwrap_or((expression, "(values (1)) as one"));
        // An interval has no ISO form in JSON: it is PostgreSQL's own text, as to_jsonb has it too.
        let query = format!("select {value} as value, to_jsonb({value})::text as expected from {from}");
        let envelope = server.call("query_database", json!({"query": query})).await;
        let row = &envelope["data"]["rows"][0];
        let expected = match &row["expected"] {
            Value::String(text) => serde_json::from_str::<Value>(text).unwrap(),
            other => other.clone(),
        };
        if envelope["success"] != true
            || canonical(&row["value"], without_exponent) != canonical(&expected, without_exponent)
        {
            wrong.push(format!("{expression}: {envelope}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// jsonb sorts keys; the order of columns is right in ours.
pub(crate) fn canonical(value: &Value, number: fn(&Number) -> String) -> String {
    match value {
        Value::Object(entries) => {
            let mut entries: Vec<String> =
                entries.iter().map(|(key, value)| format!("{key:?}:{}", canonical(value, number))).collect();
            entries.sort();
            format!("{{{}}}", entries.join(","))
        }
        Value::Array(items) => {
            format!("[{}]", items.iter().map(|item| canonical(item, number)).collect::<Vec<_>>().join(","))
        }
        Value::Number(value) => number(value),
        other => other.to_string(),
    }
}

/// jsonb writes 1e+20 out and knows no -0; the number is the same.
fn without_exponent(number: &Number) -> String {
    let text = number.to_string();
    if text.contains('e') || text == "-0" { (number.as_f64().unwrap() + 0.0).to_string() } else { text }
}

#[tokio::test(flavor = "multi_thread")]
async fn columns_keep_their_order_and_none_of_the_same_name_is_lost() {
    let db = database().await;
    let server = Server::on(&db).await;
    let envelope = server.succeed("query_database", json!({"query": "select 2 as b, 1 as a, 3 as b, 4"})).await;
    assert_eq!(envelope["data"]["rows"][0].to_string(), r#"{"b":2,"a":1,"b_2":3,"?column?":4}"#);
    let names: Vec<&str> =
        envelope["data"]["columns"].as_array().unwrap().iter().map(|column| column["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["b", "a", "b_2", "?column?"]);
}
