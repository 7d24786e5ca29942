//! Every committed record is sealed exactly once, in whatever order transactions end.

use testkit::audit::audit;
use testkit::{Database, database};

const INSERT: &str = "insert into countersign.record \
    (correlation_id, account_id, tool_name, fingerprint, params, params_summary, status, error_code, login, xid, admitted_at, completed_at) \
    values (gen_random_uuid(), 'default', 'race', repeat('0', 64), '{}', '{}', 'failure', 'x', session_user, '3', clock_timestamp(), \
        clock_timestamp())";

/// Every record that is there is in the log, once, and every record of the log is there.
async fn assert_sealed_once(db: &Database) {
    let odd = db
        .rows(
            "select coalesce(a.id, s.id), count(s.id) from countersign.record a \
             full join (select record_id as id from countersign.leaf where record_id is not null) s on s.id = a.id \
             group by 1 having count(s.id) <> 1 or count(a.id) <> 1",
        )
        .await;
    assert!(odd.is_empty(), "{odd:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn six_writers_that_commit_in_any_order_and_three_sealers() {
    const WRITERS: u32 = 6;
    const ROUNDS: u32 = 60;
    let db = database().await;
    let writers: Vec<_> = (0..WRITERS)
        .map(|seed| {
            let db = db.clone();
            tokio::spawn(async move {
                let client = db.connect().await;
                let mut random = fastrand::Rng::with_seed(u64::from(seed));
                for _ in 0..ROUNDS {
                    client.batch_execute("begin").await.unwrap();
                    for _ in 0..random.u32(1..4) {
                        client.batch_execute(INSERT).await.unwrap();
                    }
                    // Not to wait for anything: to make transactions that begin in one order end in another.
                    let hold = format!("select pg_sleep({})", f64::from(random.u32(0..8)) / 1000.0);
                    client.batch_execute(&hold).await.unwrap();
                    let end = if random.u32(0..5) == 0 { "rollback" } else { "commit" };
                    client.batch_execute(end).await.unwrap();
                }
            })
        })
        .collect();
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let sealers: Vec<_> = (0..3)
        .map(|_| {
            let (db, stopped) = (db.clone(), stopped.clone());
            tokio::spawn(async move {
                let client = db.connect().await;
                while !*stopped.borrow() {
                    client.batch_execute("select countersign.seal(7)").await.unwrap();
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    let sealed_meanwhile: u32 =
        db.value("select count(distinct xmin::text) from countersign.leaf").await.parse().unwrap();
    stop.send(true).unwrap();
    for sealer in sealers {
        sealer.await.unwrap();
    }
    assert!(sealed_meanwhile >= 10, "the sealers had work while the writers wrote: {sealed_meanwhile} transactions");
    audit(&db, &["seal"]).await;
    assert_sealed_once(&db).await;
    let said = audit(&db, &["verify"]).await;
    assert!(said.contains("Not sealed yet: 0 final records. Pending: 0."), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_id_drawn_before_its_transaction_id_is_not_skipped() {
    // A snapshot knows transactions by their ids, and a transaction draws its record's id before it has one.
    let db = database().await;
    db.run(
        "create function wait_for_the_test() returns trigger language plpgsql as \
             $$ begin perform pg_advisory_xact_lock(60); return new; end $$; \
         create trigger wait_for_the_test before insert on countersign.record for each row \
             when (new.actor = 'slow') execute function wait_for_the_test()",
    )
    .await;
    audit(&db, &["seal"]).await;
    // The first number of a sequence is logged, which takes a transaction id; the next ones are not.
    db.run(INSERT).await;
    let gate = db.connect().await;
    gate.batch_execute("select pg_advisory_lock(60)").await.unwrap();
    let slow = db.connect().await;
    let slow_insert = INSERT.replace("tool_name,", "tool_name, actor,").replace("'race',", "'race', 'slow',");
    let slow = tokio::spawn(async move { slow.batch_execute(&slow_insert).await });
    let waits = "select count(*) from pg_locks where locktype = 'advisory' and objid = 60 and not granted";
    db.until_value(waits, "1").await;
    db.run(INSERT).await;
    assert_eq!(db.value("select string_agg(id::text, ',') from countersign.record").await, "1,3");
    for _ in 0..3 {
        assert_eq!(db.value("select countersign.seal(100)").await, "0", "2 may still come");
    }
    gate.batch_execute("select pg_advisory_unlock(60)").await.unwrap();
    slow.await.unwrap().unwrap();
    assert_eq!(db.value("select countersign.seal(100)").await, "3");
    assert_sealed_once(&db).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_steady_load_does_not_delay_the_sealing_of_earlier_records() {
    let db = database().await;
    let (first, second) = (db.connect().await, db.connect().await);
    audit(&db, &["seal"]).await;
    db.run(INSERT).await;
    first.batch_execute(&format!("begin; {INSERT}")).await.unwrap();
    assert_eq!(db.value("select countersign.seal(100)").await, "0", "the first transaction is under way");
    second.batch_execute(&format!("begin; {INSERT}")).await.unwrap();
    first.batch_execute("commit").await.unwrap();
    // The second has begun since: it is not waited for, and neither is what it may still insert given up.
    assert_eq!(db.value("select countersign.seal(100)").await, "1");
    second.batch_execute("commit").await.unwrap();
    assert_eq!(db.value("select countersign.seal(100)").await, "2");
    assert_sealed_once(&db).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_that_is_older_than_its_transaction_seals_nothing() {
    let db = database().await;
    let client = db.connect().await;
    let error =
        client.batch_execute("begin isolation level repeatable read; select countersign.seal(100)").await.unwrap_err();
    assert!(error.as_db_error().unwrap().message().contains("read committed"), "{error:?}");
}
