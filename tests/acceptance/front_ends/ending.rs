//! Every accepted query has exactly one end: also at close, at the end of the input, at a signal, and when PostgreSQL
//! goes away.

use std::collections::HashMap;
use std::process::Stdio;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use testkit::{Database, FrontEndOutput, Pipe, database, front_end, is_terminal, lone_database};
use tokio::io::AsyncReadExt;
use tokio::process::Command;

fn ends(events: &[Value]) -> HashMap<&str, Vec<&Value>> {
    let mut ends: HashMap<&str, Vec<&Value>> = HashMap::new();
    for event in events.iter().filter(|event| is_terminal(event)) {
        ends.entry(event["id"].as_str().unwrap_or_default()).or_default().push(event);
    }
    ends
}

/// Some queries that end soon and some that never do; all of them run when this returns.
async fn busy(db: &Database) -> Pipe {
    let mut pipe = Pipe::on(db);
    for number in 0..3 {
        pipe.query(&format!("never{number}"), "select pg_sleep(600)").await;
    }
    pipe.query("soon", "select pg_sleep(1) as v").await;
    let running = "select count(*) from pg_stat_activity where datname = current_database() and state = 'active' \
                   and query like 'select pg_sleep(%' and pid <> pg_backend_pid()";
    db.until_value(running, "4").await;
    pipe
}

fn each_has_one_end(told: &FrontEndOutput) {
    let ends = ends(&told.events);
    for id in ["never0", "never1", "never2", "soon"] {
        assert_eq!(ends.get(id).map(Vec::len), Some(1), "{id}: {:?}", told.events);
        assert!(id == "soon" || ends[id][0]["error_code"] == "cancelled", "{:?}", ends[id]);
    }
    assert_eq!(ends["soon"][0]["code"], "result", "what ends within 5 s is waited for");
    assert_eq!(told.events.last().unwrap()["code"], "close");
    assert_eq!(told.status, 0);
}

async fn nothing_runs(db: &Database) {
    let running = "select coalesce(string_agg(query, '; '), '') from pg_stat_activity \
                   where datname = current_database() and state = 'active' and pid <> pg_backend_pid()";
    // The reset after the last answer may still run when the process has ended; a query would run for 600 s.
    db.until_value(running, "").await;
}

/// Ends a busy pipe in some way.
async fn ended(end: impl AsyncFnOnce(Pipe) -> FrontEndOutput) {
    let db = database().await;
    each_has_one_end(&end(busy(&db).await).await);
    nothing_runs(&db).await;
}

#[tokio::test]
async fn close_the_end_of_the_input_and_a_signal_wait_and_then_cancel() {
    let close = ended(async |mut pipe| {
        pipe.send(json!({"code": "close"})).await;
        pipe.rest().await
    });
    let end_of_input = ended(async |pipe| pipe.finish().await);
    let signal = ended(async |pipe| {
        send(&pipe, Signal::SIGTERM);
        pipe.rest().await
    });
    let hangup = ended(async |pipe| {
        // What ignores it, as under nohup, goes on: then this is one more SIGTERM.
        send(&pipe, if ignores_hangups() { Signal::SIGTERM } else { Signal::SIGHUP });
        pipe.rest().await
    });
    tokio::join!(close, end_of_input, signal, hangup);
}

/// Whether the tests themselves run under nohup, so that what they start ignores hangups as well.
fn ignores_hangups() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap_or_default().trim();
    u64::from_str_radix(ignored, 16).is_ok_and(|signals| signals & 1 == 1)
}

fn send(pipe: &Pipe, signal: Signal) {
    kill(Pid::from_raw(pipe.id().cast_signed()), signal).unwrap();
}

#[tokio::test]
async fn a_second_signal_cancels_at_once_and_every_query_has_its_end() {
    let db = database().await;
    let mut pipe = Pipe::on(&db);
    pipe.query("long", "select pg_sleep(600)").await;
    db.until_value(LONG, "1").await;
    let started = Instant::now();
    let id = pipe.id().cast_signed();
    // A signal that comes while the one before it is pending is the same one.
    let signals = tokio::spawn(async move {
        while kill(Pid::from_raw(id), Signal::SIGINT).is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let cancelled = pipe.last_event_of("long").await;
    signals.abort();
    assert_eq!(cancelled["error_code"], "cancelled");
    let told = pipe.rest().await;
    assert_eq!((&told.events.last().unwrap()["code"], told.status), (&json!("close"), 0));
    assert!(started.elapsed() < Duration::from_secs(4), "the first signal alone gives it 5 s: {:?}", started.elapsed());
    nothing_runs(&db).await;
}

const LONG: &str = "select count(*) from pg_stat_activity where datname = current_database() and state = 'active' \
                    and query like 'select pg_sleep(600)%' and pid <> pg_backend_pid()";

#[tokio::test]
async fn a_hangup_ends_one_statement_in_order_unless_the_process_ignores_it() {
    let db = database().await;
    for is_ignored in [false, true].into_iter().filter(|is_ignored| *is_ignored || !ignores_hangups()) {
        let mut query = front_end("query", &db);
        query.args(["--sql", "select pg_sleep(600)"]);
        let mut command = query;
        if is_ignored {
            let inner = command.as_std();
            let mut nohup = Command::new("nohup");
            nohup.arg(inner.get_program()).args(inner.get_args()).kill_on_drop(true);
            command = nohup;
        }
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        db.until_value(LONG, "1").await;
        let pid = Pid::from_raw(child.id().unwrap().cast_signed());
        kill(pid, Signal::SIGHUP).unwrap();
        if is_ignored {
            assert_eq!(db.value(LONG).await, "1");
            kill(pid, Signal::SIGTERM).unwrap();
        }
        let mut said = String::new();
        child.stdout.take().unwrap().read_to_string(&mut said).await.unwrap();
        assert!(said.contains("\"error_code\":\"cancelled\"") && said.lines().count() == 1, "{said}");
        assert_eq!(child.wait().await.unwrap().code(), Some(1));
        db.until_value(LONG, "0").await;
    }
}

#[tokio::test]
async fn a_backend_checks_its_client_during_any_statement() {
    // The test reads the setting. PostgreSQL does the checking.
    let db = database().await;
    let mut pipe = Pipe::on(&db);
    let sql = "select current_setting('client_connection_check_interval') as every";
    for (has_ledger, read_only) in [(true, true), (true, false), (false, false)] {
        if !has_ledger {
            db.run("drop schema countersign cascade").await;
            pipe.finish().await;
            pipe = Pipe::on(&db);
        }
        let options = json!({"read_only": read_only});
        let alone = pipe.run_with("q", sql, json!({"options": options})).await;
        assert_eq!(alone["rows"], json!([{"every": "2s"}]), "{has_ledger} {read_only}: {alone}");
        pipe.send(json!({"code": "begin", "id": "begin", "options": options})).await;
        assert_eq!(pipe.last_event_of("begin").await["command_tag"], "BEGIN");
        let within = pipe.run("q", sql).await;
        assert_eq!(within["rows"], json!([{"every": "2s"}]), "{has_ledger} {read_only}: {within}");
        pipe.send(json!({"code": "rollback", "id": "rollback"})).await;
        assert_eq!(pipe.last_event_of("rollback").await["command_tag"], "ROLLBACK");
    }
    pipe.finish().await;
}
#[tokio::test]
async fn a_query_reports_a_lost_postgresql_and_the_pipe_continues() {
    // connection_lost, and again when it is back
    let db = lone_database().await;
    let mut pipe = busy(&db).await;
    let cluster = db.cluster().clone();
    tokio::task::spawn_blocking(move || cluster.kill9().expect("it is killed")).await.unwrap();
    for id in ["never0", "never1", "never2"] {
        let event = pipe.last_event_of(id).await;
        assert_eq!((&event["error_code"], &event["retryable"]), (&json!("connection_lost"), &json!(true)), "{event}");
    }
    let refused = pipe.run("now", "select 1 as n").await;
    assert_eq!((&refused["error_code"], &refused["retryable"]), (&json!("connect_failed"), &json!(true)), "{refused}");
    let cluster = db.cluster().clone();
    tokio::task::spawn_blocking(move || cluster.restart().expect("it starts")).await.unwrap();
    assert_eq!(pipe.run("later", "select 1 as n").await["rows"], json!([{"n": 1}]));
    pipe.finish().await;
}

#[tokio::test]
async fn a_backend_that_is_terminated_is_a_lost_connection() {
    let db = database().await;
    let mut pipe = busy(&db).await;
    db.run("select pg_terminate_backend(pid) from pg_stat_activity where query = 'select pg_sleep(600)' and pid <> pg_backend_pid()")
        .await;
    for id in ["never0", "never1", "never2"] {
        assert_eq!(pipe.last_event_of(id).await["error_code"], "connection_lost", "{id}");
    }
    pipe.finish().await;
}
