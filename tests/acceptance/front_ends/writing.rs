//! Writes without a ledger: committed only after the client has read the whole result.

use std::time::{Duration, Instant};

use serde_json::json;
use testkit::{ConnectionFault, Database, FaultPoint, Pipe, Proxy, bare_front_end, database, front_end};

async fn table(db: &Database) -> Pipe {
    db.run("drop schema countersign cascade; create table t (a int primary key, b text)").await;
    Pipe::on(db)
}

#[tokio::test]
async fn a_write_with_an_oversized_result_is_rolled_back() {
    // "never an error after a commit"
    let db = database().await;
    let mut pipe = table(&db).await;
    let sql = "insert into t select i, 'x' from generate_series(1, 1001) i returning a";
    let event = pipe.run_with("a", sql, json!({"options": {"read_only": false}})).await;
    assert_eq!(event["error_code"], "result_too_large", "{event}");
    assert_eq!(db.value("select count(*) from t").await, "0");
    let more = json!({"options": {"read_only": false, "inline_max_rows": 1001}});
    let event = pipe.run_with("b", sql, more).await;
    assert_eq!((&event["code"], &event["row_count"]), (&json!("result"), &json!(1001)), "{}", event["code"]);
    assert_eq!(db.value("select count(*) from t").await, "1001");
    let event = pipe.run_with("c", "insert into t values (1, 'y')", json!({"options": {"read_only": false}})).await;
    assert_eq!((&event["sqlstate"], &event["detail"]), (&json!("23505"), &json!("Key (a)=(1) already exists.")));
    pipe.finish().await;
}

#[tokio::test]
async fn a_write_whose_reader_has_gone_before_it_ends_is_rolled_back() {
    // A result in one piece is written at the end only: the closed reader must be detected before.
    let db = database().await;
    drop(table(&db).await);
    // With this lock the test sees the start of the statement and lets it continue.
    let gate = db.connect().await;
    gate.batch_execute("select pg_advisory_lock(7)").await.unwrap();
    let sql = "insert into t select 1 from (select pg_advisory_xact_lock(7)) gate";
    for front_end_name in ["query", "pipe"] {
        let mut command = front_end(front_end_name, &db);
        if front_end_name == "query" {
            command.args(["--write", "--lock-timeout-ms", "0", "--sql", sql]);
        }
        let pipes = command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        let mut child = pipes.spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        let line =
            json!({"code": "query", "id": "a", "sql": sql, "options": {"read_only": false, "lock_timeout_ms": 0}});
        tokio::io::AsyncWriteExt::write_all(&mut input, format!("{line}\n").as_bytes()).await.unwrap();
        let waits =
            "select count(*) from pg_stat_activity where wait_event = 'advisory' and datname = current_database()";
        db.until_value(waits, "1").await;
        drop(child.stdout.take());
        let gone = Instant::now();
        db.until_value(waits, "0").await;
        assert!(gone.elapsed() < Duration::from_secs(10), "{front_end_name}: it is noticed while the statement waits");
        let status = tokio::time::timeout(Duration::from_secs(20), child.wait()).await.unwrap().unwrap();
        assert_eq!(status.code(), Some(1), "{front_end_name}");
        gate.batch_execute("select pg_advisory_unlock(7); select pg_advisory_lock(7)").await.unwrap();
        assert_eq!(db.value("select count(*) from t").await, "0", "{front_end_name}");
    }
}

#[tokio::test]
async fn a_write_is_rolled_back_when_its_reader_closes() {
    let db = database().await;
    drop(table(&db).await);
    let mut command = front_end("query", &db);
    let sql = "insert into t select i, repeat('z', 1000) from generate_series(1, 20000) i returning a, b";
    command.args(["--write", "--stream-rows", "--sql", sql]);
    let mut child = command.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut output = child.stdout.take().unwrap();
    let mut some = [0; 100];
    tokio::io::AsyncReadExt::read_exact(&mut output, &mut some).await.unwrap();
    drop(output);
    let status = tokio::time::timeout(Duration::from_secs(20), child.wait()).await.expect("it ends").unwrap();
    assert_eq!(status.code(), Some(1));
    let settled = "select count(*) from pg_stat_activity where datname = current_database() and query like 'insert%' \
                   and pid <> pg_backend_pid() and state <> 'idle'";
    db.until_value(settled, "0").await;
    assert_eq!(db.value("select count(*) from t").await, "0");
}

#[tokio::test]
async fn a_write_that_is_cancelled_is_not_there() {
    let db = database().await;
    let mut pipe = table(&db).await;
    let sql = "insert into t select 1, pg_sleep(600)::text";
    pipe.send(json!({"code": "query", "id": "a", "sql": sql, "options": {"read_only": false}})).await;
    let running = "select count(*) from pg_stat_activity where query like 'insert%' and state = 'active' \
                   and datname = current_database() and pid <> pg_backend_pid()";
    db.until_value(running, "1").await;
    pipe.send(json!({"code": "cancel", "id": "a"})).await;
    assert_eq!(pipe.last_event_of("a").await["error_code"], "cancelled");
    assert_eq!(db.value("select count(*) from t").await, "0");
    pipe.finish().await;
}

/// Without a ledger the outcome is unknown, and the error reports that.
#[tokio::test]
async fn a_lost_answer_to_commit_is_an_unknown_outcome() {
    let db = database().await;
    drop(table(&db).await);
    for (number, (when, written)) in
        [(FaultPoint::AfterCommit, "1"), (FaultPoint::BeforeCommit, "0")].into_iter().enumerate()
    {
        let proxy = Proxy::before(&db);
        proxy.arm(when, ConnectionFault::Cut);
        let mut command = bare_front_end("pipe");
        command.arg("--conninfo-secret").arg(proxy.url());
        let mut pipe = Pipe::start(command);
        let sql = format!("insert into t values ({number}, 'x')");
        let event = pipe.run_with("a", &sql, json!({"options": {"read_only": false}})).await;
        assert_eq!(
            (&event["code"], &event["error_code"]),
            (&json!("error"), &json!("commit_outcome_unknown")),
            "{event}"
        );
        assert_eq!(event["retryable"], false);
        assert_eq!(db.value(&format!("select count(*) from t where a = {number}")).await, written);
        pipe.finish().await;
    }
}

#[tokio::test]
async fn a_statement_cannot_execute_itself() {
    let db = database().await;
    let mut pipe = table(&db).await;
    for sql in ["execute countersign_query", "execute countersign_1", "execute countersign_2"] {
        let event = pipe.run_with("a", sql, json!({"options": {"read_only": false}})).await;
        assert_eq!(event["code"], "sql_error", "{sql}: {event}");
    }
    assert_eq!(pipe.run("b", "select 1 as n").await["code"], "result");
    pipe.finish().await;
}

#[tokio::test]
async fn commands_have_postgresqls_own_tags() {
    let db = database().await;
    let mut pipe = table(&db).await;
    for (sql, tag) in [
        ("create table u (a int)", "CREATE TABLE"),
        ("insert into u values (1), (2), (3)", "INSERT 0 3"),
        ("update u set a = a + 1 where a < 3", "UPDATE 2"),
        ("/* a comment */ DELETE\nFROM u", "DELETE 3"),
        ("insert into u values (9) returning a", "ROWS 1"),
        ("truncate u", "TRUNCATE TABLE"),
        ("drop table u", "DROP TABLE"),
    ] {
        let event = pipe.run_with("a", sql, json!({"options": {"read_only": false}})).await;
        assert_eq!(event["command_tag"], tag, "{sql}: {event}");
    }
    pipe.finish().await;
}
