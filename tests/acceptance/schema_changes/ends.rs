//! How a change ends: locks that others have, interruptions, kills, and a second person at once.

use nix::sys::signal::Signal;
use serde_json::json;
use testkit::{Database, poll};
use tokio_postgres::Client;

use super::{Running, propose, schema, server, status, steps, ward};

/// A transaction that reads the table, so that nobody else can alter it.
async fn read_bed(db: &Database) -> Client {
    let client = db.connect().await;
    client.batch_execute("begin; select from ward.bed").await.unwrap();
    client
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_waits_for_its_lock_in_short_tries() {
    let db = ward().await;
    let agent = server(&db, "agent").await;
    let sql = "create table ward.side (id int); alter table ward.bed add column a int";
    let id = propose(&agent, sql).await;
    let reading = read_bed(&db).await;
    // Given up after two tries, with nothing of the step done.
    let waits =
        schema(&db.url(), &["apply", &id, "--yes", "--no-try", "--lock-timeout-ms", "50", "--tries", "2"]).await;
    assert!(waits.code == 1 && waits.err.contains("try 1") && waits.err.contains("lock timeout"), "{waits:?}");
    assert!(waits.err.contains("failed in line 1") && waits.err.contains("stays (0 steps)"), "{waits:?}");
    assert_eq!((status(&db, &id).await.as_str(), steps(&db, &id).await.as_str()), ("failed", "0"));
    assert_eq!(db.value("select to_regclass('ward.side') is null").await, "t");
    let shown = schema(&db.url(), &["show", &id]).await.succeeded().out;
    assert!(shown.contains("in one transaction: failed") && !shown.contains("not on record"), "{shown}");
    // It succeeds once the others are done.
    let id = propose(&agent, sql).await;
    let mut running = Running::apply(&db, &id, &["--lock-timeout-ms", "50"]);
    running.until_err("is tried again").await;
    // Between the tries nobody waits behind it.
    db.rows("select count(*) from ward.bed").await;
    reading.batch_execute("commit").await.unwrap();
    let (said, code) = running.rest().await;
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(status(&db, &id).await, "applied");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_at_once_carry_it_out_once() {
    let db = ward().await;
    let agent = server(&db, "agent").await;
    let id = propose(&agent, "alter table ward.bed add column a int").await;
    let reading = read_bed(&db).await;
    let mut first = Running::apply(&db, &id, &["--lock-timeout-ms", "600000"]);
    first.until_out("step 1 begins").await;
    let second = schema(&db.url(), &["apply", &id, "--yes", "--no-try"]).await;
    assert!(second.code == 1 && second.err.contains("it is being carried out now, or"), "{second:?}");
    let given_up = schema(&db.url(), &["reject", &id]).await;
    assert!(given_up.code == 1 && given_up.err.contains("by another process"), "{given_up:?}");
    reading.batch_execute("commit").await.unwrap();
    let (said, code) = first.rest().await;
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(steps(&db, &id).await, "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupt_cancels_the_statement_and_the_change_fails() {
    let db = ward().await;
    let agent = server(&db, "agent").await;
    let id = propose(&agent, "create table ward.side (id int); alter table ward.bed add column a int").await;
    let reading = read_bed(&db).await;
    let mut running = Running::apply(&db, &id, &["--lock-timeout-ms", "600000"]);
    let waiting = "select count(*) from pg_locks where relation = 'ward.bed'::regclass and not granted";
    db.until_value(waiting, "1").await;
    running.signal(Signal::SIGINT);
    let (said, code) = running.rest().await;
    assert!(code == Some(1) && said.contains("failed in line 1: it was interrupted"), "{said}");
    db.until_value(waiting, "0").await;
    reading.batch_execute("commit").await.unwrap();
    assert_eq!((status(&db, &id).await.as_str(), steps(&db, &id).await.as_str()), ("failed", "0"));
    assert_eq!(db.value("select to_regclass('ward.side') is null").await, "t");
}

const THREE_STEPS: &str = "alter table ward.bed add column a int;\n\
    create index concurrently bed_a on ward.bed (a);\ncomment on table ward.bed is 'Beds';";

#[tokio::test(flavor = "multi_thread")]
async fn after_kill_9_it_is_said_that_the_end_is_not_on_record_and_what_to_look_at() {
    let db = ward().await;
    db.run("create table ward.log (id int generated always as identity)").await;
    let agent = server(&db, "agent").await;
    let id = propose(&agent, THREE_STEPS).await;
    // Step 2 waits for an older transaction.
    let holder = db.connect().await;
    holder.batch_execute("begin isolation level repeatable read; insert into ward.log default values").await.unwrap();
    let mut running = Running::apply(&db, &id, &[]);
    let waiting = "select coalesce(max(pid), 0) from pg_stat_activity where query ~ '^create index concurrently' and wait_event_type = 'Lock' and datname = current_database()";
    let backend =
        poll::until_some("step 2 waits", async || Some(db.value(waiting).await).filter(|pid| pid != "0")).await;
    running.signal(Signal::SIGKILL);
    running.rest().await;
    // Its backend still works.
    let busy = schema(&db.url(), &["reject", &id]).await;
    assert!(busy.code == 1 && busy.err.contains("by another process"), "{busy:?}");
    holder.batch_execute("commit").await.unwrap();
    db.until_value(&format!("select count(*) from pg_stat_activity where pid = {backend}"), "0").await;
    // The index was made, and nobody knows from the record.
    assert_eq!(db.value("select indisvalid from pg_index where indexrelid = 'ward.bed_a'::regclass").await, "t");
    assert_eq!((status(&db, &id).await.as_str(), steps(&db, &id).await.as_str()), ("applying", "1"));
    let shown = schema(&db.url(), &["show", &id, "--try"]).await.succeeded().out;
    for part in [
        "in one transaction: ended",
        "alone, outside of a transaction: its end is not on record: look whether the database has what it makes",
        "in one transaction: not begun",
        "its process has ended",
        &format!("countersign schema reject {id}"),
    ] {
        assert!(shown.contains(part), "{part} is missing: {shown}");
    }
    let again = schema(&db.url(), &["apply", &id, "--yes"]).await;
    assert!(again.code == 1 && again.err.contains("its end is not on record"), "{again:?}");
    let console = crate::console::Console::on(&db).await;
    let page = console.browser(&db, "anna", &[]).await.get(&format!("/schema-changes/{id}")).await.body;
    assert!(page.contains("look whether the database has what it makes") && page.contains("its process"), "{page}");
    // Given up, it stays as far as it came, and what is left is proposed again.
    let given_up = schema(&db.url(), &["reject", &id, "--reason", "the machine was stopped"]).await.succeeded().out;
    assert!(given_up.contains("what had ended stays (1 step)"), "{given_up}");
    assert_eq!((status(&db, &id).await.as_str(), steps(&db, &id).await.as_str()), ("failed", "1"));
    let found = agent.succeed("get_proposal", json!({"proposal_id": id})).await;
    assert_eq!((&found["data"]["status"], &found["data"]["ended_steps"]), (&json!("failed"), &json!(1)), "{found}");
    let logged = "select string_agg(fields[8] || fields[12], ' ' order by id) from countersign.event where kind = 'schema_change'";
    assert_eq!(db.value(logged).await, "begun0 given_up1");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_error_ends_it_and_an_invalid_index_is_named_with_what_removes_it() {
    let db = ward().await;
    let agent = server(&db, "agent").await;
    let sql = "alter table ward.bed add column \"B\" int default 1;\n\
               create unique index concurrently \"Bed B\" on ward.bed (\"B\");\ndrop table ward.bed;";
    let id = propose(&agent, sql).await;
    let failed = schema(&db.url(), &["apply", &id, "--yes"]).await;
    assert!(failed.code == 1 && failed.err.contains("drop index concurrently ward.\"Bed B\";"), "{failed:?}");
    assert!(failed.err.contains("step 2 failed in line 2: "), "{failed:?}");
    assert!(failed.err.contains("what ended before it stays (1 step)"), "{failed:?}");
    assert_eq!((status(&db, &id).await.as_str(), steps(&db, &id).await.as_str()), ("failed", "1"));
    assert_eq!(db.value("select count(*) from ward.bed").await, "50");
    let found = agent.succeed("get_proposal", json!({"proposal_id": id})).await;
    assert!(found["data"]["error_message"].as_str().unwrap().starts_with("line 2: "), "{found}");
}
