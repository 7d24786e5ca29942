//! Exactly once, whoever dies: identical calls at once, dead servers, lost connections, an isolation level of the operator's.

use std::time::{Duration, Instant};

use testkit::{Database, long_form, poll};

use crate::server::{Outcome, perform};
use crate::support::{Call, ledger, lone_ledger, outcome, run, server};

const TABLE: &str =
    "create schema s; create table s.t (id int primary key, n int not null); insert into s.t values (1, 0);
                     select countersign.track('s.t')";
const INCREMENT: &str = "update s.t set n = n + 1 where id = 1";

/// Eight sessions make the same calls at the same time; the number of calls, and of those that wrote.
async fn race(database: &Database, rounds: usize, keyed: bool) -> (usize, usize) {
    let calls: Vec<Call> = (0..rounds)
        .map(|round| {
            let call = Call::new("increment", &format!("{round} {keyed}"));
            if keyed { call.keyed(&format!("key {round}")) } else { call }
        })
        .collect();
    let workers = (0..8).map(|worker| {
        let (database, calls) = (database.clone(), calls.clone());
        tokio::spawn(async move {
            let mut session = server(&database).await;
            let mut written = 0;
            for call in &calls {
                // A conflict of isolation is retried, as an agent does it.
                loop {
                    match perform(
                        &database,
                        &mut session,
                        &Call { is_admitted_first: worker % 2 == 0, ..call.again() },
                        INCREMENT,
                    )
                    .await
                    {
                        Outcome::Success => written += 1,
                        Outcome::Failed(code) if code == "40001" => continue,
                        // Another server's increment came later on the same row.
                        Outcome::Duplicate(_) | Outcome::AdmitDecision(_) => {}
                        other => panic!("{other:?}"),
                    }
                    break;
                }
            }
            written
        })
    });
    let mut written = 0;
    for worker in workers.collect::<Vec<_>>() {
        written += worker.await.unwrap();
    }
    (rounds, written)
}

async fn check(database: &Database, wanted: usize) {
    assert_eq!(database.value("select n from s.t").await, wanted.to_string());
    assert_eq!(
        database.value("select count(*) from countersign.record where status = 'success'").await,
        wanted.to_string()
    );
    assert_eq!(database.value("select count(*) from countersign.effect").await, wanted.to_string());
    assert_eq!(database.value("select count(*) from countersign.attempt").await, "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn identical_calls_at_once_write_once() {
    let database = ledger("race").await;
    database.run(TABLE).await;
    let (calls, written) = race(&database, 20, false).await;
    assert_eq!(written, calls);
    check(&database, calls).await;
    let (keyed, written) = race(&database, 20, true).await;
    assert_eq!(written, keyed);
    check(&database, calls + keyed).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn identical_calls_write_once_when_the_database_is_serializable() {
    let database = ledger("race_serializable").await;
    database.run(TABLE).await;
    database.run("alter database race_serializable set default_transaction_isolation = 'serializable'").await;
    let (calls, written) = race(&database, 8, false).await;
    assert_eq!(written, calls);
    check(&database, calls).await;
}

/// The identical call of another server, after this one was killed at `statements` behind its admission.
async fn after_a_kill(database: &Database, statements: &str) -> Duration {
    let call = Call::new("increment", statements);
    let dead = server(database).await;
    let pid = run(&dead, "select pg_backend_pid()").await.unwrap().remove(0);
    run(&dead, &format!("{} and chain; {}", call.admission(), statements.replace("CLAIM", &call.claim(false))))
        .await
        .unwrap();
    database.run(&format!("select pg_terminate_backend({pid})")).await;
    let since = Instant::now();
    let mut alive = server(database).await;
    assert_eq!(perform(database, &mut alive, &call.again(), INCREMENT).await, Outcome::Success);
    assert_eq!(outcome(database, call.correlation_id).await, "failure in_doubt_aborted");
    since.elapsed()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_server_does_not_block_other_writes() {
    let database = ledger("dead_server").await;
    database.run(TABLE).await;
    for (statements, wanted) in [("select 1", "1"), ("CLAIM", "2"), ("CLAIM; update s.t set n = n + 100", "3")] {
        let took = after_a_kill(&database, statements).await;
        assert!(took < Duration::from_secs(2), "{statements}: {took:?}");
        assert_eq!(database.value("select n from s.t").await, wanted);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fenced_server_cannot_write_any_more() {
    let database = ledger("fenced").await;
    database.run(TABLE).await;
    let (call, session) = (Call::new("increment", "late"), server(&database).await);
    run(&session, &call.admission()).await.unwrap();
    let swept = run(&server(&database).await, "select countersign.sweep('0 s', 10)").await.unwrap();
    assert_eq!(swept, [call.correlation_id.to_string()]);
    let refused = run(&session, &format!("begin; {}", call.claim(false))).await.unwrap_err();
    assert_eq!((refused.code.as_str(), refused.detail.as_str()), ("CS001", "fenced"));
    // One that is being carried out is passed over.
    run(&session, "rollback").await.unwrap();
    let call = Call::new("increment", "busy");
    run(&session, &format!("{}; {INCREMENT}", call.clone().admitted_first().begin())).await.unwrap();
    assert_eq!(
        run(&server(&database).await, "select countersign.sweep('0 s', 10)").await.unwrap(),
        Vec::<String>::new()
    );
    run(&session, &call.finish()).await.unwrap();
    check(&database, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_connection_resolves_to_the_truth() {
    let database = ledger("resolved").await;
    database.run(TABLE).await;
    let mut session = server(&database).await;
    let (written, lost, late) = (Call::new("t", "1"), Call::new("t", "2"), Call::new("t", "3"));
    written.run(&session, INCREMENT).await.unwrap();
    assert_eq!(crate::server::resolve(&database, &mut session, &written).await, "success");
    run(&session, &lost.admission()).await.unwrap();
    assert_eq!(crate::server::resolve(&database, &mut session, &lost).await, "failure");
    // It never arrived; or arrives after the truth was told.
    assert_eq!(crate::server::resolve(&database, &mut session, &late).await, "failure");
    let refused = late.run(&session, INCREMENT).await.unwrap_err();
    assert_eq!(refused.code, "23505");
    run(&session, "select countersign.sweep('0 s', 10)").await.unwrap();
    assert_eq!(outcome(&database, late.correlation_id).await, "failure in_doubt_aborted");
    check(&database, 1).await;

    // Resolving waits for a transaction that still runs, and then says what it did.
    for busy in [Call::new("t", "4"), Call::new("t", "5").admitted_first()] {
        run(&session, &format!("{}; {INCREMENT}", busy.begin())).await.unwrap();
        let waiting = tokio::spawn({
            let (database, busy) = (database.clone(), busy.clone());
            async move { crate::server::resolve(&database, &mut server(&database).await, &busy).await }
        });
        let waits =
            "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
        poll::until("resolve waits", async || database.value(waits).await == "1").await;
        run(&session, &busy.finish()).await.unwrap();
        assert_eq!(waiting.await.unwrap(), "success");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_was_killed_leaves_nothing_and_its_slot_is_free_at_once() {
    let database = ledger("killed").await;
    database.run(TABLE).await;
    let (call, dead, mut alive) = (Call::new("t", "1").keyed("k"), server(&database).await, server(&database).await);
    let pid = run(&dead, "select pg_backend_pid()").await.unwrap().remove(0);
    run(&dead, &format!("{}; {INCREMENT}", call.begin())).await.unwrap();
    // An identical call does not wait with a session of its own.
    assert_eq!(call.again().run(&alive, INCREMENT).await.unwrap_err().detail, "in_flight");
    assert_eq!(run(&alive, &call.again().admit()).await.unwrap(), ["in_flight"]);
    assert_eq!(call.again().admitted_first().run(&alive, INCREMENT).await.unwrap_err().detail, "in_flight");
    database.run(&format!("select pg_terminate_backend({pid})")).await;
    assert_eq!(perform(&database, &mut alive, &call.again(), INCREMENT).await, Outcome::Success);
    assert_eq!(database.value("select count(*) from countersign.record").await, "1");
    check(&database, 1).await;
}

/// A snapshot of before the lock would not see the record of the call that had it.
#[tokio::test(flavor = "multi_thread")]
async fn a_write_begins_in_read_committed_transactions_only() {
    let database = ledger("isolation").await;
    database.run(TABLE).await;
    let session = server(&database).await;
    for level in ["repeatable read", "serializable"] {
        let begin = Call::new("t", level).begin().replace("read committed", level);
        assert_eq!(run(&session, &begin).await.unwrap_err().detail, "in_flight");
        run(&session, "rollback").await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_runs_for_long_is_shown_and_swept_if_its_server_dies() {
    let database = ledger("reported").await;
    database.run(TABLE).await;
    let (session, other) = (server(&database).await, server(&database).await);
    let [written, failed, dead] = ["written", "failed", "dead"].map(|name| Call::new("t", name));
    run(&session, &format!("{}; {INCREMENT}", written.begin())).await.unwrap();
    run(&other, &written.report()).await.unwrap();
    assert_eq!(outcome(&database, written.correlation_id).await, "pending");
    run(&session, &written.finish()).await.unwrap();
    // The record counts, before the report is withdrawn, and without that.
    assert_eq!(outcome(&database, written.correlation_id).await, "success");
    let sweep = "select countersign.sweep('0 s', 10)";
    assert_eq!(run(&other, sweep).await.unwrap(), Vec::<String>::new());
    assert_eq!(outcome(&database, written.correlation_id).await, "success");

    run(&session, &failed.begin()).await.unwrap();
    run(&other, &failed.report()).await.unwrap();
    run(&session, &format!("rollback; {}", failed.fail("sql_error", "{}"))).await.unwrap();
    run(&other, &format!("select countersign.withdraw_report('{}')", failed.correlation_id)).await.unwrap();
    assert_eq!(outcome(&database, failed.correlation_id).await, "failure sql_error");

    // Not while it runs.
    run(&session, &format!("{}; {INCREMENT}", dead.begin())).await.unwrap();
    run(&other, &dead.report()).await.unwrap();
    assert_eq!(run(&other, sweep).await.unwrap(), Vec::<String>::new());
    run(&session, "rollback").await.unwrap();
    assert_eq!(run(&other, sweep).await.unwrap(), [dead.correlation_id.to_string()]);
    assert_eq!(outcome(&database, dead.correlation_id).await, "failure in_doubt_aborted");
    check(&database, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn committed_rows_without_an_outcome_are_never_reported_as_unwritten() {
    let database = ledger("unfinished").await;
    database.run(TABLE).await;
    let session = server(&database).await;
    for call in [Call::new("t", "1"), Call::new("t", "2").admitted_first()] {
        run(&session, &format!("{}; {INCREMENT}; commit", call.begin())).await.unwrap();
        run(&session, "select countersign.sweep('0 s', 10)").await.unwrap();
        assert_eq!(outcome(&database, call.correlation_id).await, "failure unfinished");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_statement_is_recorded_and_can_be_repeated() {
    let database = ledger("failed").await;
    database.run(TABLE).await;
    let (call, mut session) = (Call::new("t", "1").keyed("k"), server(&database).await);
    assert_eq!(perform(&database, &mut session, &call, "select 1 / 0").await, Outcome::Failed("22012".to_owned()));
    assert_eq!(outcome(&database, call.correlation_id).await, "failure sql_error");
    // The key stays bound to its arguments.
    let other = Call { params: "other".to_owned(), ..call.again() };
    assert_eq!(
        perform(&database, &mut session, &other, INCREMENT).await,
        Outcome::AdmitDecision("key_reused".to_owned())
    );
    assert_eq!(perform(&database, &mut session, &call.again(), INCREMENT).await, Outcome::Success);
    check(&database, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_duplicate_does_not_hide_the_success_that_it_met() {
    let database = ledger("dead_duplicate").await;
    database.run(TABLE).await;
    let (call, mut session) = (Call::new("t", "1").keyed("k"), server(&database).await);
    assert_eq!(perform(&database, &mut session, &call, INCREMENT).await, Outcome::Success);
    let dead = call.again();
    run(&session, &dead.admission()).await.unwrap();
    run(&session, "select countersign.sweep('0 s', 10)").await.unwrap();
    assert_eq!(outcome(&database, dead.correlation_id).await, "failure in_doubt_aborted");
    assert_eq!(
        perform(&database, &mut session, &call.again(), INCREMENT).await,
        Outcome::Duplicate(call.correlation_id)
    );
    check(&database, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_duplicate_that_never_arrived_does_not_hide_the_success_that_it_met() {
    let database = ledger("never_arrived").await;
    database.run("create schema s; create table s.t (n int); insert into s.t values (0)").await;
    let (session, other) = (server(&database).await, server(&database).await);
    let call = Call::new("t", "once").keyed("key");
    // The success is on record and not committed yet when the identical call is recorded as aborted, which does not wait for it.
    let (before_commit, _) = call
        .protocol("update s.t set n = n + 1")
        .rsplit_once("; commit")
        .map(|(a, b)| (a.to_owned(), b.to_owned()))
        .unwrap();
    run(&session, &before_commit).await.unwrap();
    run(&other, &call.again().record_failure("in_doubt_aborted", "{}")).await.unwrap();
    run(&session, "commit").await.unwrap();
    let again = call.again();
    assert_eq!(again.run(&other, "update s.t set n = n + 1").await.unwrap_err().code, "CS001");
    assert_eq!(run(&other, &again.admit()).await.unwrap(), [format!("standing {}", call.correlation_id)]);
    assert_eq!(database.value("select n from s.t").await, "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_preview_shows_every_effect_and_leaves_nothing() {
    let database = ledger("preview").await;
    database
        .run(&format!(
            "{TABLE}; create table s.k (id int primary key, t int references s.t on delete cascade); insert into s.k values (7, 1); select countersign.track('s.k')"
        ))
        .await;
    let (session, id) = (server(&database).await, uuid::Uuid::new_v4());
    let preview = format!(
        "select countersign.claim_preview('{id}', 'agent', 'ana', 'delete'); delete from s.t; set constraints all immediate"
    );
    let shown = format!("select key from countersign.net_changes('{{{id}}}') order by key");
    let keys = run(&session, &format!("begin; {preview}; {shown}; rollback")).await.unwrap();
    assert_eq!(keys[1..], [r#"{"id": 1}"#, r#"{"id": 7}"#]);
    for table in ["attempt", "record", "effect"] {
        assert_eq!(database.value(&format!("select count(*) from countersign.{table}")).await, "0", "{table}");
    }
    // It is no way around the gate.
    let refused = run(&session, &format!("begin; {preview}; select countersign.finish('{id}', '{{}}', '', 1)"))
        .await
        .unwrap_err();
    assert_eq!(refused.code, "CS001");
    run(&session, "rollback").await.unwrap();
    // Nor from within a write.
    let call = Call::new("t", "within");
    let refused = call.run(&session, &preview).await.unwrap_err();
    assert_eq!(refused.code, "42501");
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_writes_survive_a_crash_of_postgresql() {
    let database = lone_ledger("crash").await;
    database.run(TABLE).await;
    let until = Instant::now() + Duration::from_secs(long_form::choose(3, 30));
    let workers = (0..4).map(|_| {
        let database = database.clone();
        tokio::spawn(async move {
            let (mut session, mut acknowledged) = (server(&database).await, Vec::new());
            while Instant::now() < until {
                let call = Call::new("increment", &uuid::Uuid::new_v4().to_string());
                match perform(&database, &mut session, &call, INCREMENT).await {
                    Outcome::Success => acknowledged.push(call.correlation_id),
                    Outcome::Resolved(status) if status == "success" => acknowledged.push(call.correlation_id),
                    _ => {}
                }
            }
            acknowledged
        })
    });
    let workers: Vec<_> = workers.collect();
    let mut crashes = 0;
    while Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(700)).await;
        let cluster = std::sync::Arc::clone(database.cluster());
        let crash = move || cluster.stop_immediate().and_then(|()| cluster.restart());
        tokio::task::spawn_blocking(crash).await.unwrap().expect("PostgreSQL comes back");
        crashes += 1;
    }
    assert!(crashes > 1);
    let mut acknowledged = Vec::new();
    for worker in workers {
        acknowledged.extend(worker.await.unwrap());
    }
    run(&server(&database).await, "select countersign.sweep('0 s', 1000)").await.unwrap();
    let found = database.rows("select correlation_id from countersign.record where status = 'success'").await.concat();
    assert!(acknowledged.iter().all(|id| found.contains(&id.to_string())), "an acknowledged write is gone");
    check(&database, found.len()).await;
}

/// A write finds its attempt by the place of its row. PostgreSQL would read a table of few pages as a whole, and a
/// session would keep that plan while the table grows.
#[tokio::test(flavor = "multi_thread")]
async fn vacuum_leaves_the_pages_of_attempts() {
    let database = ledger("pages").await;
    database
        .run(
            "insert into countersign.attempt (slot, correlation_id, account_id, tool_name, fingerprint, params,
                 params_summary, own_transaction)
             select sha256(n::text::bytea), gen_random_uuid(), 'a', 't', 'f', '{}', '{}', true from generate_series(1, 5000) n",
        )
        .await;
    database.run("delete from countersign.attempt").await;
    database.run("vacuum countersign.attempt").await;
    let plan = database.rows("explain delete from countersign.attempt where ctid = '(0,1)'").await.concat();
    assert!(plan.iter().any(|line| line.contains("Tid Scan")), "{plan:?}");
}
