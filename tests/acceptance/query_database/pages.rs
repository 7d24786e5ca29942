//! The next pages of a cut result: every row once, in the order of the query.

mod hostile;
mod random;

use serde_json::{Value, json};
use testkit::{Database, External, PgBouncer, Server, database, skip_without};

use crate::samples::sample;

/// One page; `data` of the answer.
async fn page(server: &Server, call: &Value, after: &Value) -> Value {
    let mut call = call.clone();
    if !after.is_null() {
        call["after"] = after.clone();
    }
    server.succeed("query_database", call).await["data"].clone()
}

/// The rows of all pages, which must be as many as the row limits say.
async fn all_pages(server: &Server, call: &Value, limits: &[u32]) -> Vec<Value> {
    let (mut rows, mut after) = (Vec::new(), Value::Null);
    for limit in limits.iter().cycle() {
        let mut call = call.clone();
        call["row_limit"] = json!(limit);
        let data = page(server, &call, &after).await;
        rows.extend(data["rows"].as_array().unwrap().iter().cloned());
        if data["truncated"] == json!(false) {
            assert!(data.get("next").is_none() && data.get("hint").is_none(), "{call}: {data}");
            return rows;
        }
        assert_eq!(data["row_count"], json!(limit), "{call}: {data}");
        assert!(data["hint"].as_str().unwrap().contains("next.after"), "{call}: {data}");
        after = data["next"]["after"].clone();
        assert!(after.is_array(), "{call}: {data}");
    }
    unreachable!("the limits repeat")
}

/// The rows of the pages are those of the whole result.
async fn assert_pages(server: &Server, query: &str, params: Value, limits: &[u32]) {
    for format in ["object", "array"] {
        let call = json!({"query": query, "params": params, "row_format": format});
        let mut whole = call.clone();
        whole["row_limit"] = json!(10_000);
        let whole = server.succeed("query_database", whole).await["data"].clone();
        assert_eq!(whole["truncated"], json!(false), "{query}");
        let whole = whole["rows"].as_array().unwrap().clone();
        assert!(whole.len() > limits[0] as usize, "{query}: {} rows are one page", whole.len());
        assert_eq!(all_pages(server, &call, limits).await, whole, "{query}, {format}");
    }
}

/// The hint of a cut answer that offers no `after`.
async fn hint(server: &Server, query: &str) -> String {
    let data = server.succeed("query_database", json!({"query": query, "row_limit": 2})).await["data"].clone();
    assert_eq!((data["truncated"].clone(), data.get("next")), (json!(true), None), "{query}: {data}");
    data["hint"].as_str().unwrap().to_owned()
}

/// A key of each type, with values that are close together or hard to write.
const KEYS: &[(&str, &str)] = &[
    ("bool", "i > 5 from generate_series(5, 6) i"),
    ("int2", "i - 5 from generate_series(1, 12) i"),
    ("int4", "i * 100 from generate_series(1, 12) i"),
    ("int8", "9007199254740990 + i from generate_series(1, 12) i"),
    ("oid", "4294967280 + i from generate_series(1, 12) i"),
    ("numeric", "123456789012345678901234567890.1 + i * 0.000000000000000000001 from generate_series(1, 12) i"),
    ("numeric", "unnest('{NaN,Infinity,-Infinity,0.00,1.10,-7}'::numeric[])"),
    ("float4", "1 + i * 1e-6 from generate_series(1, 12) i"),
    ("float8", "1 + i * 2.220446049250313e-16 from generate_series(1, 12) i"),
    ("float8", "unnest('{NaN,Infinity,-Infinity,0,1e300,-1e-300,5e-324}'::float8[])"),
    (
        "text",
        "unnest(array['', ' ', 'a', 'A', 'é', 'e', '\"', '''', E'\\\\', E'a\\nb', '😀', '$1', 'NULL', '--', ';'])",
    ),
    ("varchar(20)", "'v' || i from generate_series(1, 12) i"),
    ("char(6)", "'c' || i from generate_series(1, 12) i"),
    ("\"char\"", "chr(64 + i)::\"char\" from generate_series(1, 12) i"),
    ("name", "'n' || i from generate_series(1, 12) i"),
    ("text collate \"C\"", "unnest(array['b', 'B', 'a', 'A', 'é', 'e', 'Z'])"),
    ("uuid", "md5(i::text)::uuid from generate_series(1, 12) i"),
    ("bytea", "sha256(i::text::bytea) from generate_series(1, 12) i"),
    ("date", "unnest('{2026-01-02,infinity,-infinity,0044-03-15 BC,9999-12-31,12000-01-01}'::date[])"),
    ("time", "'10:00'::time + i * interval '1 us' from generate_series(1, 12) i"),
    ("timetz", "('10:00:00.00000' || i || '+02:30')::timetz from generate_series(1, 9) i"),
    (
        "timestamp",
        "unnest('{2026-01-02 03:04:05.000001,2026-01-02 03:04:05,infinity,-infinity,0044-03-15 BC}'::timestamp[])",
    ),
    (
        "timestamptz",
        "'2026-10-25 00:30:00.123456+00'::timestamptz + i * interval '20 min' from generate_series(1, 12) i",
    ),
    ("timestamptz", "unnest('{infinity,-infinity,0044-03-15 BC,1800-01-01,12000-01-01}'::timestamptz[])"),
    ("interval", "i * interval '1 mon -3 days 04:05:06.789' from generate_series(-6, 6) i"),
    ("inet", "('10.0.0.' || i)::inet from generate_series(1, 12) i"),
    ("paged.mood", "unnest(enum_range(null::paged.mood))"),
    ("paged.digits", "i from generate_series(1, 12) i"),
];

#[tokio::test(flavor = "multi_thread")]
async fn every_type_of_a_key_is_continued_exactly() {
    let db = database().await;
    db.run(
        "create schema paged; create type paged.mood as enum ('sad', 'ok', 'A b', 'happy', '');
            create domain paged.digits as numeric check (value > 0)",
    )
    .await;
    for (index, (ty, values)) in KEYS.iter().enumerate() {
        db.run(&format!(
            "create table paged.k{index} (k {ty} primary key, note text); insert into paged.k{index} select {values}"
        ))
        .await;
    }
    db.run("grant usage on schema paged to public; grant select on all tables in schema paged to public").await;
    let server = Server::on(&db).await;
    for index in 0..KEYS.len() {
        assert_pages(&server, &format!("select note, k from paged.k{index} order by k"), json!([]), &[1, 2]).await;
        assert_pages(&server, &format!("select k from paged.k{index} order by k desc"), json!([]), &[1, 3]).await;
    }
}

async fn orders(db: &Database) {
    db.run(
        "create schema paged;
         create table paged.customer (id int primary key, name text not null, country text);
         insert into paged.customer select i, 'c' || i % 7, nullif('k' || i % 3, 'k0') from generate_series(1, 40) i;
         create table paged.line (a int, b text, c int not null, d int, primary key (a, b),
             customer_id int references paged.customer, unique (c));
         insert into paged.line select i % 5, 'b' || i, 1000 - i, nullif(i % 4, 0), nullif(i % 40, 0)
             from generate_series(1, 120) i;
         create index on paged.line (customer_id);
         create table paged.part (id int not null, at date not null, v int, primary key (id, at)) partition by range (at);
         create table paged.part_1 partition of paged.part for values from ('2026-01-01') to ('2026-02-01');
         create table paged.part_2 partition of paged.part for values from ('2026-02-01') to ('2026-03-01');
         insert into paged.part select i % 9, date '2026-01-01' + i % 58, i from generate_series(1, 58) i;
         create table paged.unsure (id int unique, n int, m int not null, word text not null);
         create unique index on paged.unsure (n) where n > 0; create unique index on paged.unsure ((m + 1));
         insert into paged.unsure select i, i, i, i::text from generate_series(1, 20) i;
         create unique index on paged.unsure (word text_pattern_ops);
         create view paged.customers as table paged.customer;
         create table paged.child () inherits (paged.customer);
         insert into paged.child select i, 'x' from generate_series(1, 40) i;
         analyze paged.customer; analyze paged.line; analyze paged.part;
         grant usage on schema paged to public; grant select on all tables in schema paged to public",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn composite_and_mixed_orders_are_continued_exactly() {
    let db = database().await;
    orders(&db).await;
    let server = Server::on(&db).await;
    for (query, params) in [
        ("select a, b from paged.line order by a, b", json!([])),
        ("select a, b from paged.line order by a desc, b desc", json!([])),
        ("select a, b from paged.line order by a desc, b", json!([])),
        ("table paged.line order by c desc", json!([])),
        ("select * from paged.line order by d, c", json!([])),
        ("select * from paged.line order by d desc, c", json!([])),
        ("select * from paged.line order by d nulls first, c desc", json!([])),
        ("select * from paged.line order by d desc nulls last, customer_id, c", json!([])),
        ("select b, a, b, a as b from paged.line order by 1, 2", json!([])),
        ("select a as \"a \"\" b\", b as \"c1\", c as page from paged.line order by c", json!([])),
        ("select *, $2::text as tag from paged.line where a <> $1 order by c", json!([3, "x"])),
        ("select id, at, v from paged.part order by at, id", json!([])),
        ("select id, at from paged.part_2 order by id desc, at", json!([])),
        ("select id, name from only paged.customer order by id", json!([])),
        // A LIMIT of its own ends the pages, also inside.
        ("select c from paged.line order by c limit 50", json!([])),
        ("select c from paged.line order by c offset 7", json!([])),
        ("select c from (select c from paged.line order by c desc limit 30) s order by c", json!([])),
        ("with w as (select c, b from paged.line where a > 1) select b, c from w order by c", json!([])),
        // Neither a join to a unique key nor a condition repeats rows.
        (
            "select l.c, k.name from paged.line l left join only paged.customer k on k.id = l.customer_id order by l.c",
            json!([]),
        ),
        ("select c, (select count(*) from paged.unsure) from paged.line order by c", json!([])),
        (
            "select l.a, l.b from paged.line l where not exists (select from paged.unsure u where u.n = l.a + 20) order by b, a",
            json!([]),
        ),
        (
            "select l.c, p.id, p.at from paged.line l, paged.part p where p.id < 2 and l.a = 1 order by p.at desc, l.c, p.id",
            json!([]),
        ),
        ("select c, row_number() over (order by c desc), random() > 2 as never from paged.line order by c", json!([])),
    ] {
        assert_pages(&server, query, params, &[7, 1, 20]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_come_and_go_between_pages_neither_repeat_nor_skip_others() {
    let db = database().await;
    orders(&db).await;
    let server = Server::on(&db).await;
    let call =
        json!({"query": "select a, b from paged.line order by a desc, b", "row_limit": 10, "row_format": "array"});
    let before = db.rows("select a::text, b from paged.line order by a desc, b").await;
    let (mut seen, mut after) = (Vec::new(), Value::Null);
    for round in 0.. {
        let data = page(&server, &call, &after).await;
        for row in data["rows"].as_array().unwrap() {
            seen.push(vec![row[0].to_string(), row[1].as_str().unwrap().to_owned()]);
        }
        if data["truncated"] == json!(false) {
            break;
        }
        after = data["next"]["after"].clone();
        // New rows before, at and behind the key; the row of the key itself goes.
        db.run(&format!(
            "insert into paged.line select a, 'new' || {round} || b, -{round} * 1000 - c from paged.line where b like 'b_';
             delete from paged.line where a = {} and b = '{}'", after[0], after[1].as_str().unwrap()
        ))
        .await;
    }
    let old: Vec<Vec<String>> = seen.iter().filter(|row| !row[1].starts_with("new")).cloned().collect();
    assert_eq!(old, before, "every row of the beginning once, in order");
    let mut unique = seen.clone();
    unique.sort();
    unique.dedup();
    assert_eq!(unique.len(), seen.len(), "no row twice");
    assert!(seen.len() > before.len(), "new rows behind the key are seen");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_cut_by_bytes_is_continued() {
    let db = database().await;
    orders(&db).await;
    let server = Server::with(&db, |it| it.env("COUNTERSIGN_MAX_RESULT_BYTES", "65536")).await;
    let call = json!({"query": "select c, repeat('x', 5000) from paged.line order by c", "row_format": "array"});
    let (mut seen, mut after) = (Vec::new(), Value::Null);
    loop {
        let data = page(&server, &call, &after).await;
        seen.extend(data["rows"].as_array().unwrap().iter().map(|row| row[0].to_string()));
        if data["truncated"] == json!(false) {
            break;
        }
        assert_eq!(data["truncated_by"], "max_bytes", "{}", data["hint"]);
        after = data["next"]["after"].clone();
    }
    assert_eq!(seen, db.rows("select c::text from paged.line order by c").await.concat());
}

#[tokio::test(flavor = "multi_thread")]
async fn after_is_not_offered_for_an_order_that_is_not_unique_or_not_known() {
    let db = database().await;
    orders(&db).await;
    let server = Server::on(&db).await;
    let unordered = "its rows are not ordered";
    let expression = "no plain table column";
    let not_unique = "does not order by a unique key";
    for (query, why) in [
        ("table paged.line", unordered),
        ("select c from paged.line where c > 0", unordered),
        ("select generate_series(1, 9)", unordered),
        ("select distinct a from paged.line", unordered),
        ("select a from paged.line order by a", not_unique),
        ("select a, b from paged.line order by b", not_unique),
        ("select id from paged.unsure order by id", not_unique),
        ("select n from paged.unsure order by n", not_unique),
        ("select m from paged.unsure order by m", not_unique),
        ("select word from paged.unsure order by word", not_unique),
        // Another table has the same rows of the parent again.
        ("select id from paged.customer order by id", not_unique),
        ("select a, count(*) from paged.line group by a order by a", not_unique),
        ("select b.c from paged.line a join paged.line b on b.a = a.a order by b.c", not_unique),
        ("select l.c from paged.line l, paged.part p order by l.c", not_unique),
        (
            "select k.id from paged.line l right join only paged.customer k on k.id = l.customer_id order by k.id",
            not_unique,
        ),
        ("select l.c from paged.part p left join paged.line l on l.a = p.id order by l.c", not_unique),
        ("select c from (select c from paged.line union all select c from paged.line) s order by c", not_unique),
        ("select id, v from paged.part_1 union all select v, id from paged.part_2 order by 1, 2", expression),
        ("select c from paged.line order by c + 1", expression),
        ("select b from paged.line order by c", expression),
        ("select b, a from paged.line order by b collate \"C\", a", expression),
        ("select n from generate_series(1, 9) n order by n", expression),
        ("select id from paged.customers order by id", expression),
        ("select c from paged.line tablesample bernoulli (100) order by c", not_unique),
        ("select c, set_config('DateStyle', 'German', true) from paged.line order by c", "calls set_config"),
        ("select c from paged.line order by c; -- all", "leave out `;`"),
        ("explain select c from paged.line order by c", "leave out `;`"),
    ] {
        let said = hint(&server, query).await;
        assert!(said.contains(why), "{query}: {said}");
        let arguments = json!({"query": query, "after": [1]});
        let error = server.fail("query_database", arguments, "invalid_params").await;
        let message = error["message"].as_str().unwrap();
        assert!(
            message.contains("`after` cannot be used with this query") && message.contains(why),
            "{query}: {message}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sample_of_the_page_is_what_the_server_answers() {
    let db = database().await;
    let server = Server::on(&db).await;
    let sample = sample("docs/topics/reading.md", "{\"query\": \"select handle");
    let lines: Vec<Value> = sample.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let [call, part, next] = <[Value; 3]>::try_from(lines).unwrap();
    let data = server.succeed("query_database", call).await["data"].clone();
    for (key, value) in part.as_object().unwrap() {
        assert_eq!(data[key], *value, "{data}");
    }
    assert_eq!(next["after"], part["next"]["after"]);
    let rows = server.succeed("query_database", next).await["data"]["rows"].clone();
    let expected = db.rows("select handle from social.account order by handle offset 2 limit 2").await.concat();
    assert_eq!(rows, json!(expected.iter().map(|handle| json!({"handle": handle})).collect::<Vec<_>>()));
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_are_continued_through_a_pooler() {
    if skip_without(&[External::PgBouncer]) {
        return;
    }
    let db = database().await;
    orders(&db).await;
    let pooler = PgBouncer::with(&db, &[("default_pool_size", "2")]).await;
    let server = Server::start(Server::command_pooled(&pooler)).await;
    let query = "select a, b from paged.line where a <> $1 order by a desc, b;";
    assert_pages(&server, query, json!([3]), &[30, 1]).await;
    assert!(hint(&server, "table paged.line").await.contains("not ordered"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_bound_of_a_page_is_given_to_the_index() {
    let db = database().await;
    orders(&db).await;
    db.run("insert into paged.line select i, 'b', -i from generate_series(6, 30000) i; analyze paged.line").await;
    let server = Server::on(&db).await;
    // The rows that PostgreSQL reads for a page: those behind the key, and none before it.
    let query = "select a, b, pg_stat_get_xact_tuples_fetched('paged.line'::regclass) \
                 + pg_stat_get_xact_tuples_returned('paged.line'::regclass) as read from paged.line order by a, b";
    let arguments = json!({"query": query, "after": [29_990, "b"], "row_format": "array"});
    let rows = server.succeed("query_database", arguments).await["data"]["rows"].clone();
    let read = rows.as_array().unwrap().iter().map(|row| row[2].as_i64().unwrap()).max();
    assert_eq!(rows.as_array().unwrap().len(), 10);
    assert!(read < Some(100), "{read:?}");
}
