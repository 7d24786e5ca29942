//! A network that drops every packet silently: the result comes within 5 s after the statement's timeout.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use testkit::{ConnectionFault, Database, FaultPoint, Pipe, Proxy, bare_front_end, database};
use tokio::time::Instant;

/// A `statement_timeout_ms` of 1000, and 5 s.
const BOUND: Duration = Duration::from_secs(6);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
    InTransaction,
    Recorded,
    InRecordedTransaction,
}

fn query(id: &str, sql: &str, is_write: bool) -> Value {
    let options = json!({"read_only": !is_write, "statement_timeout_ms": 1000});
    json!({"code": "query", "id": id, "sql": sql, "options": options})
}

fn pipe_through(proxy: &Proxy, flag: Option<&str>) -> Pipe {
    let mut command = bare_front_end("pipe");
    command.arg("--conninfo-secret").arg(proxy.url()).args(flag);
    Pipe::start(command)
}

async fn terminal_within_bound(pipe: &mut Pipe, command: Value, what: &str) -> Value {
    let began = Instant::now();
    let id = command["id"].as_str().expect("an id").to_owned();
    pipe.send(command).await;
    let event = pipe.last_event_of(&id).await;
    assert!(began.elapsed() < BOUND, "{what}: {:?} until {event}", began.elapsed());
    event
}

async fn swallowed(db: &Database, kind: Kind) {
    let proxy = Proxy::before(db);
    let is_recorded = matches!(kind, Kind::Recorded | Kind::InRecordedTransaction);
    let mut pipe = pipe_through(&proxy, (!is_recorded).then_some("--no-audit"));
    let is_write = kind != Kind::Read;
    if matches!(kind, Kind::InTransaction | Kind::InRecordedTransaction) {
        pipe.send(json!({"code": "begin", "id": "begin", "options": {"read_only": false}})).await;
        pipe.last_event_of("begin").await;
    }
    let sql = if is_write { "insert into t values (1) returning a" } else { "select 1 as a" };
    pipe.send(query("before", sql, is_write)).await;
    let before = pipe.last_event_of("before").await;
    assert_eq!(before["code"], "result", "{kind:?}: {before}");
    let slow = if is_write {
        format!("insert into t select 1 from pg_sleep(0.7) /* {kind:?} */")
    } else {
        format!("select pg_sleep(0.7) /* {kind:?} */")
    };
    let running = format!(
        "select 1 from pg_stat_activity where query like '%pg_sleep(0.7) /* {kind:?} */' and wait_event = 'PgSleep'"
    );
    let silence = async {
        db.first_value(&running).await;
        proxy.swallow();
    };
    let what = format!("{kind:?}");
    let (event, ()) = tokio::join!(terminal_within_bound(&mut pipe, query("after", &slow, is_write), &what), silence);
    assert_eq!(event["code"], "error", "{kind:?}: {event}");
    assert_ne!(event["error_code"], "commit_outcome_unknown", "{kind:?}: no COMMIT was sent: {event}");
    pipe.finish().await;
}

/// PostgreSQL has committed, and its answer never arrives.
async fn unanswered_commit(db: &Database, flag: Option<&str>) {
    let proxy = Proxy::before(db);
    let mut pipe = pipe_through(&proxy, flag);
    let fired = proxy.arm(FaultPoint::AfterCommit, ConnectionFault::Freeze);
    let command = query("w", "insert into c values (1)", true);
    let event = terminal_within_bound(&mut pipe, command, &format!("COMMIT, {flag:?}")).await;
    fired.await.expect("it was committed");
    let is_unknown = event["error_code"] == "commit_outcome_unknown";
    // The ledger is asked on a new connection, and knows.
    assert!(is_unknown || flag.is_none() && event["code"] == "result", "{event}");
    pipe.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_answer_comes_within_five_seconds_of_the_timeout_when_the_network_goes_silent() {
    let db = database().await;
    db.run("create table t (a int); create table c (a int)").await;
    let kinds = [Kind::Read, Kind::Write, Kind::InTransaction, Kind::Recorded, Kind::InRecordedTransaction];
    let swallowed = join_all(kinds.map(|kind| swallowed(&db, kind)));
    tokio::join!(swallowed, unanswered_commit(&db, Some("--no-audit")), unanswered_commit(&db, None));
    assert_eq!(db.value("select count(*) from c").await, "2");
}
