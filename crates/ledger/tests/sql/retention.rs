//! Records, effects and reversals are sealed in the order of their commits, and pruned by age without touching what is newer.

use testkit::Database;

use crate::support::{codes, ledger, run, server, undo, write};

const TABLE: &str = "create schema s; create table s.t (id int primary key, n int); insert into s.t values (1, 0), (2, 0); select countersign.track('s.t')";

/// Makes what is there older, as only its owner can.
async fn age(database: &Database, interval: &str) {
    database
        .run(&format!(
            "set session_replication_role = replica;
             update countersign.record set admitted_at = admitted_at - interval '{interval}', completed_at = completed_at - interval '{interval}',
                 holds_until = holds_until - interval '{interval}'"
        ))
        .await;
}

async fn seal(database: &Database) -> String {
    database.value("select countersign.seal(1000)").await
}

#[tokio::test(flavor = "multi_thread")]
async fn pruning_removes_old_records_with_their_effects_and_keeps_newer_records() {
    let database = ledger("prune").await;
    database.run(TABLE).await;
    let session = server(&database).await;
    let old = write(&session, "update s.t set n = 1 where id = 1").await;
    let old_undone = write(&session, "update s.t set n = 1 where id = 2").await;
    let old_undo = undo(&session, &[old_undone]).await.unwrap();
    age(&database, "100 days").await;
    let new = write(&session, "update s.t set n = 2 where id = 1").await;
    let new_undo_of_old = undo(&session, &[old_undo]).await.unwrap();
    let seen = async || {
        database.value("select string_agg(correlation_id::text, ' ' order by id) from countersign.record").await
    };
    let prune = "select removed_records from countersign.prune_records(now() - interval '90 days', 'test', 0, 1000)";
    assert_eq!(database.value(prune).await, "0", "nothing is sealed yet");
    assert_eq!(seal(&database).await, "6", "five writes, and the making of the ledger");
    let refused =
        run(&database.connect().await, "select countersign.prune_records(now(), 'test', 0, 1)").await.unwrap_err();
    assert_eq!(refused.code, "22023");
    assert_eq!(database.value(prune).await, "3");
    assert_eq!(seen().await, format!("{new} {new_undo_of_old}"));
    assert_eq!(database.value("select count(*) from countersign.effect").await, "2");
    assert_eq!(database.value("select count(*) from countersign.reversal").await, "0");
    assert_eq!(codes(&undo(&session, &[old]).await.unwrap_err()), ["image_missing"]);
    // What is newer can still be undone, also where it undid what is gone.
    undo(&session, &[new]).await.unwrap();
    undo(&session, &[new_undo_of_old]).await.unwrap();
    assert_eq!(database.value("select string_agg(n::text, ' ' order by id) from s.t").await, "1 0");
    let removed =
        database.rows("select fields[4], fields[2], login from countersign.event where removed is not null").await;
    assert_eq!(removed, [["3", "test", "postgres"]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_covers_records_and_effects_in_the_order_of_their_ends() {
    let database = ledger("seals").await;
    database.run(TABLE).await;
    seal(&database).await;
    let (session, slow) = (server(&database).await, server(&database).await);
    let call = crate::support::Call::new("t", "slow");
    run(&slow, &format!("{}; update s.t set n = 5 where id = 2", call.begin())).await.unwrap();
    let quick = write(&session, "update s.t set n = 1 where id = 1").await;
    // A write that is still under way is not waited for, unless its record may have an id already.
    assert_eq!(seal(&database).await, "1");
    run(&slow, &call.finish().replace("; commit", "")).await.unwrap();
    write(&session, "update s.t set n = 2 where id = 1").await;
    assert_eq!(seal(&database).await, "0", "the slow one has drawn an id and may commit");
    run(&slow, "commit").await.unwrap();
    assert_eq!(seal(&database).await, "2");
    let order = "select string_agg(record_id::text, ' ' order by leaf_index) from countersign.leaf";
    assert_eq!(database.value(order).await, "1 2 3");
    let leaves = "select count(*) from countersign.leaf l, countersign.record_entries(array[l.record_id]) x
                  where x.entry <> l.entry or l.hash <> sha256('\\x00'::bytea || convert_to(l.entry, 'UTF8'))";
    assert_eq!(database.value(leaves).await, "0");
    database.run(&format!("set session_replication_role = replica; update countersign.effect set after = '(1,7)' where correlation_id = '{quick}'")).await;
    assert_eq!(database.value(leaves).await, "1", "an altered effect shows");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_owner_changes_no_record_by_mistake() {
    let database = ledger("append_only").await;
    database.run(TABLE).await;
    let session = server(&database).await;
    let written = write(&session, "update s.t set n = 1").await;
    undo(&session, &[written]).await.unwrap();
    seal(&database).await;
    let owner = database.connect().await;
    run(&owner, "set role countersign_owner").await.unwrap();
    for table in ["record", "effect", "reversal", "leaf", "event"] {
        for statement in [
            format!("delete from countersign.{table}"),
            format!("truncate countersign.{table}"),
            format!(
                "update countersign.{table} set {} = null",
                if table == "effect" {
                    "before"
                } else if table == "leaf" {
                    "hash"
                } else if table == "event" {
                    "kind"
                } else if table == "reversal" {
                    "reversed_by"
                } else {
                    "actor"
                }
            ),
        ] {
            let refused = run(&owner, &statement).await.unwrap_err();
            assert_eq!(refused.code, "42501", "{statement}: {refused:?}");
        }
    }
}
