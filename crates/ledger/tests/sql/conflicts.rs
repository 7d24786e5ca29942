//! An undo that would overwrite or break something changes nothing, and says why, row by row.

use serde_json::Value;
use testkit::Database;
use tokio_postgres::Client;

use crate::support::{Call, codes, ledger, run, server, undo, undo_as, write};

const SCHEMA: &str = "create schema s;
    create table s.p (id int primary key, n int unique, v text);
    create table s.k (id int primary key, p int references s.p);
    create table s.bare (v text);
    insert into s.p values (1, 1, 'a'), (2, 2, 'b, \"c\"'), (3, 3, null); insert into s.k values (1, 1);
    select countersign.track('s.p'), countersign.track('s.k'), countersign.track('s.bare')";

/// The codes of an undo that must be refused; every row stays as it was.
async fn refused(database: &Database, session: &Client, writes: &[uuid::Uuid]) -> Value {
    let before = database.contents("s").await;
    let conflict = undo(session, writes).await.expect_err("an undo that has to be refused");
    assert_eq!(database.contents("s").await, before, "{conflict:#}");
    let kept = database.value("select status from countersign.record order by id desc limit 1").await;
    assert_eq!(kept, "failure", "the refusal is on record");
    conflict
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_changed_since_are_named_with_their_columns_and_their_writer() {
    let database = ledger("conflicts").await;
    database.run(SCHEMA).await;
    let session = server(&database).await;

    // An update of all rows, by absolute and relative values; a recorded write changed one of them since.
    let first = write(&session, "update s.p set v = 'mine', n = n + 10").await;
    let later = write(&session, "update s.p set v = 'theirs' where id = 2").await;
    let conflict = refused(&database, &session, &[first]).await;
    assert_eq!(codes(&conflict), ["changed_since"]);
    let report = &conflict["conflicts"][0];
    assert_eq!(report["table"], "s.p");
    assert_eq!(report["key"], serde_json::json!({"id": 2}));
    assert_eq!(report["write"]["correlation_id"], first.to_string());
    assert_eq!(report["changed_by"]["correlation_id"], later.to_string());
    let columns = report["columns"].as_array().unwrap();
    assert!(
        columns.contains(&serde_json::json!({"name": "v", "to_restore": "b, \"c\"", "left": "mine", "now": "theirs"})),
        "{report:#}"
    );
    // Once that is undone, this can be.
    undo(&session, &[later]).await.unwrap();
    undo(&session, &[first]).await.unwrap();

    // The same by a person.
    let first = write(&session, "update s.p set v = 'mine' where id = 1").await;
    database.run("update s.p set v = 'by hand' where id = 1").await;
    let conflict = refused(&database, &session, &[first]).await;
    assert_eq!(codes(&conflict), ["changed_since"]);
    assert!(conflict["conflicts"][0]["changed_by"]["outside"].is_string(), "{conflict:#}");
    database.run("delete from s.k; delete from s.p where id = 1").await;
    assert_eq!(codes(&refused(&database, &session, &[first]).await), ["deleted_since"]);

    // A deleted row whose key, or whose unique value, is taken.
    let deleted = write(&session, "delete from s.p where id = 3").await;
    database.run("insert into s.p values (3, 33, 'new')").await;
    assert_eq!(codes(&refused(&database, &session, &[deleted]).await), ["key_taken"]);
    database.run("delete from s.p where id = 3; insert into s.p values (30, 3, 'took the number')").await;
    let conflict = refused(&database, &session, &[deleted]).await;
    assert_eq!(codes(&conflict), ["constraint"]);
    assert_eq!(conflict["conflicts"][0]["constraint"], "p_n_key");

    // Rows that others refer to, and rows whose parent is gone.
    let inserted = write(&session, "insert into s.p values (50, 50, 'parent')").await;
    write(&session, "insert into s.k values (50, 50)").await;
    assert_eq!(codes(&refused(&database, &session, &[inserted]).await), ["referenced"]);
    let child = write(&session, "delete from s.k where id = 50").await;
    write(&session, "delete from s.p where id = 50").await;
    assert_eq!(codes(&refused(&database, &session, &[child]).await), ["parent_missing"]);

    // No key; no effects on record; another account; a table that was altered.
    let bare = write(&session, "insert into s.bare values ('x')").await;
    assert_eq!(codes(&refused(&database, &session, &[bare]).await), ["irreversible"]);
    assert_eq!(codes(&refused(&database, &session, &[uuid::Uuid::new_v4()]).await), ["image_missing"]);
    let mine = write(&session, "update s.p set v = 'm' where id = 2").await;
    let theirs = undo_as(&session, &Call::undo(&[mine]).by("another")).await.unwrap_err();
    assert_eq!(codes(&theirs), ["not_permitted"]);
    database.run("alter table s.p add column extra int").await;
    assert!(
        database
            .value("select string_agg(problem, ' ') from countersign.tracking_problems()")
            .await
            .contains("columns have changed")
    );
    database.run("alter table s.p drop column extra; alter table s.p rename v to w").await;
    database.run("select countersign.renew_shapes()").await;
    undo(&session, &[mine]).await.unwrap();
    let mine = write(&session, "update s.p set w = 'm' where id = 2").await;
    database.run("alter table s.p drop column w").await;
    assert_eq!(codes(&refused(&database, &session, &[mine]).await), ["schema_changed"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trigger_that_interferes_makes_an_undo_fail_by_name() {
    let database = ledger("side_effects").await;
    database
        .run(
            "create schema s; create table s.t (id int primary key, v int, updated_at timestamptz default 'epoch'); create table s.other (id int primary key, n int);
             insert into s.t values (1, 1); insert into s.other values (1, 0);
             create function s.touch() returns trigger language plpgsql as $$ begin new.updated_at := clock_timestamp(); return new; end $$;
             create trigger touch before update on s.t for each row execute function s.touch();
             select countersign.track('s.t'), countersign.track('s.other')",
        )
        .await;
    let session = server(&database).await;
    let written = write(&session, "update s.t set v = 2").await;
    undo(&session, &[written]).await.unwrap();
    assert_eq!(database.value("select v from s.t").await, "1");
    // A column that the write set itself has to come back.
    let written = write(&session, "update s.t set v = 2, updated_at = 'infinity'").await;
    let conflict = undo(&session, &[written]).await.unwrap_err();
    assert_eq!(codes(&conflict), ["side_effects"]);
    assert_eq!(conflict["conflicts"][0]["columns"][0]["name"], "updated_at");
    assert_eq!(database.value("select v from s.t").await, "2");
    // Declared as maintained, it need not.
    database.run("select countersign.track('s.t', maintained => '{updated_at}')").await;
    undo(&session, &[written]).await.unwrap();
    assert_eq!(database.value("select v from s.t").await, "1");

    // A row that the write did not change.
    let written = write(&session, "update s.t set v = 3").await;
    database
        .run(
            "create function s.count() returns trigger language plpgsql as $$ begin update s.other set n = n + 1; return null; end $$;
             create trigger count after update on s.t for each row execute function s.count();
             grant execute on all functions in schema s to public",
        )
        .await;
    let conflict = undo(&session, &[written]).await.unwrap_err();
    assert_eq!(codes(&conflict), ["side_effects"]);
    assert_eq!(conflict["conflicts"][0]["table"], "s.other");
    assert_eq!(database.value("select v || ' ' || (select n from s.other) from s.t").await, "3 0");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_undos_of_one_write_at_once_undo_it_once() {
    let database = ledger("undo_race").await;
    database.run("create schema s; create table s.t (id int primary key, n int); insert into s.t values (1, 0); select countersign.track('s.t')").await;
    let session = server(&database).await;
    for round in 0..10 {
        let written = write(&session, "update s.t set n = n + 5").await;
        let undos = (0..4).map(|_| {
            let database = database.clone();
            tokio::spawn(async move {
                let (session, call) = (server(&database).await, Call::undo(&[written]));
                undo_as(&session, &call).await
            })
        });
        let mut done = 0;
        for undo in undos.collect::<Vec<_>>() {
            done += usize::from(undo.await.unwrap().is_ok());
        }
        assert_eq!(done, 1, "round {round}");
        assert_eq!(database.value("select n from s.t").await, "0");
    }
    assert_eq!(database.value("select count(*) from countersign.reversal").await, "10");
}

#[tokio::test(flavor = "multi_thread")]
async fn policies_of_row_level_security_apply_to_an_undo() {
    let database = ledger("policies").await;
    database
        .run(
            "create schema s; create table s.t (id int primary key, account text, v int);
             insert into s.t values (1, 'agent', 1), (2, 'other', 1);
             alter table s.t enable row level security; alter table s.t force row level security;
             create policy own on s.t using (account = current_setting('countersign.account_id', true));
             select countersign.track('s.t')",
        )
        .await;
    let session = server(&database).await;
    let written = write(&session, "update s.t set v = v + 1").await;
    assert_eq!(database.value("select string_agg(v::text, ' ' order by id) from s.t").await, "2 1");
    let undone = undo(&session, &[written]).await.unwrap();
    assert_eq!(database.value("select string_agg(v::text, ' ' order by id) from s.t").await, "1 1");
    // A row that the account may no longer see.
    database.run("update s.t set account = 'other' where id = 1").await;
    assert_eq!(codes(&undo(&session, &[undone]).await.unwrap_err()), ["not_permitted"]);
    // A row that it may not make.
    database.run("update s.t set account = 'agent' where id = 1").await;
    let deleted = write(&session, "delete from s.t where id = 1").await;
    database.run("create policy less on s.t as restrictive for insert with check (v > 5)").await;
    assert_eq!(codes(&undo(&session, &[deleted]).await.unwrap_err()), ["not_permitted"]);
    run(&session, "select 1").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn unique_values_that_rows_exchanged_come_back_in_the_order_of_the_write() {
    let database = ledger("exchanged").await;
    database
        .run(
            "create schema s; create table s.now (id int primary key, n int unique); create table s.later (id int primary key, n int unique deferrable initially deferred);
             insert into s.now values (1, 1), (2, 2); insert into s.later values (1, 1), (2, 2);
             select countersign.track('s.now'), countersign.track('s.later')",
        )
        .await;
    let session = server(&database).await;
    let exchange =
        "update s.T set n = -1 where id = 1; update s.T set n = 1 where id = 2; update s.T set n = 2 where id = 1";
    let written = write(&session, &exchange.replace('T', "now")).await;
    undo(&session, &[written]).await.unwrap();
    let before = database.contents("s").await;
    let written = write(&session, &exchange.replace('T', "later")).await;
    undo(&session, &[written]).await.unwrap();
    assert_eq!(database.contents("s").await, before);
}
