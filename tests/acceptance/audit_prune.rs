//! Pruning: old final records go and the ledger says so; everything that is still needed stays.

use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::json;
use testkit::audit::{audit, audit_discrepancy, insert_failed_records, insert_pending_record, run_audit, tamper};
use testkit::social::untouched_tweet;
use testkit::{Database, Server, countersign, database, lone_database, run_countersign, send_signal};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

async fn ids(db: &Database) -> String {
    db.value("select coalesce(string_agg(id::text, ',' order by id), '') from countersign.record").await
}

#[tokio::test(flavor = "multi_thread")]
async fn after_90_days_a_final_record_goes_and_a_pending_one_stays() {
    let db = database().await;
    insert_failed_records(&db, 1, 91).await;
    insert_failed_records(&db, 1, 89).await;
    let would = audit(&db, &["prune", "--older-than", "90d", "--dry-run"]).await;
    assert!(would.starts_with("Would remove 1 record made before 20"), "{would}");
    assert_eq!(ids(&db).await, "1,2", "a dry run removes nothing");
    insert_pending_record(&db, 92).await;
    insert_failed_records(&db, 1, 91).await;
    audit(&db, &["seal"]).await;
    // While a transaction may still insert an older record nothing newer is sealed, and what is not sealed stays.
    let open = db.connect().await;
    open.batch_execute("begin; lock table countersign.record in row exclusive mode").await.unwrap();
    insert_failed_records(&db, 1, 91).await;
    let sealed = run_audit(&db.url(), &["seal"]).await;
    assert!(sealed.err.contains("Not sealed: 1. These final records"), "{sealed:?}");
    let said = audit(&db, &["prune", "--older-than", "90d"]).await;
    assert!(said.starts_with("Removed 2 records made before 20"), "{said}");
    assert!(said.contains("Left 1 record of that age: pending."), "{said}");
    assert!(said.contains("Left 1 record of that age: not sealed yet"), "{said}");
    assert_eq!(ids(&db).await, "2,4");
    let again = audit(&db, &["prune", "--older-than", "90d"]).await;
    assert!(again.starts_with("Removed 0 records"), "{again}");

    let entry = db
        .rows(
            "select removed, fields[4], fields[1] = 'person' and fields[2] <> '' and login = 'postgres', \
                 fields[6]::timestamptz between now() - interval '90 days 1 minute' and now() - interval '90 days', \
                 at between now() - interval '1 minute' and now() \
             from countersign.event where removed is not null",
        )
        .await;
    assert_eq!(
        entry,
        [["{[1,2),[3,4)}", "2", "t", "t", "t"]],
        "the ledger says what was removed, by whom, up to when, and when"
    );
    open.batch_execute("rollback").await.unwrap();
    let said = audit(&db, &["verify"]).await;
    assert!(said.contains("4 records in 7 entries, 2 pruned since"), "{said}");
    // The entry does not cover up for anything else.
    tamper(&db, "delete from countersign.record where id = 2").await;
    assert!(audit_discrepancy(&db, &["verify"]).await.contains("record 2 is missing"));
}

#[tokio::test(flavor = "multi_thread")]
async fn records_that_still_answer_duplicates_stay_and_others_go_with_their_effects() {
    let db = database().await;
    insert_failed_records(&db, 4, 100).await;
    insert_failed_records(&db, 1, 0).await;
    // By id: 1 was reversed by 2 and has an effect and the young duplicate 5; 3 holds its slot, and 4 held one.
    tamper(
        &db,
        "update countersign.record set status = 'success', error_code = null, result = '{}' where id in (1, 2, 3, 4); \
         update countersign.record d set status = 'duplicate', error_code = null, duplicate_of = o.correlation_id \
             from countersign.record o where (o.id, d.id) = (1, 5); \
         insert into countersign.reversal select w.correlation_id, r.correlation_id \
             from countersign.record w join countersign.record r on (w.id, r.id) = (1, 2); \
         insert into countersign.effect (correlation_id, position, relation, shape, op) \
             select r.correlation_id, 1, 0, 0, 'I' from countersign.record r where r.id = 1; \
         update countersign.record set slot = sha256('slot'), \
             holds_until = now() + case id when 3 then interval '1 minute' else interval '-1 minute' end where id in (3, 4)",
    )
    .await;
    let would = audit(&db, &["prune", "--older-than", "90d", "--dry-run"]).await;
    let said = audit(&db, &["prune", "--older-than", "90d"]).await;
    assert!(would.starts_with("Would remove 3 records") && said.starts_with("Removed 3 records"), "{would}{said}");
    assert!(would.contains("Left 1 record of that age: still needed"), "{would}");
    assert_eq!(ids(&db).await, "3,5");
    for table in ["reversal", "effect"] {
        assert_eq!(db.value(&format!("select count(*) from countersign.{table}")).await, "0", "{table}");
    }
    audit(&db, &["verify"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_records_go_in_batches() {
    let db = database().await;
    insert_failed_records(&db, 2500, 100).await;
    insert_failed_records(&db, 1, 0).await;
    let said = audit(&db, &["prune", "--older-than", "12w"]).await;
    assert!(said.starts_with("Removed 2500 records") && !said.contains("Left"), "{said}");
    assert_eq!(ids(&db).await, "2501");
    let entries = db.value("select string_agg(removed::text, ' ' order by id) from countersign.event").await;
    assert_eq!(entries, "{[1,1001)} {[1001,2001)} {[2001,2501)}");
    assert!(audit(&db, &["verify"]).await.contains("2501 records in 2506 entries, 2500 pruned"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_is_admitted_while_old_records_are_pruned() {
    let db = database().await;
    let server = Server::on(&db).await;
    let tweet = untouched_tweet(&db).await;
    server.succeed("like_tweet", json!({"tweet_id": tweet})).await;
    tamper(
        &db,
        "update countersign.record set admitted_at = admitted_at - interval '100 days', \
             completed_at = completed_at - interval '100 days', holds_until = now() - interval '2 hours'",
    )
    .await;
    // An open transaction has locked an old record: pruning gives way.
    let writer = db.connect().await;
    writer.batch_execute("begin; select from countersign.record for update").await.unwrap();
    let ran = run_audit(&db.url(), &["prune", "--older-than", "90d"]).await;
    assert!(ran.code == 1 && ran.err.contains("can be run again") && ran.err.contains("55P03"), "{}", ran.err);
    writer.batch_execute("rollback").await.unwrap();
    assert!(audit(&db, &["prune", "--older-than", "90d"]).await.starts_with("Removed 1 record"));
    // What was pruned can still be undone by hand, and done again.
    let unlike = server.succeed("unlike_tweet", json!({"tweet_id": tweet})).await;
    assert_eq!(unlike["data"]["duplicate"], json!(null));
    server.succeed("like_tweet", json!({"tweet_id": tweet})).await;
    audit(&db, &["verify"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_record_is_deleted_without_an_event_about_the_deletion() {
    let db = database().await;
    insert_failed_records(&db, 2, 100).await;
    audit(&db, &["seal"]).await;
    let client = db.connect().await;
    let too_young =
        client.batch_execute("select countersign.prune_records(now() - interval '23 hours', 'x', 0, 10)").await;
    assert!(too_young.unwrap_err().as_db_error().unwrap().message().contains("last day"));
    for attempt in [
        "set countersign.pruning = 'on'; delete from countersign.record where id = 1",
        "set session_replication_role = 'origin'; delete from countersign.record",
    ] {
        assert!(client.batch_execute(attempt).await.is_err(), "{attempt}");
    }
    // An owner who writes the event by hand has said so, and the log has it. Only for what it names.
    let forged = "insert into countersign.event (kind, fields, removed) \
                  values ('prune', '{person,me,records,1,made_before,2026-01-01T00:00:00.000000Z}', '{[1,2)}')";
    let beyond = client.batch_execute(&format!("begin; {forged}; delete from countersign.record where id = 2")).await;
    assert_eq!(beyond.unwrap_err().code().unwrap().code(), "42501");
    client.batch_execute("rollback").await.unwrap();
    client
        .batch_execute(&format!("begin; {forged}; delete from countersign.record where id = 1; commit"))
        .await
        .unwrap();
    let said = audit(&db, &["verify"]).await;
    assert!(said.contains("Only the tables say that 1 of these were pruned"), "{said}");
    assert!(
        db.value("select entry from countersign.leaf where entry like '%kind prune%'").await.contains("person me\n")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pruned_record_that_comes_back_is_named() {
    let db = database().await;
    insert_failed_records(&db, 3, 100).await;
    db.run("create table copy as select * from countersign.record").await;
    audit(&db, &["prune", "--older-than", "2d"]).await;
    db.run("insert into countersign.record overriding system value select * from copy where id = 2").await;
    let said = audit_discrepancy(&db, &["verify"]).await;
    assert!(said.contains("record 2 (correlation id") && said.contains("a pruning says that it was removed"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn pruning_goes_on_without_a_database_until_there_is_one_and_ends_at_a_signal() {
    let db = database().await;
    insert_failed_records(&db, 1, 91).await;
    insert_failed_records(&db, 1, 89).await;
    let away = |is_away: bool| format!("alter database {} with allow_connections {}", db.name(), !is_away);
    let cluster = Database::existing("postgres");
    cluster.run(&away(true)).await;
    let mut command = Command::new(countersign());
    command.args(["audit", "prune", "--every", "1d"]).env("DATABASE_URL", db.url());
    let mut pruning = command.stderr(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    let mut log = BufReader::new(pruning.stderr.take().unwrap()).lines();
    let mut logged = async |words: &str| {
        let said = async {
            while let Some(line) = log.next_line().await.unwrap() {
                if line.contains(words) {
                    return true;
                }
            }
            false
        };
        let said = tokio::time::timeout(Duration::from_secs(30), said).await;
        assert!(said.is_ok_and(|said| said), "it never said {words:?}");
    };
    logged("not currently accepting connections").await;
    cluster.run(&away(false)).await;
    logged("Removed 1 record made before 20").await;
    assert_eq!(ids(&db).await, "2", "90 days by default");
    send_signal(pruning.id().unwrap(), Signal::SIGTERM);
    assert!(pruning.wait().await.unwrap().success());

    let ran = run_audit(&db.writer_url(), &["prune", "--every", "1d"]).await;
    assert!(
        ran.code == 1 && ran.err.contains("this login may not prune"),
        "no later attempt would do better: {}",
        ran.err
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publication_of_all_tables_stops_neither_pruning_nor_any_other_work_of_the_ledger() {
    // DI-10
    let db = lone_database().await;
    db.run("alter system set wal_level = logical").await;
    db.cluster().restart().unwrap();
    assert_eq!(db.value("show wal_level").await, "logical");
    db.run("create publication everything for all tables").await;
    let nameless = "select coalesce(string_agg(c.relname, ' '), '') from pg_class c where c.relnamespace = 'countersign'::regnamespace \
                    and c.relkind in ('r', 'p') and c.relreplident = 'd' and c.relname !~ '^read_log' and c.relpersistence = 'p' \
                    and not exists (select from pg_index i where i.indrelid = c.oid and i.indisprimary)";
    // Rows of the log of reads are inserted, and their tables dropped.
    assert_eq!(db.value(nameless).await, "");

    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("log.key").display().to_string();
    audit(&db, &["keys", "new", "--signing-key", &key]).await;
    run_countersign(&db.url(), &["track", "social.tweet"]).await.succeeded();
    let server = Server::on(&db).await;
    let posted = server.succeed("post_tweet", json!({"text": "published"})).await;
    let id = posted["meta"]["correlation_id"].as_str().unwrap().to_owned();
    server.succeed("delete_tweet", json!({"tweet_id": posted["data"]["id"]})).await;
    server.close().await;
    insert_failed_records(&db, 3, 100).await;
    audit(&db, &["seal", "--signing-key", &key]).await;
    // A change from outside that is old enough to go.
    db.run("insert into countersign.effect (relation, shape, op, changed_at) select 'social.tweet'::regclass, max(t.shape), 'I', now() - interval '100 days' from countersign.tracked t")
        .await;
    let said = audit(&db, &["prune", "--older-than", "90d"]).await;
    assert!(said.starts_with("Removed 3 records"), "{said}");
    assert_eq!(db.value("select count(*) from countersign.effect where correlation_id is null").await, "0");
    audit(&db, &["seal", "--signing-key", &key]).await;
    audit(&db, &["verify"]).await;
    assert_eq!(
        db.value(&format!("select status from countersign.mutation where correlation_id = '{id}'")).await,
        "success"
    );
}
