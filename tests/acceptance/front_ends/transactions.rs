//! begin, commit and rollback: several statements on a dedicated connection.

mod settings;

use serde_json::{Value, json};
use testkit::{Database, Pipe, database};

async fn plain(db: &Database) -> Pipe {
    db.run("drop schema countersign cascade; create table t (a int primary key)").await;
    Pipe::on(db)
}

async fn command(pipe: &mut Pipe, code: &str, options: Value) -> Value {
    let mut command = json!({"code": code, "id": code});
    if !options.is_null() {
        command["options"] = options;
    }
    pipe.send(command).await;
    pipe.last_event_of(code).await
}

#[tokio::test]
async fn statements_between_begin_and_commit_succeed_or_fail_together() {
    let db = database().await;
    let mut pipe = plain(&db).await;
    for (end, left) in [("commit", "2"), ("rollback", "2")] {
        let begun = command(&mut pipe, "begin", json!({"read_only": false})).await;
        assert_eq!((&begun["code"], &begun["command_tag"]), (&json!("result"), &json!("BEGIN")), "{begun}");
        let first = if end == "commit" { 1 } else { 11 };
        for (id, sql) in
            [("a", format!("insert into t values ({first})")), ("b", format!("insert into t values ({first} + 1)"))]
        {
            assert_eq!(pipe.run(id, &sql).await["command_tag"], "INSERT 0 1");
        }
        let seen = pipe.run("c", &format!("select count(*)::int as n from t where a >= {first}")).await;
        assert_eq!(seen["rows"], json!([{"n": 2}]), "it sees what it has written");
        assert_eq!(db.value(&format!("select count(*) from t where a >= {first}")).await, "0", "nobody else does");
        let ended = command(&mut pipe, end, Value::Null).await;
        assert_eq!(ended["command_tag"], end.to_ascii_uppercase(), "{ended}");
        assert_eq!(db.value("select count(*) from t").await, left);
    }
    assert_eq!(pipe.run("d", "insert into t values (5)").await["sqlstate"], "25006", "outside, reading is the default");
    pipe.finish().await;
}

/// N-34
#[tokio::test]
async fn a_failing_statement_of_a_transaction_has_a_hint() {
    let db = database().await;
    let mut pipe = plain(&db).await;
    for read_only in [true, false] {
        command(&mut pipe, "begin", json!({"read_only": read_only})).await;
        let failed = pipe.run("a", "select * from social.twet").await;
        assert_eq!(failed["hint"], "The nearest tables that exist: social.tweet.", "{failed}");
        command(&mut pipe, "rollback", Value::Null).await;
    }
    pipe.finish().await;
}

#[tokio::test]
async fn a_failed_transaction_accepts_only_a_rollback() {
    let db = database().await;
    let mut pipe = plain(&db).await;
    command(&mut pipe, "begin", json!({"read_only": false})).await;
    assert_eq!(pipe.run("a", "insert into t values (1)").await["code"], "result");
    assert_eq!(pipe.run("b", "select 1/0").await["sqlstate"], "22012");
    assert_eq!(pipe.run("c", "select 1").await["sqlstate"], "25P02");
    let committed = command(&mut pipe, "commit", Value::Null).await;
    assert_eq!((&committed["code"], &committed["sqlstate"]), (&json!("sql_error"), &json!("25P02")), "{committed}");
    assert_eq!(db.value("select count(*) from t").await, "0");
    assert_eq!(command(&mut pipe, "commit", Value::Null).await["error_code"], "invalid_request");
    assert_eq!(command(&mut pipe, "rollback", Value::Null).await["error_code"], "invalid_request");
    pipe.finish().await;
}

#[tokio::test]
async fn a_transaction_goes_back_to_its_savepoints_also_after_an_error() {
    let db = database().await;
    let mut pipe = plain(&db).await;
    command(&mut pipe, "begin", json!({"read_only": false})).await;
    for (sql, expected) in [
        ("insert into t values (1)", "INSERT 0 1"),
        ("savepoint a", "SAVEPOINT"),
        ("insert into t values (2)", "INSERT 0 1"),
        ("savepoint b", "SAVEPOINT"),
        ("insert into t values (3)", "INSERT 0 1"),
        ("/* a comment */ rollback to b", "ROLLBACK"),
        ("insert into t values (4)", "INSERT 0 1"),
        ("insert into t values (1)", "23505"),
        ("insert into t values (5)", "25P02"),
        ("rollback to savepoint b", "ROLLBACK"),
        ("insert into t values ('x')", "22P02"),
        ("rollback to savepoint no_such_savepoint", "3B001"),
        ("rollback to b", "ROLLBACK"),
        ("release savepoint b", "RELEASE"),
        ("insert into t values (6)", "INSERT 0 1"),
    ] {
        let event = pipe.run("q", sql).await;
        let got = event["command_tag"].as_str().or(event["sqlstate"].as_str()).unwrap_or_else(|| panic!("{event}"));
        assert_eq!(got, expected, "{sql}: {event}");
    }
    // A parameter that does not fit is no other failure.
    let params = json!({"params": [{"no": "number"}]});
    assert_eq!(pipe.run_with("p", "insert into t values ($1)", params).await["error_code"], "invalid_params");
    assert_eq!(pipe.run("q", "select 1").await["sqlstate"], "25P02");
    assert_eq!(pipe.run("q", "rollback to a").await["command_tag"], "ROLLBACK");
    assert_eq!(pipe.run("q", "insert into t values (7)").await["command_tag"], "INSERT 0 1");
    assert_eq!(command(&mut pipe, "commit", Value::Null).await["command_tag"], "COMMIT");
    assert_eq!(db.value("select string_agg(a::text, ',' order by a) from t").await, "1,7");

    // One that reads has the rights of its login after going back.
    command(&mut pipe, "begin", json!({"read_only": true})).await;
    assert_eq!(pipe.run("q", "savepoint a").await["command_tag"], "SAVEPOINT");
    assert_eq!(pipe.run("q", "select 1/0").await["sqlstate"], "22012");
    assert_eq!(pipe.run("q", "rollback to a").await["command_tag"], "ROLLBACK");
    let role = pipe.run("q", "select current_user::text as u, current_setting('transaction_read_only') as r").await;
    assert_eq!(role["rows"], json!([{"u": "postgres", "r": "on"}]), "{role}");
    assert_eq!(command(&mut pipe, "rollback", Value::Null).await["command_tag"], "ROLLBACK");
    pipe.finish().await;
}

#[tokio::test]
async fn other_statements_that_end_a_transaction_are_refused_also_after_a_savepoint() {
    // Otherwise they would commit a part of the transaction.
    let db = database().await;
    let mut pipe = plain(&db).await;
    let exits =
        ["commit", "rollback", "commit and chain", "rollback and chain", "prepare transaction 'x'", "end", "abort"];
    for (sql, fails) in exits.into_iter().flat_map(|sql| [(sql, false), (sql, true)]) {
        command(&mut pipe, "begin", json!({"read_only": false})).await;
        assert_eq!(pipe.run("a", "insert into t values (1)").await["code"], "result");
        assert_eq!(pipe.run("s", "savepoint a").await["command_tag"], "SAVEPOINT");
        if fails {
            assert_eq!(pipe.run("b", "select 1/0").await["sqlstate"], "22012");
        }
        let event = pipe.run("c", sql).await;
        assert_eq!(event["error_code"], "unsupported", "{sql}: {event}");
        assert_eq!(pipe.run("d", "insert into t values (2)").await["sqlstate"], "25P02", "{sql}");
        assert_eq!(command(&mut pipe, "commit", Value::Null).await["sqlstate"], "25P02", "{sql}");
        assert_eq!(db.value("select count(*) from t").await, "0", "{sql}");
    }
    // After a failure behind a savepoint nothing is committed without going back.
    command(&mut pipe, "begin", json!({"read_only": false})).await;
    for sql in ["insert into t values (1)", "savepoint a", "select 1/0"] {
        pipe.run("a", sql).await;
    }
    assert_eq!(command(&mut pipe, "commit", Value::Null).await["sqlstate"], "25P02");
    assert_eq!(db.value("select count(*) from t").await, "0");
    pipe.finish().await;
}

#[tokio::test]
async fn a_part_of_a_transaction_is_never_committed() {
    let db = database().await;
    let mut pipe = plain(&db).await;
    // A statement that does not fit, one that is not supported, one that is cancelled while it waits for its turn.
    for wrong in ["params", "listen", "cancel"] {
        command(&mut pipe, "begin", json!({"read_only": false})).await;
        match wrong {
            "params" => {
                assert_eq!(pipe.run("a", "insert into t values (1)").await["code"], "result");
                let event = pipe.run_with("b", "insert into t values ($1)", json!({"params": []})).await;
                assert_eq!(event["error_code"], "invalid_params", "{event}");
            }
            "listen" => {
                assert_eq!(pipe.run("a", "insert into t values (1)").await["code"], "result");
                assert_eq!(pipe.run("b", "listen x").await["error_code"], "unsupported");
            }
            _ => {
                pipe.query("a", "insert into t select 1 from pg_sleep(0.5)").await;
                pipe.query("b", "insert into t values (2)").await;
                pipe.send(json!({"code": "cancel", "id": "b"})).await;
                assert_eq!(pipe.last_event_of("b").await["error_code"], "cancelled");
                pipe.last_event_of("a").await;
            }
        }
        let committed = command(&mut pipe, "commit", Value::Null).await;
        assert!(["error", "sql_error"].contains(&committed["code"].as_str().unwrap()), "{wrong}: {committed}");
        assert_eq!(db.value("select count(*) from t").await, "0", "{wrong}");
    }
    pipe.finish().await;
}

#[tokio::test]
async fn a_refused_statement_aborts_its_whole_transaction() {
    // Otherwise a client that has sent all lines at once would commit a part of its transaction.
    let db = database().await;
    drop(plain(&db).await);
    let insert = "\"code\":\"query\",\"id\":\"b\",\"sql\":\"insert into t values (2)\"";
    let long = format!("{{{insert},\"params\":[\"{}\"]}}", "x".repeat(1 << 20));
    let broken = [
        format!("{{{insert},\"oops\":1}}"),
        format!("{{{insert},\"params\":{{}}}}"),
        format!("{{{insert},\"options\":{{\"batch_rows\":0}}}}"),
        format!("{{{insert},\"options\":{{\"read_only\":true}}}}"),
        format!("{{{insert},\"session\":\"misspelt\"}}"),
        format!("{{{insert},\"session\":1}}"),
        format!("{{{insert},\"sql\":\"select 1\"}}"),
        format!("{{{insert}"),
        insert.replace("query", "qurey").replacen('"', "{\"", 1) + "}",
        "{\"code\":\"query\",\"id\":\"begin\",\"sql\":\"select 1\",\"options\":1}".to_owned(),
        "{\"code\":\"begin\",\"id\":\"again\"}".to_owned(),
        long,
    ];
    for line in &broken {
        let mut pipe = Pipe::on(&db);
        let shown: String = line.chars().take(100).collect();
        pipe.send(json!({"code": "begin", "id": "begin", "options": {"read_only": false}})).await;
        pipe.query("a", "insert into t values (1)").await;
        pipe.line(line).await;
        pipe.query("c", "insert into t values (3)").await;
        pipe.send(json!({"code": "commit", "id": "commit"})).await;
        assert_eq!(pipe.last_event_of("a").await["code"], "result", "{shown}");
        assert_eq!(pipe.last_event_of("c").await["code"], "error", "{shown}");
        let committed = pipe.last_event_of("commit").await;
        let said = committed["error"].as_str().unwrap_or_default();
        assert!(
            said.starts_with("nothing was committed") && said.contains("a command was refused"),
            "{shown}: {committed}"
        );
        assert_eq!(db.value("select count(*) from t").await, "0", "{shown}");
        pipe.finish().await;
    }
    // What is no part of a transaction does it no harm.
    let mut pipe = Pipe::on(&db);
    command(&mut pipe, "begin", json!({"read_only": false})).await;
    assert_eq!(pipe.run("a", "insert into t values (1)").await["code"], "result");
    for line in
        ["{\"code\":\"cancel\",\"id\":\"nobody\"}", "{\"code\":\"ping\",\"x\":1}", "{\"code\":\"config\",\"x\":1}"]
    {
        pipe.line(line).await;
        let refused = pipe.event_with_code("error").await;
        assert_eq!(refused["error_code"], "invalid_request", "{refused}");
    }
    assert_eq!(command(&mut pipe, "commit", Value::Null).await["command_tag"], "COMMIT");
    assert_eq!(db.value("select count(*) from t").await, "1");
    pipe.finish().await;
}

#[tokio::test]
async fn after_a_refused_begin_nothing_is_written() {
    let db = database().await;
    let mut pipe = plain(&db).await;
    for begin in [
        "{\"code\":\"begin\",\"id\":\"b\",\"options\":{\"isolation\":\"serializable\"}}",
        "{\"code\":\"begin\",\"id\":7}",
    ] {
        pipe.line(begin).await;
        let refused = pipe.run_with("a", "insert into t values (1)", json!({"options": {"read_only": false}})).await;
        pipe.send(json!({"code": "commit", "id": "commit"})).await;
        assert!(refused["error"].as_str().is_some_and(|it| it.contains("did not begin")), "{begin}: {refused}");
        assert_eq!(pipe.last_event_of("commit").await["code"], "error", "{begin}");
        assert_eq!(db.value("select count(*) from t").await, "0", "{begin}");
    }
    // It can be begun again at once.
    pipe.line("{\"code\":\"begin\",\"id\":\"b\",\"x\":1}").await;
    assert_eq!(command(&mut pipe, "begin", Value::Null).await["command_tag"], "BEGIN");
    assert_eq!(command(&mut pipe, "rollback", Value::Null).await["command_tag"], "ROLLBACK");
    pipe.finish().await;
}

#[tokio::test]
async fn a_transaction_of_more_queries_than_are_taken_at_once_is_committed_whole() {
    let db = database().await;
    let mut pipe = plain(&db).await;
    pipe.send(json!({"code": "begin", "id": "begin", "options": {"read_only": false}})).await;
    pipe.query("wait", "select pg_sleep(0.5)").await;
    for number in 0..200 {
        pipe.query(&format!("q{number}"), &format!("insert into t values ({number})")).await;
    }
    pipe.send(json!({"code": "commit", "id": "commit"})).await;
    assert_eq!(pipe.last_event_of("commit").await["command_tag"], "COMMIT");
    assert_eq!(db.value("select count(*) from t").await, "200");
    pipe.finish().await;
}

#[tokio::test]
async fn other_sessions_go_on_beside_a_transaction() {
    let db = database().await;
    let mut pipe = plain(&db).await;
    pipe.send(json!({"code": "config", "sessions": {"other": {}}})).await;
    pipe.event_with_code("config").await;
    command(&mut pipe, "begin", json!({"read_only": false})).await;
    pipe.run("a", "insert into t values (1)").await;
    let other = pipe.run_with("b", "select count(*)::int as n from t", json!({"session": "other"})).await;
    assert_eq!(other["rows"], json!([{"n": 0}]), "{other}");
    pipe.send(json!({"code": "config", "sessions": {"default": {"dbname": "elsewhere"}}})).await;
    assert_eq!(pipe.event_with_code("error").await["error_code"], "invalid_request");
    assert_eq!(command(&mut pipe, "commit", Value::Null).await["command_tag"], "COMMIT");
    assert_eq!(db.value("select count(*) from t").await, "1");
    pipe.finish().await;
}
