//! Locks that others have, interruptions, and a second person at once.

use nix::sys::signal::Signal;
use testkit::poll;

use super::{Running, propose, schema, server, status, steps, ward};

#[tokio::test(flavor = "multi_thread")]
async fn a_step_waits_for_its_lock_in_short_tries() {
    let db = ward().await;
    let agent = server(&db, "agent").await;
    let sql = "create table ward.side (id int); alter table ward.bed add column a int";
    let id = propose(&agent, sql).await;
    let mut holder = db.connect().await;
    let open = holder.transaction().await.unwrap();
    open.batch_execute("select from ward.bed").await.unwrap();
    // Given up after two tries, with nothing of the step done.
    let waits =
        schema(&db.url(), &["apply", &id, "--yes", "--no-try", "--lock-timeout-ms", "50", "--tries", "2"]).await;
    assert!(waits.code == 1 && waits.err.contains("try 1") && waits.err.contains("goes on"), "{waits:?}");
    assert_eq!((status(&db, &id).await.as_str(), steps(&db, &id).await.len()), ("applying", 0));
    assert_eq!(db.value("select to_regclass('ward.side') is null").await, "t");
    // It goes on once the others are done.
    let mut running = Running::apply(&db, &id, &["--lock-timeout-ms", "50"]);
    running.until_err("is tried again").await;
    // Between the tries nobody waits behind it.
    db.rows("select count(*) from ward.bed").await;
    open.commit().await.unwrap();
    let (said, code) = running.rest().await;
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(status(&db, &id).await, "applied");
    let attempts =
        db.value(&format!("select attempts > 1 from countersign.schema_step where change_id = '{id}'")).await;
    assert_eq!(attempts, "t");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_at_once_carry_it_out_once() {
    let db = ward().await;
    let agent = server(&db, "agent").await;
    let id = propose(&agent, "alter table ward.bed add column a int").await;
    let mut holder = db.connect().await;
    let open = holder.transaction().await.unwrap();
    open.batch_execute("select from ward.bed").await.unwrap();
    let mut first = Running::apply(&db, &id, &["--lock-timeout-ms", "600000"]);
    first.until_out("step 1 begins").await;
    let second = schema(&db.url(), &["apply", &id, "--yes", "--no-try"]).await;
    assert!(second.code == 1 && second.err.contains("by another process"), "{second:?}");
    let given_up = schema(&db.url(), &["reject", &id]).await;
    assert!(given_up.code == 1 && given_up.err.contains("being carried out"), "{given_up:?}");
    open.commit().await.unwrap();
    let (said, code) = first.rest().await;
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(steps(&db, &id).await, [["1", "f", "1", "t"]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupt_cancels_the_statement_and_leaves_a_state_to_go_on_from() {
    let db = ward().await;
    let agent = server(&db, "agent").await;
    let id = propose(&agent, "create table ward.side (id int); alter table ward.bed add column a int").await;
    let mut holder = db.connect().await;
    let open = holder.transaction().await.unwrap();
    open.batch_execute("select from ward.bed").await.unwrap();
    let mut running = Running::apply(&db, &id, &["--lock-timeout-ms", "600000"]);
    let waiting = "select count(*) from pg_locks where relation = 'ward.bed'::regclass and not granted";
    db.until_value(waiting, "1").await;
    running.signal(Signal::SIGINT);
    let (said, code) = running.rest().await;
    assert!(code == Some(1) && said.contains("interrupted") && said.contains("goes on"), "{said}");
    db.until_value(waiting, "0").await;
    open.commit().await.unwrap();
    assert_eq!((status(&db, &id).await.as_str(), steps(&db, &id).await.len()), ("applying", 0));
    schema(&db.url(), &["apply", &id, "--yes"]).await.succeeded();
    assert_eq!(status(&db, &id).await, "applied");
}

const THREE_STEPS: &str = "alter table ward.bed add column a int;\n\
    create index concurrently bed_a on ward.bed (a);\ncomment on table ward.bed is 'Beds';";

/// Kills the process while step 2 waits for an older transaction.
async fn killed(db: &testkit::Database, id: &str) -> (tokio_postgres::Client, String) {
    let holder = db.connect().await;
    holder.batch_execute("begin isolation level repeatable read; insert into ward.log default values").await.unwrap();
    let mut running = Running::apply(db, id, &[]);
    let waiting = "select coalesce(max(pid), 0) from pg_stat_activity where query ~ '^create index concurrently' and wait_event_type = 'Lock' and datname = current_database()";
    let backend =
        poll::until_some("step 2 waits", async || Some(db.value(waiting).await).filter(|pid| pid != "0")).await;
    running.signal(Signal::SIGKILL);
    running.rest().await;
    assert_eq!(steps(db, id).await, [["1", "f", "1", "t"], ["2", "t", "1", "f"]]);
    // Its backend still works.
    let busy = schema(&db.url(), &["apply", id, "--yes"]).await;
    assert!(busy.code == 1 && busy.err.contains("by another process"), "{busy:?}");
    (holder, backend)
}

#[tokio::test(flavor = "multi_thread")]
async fn after_kill_9_the_next_call_goes_on_behind_what_is_on_record() {
    let db = ward().await;
    db.run("create table ward.log (id int generated always as identity)").await;
    let agent = server(&db, "agent").await;
    let id = propose(&agent, THREE_STEPS).await;
    let (holder, backend) = killed(&db, &id).await;
    holder.batch_execute("commit").await.unwrap();
    db.until_value(&format!("select count(*) from pg_stat_activity where pid = {backend}"), "0").await;
    // The index was made, and nobody knows from the record.
    assert_eq!(db.value("select indisvalid from pg_index where indexrelid = 'ward.bed_a'::regclass").await, "t");
    let asked = schema(&db.url(), &["apply", &id, "--yes"]).await;
    assert!(asked.code == 1 && asked.err.contains("--done 2") && asked.err.contains("--repeat 2"), "{asked:?}");
    let wrong = schema(&db.url(), &["apply", &id, "--yes", "--done", "1"]).await;
    assert!(wrong.code == 1 && wrong.err.contains("step 1 is not one"), "{wrong:?}");
    schema(&db.url(), &["apply", &id, "--yes", "--done", "2"]).await.succeeded();
    assert_eq!(steps(&db, &id).await, [["1", "f", "1", "t"], ["2", "t", "1", "t"], ["3", "f", "1", "t"]]);
    assert_eq!(status(&db, &id).await, "applied");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_index_is_named_with_what_removes_it() {
    let db = ward().await;
    db.run("create table ward.log (id int generated always as identity)").await;
    let agent = server(&db, "agent").await;
    let id = propose(&agent, THREE_STEPS).await;
    let (holder, backend) = killed(&db, &id).await;
    db.run(&format!("select pg_terminate_backend({backend})")).await;
    db.until_value(&format!("select count(*) from pg_stat_activity where pid = {backend}"), "0").await;
    holder.batch_execute("commit").await.unwrap();
    let asked = schema(&db.url(), &["apply", &id, "--yes"]).await;
    assert!(asked.code == 1 && asked.err.contains("drop index concurrently ward.bed_a;"), "{asked:?}");
    db.run("drop index concurrently ward.bed_a").await;
    schema(&db.url(), &["apply", &id, "--yes", "--repeat", "2"]).await.succeeded();
    assert_eq!(steps(&db, &id).await, [["1", "f", "1", "t"], ["2", "t", "2", "t"], ["3", "f", "1", "t"]]);

    // One that fails by itself: the change fails with it, and what ended before stays.
    let sql = "alter table ward.bed add column \"B\" int default 1;\ncreate unique index concurrently \"Bed B\" on ward.bed (\"B\");";
    let id = propose(&agent, sql).await;
    let failed = schema(&db.url(), &["apply", &id, "--yes"]).await;
    assert!(failed.code == 1 && failed.err.contains("drop index concurrently ward.\"Bed B\";"), "{failed:?}");
    assert!(failed.err.contains("what ended before it stays (1 step)"), "{failed:?}");
    assert_eq!(status(&db, &id).await, "failed");
    assert_eq!(steps(&db, &id).await, [["1", "f", "1", "t"], ["2", "t", "1", "f"]]);
}
