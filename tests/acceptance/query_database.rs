//! The read tool: one statement, within bounds, and nothing changes.

mod calls;
mod forms;
mod pages;

use serde_json::json;
use testkit::{Server, database, long_form};

#[tokio::test(flavor = "multi_thread")]
async fn a_read_returns_rows_columns_and_count_and_leaves_no_record() {
    let db = database().await;
    let server = Server::on(&db).await;
    let query = json!({"query": "select 1 as n, 'a' as t, null as nothing"});
    let envelope = server.succeed("query_database", query).await;
    assert_eq!(
        envelope["data"],
        json!({
            "columns": [{"name": "n", "type": "int4"}, {"name": "t", "type": "text"}, {"name": "nothing", "type": "text"}],
            "rows": [{"n": 1, "t": "a", "nothing": null}],
            "row_count": 1,
            "truncated": false,
        })
    );
    // A write's own keys are absent, not null.
    assert_eq!(envelope["meta"].as_object().unwrap().keys().collect::<Vec<_>>(), ["tool_version", "elapsed_ms"]);
    let arrays = json!({"query": "values (1, 2), (3, 4)", "row_format": "array"});
    assert_eq!(server.succeed("query_database", arrays).await["data"]["rows"], json!([[1, 2], [3, 4]]));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_default_row_cap_is_500_and_a_cut_is_reported() {
    let db = database().await;
    let server = Server::on(&db).await;
    let cut =
        server.succeed("query_database", json!({"query": "select generate_series(1, 2000) /* limit 7 */;"})).await;
    assert_eq!((cut["data"]["row_count"].clone(), cut["data"]["truncated"].clone()), (json!(500), json!(true)));
    let exact = server.succeed("query_database", json!({"query": "select generate_series(1, 500)"})).await;
    assert_eq!((exact["data"]["row_count"].clone(), exact["data"]["truncated"].clone()), (json!(500), json!(false)));
    let limited = json!({"query": "table social.tweet limit 7", "row_limit": 3});
    let limited = server.succeed("query_database", limited).await;
    assert_eq!((limited["data"]["row_count"].clone(), limited["data"]["truncated"].clone()), (json!(3), json!(true)));
    server.fail("query_database", json!({"query": "select 1", "row_limit": 0}), "invalid_params").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_outermost_limit_of_a_query_replaces_the_default() {
    // The plan decides, not the text, also if the session has prepared the text before.
    let db = database().await;
    let server = Server::on(&db).await;
    let cases = [
        ("select n from generate_series(1, 20000) n limit 700", json!(700), json!(null)),
        ("select n from generate_series(1, 20000) n order by n fetch first 700 rows only", json!(700), json!(null)),
        ("select n from generate_series(1, 20000) n limit 12000", json!(10_000), json!("row_limit")),
        ("select n from generate_series(1, 20000) n limit all", json!(500), json!("row_limit")),
        ("select 'limit 700' from generate_series(1, 700)", json!(500), json!("row_limit")),
        (
            "select max(n) over () from (select n from generate_series(1, 2000) n limit 700) n",
            json!(500),
            json!("row_limit"),
        ),
        ("select row(n, 'x'::text) from generate_series(1, 20000) n limit 700", json!(700), json!(null)),
    ];
    for (query, count, by) in &cases {
        for _ in 0..2 {
            // As arrays, 10,000 rows fit into an answer without `row_limit`.
            let call = json!({"query": query, "row_format": "array"});
            let data = server.succeed("query_database", call).await["data"].clone();
            assert_eq!((&data["row_count"], &data["truncated_by"]), (count, by), "{query}");
        }
    }
    let parameter = json!({"query": "select n from generate_series(1, 2000) n limit $1", "params": [700]});
    assert_eq!(server.succeed("query_database", parameter).await["data"]["row_count"], 700);
    let asked = json!({"query": cases[0].0, "row_limit": 600});
    assert_eq!(server.succeed("query_database", asked).await["data"]["row_count"], 600, "the caller's own decides");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_truncated_answer_names_the_limit_and_how_to_continue() {
    let db = database().await;
    let server = Server::on(&db).await;
    let by_rows = json!({"query": "select generate_series(1, 2000)"});
    let by_bytes = json!({"query": "select repeat('x', 10000) from generate_series(1, 400)"});
    for (call, by, hint) in
        [(by_rows, "row_limit", "give a larger row_limit"), (by_bytes, "max_bytes", "shorter columns")]
    {
        let data = server.succeed("query_database", call).await["data"].clone();
        assert_eq!((&data["truncated"], &data["truncated_by"]), (&json!(true), &json!(by)));
        assert!(data["hint"].as_str().unwrap().contains(hint), "{data}");
    }
}

/// Error for a statement that writes.
const ONLY_READ_ONLY: &str = "Only read-only queries are allowed (SELECT, WITH, EXPLAIN, SHOW, VALUES, TABLE)";

#[tokio::test(flavor = "multi_thread")]
async fn every_writing_statement_is_refused_and_changes_nothing() {
    let db = database().await;
    let server = Server::on(&db).await;
    db.run("create sequence social.counter; grant usage, update on sequence social.counter to countersign_reader")
        .await;
    let before = db.social().await;
    for statement in [
        "insert into social.bookmark values ('default', 1)",
        "update social.tweet set text = 'x'",
        "delete from social.tweet",
        "drop table social.tweet",
        "alter table social.tweet add column n int",
        "select * into social.t from social.tweet",
        "truncate social.tweet",
        "create table social.t (n int)",
        "create temp table t (n int)",
        "copy social.tweet to program 'touch /tmp/countersign-was-here'",
        "copy social.tweet to stdout",
        "do $$ begin delete from social.tweet; end $$",
        "set transaction read write",
        "commit",
        "listen x",
        "lock social.tweet",
        "vacuum",
        "",
        "-- nothing",
    ] {
        let error = server.fail("query_database", json!({"query": statement}), "not_read_only").await;
        assert_eq!(error["message"], ONLY_READ_ONLY, "{statement}: {error}");
        assert_eq!(error.get("sqlstate"), None, "{statement}: it was never run: {error}");
    }
    // PostgreSQL itself refuses what has rows to show.
    for statement in [
        "with d as (delete from social.tweet returning *) select * from d",
        "explain analyze insert into social.bookmark values ('default', 1)",
        "insert into social.bookmark values ('default', 1) returning *",
        "select nextval('social.counter')",
        "select * from social.tweet for update",
        "select setval('social.counter', 9)",
    ] {
        let error = server.fail("query_database", json!({"query": statement}), "not_read_only").await;
        assert_eq!((&error["message"], &error["sqlstate"]), (&json!(ONLY_READ_ONLY), &json!("25006")), "{statement}");
    }
    for statement in ["select 1; delete from social.tweet", "select 1; commit; delete from social.tweet"] {
        let error = server.fail("query_database", json!({"query": statement}), "sql_error").await;
        assert_eq!(error["sqlstate"], "42601", "{error}");
    }
    assert_eq!(db.social().await, before);
    assert_eq!(db.value("select last_value from social.counter").await, "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_call_cannot_affect_the_next() {
    let db = database().await;
    let server = Server::on(&db).await;
    for statement in [
        "select set_config('search_path', 'social', false)",
        "select set_config('default_transaction_read_only', 'off', false)",
        "select set_config('statement_timeout', '1', false)",
        "select pg_advisory_lock(42)",
    ] {
        server.succeed("query_database", json!({"query": statement})).await;
    }
    for _ in 0..20 {
        let rows = server
            .query(
                "select current_setting('search_path') as path, current_setting('default_transaction_read_only') as ro, \
                 current_setting('transaction_read_only') as tx, pg_backend_pid() as pid, \
                 (select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()) as locks",
            )
            .await;
        let path = rows[0]["path"].as_str().unwrap();
        assert_eq!(path, r#"pg_catalog, "public", pg_temp"#);
        assert_eq!((&rows[0]["ro"], &rows[0]["tx"], &rows[0]["locks"]), (&json!("on"), &json!("on"), &json!(0)));
    }
    db.first_value("select 1 where not exists (select from pg_locks where locktype = 'advisory')").await;
    // A session is cleaned after the answer, so the next call may find it busy and open another; never more than the pool.
    let readers = "select count(*) <= 8 from pg_stat_activity \
                   where usename = 'countersign_reader' and datname = current_database()";
    assert_eq!(db.value(readers).await, "t", "24 calls share the connections of a pool");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_reader_is_a_separate_login_without_access_to_the_ledger() {
    let db = database().await;
    let server = Server::on(&db).await;
    let rows = server.query("select current_user::text as who, current_setting('is_superuser') as super").await;
    assert_eq!(rows[0], json!({"who": "countersign_reader", "super": "off"}));
    let bystander = db.connect().await;
    let pid: i32 = bystander.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
    for statement in [
        "table countersign.reader_login",
        "table countersign.record",
        "select pg_read_file('/etc/passwd')",
        "select set_config('role', 'postgres', true)",
        "select * from pg_authid",
        &format!("select pg_terminate_backend({pid})"),
    ] {
        let envelope = server.call("query_database", json!({"query": statement})).await;
        assert_eq!(envelope["success"], false, "{statement}: {envelope}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_contain_what_an_agent_needs_to_correct_its_call() {
    let db = database().await;
    let server = Server::on(&db).await;
    let error = server.fail("query_database", json!({"query": "select handel from social.account"}), "sql_error").await;
    assert_eq!(error["sqlstate"], "42703");
    assert_eq!(error["position"], 8);
    assert!(error["message"].as_str().unwrap().starts_with("Database query failed: column \"handel\""), "{error}");
    assert!(error["hint"].as_str().unwrap().contains("account.handle"), "{error}");
    let error = server.fail("query_database", json!({"query": "selec 1"}), "sql_error").await;
    assert_eq!((&error["sqlstate"], &error["retryable"]), (&json!("42601"), &json!(false)));
    let error = server.fail("query_database", json!({"query": "select 1/0"}), "sql_error").await;
    assert_eq!(error["sqlstate"], "22012");
    let error = server.fail("query_database", json!({"query": "table countersign.record"}), "not_permitted").await;
    assert_eq!(error["sqlstate"], "42501");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_row_that_is_too_large_is_an_error_and_many_rows_are_cut() {
    let db = database().await;
    let server = Server::on(&db).await;
    let length = long_form::choose(50_000_000, 300_000_000);
    let query = format!("select repeat(t, {length}) from (values ('x'), ('y')) v (t)");
    let error = server.fail("query_database", json!({"query": query}), "result_too_large").await;
    assert!(error["hint"].as_str().unwrap().contains("left("), "{error}");
    // What is too large of these is the plan, where constants stand: no row was ever made.
    let rows = format!("select {}1{}", "row(".repeat(22), ")".repeat(22));
    for (tool, query) in [
        ("query_database", "select repeat('x', 9000000)"),
        ("query_database", &format!("select repeat('x', {length})")),
        ("query_database", &rows),
        ("explain_query", "select 1 where repeat('x', 9000000) = current_user"),
    ] {
        let error = server.fail(tool, json!({"query": query}), "result_too_large").await;
        assert!(error["message"].as_str().unwrap().contains("the plan of this query is too large"), "{error}");
        assert!(error["hint"].as_str().unwrap().contains("as parameters"), "{error}");
    }
    let cut = json!({"query": "select repeat('x', 1000) from generate_series(1, 9999)", "row_limit": 10000});
    let cut = server.succeed("query_database", cut).await;
    assert_eq!(cut["data"]["truncated"], true);
    assert!(cut["data"]["row_count"].as_u64().unwrap() < 1100, "{}", cut["data"]["row_count"]);
    assert_eq!(server.query("select 1 as n").await, [json!({"n": 1})]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_in_another_encoding_is_an_error() {
    // ROLLBACK resets the encoding, so the server cannot see it in a setting afterwards.
    let db = database().await;
    let server = Server::on(&db).await;
    let encoding = "select set_config('client_encoding', 'SJIS', true), ";
    for columns in ["array['\u{8868}', 'b']", "'{\"a\": \"\u{8868}\"}'::json", "'\u{8868}'", "row('\u{8868}', 1)"] {
        let query = format!("{encoding} {columns} as it");
        let error = server.fail("query_database", json!({"query": query}), "sql_error").await;
        assert!(["22021", "08P01"].contains(&error["sqlstate"].as_str().unwrap()), "{error}");
        assert_eq!(server.query("select '\u{8868}' as it").await, [json!({"it": "\u{8868}"})]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_after_a_reverted_change_of_encoding_is_an_error() {
    // M6: bytes of LATIN1 that are UTF-8 as well. L10: a function that removes the statements of the session.
    let db = database().await;
    db.run(
        "create function public.latin() returns text language sql as $$ select set_config('client_encoding', 'LATIN1', true) $$; \
         create function public.dealloc() returns int language plpgsql as $$ begin execute 'deallocate all'; return 1; end $$",
    )
    .await;
    let server = Server::on(&db).await;
    let two = r"U&'\00c3\00a9' as two";
    for query in [
        format!("select set_config('client_encoding', 'LATIN1', true), {two}"),
        format!("select public.latin(), {two}"),
        format!("select public.latin(), row({two})").replace(" as two", ""),
    ] {
        for _ in 0..2 {
            let error = server.fail("query_database", json!({"query": query}), "sql_error").await;
            assert_eq!(error["sqlstate"], "0A000", "{error}");
            assert!(error["message"].as_str().unwrap().contains("the client encoding was set to"), "{error}");
        }
        assert_eq!(server.query(&format!("select {two}")).await, [json!({"two": "\u{c3}\u{a9}"})]);
    }
    let error = server.fail("query_database", json!({"query": "select public.dealloc()"}), "sql_error").await;
    assert!(error["message"].as_str().unwrap().contains("removed the prepared statements"), "{error}");
    assert_eq!(server.query("select 1 as n").await, [json!({"n": 1})]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_failing_calls_leave_no_connection_behind() {
    let db = database().await;
    let server = Server::on(&db).await;
    for _ in 0..100 {
        server.fail("query_database", json!({"query": "select 1/0"}), "sql_error").await;
    }
    let idle = "select count(*) filter (where state like 'idle in%') || ' ' || (count(*) < 9) from pg_stat_activity \
                where usename = 'countersign_reader' and datname = current_database()";
    // A session is cleaned behind the answer.
    db.until_value(idle, "0 true").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_seen_before_shows_a_change_of_the_schema_at_once() {
    let db = database().await;
    db.run("create table public.t (a int, b int); insert into public.t values (1, 2); grant select on public.t to countersign_reader").await;
    let server = Server::on(&db).await;
    let all = || server.query("select * from public.t");
    assert_eq!(all().await, [json!({"a": 1, "b": 2})]);
    assert_eq!(all().await, [json!({"a": 1, "b": 2})]);
    db.run("alter table public.t alter b type numeric(5, 2), add c text default 'new'").await;
    assert_eq!(all().await[0].to_string(), r#"{"a":1,"b":2.00,"c":"new"}"#);
    // A parameter's type changes with its column, which the text no longer parses with.
    let by_b = |b: serde_json::Value| {
        let server = &server;
        async move {
            server
                .succeed("query_database", json!({"query": "select a from public.t where b = $1", "params": [b]}))
                .await
        }
    };
    assert_eq!(by_b(json!(2)).await["data"]["row_count"], 1);
    db.run("alter table public.t alter b type text using 'two'").await;
    assert_eq!(by_b(json!("two")).await["data"]["row_count"], 1);
    db.run("drop table public.t").await;
    let gone = json!({"query": "select * from public.t"});
    assert_eq!(server.fail("query_database", gone, "sql_error").await["sqlstate"], "42P01");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_backend_is_not_noticed_by_the_next_read() {
    let db = database().await;
    let server = Server::on(&db).await;
    server.query("select 1").await;
    db.run(
        "select pg_terminate_backend(pid) from pg_stat_activity \
         where usename = 'countersign_reader' and datname = current_database()",
    )
    .await;
    assert_eq!(server.query("select 2 as n").await, [json!({"n": 2})]);
}
