//! Isolation levels, settings, encodings and deadlines of transactions.

use serde_json::{Value, json};
use testkit::{Pipe, database};

use super::{command, plain};

#[tokio::test]
async fn a_transaction_has_the_isolation_level_that_it_asks_for() {
    let db = database().await;
    let mut pipe = Pipe::on(&db);
    db.run("create table t (a int primary key)").await;
    for (has_ledger, read_only) in [(true, true), (true, false), (false, false)] {
        if !has_ledger {
            db.run("drop schema countersign cascade").await;
        }
        for level in ["read committed", "repeatable read", "serializable"] {
            let begun = command(&mut pipe, "begin", json!({"read_only": read_only, "isolation_level": level})).await;
            if has_ledger && !read_only && level != "read committed" {
                assert_eq!(begun["error_code"], "unsupported", "{begun}");
            } else {
                let seen = pipe.run("q", "select current_setting('transaction_isolation') as level").await;
                assert_eq!(seen["rows"], json!([{"level": level}]), "{begun} {seen}");
            }
            command(&mut pipe, "rollback", Value::Null).await;
        }
        // Whether there is a ledger is looked at once a second, and never again once there was one.
        pipe.send(json!({"code": "config", "sessions": {"default": {}}})).await;
        pipe.event_with_code("config").await;
    }
    pipe.finish().await;
}

#[tokio::test]
async fn settings_of_a_transaction_last_until_its_end_with_and_without_a_ledger() {
    let db = database().await;
    db.run("create table t (a int); create role tenant; grant select on t to tenant").await;
    let mut pipe = Pipe::on(&db);
    for _ in 0..2 {
        command(&mut pipe, "begin", json!({"read_only": false})).await;
        for sql in ["set local role tenant", "set local work_mem = '7MB'", "prepare own as select 7 as seven"] {
            assert_eq!(pipe.run("a", sql).await["code"], "result", "{sql}");
        }
        let event = pipe.run("b", "select current_user::text as who, current_setting('work_mem') as mem").await;
        assert_eq!(event["rows"], json!([{"who": "tenant", "mem": "7MB"}]));
        assert_eq!(pipe.run("c", "execute own").await["rows"], json!([{"seven": 7}]));
        assert_eq!(pipe.run("d", "insert into t values (1)").await["sqlstate"], "42501");
        command(&mut pipe, "rollback", Value::Null).await;
        // And without a ledger.
        db.run("drop schema if exists countersign cascade").await;
        pipe.send(json!({"code": "config", "sessions": {"default": {"port": null}}})).await;
        pipe.event_with_code("config").await;
    }
    pipe.finish().await;
    db.run("drop owned by tenant; drop role tenant").await;
}

#[tokio::test]
async fn a_session_in_another_encoding_is_given_up_and_what_it_did_is_undone() {
    let db = database().await;
    db.run("create table t (a text)").await;
    let mut pipe = Pipe::on(&db);
    let insert = |more: Value| json!({"params": ["\u{e9}"], "options": more});
    for _ in 0..2 {
        for set in ["set client_encoding to 'LATIN1'", "select set_config('client_encoding', 'LATIN1', false)"] {
            command(&mut pipe, "begin", json!({"read_only": false})).await;
            assert_eq!(pipe.run_with("a", "insert into t values ($1)", insert(json!({}))).await["code"], "result");
            let refused = pipe.run("b", set).await;
            assert_eq!(refused["sqlstate"], "0A000", "{refused}");
            assert!(refused["message"].as_str().unwrap().contains("LATIN1, and it is UTF8 here"), "{refused}");
            let behind = pipe.run_with("c", "insert into t values ($1)", insert(json!({}))).await;
            assert_eq!(behind["sqlstate"], "25P02", "{behind}");
            command(&mut pipe, "rollback", Value::Null).await;
            assert_eq!(db.value("select count(*) from t").await, "0");
            let alone = pipe.run_with("d", set, json!({"options": {"read_only": false}})).await;
            assert_eq!(alone["sqlstate"], "0A000", "{alone}");
        }
        let written = pipe.run_with("e", "insert into t values ($1)", insert(json!({"read_only": false}))).await;
        assert_eq!(written["command_tag"], "INSERT 0 1", "{written}");
        assert_eq!(db.value("select string_agg(a, '') from t").await, "\u{e9}");
        // And without a ledger.
        db.run("drop schema if exists countersign cascade; truncate t").await;
        pipe.send(json!({"code": "config", "sessions": {"default": {"port": null}}})).await;
        pipe.event_with_code("config").await;
    }
    pipe.finish().await;
}

#[tokio::test]
async fn a_read_only_transaction_sees_one_state_and_cannot_be_made_to_write() {
    let db = database().await;
    let mut pipe = plain(&db).await;
    command(&mut pipe, "begin", Value::Null).await;
    assert_eq!(pipe.run("a", "set transaction read write").await["sqlstate"], "25001");
    command(&mut pipe, "rollback", Value::Null).await;
    command(&mut pipe, "begin", Value::Null).await;
    assert_eq!(pipe.run("c", "insert into t values (1)").await["sqlstate"], "25006");
    command(&mut pipe, "rollback", Value::Null).await;
    command(&mut pipe, "begin", Value::Null).await;
    assert_eq!(command(&mut pipe, "begin", Value::Null).await["error_code"], "invalid_request");
    command(&mut pipe, "rollback", Value::Null).await;
    command(&mut pipe, "begin", Value::Null).await;
    let refused = pipe.run_with("b", "insert into t values (1)", json!({"options": {"read_only": false}})).await;
    assert_eq!(refused["error_code"], "invalid_request", "{refused}");
    command(&mut pipe, "rollback", Value::Null).await;
    assert_eq!(db.value("select count(*) from t").await, "0");
    pipe.finish().await;
}

#[tokio::test]
async fn a_transaction_past_its_deadline_is_rolled_back_with_an_error() {
    let db = database().await;
    let mut pipe = plain(&db).await;
    let options = json!({"read_only": false, "transaction_timeout_ms": 300});
    command(&mut pipe, "begin", options).await;
    assert_eq!(pipe.run("a", "insert into t values (1)").await["code"], "result");
    let notice = pipe.event_with_code("notice").await;
    assert_eq!((&notice["sqlstate"], &notice["session"]), (&json!("25P04"), &json!("default")), "{notice}");
    let refused = pipe.run("b", "insert into t values (2)").await;
    assert_eq!(refused["error_code"], "invalid_request", "it must not run outside of its transaction: {refused}");
    assert_eq!(command(&mut pipe, "rollback", Value::Null).await["command_tag"], "ROLLBACK");
    assert_eq!(pipe.run("c", "select count(*)::int as n from t").await["rows"], json!([{"n": 0}]));
    pipe.finish().await;
}
