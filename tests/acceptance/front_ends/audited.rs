//! Writes of the command line that the ledger records: mutations of the tool `cli_write`, so that the history has no hole.

use serde_json::{Value, json};
use testkit::{
    ConnectionFault, Database, FaultPoint, FrontEndOutput, Pipe, Proxy, bare_front_end, database, front_end, poll,
};

async fn records(db: &Database) -> Vec<Vec<String>> {
    db.rows(
        "select status, coalesce(actor, ''), params::text, coalesce(result::text, ''), coalesce(error_code, '') \
         from countersign.mutation where tool_name = 'cli_write' order by admitted_at",
    )
    .await
}

fn write() -> Value {
    json!({"options": {"read_only": false}})
}

#[tokio::test]
async fn a_write_has_a_record_with_the_statement_the_person_and_the_outcome() {
    let db = database().await;
    db.run("create table t (a int primary key)").await;
    let mut pipe = Pipe::on(&db);
    let mut more = write();
    more["params"] = json!([5]);
    let event = pipe.run_with("a", "insert into t values ($1)", more).await;
    assert_eq!((&event["code"], &event["command_tag"]), (&json!("result"), &json!("INSERT 0 1")), "{event}");
    let receipt = event["correlation_id"].as_str().expect("a receipt").to_owned();
    assert_eq!(pipe.run_with("b", "insert into t values (5)", write()).await["sqlstate"], "23505");
    let created = pipe.run_with("c", "create table u (a int)", write()).await;
    assert_eq!(
        (&created["command_tag"], created["correlation_id"].is_string()),
        (&json!("CREATE TABLE"), true),
        "{created}"
    );
    // The same text again is another write, and no duplicate.
    for id in ["d", "e"] {
        assert_eq!(pipe.run_with(id, "insert into u values (1)", write()).await["command_tag"], "INSERT 0 1");
    }
    let read = pipe.run("f", "select count(*)::int as n from u").await;
    assert_eq!((&read["rows"], read.get("correlation_id")), (&json!([{"n": 2}]), None));
    pipe.finish().await;

    let found = records(&db).await;
    let states: Vec<(&str, &str)> = found.iter().map(|record| (record[0].as_str(), record[4].as_str())).collect();
    let success = ("success", "");
    assert_eq!(states, [success, ("failure", "sql_error"), success, success, success]);
    let user = nix::unistd::User::from_uid(nix::unistd::Uid::effective()).unwrap().unwrap().name;
    assert!(found.iter().all(|record| record[1] == user), "{found:?}");
    let params: Value = serde_json::from_str(&found[0][2]).unwrap();
    assert_eq!(params, json!({"sql": "insert into t values ($1)", "params": [5]}));
    let result: Value = serde_json::from_str(&found[0][3]).unwrap();
    assert_eq!(result, json!({"command_tag": "INSERT 0 1", "row_count": 1}));
    let own = format!("select count(*) from countersign.mutation where correlation_id = '{receipt}'");
    assert_eq!(db.value(&own).await, "1");
    assert_eq!(db.value("select count(*) from countersign.mutation where status = 'pending'").await, "0");
}

#[tokio::test]
async fn a_write_without_a_record_is_asked_for_and_can_be_forbidden() {
    let db = database().await;
    db.run("create table t (a int)").await;
    let insert = ["--write", "--sql", "insert into t values (1)"];
    let told = FrontEndOutput::of(front_end("query", &db).args(insert).arg("--no-audit")).await;
    let event = told.single_event();
    assert_eq!((&event["command_tag"], event.get("correlation_id")), (&json!("INSERT 0 1"), None));
    assert_eq!(records(&db).await.len(), 0);

    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("countersign.toml");
    std::fs::write(&config, "require_audit = true\n").unwrap();
    for by_file in [true, false] {
        let configured = |command: &mut tokio::process::Command| {
            if by_file {
                command.arg("--config").arg(&config);
            } else {
                command.env("COUNTERSIGN_REQUIRE_AUDIT", "true");
            }
        };
        let mut command = front_end("query", &db);
        configured(&mut command);
        let told = FrontEndOutput::of(command.args(insert).arg("--no-audit")).await;
        assert_eq!(told.status, 2);
        let event = told.single_event();
        assert_eq!(event["error_code"], "invalid_request");
        assert!(event["error"].as_str().unwrap().contains("require_audit"), "{event}");
        let mut command = front_end("query", &db);
        configured(&mut command);
        assert!(FrontEndOutput::of(command.args(insert)).await.single_event()["correlation_id"].is_string());
    }
    db.run("drop schema countersign cascade").await;
    let told = FrontEndOutput::of(front_end("query", &db).args(insert).env("COUNTERSIGN_REQUIRE_AUDIT", "true")).await;
    assert_eq!(told.status, 1, "without a ledger nothing is written");
    assert!(told.single_event()["error"].as_str().unwrap().contains("no ledger"));
    assert_eq!(
        FrontEndOutput::of(front_end("query", &db).args(insert)).await.single_event()["command_tag"],
        "INSERT 0 1"
    );
    assert_eq!(db.value("select count(*) from t").await, "4");
}

#[tokio::test]
async fn oversized_and_cancelled_statements_are_rolled_back_and_recorded() {
    let db = database().await;
    db.run("create table t (a int)").await;
    let mut pipe = Pipe::on(&db);
    let sql = "insert into t select generate_series(1, 1001) returning a";
    assert_eq!(pipe.run_with("a", sql, write()).await["error_code"], "result_too_large");
    let sql = "insert into t select 1 from pg_sleep(600)";
    pipe.send(json!({"code": "query", "id": "b", "sql": sql, "options": {"read_only": false}})).await;
    let running = "select count(*) from pg_stat_activity where query like 'insert%' and state = 'active' \
                   and datname = current_database() and pid <> pg_backend_pid()";
    db.until_value(running, "1").await;
    pipe.send(json!({"code": "cancel", "id": "b"})).await;
    assert_eq!(pipe.last_event_of("b").await["error_code"], "cancelled");
    let streamed = json!({"options": {"read_only": false, "stream_rows": true}});
    let end = pipe.run_with("c", "insert into t select generate_series(1, 2500) returning a", streamed).await;
    assert_eq!((&end["command_tag"], end["correlation_id"].is_string()), (&json!("ROWS 2500"), true), "{end}");
    pipe.finish().await;
    assert_eq!(db.value("select count(*) from t").await, "2500");
    let states: Vec<String> = records(&db).await.into_iter().map(|record| record[0].clone()).collect();
    assert_eq!(states, ["failure", "failure", "success"]);
}

#[tokio::test]
async fn a_statement_cannot_end_or_touch_the_transaction_of_its_record() {
    let db = database().await;
    db.run("create table t (a int)").await;
    let mut pipe = Pipe::on(&db);
    for sql in [
        "commit",
        "rollback",
        "commit and chain",
        "prepare transaction 'x'",
        "savepoint work",
        "release savepoint work",
        "rollback to savepoint work",
        "begin",
        "listen x",
        "copy t to stdout",
        "copy t from stdin",
    ] {
        let event = pipe.run_with("a", sql, write()).await;
        assert_eq!(event["error_code"], "unsupported", "{sql}: {event}");
    }
    for sql in ["do $$ begin commit; end $$", "do $$ begin execute 'savepoint work'; end $$"] {
        assert_eq!(pipe.run_with("a", sql, write()).await["code"], "sql_error", "{sql}");
    }
    assert_eq!(pipe.run_with("b", "insert into t values (1)", write()).await["code"], "result");
    pipe.finish().await;
    let found = records(&db).await;
    assert_eq!(found.iter().filter(|record| record[0] == "success").count(), 1, "{found:?}");
    assert_eq!(found.iter().filter(|record| record[0] == "pending").count(), 0, "{found:?}");
    assert_eq!(db.value("select count(*) from pg_prepared_xacts").await, "0");
}

#[tokio::test]
async fn a_transaction_is_one_record_with_all_its_statements() {
    let db = database().await;
    db.run("create table t (a int primary key)").await;
    let mut pipe = Pipe::on(&db);
    let options = json!({"read_only": false});
    for (end, own) in [("commit", 1), ("rollback", 11)] {
        pipe.send(json!({"code": "begin", "id": "begin", "options": options})).await;
        assert_eq!(pipe.last_event_of("begin").await["command_tag"], "BEGIN");
        for (id, a) in [("a", own), ("b", own + 1)] {
            let event = pipe.run_with(id, "insert into t values ($1)", json!({"params": [a]})).await;
            assert_eq!(event["command_tag"], "INSERT 0 1", "{event}");
        }
        pipe.send(json!({"code": end, "id": end})).await;
        let ended = pipe.last_event_of(end).await;
        assert_eq!(
            (&ended["command_tag"], ended["correlation_id"].is_string()),
            (&json!(end.to_ascii_uppercase()), end == "commit")
        );
    }
    // One that fails, and one that tries to take our savepoint.
    for sql in ["insert into t values (1)", "savepoint work"] {
        pipe.send(json!({"code": "begin", "id": "begin", "options": options})).await;
        pipe.last_event_of("begin").await;
        assert_eq!(pipe.run("a", "insert into t values (21)").await["code"], "result");
        assert_ne!(pipe.run("b", sql).await["code"], "result", "{sql}");
        let after = pipe.run("c", "select 1").await;
        assert_eq!((&after["sqlstate"], after["hint"].is_string()), (&json!("25P02"), true), "{sql}: {after}");
        pipe.send(json!({"code": "commit", "id": "commit"})).await;
        assert_eq!(pipe.last_event_of("commit").await["code"], "sql_error", "{sql}");
    }
    pipe.finish().await;
    assert_eq!(db.value("select string_agg(a::text, ',' order by a) from t").await, "1,2");
    let found = records(&db).await;
    let states: Vec<&str> = found.iter().map(|record| record[0].as_str()).collect();
    assert_eq!(states, ["success", "failure", "failure", "failure"]);
    let result: Value = serde_json::from_str(&found[0][3]).unwrap();
    let texts: Vec<&Value> = result["statements"].as_array().unwrap().iter().map(|it| &it["params"]).collect();
    assert_eq!(texts, [&json!([1]), &json!([2])]);
}

#[tokio::test]
async fn with_a_ledger_a_lost_answer_to_commit_is_looked_up() {
    let db = database().await;
    db.run("create table t (a int)").await;
    for (number, when) in [FaultPoint::AfterCommit, FaultPoint::BeforeCommit].into_iter().enumerate() {
        let proxy = Proxy::before(&db);
        proxy.arm(when, ConnectionFault::Cut);
        let mut command = bare_front_end("pipe");
        command.arg("--conninfo-secret").arg(proxy.url());
        let mut pipe = Pipe::start(command);
        let event = pipe.run_with("a", &format!("insert into t values ({number})"), write()).await;
        let is_written = db.value(&format!("select count(*) from t where a = {number}")).await == "1";
        assert_eq!(event["code"] == "result", is_written, "{event}");
        assert_eq!(is_written, when == FaultPoint::AfterCommit);
        assert!(is_written || event["error_code"] == "connection_lost", "{event}");
        pipe.finish().await;
    }
}

#[tokio::test]
async fn a_login_without_rights_on_the_ledger_writes_nothing_unrecorded() {
    let db = database().await;
    db.run("create table t (a int); create role clerk login; grant insert on t to clerk").await;
    let insert = ["--user", "clerk", "--write", "--sql", "insert into t values (1)"];
    let told = FrontEndOutput::of(front_end("query", &db).args(insert)).await;
    assert_eq!(told.status, 1);
    let event = told.single_event();
    assert_eq!(event["code"], "error", "{event}");
    assert!(event["hint"].as_str().unwrap_or_default().contains("countersign_writer"), "{event}");
    assert_eq!(db.value("select count(*) from t").await, "0");
    assert_eq!(FrontEndOutput::of(front_end("query", &db).args(insert).arg("--no-audit")).await.status, 0);
    db.run("drop owned by clerk; drop role clerk").await;
}

#[tokio::test]
async fn a_ledger_that_is_made_while_a_pipe_lives_is_used() {
    let db = Database::empty("late_ledger").await;
    db.run("create table t (a int)").await;
    let mut pipe = Pipe::on(&db);
    let may_write = json!({"options": {"read_only": false}});
    let before = pipe.run_with("a", "insert into t values (1)", may_write.clone()).await;
    assert_eq!((&before["code"], before["correlation_id"].is_null()), (&json!("result"), true), "{before}");
    ledger::init(&db.target(), &ledger::InitOptions::default()).await.unwrap();
    let started = std::time::Instant::now();
    let is_recorded =
        async || !pipe.run_with("b", "insert into t values (2)", may_write.clone()).await["correlation_id"].is_null();
    poll::until("the new ledger is noticed", is_recorded).await;
    assert!(started.elapsed() < std::time::Duration::from_secs(10), "{:?}", started.elapsed());
    pipe.finish().await;
}
