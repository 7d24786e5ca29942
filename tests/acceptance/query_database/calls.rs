//! Functions that a query may not call, in every form of a call.

use serde_json::json;
use testkit::{Server, database};

#[tokio::test(flavor = "multi_thread")]
async fn functions_that_act_beyond_the_transaction_are_not_called() {
    // `layers.rs` has more attacks of this kind.
    let db = database().await;
    db.run(
        "create function social.own(int) returns int language sql as 'select $1';
         create view social.hidden as select pg_cancel_backend(pid) from pg_stat_activity where pid = 0;
         grant select on social.hidden to countersign_reader",
    )
    .await;
    let server = Server::on(&db).await;
    for (query, function) in [
        ("select pg_cancel_backend(0)", "pg_cancel_backend"),
        ("select 1 where pg_terminate_backend($1)", "pg_terminate_backend"),
        ("select case when $1 = 0 then 1 else 1/0 end, pg_cancel_backend(0)", "pg_cancel_backend"),
        ("table social.hidden", "pg_cancel_backend"),
        ("select query_to_xml('select 1', true, true, '')", "query_to_xml"),
    ] {
        let params = if query.contains("$1") { json!([0]) } else { json!([]) };
        let arguments = json!({"query": query, "params": params});
        let error = server.fail("query_database", arguments, "not_permitted").await;
        assert!(error["message"].as_str().unwrap().contains(&format!("{function} may not be called")), "{error}");
    }
    // A right that is missing in a part that is never reached is no way around it.
    let query = "select case when $1 then pg_read_file('x') end, pg_cancel_backend(0)";
    let error = server.fail("query_database", json!({"query": query, "params": [false]}), "not_permitted").await;
    assert!(error["message"].as_str().unwrap().contains("pg_cancel_backend may not be called"), "{error}");
    // A query cannot see earlier queries of its session.
    for secret in
        ["select 'a secret question' as q", "select 'a secret question', 1/0", "select row('a secret question')"]
    {
        server.call("query_database", json!({"query": secret})).await;
        server.call("explain_query", json!({"query": secret})).await;
        let seen = server.query("select statement from pg_prepared_statements").await;
        assert!(!json!(seen).to_string().contains("secret question"), "{seen:?}");
    }
    for query in [
        "select table_to_xml('pg_catalog.pg_prepared_statements', true, false, '')",
        "select table_to_xml_and_xmlschema('pg_catalog.pg_prepared_statements', true, false, '')",
        "select schema_to_xml('pg_catalog', true, false, '')",
        "select schema_to_xml_and_xmlschema('pg_catalog', true, false, '')",
        "select database_to_xml(true, false, '')",
        "select database_to_xml_and_xmlschema(true, false, '')",
    ] {
        let error = server.fail("query_database", json!({"query": query}), "not_permitted").await;
        assert!(error["message"].as_str().unwrap().contains("by name"), "{error}");
    }
    server.query("select table_to_xmlschema('social.tweet', true, false, '')::text").await;
    // What is harmless is not touched: also where a plan for any values cannot be made.
    let query = "select case when $1 = 0 then 1 else 1/0 end as n, 'pg_cancel_backend' as t, social.own(2) as own";
    for _ in 0..2 {
        let answer = server.succeed("query_database", json!({"query": query, "params": [0]})).await;
        assert_eq!(answer["data"]["rows"], json!([{"n": 1, "t": "pg_cancel_backend", "own": 2}]));
    }
    let error = server.fail("query_database", json!({"query": query, "params": [1]}), "sql_error").await;
    assert_eq!(error["sqlstate"], "22012", "{error}");
    // Not everybody's: refused until it is granted to the login by name.
    db.run("revoke execute on function social.own(int) from public").await;
    server.fail("query_database", json!({"query": "select social.own(3)"}), "not_permitted").await;
    db.run("grant execute on function social.own(int) to countersign_reader").await;
    assert_eq!(server.query("select social.own(4)").await, [json!({"own": 4})]);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_query_reads_the_rows_of_another_account() {
    // A plan does not show every function that a query calls.
    let db = database().await;
    db.run(
        "create table social.diary (account text, entry text);
         insert into social.diary values ('default', 'mine'), ('other', 'theirs');
         alter table social.diary enable row level security;
         create policy own on social.diary using (account = current_setting('countersign.account_id'));
         grant select on social.diary to countersign_reader;
         create view social.switch as
             select set_config('countersign.' || 'account_id', 'other', true) as account;
         grant select on social.switch to countersign_reader",
    )
    .await;
    let server = Server::on(&db).await;
    assert_eq!(server.query("select entry from social.diary").await, [json!({"entry": "mine"})]);
    let call = "set_config('countersign.account_id', 'other', true)";
    let params = json!(["countersign.account_id"]);
    for (query, params) in [
        (
            format!("select d.entry from (select {call} offset 0) s, lateral (select entry from social.diary) d"),
            json!([]),
        ),
        (format!("select (values (''), ({call}) limit 1), entry from social.diary"), json!([])),
        (format!("select entry from social.diary limit length({call})"), json!([])),
        (format!("select entry from social.diary where {call} in (select 'other')"), json!([])),
        (format!("explain analyze select entry from social.diary, (select {call}) s"), json!([])),
        ("select set_config($1, 'other', true), entry from social.diary".to_owned(), params),
        ("select set_config(lower('COUNTERSIGN.account_id'), 'other', true)".to_owned(), json!([])),
        (r#"select U&"set\005fconfig"('countersign.account_id', 'other', true)"#.to_owned(), json!([])),
        ("select entry from social.switch, social.diary".to_owned(), json!([])),
    ] {
        let arguments = json!({"query": query, "params": params});
        let error = server.fail("query_database", arguments, "not_permitted").await;
        assert!(error["message"].as_str().unwrap().contains("set_config may not be called"), "{error}");
    }
    let other = "select set_config('search_path', 'social', true), 'set_config' <> '' as text, entry from social.diary";
    assert_eq!(server.query(other).await[0]["entry"], "mine");
}

#[tokio::test(flavor = "multi_thread")]
async fn planning_a_query_does_not_reveal_the_queries_of_others() {
    // Planning calls STABLE functions, and an error of planning may quote their result.
    let db = database().await;
    let server = Server::with(&db, |it| it.args(["--read-sessions", "1"])).await;
    let query = "select 1 from social.tweet where id = \
                 table_to_xml('pg_catalog.pg_prepared_statements', true, false, '')::text::int";
    for tool in ["query_database", "explain_query"] {
        server.query("select 'a secret question' as q").await;
        let error = server.fail(tool, json!({"query": query}), "sql_error").await;
        assert_eq!(error["sqlstate"], "22P02", "{error}");
        assert!(!error.to_string().contains("secret question"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_whose_meaning_changes_is_analysed_again() {
    // PostgreSQL evaluates 'now' when it parses a text, so the same text may later mean another call.
    let db = database().await;
    db.run("create view social.stop as select pg_cancel_backend(0) as it; grant select on social.stop to countersign_reader").await;
    let server = Server::with(&db, |it| it.args(["--read-sessions", "1"])).await;
    let moment = db.value("select clock_timestamp() + interval '2 s'").await;
    let query = format!(
        "select case when 'now'::timestamptz > '{moment}' then (select it::text from social.stop) else 'not yet' end as it"
    );
    assert_eq!(server.query(&query).await, [json!({"it": "not yet"})]);
    db.run(&format!("select pg_sleep_until('{moment}')")).await;
    let sessions = "from pg_stat_activity where usename = 'countersign_reader' and datname = current_database()";
    db.run(&format!("select pg_terminate_backend(pid) {sessions}")).await;
    db.first_value(&format!("select 1 where not exists (select {sessions})")).await;
    let error = server.fail("query_database", json!({"query": query}), "not_permitted").await;
    assert!(error["message"].as_str().unwrap().contains("pg_cancel_backend may not be called"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_that_cannot_be_planned_do_not_run() {
    // `layers.rs` attacks a database in the same way.
    let db = database().await;
    let server = Server::on(&db).await;
    // The setting that planning asks for is not a superuser's to see when it runs, only while it is planned.
    let query = "select pg_cancel_backend(0) from social.account a where a.handle = \
                 case when current_setting('plan_cache_mode') = 'auto' then 'x' else current_setting('data_directory') end";
    let error = server.fail("query_database", json!({"query": query}), "not_permitted").await;
    assert_eq!(error["sqlstate"], "42501", "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn functions_called_through_partitions_are_checked_too() {
    // `layers.rs` attacks a database in the same way.
    let db = database().await;
    db.run(
        "create table social.parted (id int) partition by list (id);
         create table social.parted_1 partition of social.parted for values in (1);
         create table social.parted_2 partition of social.parted for values in (2);
         insert into social.parted values (1); grant select on social.parted to countersign_reader",
    )
    .await;
    let server = Server::on(&db).await;
    for params in [json!([1]), json!([2])] {
        let query = "select pg_cancel_backend(0) from social.parted where id = $1";
        let error = server.fail("query_database", json!({"query": query, "params": params}), "not_permitted").await;
        assert!(error["message"].as_str().unwrap().contains("pg_cancel_backend may not be called"), "{error}");
    }
    // The plan that was looked at is not the one that runs: partitions are left out again.
    let query = "select (select count(*) from social.parted where id = 7) as rows, (select count(*) from pg_locks \
                 where pid = pg_backend_pid() and relation = 'social.parted_1'::regclass) as locks";
    for _ in 0..2 {
        assert_eq!(server.query(query).await, [json!({"rows": 0, "locks": 0})]);
    }
}
