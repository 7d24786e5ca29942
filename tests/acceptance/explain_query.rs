//! `explain_query` returns the plan of a query as JSON and never executes the query.

use serde_json::{Value, json};
use testkit::{Database, Server, database};

/// A function that cannot be called without being noticed, and a table whose plan depends on the value asked for.
const FIXTURE: &str = "
    create function social.noticed() returns int language plpgsql volatile as
        $$ begin raise exception 'it was executed'; end $$;
    create table social.reading (kind text not null, n int not null);
    insert into social.reading select 'common', n from generate_series(1, 5000) n;
    insert into social.reading values ('rare', 1);
    create index reading_kind on social.reading (kind);
    create sequence social.counter;
    grant usage, update on sequence social.counter to countersign_reader;
    grant select on social.reading to countersign_reader;
    analyze social.reading";

async fn fixture() -> (Database, Server) {
    let db = database().await;
    db.run(FIXTURE).await;
    let server = Server::on(&db).await;
    (db, server)
}

async fn plan(server: &Server, query: &str, params: Value) -> Value {
    let envelope = server.succeed("explain_query", json!({"query": query, "params": params})).await;
    envelope["data"]["plan"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_plan_is_json_with_nodes_costs_and_rows() {
    let (_db, server) = fixture().await;
    let plan = plan(&server, "select * from social.reading order by n limit 3", json!([])).await;
    assert_eq!(plan["Node Type"], "Limit", "{plan}");
    assert_eq!(plan["Plan Rows"], 3);
    assert!(plan["Total Cost"].is_number() && plan["Plans"][0]["Plans"].is_array(), "{plan}");
    assert_eq!(plan.get("Actual Rows"), None, "nothing was run, so nothing was counted");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_plan_fits_the_values_of_the_parameters() {
    let (_db, server) = fixture().await;
    let query = "select * from social.reading where kind = $1 and n < $2";
    let rare = plan(&server, query, json!(["rare", 1000])).await.to_string();
    assert!(rare.contains("reading_kind") && rare.contains("'rare'"), "{rare}");
    let common = plan(&server, query, json!(["common", 1000])).await.to_string();
    assert!(common.contains("Seq Scan"), "{common}");
    for (params, said) in [
        (json!(["rare"]), "takes 2 parameter(s) and 1 were given"),
        (json!(["rare", "x"]), "invalid input syntax for type integer"),
        (json!(["rare", 1.5]), "parameter $2 is int4 here"),
        (json!([]), "takes 2 parameter(s) and 0 were given"),
        (json!(["rare", 1, 2]), "takes 2 parameter(s) and 3 were given"),
        (json!(["rare", "1); analyze delete from social.reading; --"]), "invalid input syntax for type integer"),
        (json!(["ra\u{0}re", 1]), "parameter $1 holds U+0000"),
    ] {
        let call = json!({"query": query, "params": params});
        let error = server.fail("explain_query", call, "invalid_params").await;
        assert!(error["message"].as_str().unwrap().contains(said), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_that_would_do_something_is_planned_and_does_nothing() {
    let (db, server) = fixture().await;
    let started = std::time::Instant::now();
    for query in [
        "select social.noticed()",
        "select social.noticed() from social.tweet",
        "select nextval('social.counter')",
        "select pg_sleep(20)",
        "select * from generate_series(1, 1000000000000) n where n = social.noticed()",
        "with recursive r as (select 1 as n union all select n + 1 from r) select count(*) from r",
        "select 1 -- and a comment to the end",
        "/* first */ select 1 /* last */;",
        "(select 1)",
        "values (1)",
        "table social.tweet",
    ] {
        assert!(plan(&server, query, json!([])).await["Node Type"].is_string(), "{query}");
    }
    assert!(started.elapsed().as_secs() < 10, "nothing slept");
    assert_eq!(db.value("select last_value || ' ' || is_called from social.counter").await, "1 false");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_text_gets_anything_executed() {
    let (db, server) = fixture().await;
    let before = db.social().await;
    for (query, code) in [
        // Options that the agent brings along: alone they are no statement, and behind ours no options.
        ("analyze delete from social.tweet", "sql_error"),
        ("analyze select social.noticed()", "sql_error"),
        ("(analyze) delete from social.reading", "sql_error"),
        ("(analyze) select social.noticed()", "sql_error"),
        ("(analyze, format json) select social.noticed()", "sql_error"),
        ("verbose select social.noticed()", "sql_error"),
        ("analyse", "not_read_only"),
        (") select 1", "sql_error"),
        ("(select 1", "sql_error"),
        ("select 1)", "sql_error"),
        ("select (1", "sql_error"),
        ("(analyze true) (select social.noticed())", "sql_error"),
        ("/* ) */ analyze select social.noticed()", "sql_error"),
        ("-- a comment\nanalyze select social.noticed()", "sql_error"),
        ("select 1 /* a /* b */", "sql_error"),
        ("explain (analyze, buffers) (select social.noticed())", "sql_error"),
        ("table social.tweet; analyze", "sql_error"),
        ("call social.noticed()", "sql_error"),
        ("fetch all from c", "not_read_only"),
        ("lock table social.reading", "not_read_only"),
        ("explain analyze select social.noticed()", "sql_error"),
        ("explain (analyze) delete from social.reading returning *", "sql_error"),
        ("explain select 1", "sql_error"),
        // Comments and quotes that never end, and more than one statement.
        ("select 1 /* never ends", "sql_error"),
        ("/* never ends", "sql_error"),
        ("select 'never ends", "sql_error"),
        ("select $tag$ never ends", "sql_error"),
        ("select 1; delete from social.reading", "sql_error"),
        ("select 1; commit; delete from social.reading", "sql_error"),
        ("; delete from social.reading returning *", "sql_error"),
        ("; delete from social.reading", "not_read_only"),
        ("select 1 -- \n; delete from social.reading", "sql_error"),
        // Whatever query_database refuses without running it.
        ("delete from social.reading", "not_read_only"),
        ("create table social.t as select social.noticed()", "not_read_only"),
        ("select social.noticed() into social.t", "not_read_only"),
        ("declare c cursor for select social.noticed()", "not_read_only"),
        ("execute agent", "not_read_only"),
        ("execute explained", "not_read_only"),
        ("prepare p as delete from social.reading", "not_read_only"),
        ("do $$ begin delete from social.reading; end $$", "not_read_only"),
        ("copy social.reading to program 'touch /tmp/countersign-was-here'", "not_read_only"),
        ("set transaction read write", "not_read_only"),
        ("commit", "not_read_only"),
        ("vacuum", "not_read_only"),
        ("", "not_read_only"),
        ("-- nothing", "not_read_only"),
        // And what it refuses when it is run: the plan says that it writes or locks.
        ("delete from social.reading returning *", "not_read_only"),
        ("insert into social.reading values ('x', social.noticed()) returning *", "not_read_only"),
        ("with d as (delete from social.reading returning *) select * from d", "not_read_only"),
        ("select * from social.reading for update", "not_read_only"),
    ] {
        let envelope = server.call("explain_query", json!({"query": query})).await;
        let error = &envelope["error"];
        // The reader's login may not write, and PostgreSQL may say so before it is asked what it would do.
        let refused = error["code"] == code || (code == "not_read_only" && error["code"] == "not_permitted");
        assert!(refused, "{query}: {envelope}");
        assert!(!envelope.to_string().contains("it was executed"), "{query}: {envelope}");
    }
    assert_eq!(db.social().await, before);
    assert_eq!(db.value("select to_regclass('social.t') is null").await, "t");
    // The connection is as good as new.
    assert_eq!(server.query("select 1 as n").await, [json!({"n": 1})]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_holds_when_the_login_could_write() {
    let (db, _) = fixture().await;
    db.run("alter function social.noticed() cost 1").await;
    let server = Server::with(&db, |it| it.args(["--read-url", &db.url(), "--allow-privileged-reader"])).await;
    let before = db.social().await;
    for query in [
        "delete from social.reading returning *",
        "with d as (delete from social.reading returning *) select * from d",
        "insert into social.reading values ('x', social.noticed()) returning *",
        "select * from social.reading for share",
    ] {
        let error = server.fail("explain_query", json!({"query": query}), "not_read_only").await;
        assert!(error["detail"].as_str().unwrap().starts_with("the plan has a "), "{query}: {error}");
    }
    for query in ["(analyze) delete from social.reading", "explain analyze delete from social.reading returning *"] {
        server.fail("explain_query", json!({"query": query}), "sql_error").await;
    }
    assert_eq!(db.social().await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn expressions_that_the_planner_evaluates_cannot_write() {
    // PostgreSQL computes calls of IMMUTABLE functions while it plans. One that lies about it meets the transaction.
    let (db, server) = fixture().await;
    db.run(
        "create function social.lies() returns int language plpgsql immutable security definer as \
         $$ begin return nextval('social.counter'); end $$",
    )
    .await;
    let error = server.fail("explain_query", json!({"query": "select social.lies()"}), "not_read_only").await;
    assert_eq!(error["sqlstate"], "25006", "{error}");
    assert_eq!(db.value("select is_called from social.counter").await, "f");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_huge_statement_is_planned_or_refused_and_the_server_survives() {
    let (_db, server) = fixture().await;
    let nested = format!("select {}1{}", "(".repeat(20_000), ")".repeat(20_000));
    let sums = format!("select {}1", "1+".repeat(50_000));
    let joins = (0..2000).map(|n| format!("social.reading t{n}")).collect::<Vec<_>>().join(", ");
    for (query, code) in [
        (format!("select '{}'", "x".repeat(1 << 20)), None),
        (format!("select 1 where {}", ["1=1"; 20_000].join(" or ")), None),
        (format!("select $1::text {}", " ".repeat(1 << 20)), None),
        (nested, Some("sql_error")),
        (sums, Some("sql_error")),
        (format!("select * from {joins}"), Some("sql_error")),
    ] {
        let params = if query.contains("$1") { json!(["' ) -- /* $tag$"]) } else { json!([]) };
        let envelope = server.call("explain_query", json!({"query": query, "params": params})).await;
        assert_eq!(envelope["error"].get("code").and_then(Value::as_str), code, "{}", &query[..40]);
        assert_eq!(server.query("select 1 as n").await, [json!({"n": 1})]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_point_into_the_text_that_the_agent_gave() {
    let (_db, server) = fixture().await;
    let error = server.fail("explain_query", json!({"query": "select nn from social.reading"}), "sql_error").await;
    assert_eq!((&error["sqlstate"], &error["position"]), (&json!("42703"), &json!(8)), "{error}");
    assert_eq!(error["detail"], "LINE 1: select nn from social.reading\n               ^");
    let error = server.fail("explain_query", json!({"query": "show work_mem"}), "sql_error").await;
    assert_eq!(error["position"], 1, "{error}");
    assert!(error["hint"].as_str().unwrap().contains("without EXPLAIN in front"), "{error}");
    let secret = json!({"query": "select * from countersign.mutation"});
    server.fail("explain_query", secret, "not_permitted").await;
    let error = server.fail("explain_query", json!({"query": "select 1\u{0}"}), "invalid_params").await;
    assert!(error["message"].as_str().unwrap().contains("U+0000"), "{error}");
}
