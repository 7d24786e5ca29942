//! A committed write whose result cannot be delivered: exit code 3 and one line on standard error with the
//! receipt, never a failure.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Output, Stdio};

use serde_json::json;
use testkit::{Database, FrontEndOutput, Pipe, SmallDisk, database, external, front_end};
use tokio::io::Interest;
use tokio::net::unix::pipe;
use tokio::process::Command;

/// The exit code.
const RESULT_LOST: i32 = 3;

const FRONT_ENDS: [&str; 3] = ["query", "pipe", "psql"];

/// This write by this front end.
fn write(front_end_name: &str, db: &Database, sql: &str, is_streamed: bool) -> (Command, String) {
    let mut command = front_end(front_end_name, db);
    let options = json!({"read_only": false, "lock_timeout_ms": 0, "stream_rows": is_streamed});
    let line = json!({"code": "query", "id": "query", "sql": sql, "options": options});
    if front_end_name != "pipe" {
        let flag = if front_end_name == "psql" { "-c" } else { "--sql" };
        command.args(["--write", "--lock-timeout-ms", "0", flag, sql]);
        if is_streamed {
            command.arg("--stream-rows");
        }
        return (command, String::new());
    }
    (command, format!("{line}\n"))
}

/// Runs it with standard output to this file.
async fn run((mut command, input): (Command, String), output: File) -> Output {
    let mut child = command.stdin(Stdio::piped()).stdout(output).stderr(Stdio::piped()).spawn().unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut child.stdin.take().unwrap(), input.as_bytes()).await.unwrap();
    child.wait_with_output().await.unwrap()
}

/// The receipt of the newest record, or what is said where there is no ledger.
async fn receipt(db: &Database, has_ledger: bool) -> String {
    let newest = "select correlation_id from countersign.mutation order by admitted_at desc limit 1";
    if has_ledger { format!("receipt {}", db.value(newest).await) } else { "no receipt".to_owned() }
}

fn is_lost(output: &Output, receipt: &str, case: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(RESULT_LOST), "{case}: {said}");
    assert!(said.starts_with("countersign: committed, result lost: ") && said.lines().count() == 1, "{case}: {said}");
    assert!(said.contains(receipt), "{case}: {said}");
}

fn full_device() -> File {
    File::options().write(true).open("/dev/full").unwrap()
}

/// A database with a table `t`, and without a ledger unless one is wanted.
async fn table(has_ledger: bool) -> Database {
    let db = database().await;
    if !has_ledger {
        db.run("drop schema countersign cascade").await;
    }
    db.run("create table t (a int)").await;
    db
}

#[tokio::test]
async fn on_a_device_that_is_full() {
    for has_ledger in [true, false] {
        let db = table(has_ledger).await;
        for (name, is_streamed) in FRONT_ENDS.into_iter().flat_map(|name| [(name, false), (name, true)]) {
            let case = format!("{name}, streamed {is_streamed}, ledger {has_ledger}");
            db.run("truncate t").await;
            let output = run(write(name, &db, "insert into t values (1)", is_streamed), full_device()).await;
            is_lost(&output, &receipt(&db, has_ledger).await, &case);
            assert_eq!(db.value("select count(*) from t").await, "1", "{case}");

            // Rows of a stream are written before the commit: then there is none.
            let output =
                run(write(name, &db, "insert into t values (2) returning a", is_streamed), full_device()).await;
            if is_streamed {
                assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(1), &[][..]), "{case}");
            } else {
                is_lost(&output, &receipt(&db, has_ledger).await, &case);
            }
            let expected = if is_streamed { "1" } else { "2" };
            assert_eq!(db.value("select count(*) from t").await, expected, "{case}");
        }
        // A read has nothing to lose.
        let mut read = front_end("query", &db);
        read.args(["--sql", "select 1"]);
        let output = run((read, String::new()), full_device()).await;
        assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(1), &[][..]));
    }
}

/// Fills the small disk so that a file of one page is left.
fn fill(disk: &Path) -> File {
    File::create(disk.join("filler")).unwrap().write_all(&[0; PAGE_BYTES]).unwrap();
    File::create(disk.join("output")).unwrap()
}

const PAGE_BYTES: usize = 4096;

#[tokio::test]
async fn on_a_disk_that_is_full() {
    let db = table(true).await;
    for (name, is_streamed) in FRONT_ENDS.into_iter().flat_map(|name| [(name, false), (name, true)]) {
        let case = format!("{name}, streamed {is_streamed}");
        let disk = match SmallDisk::mount(2 * PAGE_BYTES as u64, None) {
            Ok(disk) => disk,
            Err(reason) => {
                return external::skip_unprivileged(&format!("only root can mount a small file system: {reason}"));
            }
        };
        // Everything fits but the last event, of which some bytes do.
        let sql = |length: usize| format!("insert into t values (1) returning repeat('z', {length}) as z");
        let (mut command, input) = write(name, &db, &sql(1), true);
        let before = match name {
            "pipe" => {
                let mut pipe = Pipe::start(command);
                pipe.line(input.trim()).await;
                pipe.finish().await.events
            }
            _ => FrontEndOutput::of(&mut command).await.events,
        };
        let taken: usize = before.iter().take(2).map(|event| event.to_string().len() + 1).sum();
        let length = PAGE_BYTES - 20 - taken + 1;
        db.run("truncate t").await;
        let output = run(write(name, &db, &sql(length), is_streamed), fill(disk.path())).await;
        is_lost(&output, &receipt(&db, true).await, &case);
        assert_eq!(db.value("select count(*) from t").await, "1", "{case}");
    }
}

#[tokio::test]
async fn a_pipe_closed_during_a_commit() {
    let db = table(false).await;
    // With this lock the test sees the start of COMMIT and lets it continue.
    db.run(
        "create function wait() returns trigger language plpgsql as $$ begin perform pg_advisory_xact_lock(7); return null; end $$; \
         create constraint trigger wait after insert on t deferrable initially deferred for each row execute function wait()",
    )
    .await;
    let gate = db.connect().await;
    gate.batch_execute("select pg_advisory_lock(7)").await.unwrap();
    for (name, is_streamed) in FRONT_ENDS.into_iter().flat_map(|name| [(name, false), (name, true)]) {
        let sent = write(name, &db, "insert into t values (1) returning a", is_streamed);
        let output = read_until_commit(sent, &db, &gate).await;
        is_lost(&output, "no receipt", &format!("{name}, streamed {is_streamed}"));
        assert_eq!(db.value("select count(*) from t").await, "1", "{name}, streamed {is_streamed}");
        db.run("truncate t").await;
    }
    let transaction = [
        json!({"code": "begin", "id": "b", "options": {"read_only": false}}),
        json!({"code": "query", "id": "q", "sql": "insert into t values (2)", "options": {"lock_timeout_ms": 0}}),
        json!({"code": "commit", "id": "c"}),
    ];
    let lines = transaction.iter().map(|line| format!("{line}\n")).collect();
    let output = read_until_commit((front_end("pipe", &db), lines), &db, &gate).await;
    is_lost(&output, "\"c\" (COMMIT; no receipt", "a transaction");
    assert_eq!(db.value("select count(*) from t").await, "1", "a transaction");
}

/// Runs it with a reader that goes away while it commits.
async fn read_until_commit(
    (mut command, input): (Command, String),
    db: &Database,
    gate: &tokio_postgres::Client,
) -> Output {
    let (writes, reads) = pipe::pipe().unwrap();
    let stdout = Stdio::from(writes.as_fd().try_clone_to_owned().unwrap());
    let mut child = command.stdin(Stdio::piped()).stdout(stdout).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut stdin, input.as_bytes()).await.unwrap();
    let waits = "select count(*) from pg_stat_activity where wait_event = 'advisory' and datname = current_database()";
    db.until_value(waits, "1").await;
    drop(reads);
    // A process that is just being started has every descriptor of this one for a moment.
    writes.ready(Interest::ERROR).await.unwrap();
    gate.batch_execute("select pg_advisory_unlock(7)").await.unwrap();
    let output = child.wait_with_output().await.unwrap();
    gate.batch_execute("select pg_advisory_lock(7)").await.unwrap();
    output
}
