//! A session of JSON lines.

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use serde_json::{Value, json};
use testkit::{Pipe, database};

#[tokio::test]
async fn queries_run_beside_each_other_and_answers_find_their_questions() {
    let db = database().await;
    let mut pipe = Pipe::on(&db);
    pipe.query("slow", "select 'slow' as which, pg_sleep(1)").await;
    pipe.query("fast", "select 'fast' as which").await;
    let first = pipe.event_with_code("result").await;
    assert_eq!((&first["id"], &first["rows"][0]["which"]), (&json!("fast"), &json!("fast")));
    assert_eq!(pipe.last_event_of("slow").await["rows"][0]["which"], "slow");
    let told = pipe.finish().await;
    assert_eq!(told.status, 0);
    let close = told.events.last().unwrap();
    assert_eq!((&close["code"], &close["message"]), (&json!("close"), &json!("shutdown")));
    assert_eq!(close["trace"]["requests_total"], 2);
}

#[tokio::test]
async fn a_thousand_queries_use_as_many_backends_as_the_pool_has() {
    let db = database().await;
    let mut pipe = Pipe::on(&db);
    let mut backends = HashSet::new();
    for round in 0..20 {
        for number in 0..50 {
            pipe.query(&format!("q{round}-{number}"), "select pg_backend_pid() as pid").await;
        }
        for number in 0..50 {
            let result = pipe.last_event_of(&format!("q{round}-{number}")).await;
            backends.insert(result["rows"][0]["pid"].as_i64().unwrap_or_else(|| panic!("{result}")));
        }
    }
    assert!((1..=5).contains(&backends.len()), "{backends:?}");
    pipe.finish().await;
}

#[tokio::test]
async fn a_repeated_statement_is_prepared_once_per_connection_and_again_after_a_schema_change() {
    // pg_prepared_statements tells when PostgreSQL prepared the statement that runs.
    let db = database().await;
    db.run(
        "create table t (a int); insert into t values (1); \
         create function prepared_at() returns text language plpgsql as $$ begin return (select string_agg(name || prepare_time, ' ') \
         from pg_prepared_statements where statement like 'select prepared_at()%'); end $$",
    )
    .await;
    let mut pipe = Pipe::on(&db);
    let sql = "select prepared_at() as at, pg_backend_pid() as pid, a from t";
    let mut prepared = HashMap::new();
    for _ in 0..30 {
        let event = pipe.run("a", sql).await;
        let row = &event["rows"][0];
        let at = row["at"].as_str().unwrap_or_else(|| panic!("{event}")).to_owned();
        let first = prepared.entry(row["pid"].to_string()).or_insert_with(|| at.clone()).clone();
        assert_eq!(at, first, "{event}");
    }
    assert!((1..=5).contains(&prepared.len()), "{prepared:?}");
    db.run("alter table t alter a type text").await;
    for _ in 0..10 {
        let event = pipe.run("a", sql).await;
        assert_eq!((&event["rows"][0]["a"], &event["columns"][2]["type"]), (&json!("1"), &json!("text")), "{event}");
    }
    pipe.finish().await;
}

#[tokio::test]
async fn an_invalid_line_does_not_end_the_pipe() {
    let db = database().await;
    let mut pipe = Pipe::on(&db);
    for (line, code) in [
        ("not json", "invalid_request"),
        ("[]", "invalid_request"),
        (r#"{"code":"query","sql":"select 1"}"#, "invalid_request"),
        (r#"{"code":"query","id":1,"sql":"select 1"}"#, "invalid_request"),
        (r#"{"code":"query","id":"a"}"#, "invalid_request"),
        (r#"{"code":"query","id":"a","sql":"select 1","extra":1}"#, "invalid_request"),
        (r#"{"code":"query","id":"a","sql":"select 1","options":{"batch":1}}"#, "invalid_request"),
        (r#"{"code":"query","id":"a","sql":"select $1","params":{"1":2}}"#, "invalid_params"),
        (r#"{"code":"dance"}"#, "invalid_request"),
        (r#"{"code":"query","id":"a","id":"b","sql":"select 1"}"#, "invalid_request"),
    ] {
        pipe.line(line).await;
        let event = pipe.event_with_code("error").await;
        assert_eq!(event["error_code"], code, "{line}: {event}");
        assert!(event["retryable"].is_boolean() && event["trace"].is_object() && event["error"].is_string(), "{event}");
    }
    pipe.line("").await;
    pipe.query("one", "select pg_sleep(5)").await;
    pipe.query("one", "select 1").await;
    assert_eq!(pipe.event_with_code("error").await["error_code"], "invalid_request");
    pipe.send(json!({"code": "cancel", "id": "one"})).await;
    assert_eq!(pipe.last_event_of("one").await["error_code"], "cancelled");
    assert_eq!(pipe.run("one", "select 1 as n").await["rows"], json!([{"n": 1}]));
    pipe.finish().await;
}

#[tokio::test]
async fn cancel_reaches_the_backend() {
    let db = database().await;
    let mut pipe = Pipe::on(&db);
    pipe.query("long", "select pg_sleep(600)").await;
    let running = "select count(*) from pg_stat_activity where datname = current_database() and query like '%pg_sleep(600)%' \
                   and state = 'active' and pid <> pg_backend_pid()";
    db.until_value(running, "1").await;
    let asked = Instant::now();
    pipe.send(json!({"code": "cancel", "id": "long"})).await;
    let ended = pipe.last_event_of("long").await;
    assert_eq!((&ended["code"], &ended["error_code"]), (&json!("error"), &json!("cancelled")));
    db.until_value(running, "0").await;
    assert!(asked.elapsed().as_secs() < 20, "{:?}", asked.elapsed());
    for id in ["long", "never"] {
        pipe.send(json!({"code": "cancel", "id": id})).await;
        assert_eq!(pipe.event_with_code("error").await["error_code"], "invalid_request", "{id}");
    }
    assert_eq!(pipe.run("next", "select 1 as n").await["code"], "result");
    pipe.finish().await;
}

#[tokio::test]
async fn ping_answers_while_all_connections_are_busy() {
    let db = database().await;
    let mut pipe = Pipe::on(&db);
    for number in 0..8 {
        pipe.query(&format!("q{number}"), "select pg_sleep(600)").await;
    }
    pipe.send(json!({"code": "ping"})).await;
    let pong = pipe.event_with_code("pong").await;
    assert_eq!((&pong["trace"]["in_flight"], &pong["trace"]["requests_total"]), (&json!(8), &json!(8)));
    assert!(pong["trace"]["uptime_s"].is_number(), "{pong}");
    for number in 0..8 {
        pipe.send(json!({"code": "cancel", "id": format!("q{number}")})).await;
    }
    for number in 0..8 {
        assert_eq!(pipe.last_event_of(&format!("q{number}")).await["error_code"], "cancelled");
    }
    pipe.finish().await;
}

#[tokio::test]
async fn options_apply_to_one_query_and_the_configuration_to_all() {
    let db = database().await;
    db.run("create table t (a int)").await;
    let mut pipe = Pipe::on(&db);
    let timed_out = pipe.run_with("a", "select pg_sleep(60)", json!({"options": {"statement_timeout_ms": 50}})).await;
    assert_eq!(timed_out["sqlstate"], "57014", "{timed_out}");
    let locking = db.lock("t").await;
    let locked = pipe.run_with("b", "select * from t", json!({"options": {"lock_timeout_ms": 50}})).await;
    assert_eq!(locked["sqlstate"], "55P03", "{locked}");
    locking.release().await;

    // Three rows of 7 bytes.
    let sql = "select i as n from generate_series(1, 3) i";
    for (options, code) in [
        (json!({"inline_max_rows": 3}), "result"),
        (json!({"inline_max_rows": 2}), "error"),
        (json!({"inline_max_bytes": 21}), "result"),
        (json!({"inline_max_bytes": 20}), "error"),
    ] {
        let event = pipe.run_with("c", sql, json!({"options": options})).await;
        assert_eq!(event["code"], code, "{options}: {event}");
        assert!(code == "result" || event["error_code"] == "result_too_large", "{event}");
        // The trace says how much of the result had come.
        assert_eq!(
            (&event["trace"]["row_count"], &event["trace"]["payload_bytes"]),
            (&json!(3), &json!(21)),
            "{event}"
        );
    }
    // The hint does not suggest stream_rows to a query that streams already.
    let streamed = json!({"options": {"stream_rows": true}});
    let event = pipe.run_with("g", "select repeat('x', 17000000 + i) from generate_series(1, 1) i", streamed).await;
    assert_eq!(event["error_code"], "result_too_large", "{event}");
    assert!(!event["hint"].as_str().unwrap().contains("stream_rows"), "{event}");
    pipe.send(json!({"code": "config"})).await;
    let before = pipe.event_with_code("config").await;
    pipe.send(json!({"code": "config", "inline_max_rows": 2, "statement_timeout_ms": 500})).await;
    let after = pipe.event_with_code("config").await;
    assert_eq!((&after["inline_max_rows"], &after["statement_timeout_ms"]), (&json!(2), &json!(500)));
    assert_eq!((&before["inline_max_rows"], &before["lock_timeout_ms"]), (&json!(1000), &after["lock_timeout_ms"]));
    assert_eq!(pipe.run("d", sql).await["error_code"], "result_too_large");
    assert_eq!(pipe.run("e", "select pg_sleep(60)").await["sqlstate"], "57014");
    assert_eq!(pipe.run_with("f", sql, json!({"options": {"inline_max_rows": 3}})).await["code"], "result");
    pipe.finish().await;
}

#[tokio::test]
async fn sessions_follow_their_options_and_close_when_those_change() {
    let (one, other) = (database().await, database().await);
    let mut pipe = Pipe::on(&one);
    let name = |event: &Value| event["rows"][0]["d"].as_str().map(str::to_owned);
    let sql = "select current_database() as d, pg_backend_pid() as pid";
    let first = pipe.run("a", sql).await;
    assert_eq!(name(&first).as_deref(), Some(one.name()));
    let sessions = json!({"second": {"conninfo_secret": other.url()}});
    pipe.send(json!({"code": "config", "default_session": "second", "sessions": sessions})).await;
    let echo = pipe.event_with_code("config").await;
    assert_eq!(echo["sessions"]["second"]["conninfo_secret"], "***");
    let second = pipe.run("b", sql).await;
    assert_eq!((name(&second).as_deref(), &second["session"]), (Some(other.name()), &json!("second")));
    let again = pipe.run_with("c", sql, json!({"session": "default"})).await;
    assert_eq!((name(&again), &again["rows"][0]["pid"]), (name(&first), &first["rows"][0]["pid"]), "its pool stays");
    pipe.send(json!({"code": "config", "sessions": {"second": {"dbname": one.name()}}})).await;
    pipe.event_with_code("config").await;
    assert_eq!(name(&pipe.run("d", sql).await).as_deref(), Some(one.name()));
    pipe.send(json!({"code": "config", "sessions": {"second": {"dbname": null}}})).await;
    pipe.event_with_code("config").await;
    assert_eq!(name(&pipe.run("e", sql).await).as_deref(), Some(other.name()));
    pipe.finish().await;
}

#[tokio::test]
async fn a_query_leaves_no_state_for_the_next_query() {
    // Sessions are reset between queries; also after a write.
    let db = database().await;
    db.run("drop schema countersign cascade").await;
    let mut pipe = Pipe::on(&db);
    let write = json!({"options": {"read_only": false}});
    for (sql, more) in [
        ("set work_mem = '7MB'", json!({})),
        ("select set_config('application_name', 'left', false)", json!({})),
        ("set work_mem = '7MB'", write.clone()),
        ("create temporary table leftover (a int)", write.clone()),
        ("select pg_advisory_lock(4711)", write.clone()),
        ("prepare leftover as select 1", write.clone()),
    ] {
        let event = pipe.run_with("w", sql, more).await;
        assert_eq!(event["code"], "result", "{sql}: {event}");
    }
    let sql = "select current_setting('work_mem') as work_mem, current_setting('application_name') as name, \
               to_regclass('leftover')::text as temp, (select count(*) from pg_locks where locktype = 'advisory' \
               and pid = pg_backend_pid()) as locks, (select count(*) from pg_prepared_statements where from_sql) as prepared";
    for round in 0..5 {
        let event = pipe.run(&format!("r{round}"), sql).await;
        let row = &event["rows"][0];
        assert_eq!((&row["work_mem"], &row["name"]), (&json!("4MB"), &json!("countersign")), "{event}");
        assert_eq!((&row["temp"], &row["locks"], &row["prepared"]), (&Value::Null, &json!(0), &json!(0)), "{event}");
    }
    pipe.finish().await;
}

#[tokio::test]
async fn notices_come_before_the_result() {
    let db = database().await;
    let mut pipe = Pipe::on(&db);
    pipe.query("a", "do $$ begin raise warning 'careful' using detail = 'd', hint = 'h'; end $$").await;
    let notice = pipe.next().await.unwrap();
    assert_eq!(
        (&notice["code"], &notice["id"], &notice["severity"]),
        (&json!("notice"), &json!("a"), &json!("WARNING"))
    );
    assert_eq!((&notice["message"], &notice["detail"], &notice["hint"]), (&json!("careful"), &json!("d"), &json!("h")));
    assert_eq!(notice["sqlstate"], "01000");
    assert_eq!(pipe.next().await.unwrap()["command_tag"], "DO");
    pipe.finish().await;
}

#[tokio::test]
async fn statements_that_need_their_own_session_are_refused_and_the_session_continues() {
    let db = database().await;
    db.run("drop schema countersign cascade; create table t (a int); insert into t values (1)").await;
    let mut pipe = Pipe::on(&db);
    for read_only in [true, false] {
        for sql in ["copy t to stdout", "copy t from stdin", "listen x", "commit", "rollback", "begin", "savepoint a"] {
            let event = pipe.run_with("a", sql, json!({"options": {"read_only": read_only}})).await;
            let refused = event["error_code"] == "unsupported" && event["hint"] != json!("");
            // PostgreSQL says itself that a read takes no COPY FROM.
            assert!(refused || (read_only && event["sqlstate"] == "42501"), "{sql}: {event}");
            assert_eq!(pipe.run("b", "select count(*)::int as n from t").await["rows"], json!([{"n": 1}]), "{sql}");
        }
    }
    pipe.finish().await;
}

#[tokio::test]
async fn a_copy_that_fails_before_it_reads_does_not_shift_the_answers_behind_it() {
    // PostgreSQL answers twice then; the next user of the session must not confuse the two.
    let db = database().await;
    db.run(
        "drop schema countersign cascade; create table t (a int); create view v as select a from t; create function no() \
         returns trigger language plpgsql as $$ begin raise exception 'no'; end $$; create table u (a int); \
         create trigger u before insert on u execute function no()",
    )
    .await;
    let mut pipe = Pipe::on(&db);
    let write = json!({"options": {"read_only": false}});
    for (number, table) in ["v", "u", "v", "u"].into_iter().enumerate() {
        let event = pipe.run_with("a", &format!("copy {table} from stdin"), write.clone()).await;
        assert_eq!(event["error_code"], "unsupported", "{event}");
        let event = pipe.run_with("b", &format!("insert into t values ({number})"), write.clone()).await;
        assert_eq!(event["command_tag"], "INSERT 0 1", "{event}");
        assert_eq!(pipe.run("c", "select 5 as five").await["rows"], json!([{"five": 5}]));
        assert_eq!(db.value("select count(*) from t").await, (number + 1).to_string());
    }
    pipe.finish().await;
}

#[tokio::test]
async fn requests_after_a_change_of_the_session_go_to_the_new_server() {
    let (one, other) = (database().await, database().await);
    for db in [&one, &other] {
        db.run("create table t (a int)").await;
    }
    // One of them has a ledger.
    one.run("drop schema countersign cascade").await;
    let mut pipe = Pipe::on(&one);
    let write = |id: &str| json!({"code": "query", "id": id, "sql": format!("insert into t values ({id})"), "options": {"read_only": false}});
    for round in 0..10 {
        let places = [&one, &other].map(|db| json!({"conninfo_secret": db.url()}));
        for (place, number) in places.into_iter().zip(1_usize..) {
            pipe.send(json!({"code": "config", "sessions": {"default": place}})).await;
            pipe.query(&format!("before{number}"), "select current_database()::text as d").await;
            pipe.send(write(&format!("{}", round * 10 + number))).await;
            pipe.query(&format!("behind{number}"), "select current_database()::text as d").await;
        }
        for number in 1..=2 {
            let event = pipe.last_event_of(&format!("{}", round * 10 + number)).await;
            assert_eq!(event["command_tag"], "INSERT 0 1", "{event}");
            assert_eq!(event["correlation_id"].is_string(), number == 2, "{event}");
            for id in [format!("before{number}"), format!("behind{number}")] {
                assert_eq!(
                    pipe.last_event_of(&id).await["rows"][0]["d"],
                    [one.name(), other.name()][number - 1],
                    "{id}"
                );
            }
        }
    }
    pipe.finish().await;
    for (db, digit) in [(&one, 1), (&other, 2)] {
        let found =
            db.value(&format!("select count(*) filter (where a % 10 = {digit}) || ' of ' || count(*) from t")).await;
        assert_eq!(found, "10 of 10");
    }
}

#[tokio::test]
async fn parameters_must_fit() {
    let db = database().await;
    let mut pipe = Pipe::on(&db);
    for (sql, params) in [
        ("select $1::int", json!([])),
        ("select $1::int", json!([1, 2])),
        ("select '$1'", json!([1])),
        ("select $1::int", json!(["x"])),
        ("select $1::int2", json!([70000])),
        ("select $1::uuid", json!(["no"])),
        ("select $1::date", json!(["2024-02-31"])),
        ("select $1::bool", json!([[1]])),
    ] {
        let event = pipe.run_with("a", sql, json!({"params": params})).await;
        assert_eq!(
            (&event["code"], &event["error_code"]),
            (&json!("error"), &json!("invalid_params")),
            "{sql}: {event}"
        );
    }
    assert_eq!(pipe.run_with("b", "select $1::int as n", json!({"params": [123]})).await["rows"], json!([{"n": 123}]));
    // The error names the parameter.
    for read_only in [true, false] {
        let more = json!({"params": [1, "x", 3], "options": {"read_only": read_only}});
        let event = pipe.run_with("c", "select $1::int, $2::int, $3::int", more).await;
        assert_eq!(event["error_code"], "invalid_params", "{event}");
        assert!(event["error"].as_str().unwrap().starts_with("parameter $2: invalid input syntax"), "{event}");
    }
    // A parameter of type text takes any JSON value, as its JSON text.
    for (ty, param, expected) in [
        ("text", json!(123), json!("123")),
        ("text", json!({"a": [1, "x"]}), json!(r#"{"a":[1,"x"]}"#)),
        ("text", json!([{"a": 1}]), json!(r#"[{"a":1}]"#)),
        ("varchar", json!(true), json!("true")),
        ("text[]", json!([1, "a", null, {"b": 2}]), json!(["1", "a", null, r#"{"b":2}"#])),
        ("text[]", json!([[1, "a"], [true, "b"]]), json!([["1", "a"], ["true", "b"]])),
        ("text", json!(null), json!(null)),
    ] {
        let event = pipe.run_with("d", &format!("select $1::{ty} as v"), json!({"params": [param]})).await;
        assert_eq!(event["rows"], json!([{"v": expected}]), "{ty} {param}: {event}");
    }
    pipe.finish().await;
}
