//! Sealing and verifying: what was changed behind the ledger's back is named.

use serde_json::json;
use testkit::audit::{
    REBUILD_LOG, audit, audit_discrepancy, insert_failed_records, insert_pending_record, run_audit, tamper,
};
use testkit::social::untouched_tweet;
use testkit::{Server, database};

async fn three_sealed_records() -> testkit::Database {
    let db = database().await;
    insert_failed_records(&db, 3, 0).await;
    audit(&db, &["seal"]).await;
    db
}

#[tokio::test(flavor = "multi_thread")]
async fn records_are_sealed_once_and_verify_also_after_a_reversal() {
    let db = database().await;
    let server = Server::without_dedup_cache(&db).await;
    let tweet = untouched_tweet(&db).await;
    let liked = server.succeed("like_tweet", json!({"tweet_id": tweet})).await;
    server.succeed("like_tweet", json!({"tweet_id": tweet})).await;
    server.fail("like_tweet", json!({"tweet_id": 999_999}), "sql_error").await;
    let first = audit(&db, &["seal"]).await;
    assert!(first.contains("the log has 5 entries, root ") && first.contains("Nothing was signed"), "{first}");
    // The reversal is noted at a record that is sealed by now: that is no alteration.
    server.succeed("unlike_tweet", liked["meta"]["rollback"]["undo_params"].clone()).await;
    assert_eq!(db.value("select count(*) from countersign.reversal").await, "1");
    insert_pending_record(&db, 0).await;
    insert_failed_records(&db, 1, 0).await;
    let said = audit(&db, &["verify"]).await;
    assert!(said.contains("agrees with its log: 5 records in 7 entries, 0 pruned"), "{said}");
    assert!(said.contains("Not sealed yet: 0 final records. Pending: 1."), "{said}");
    assert_eq!(audit(&db, &["seal"]).await, audit(&db, &["seal"]).await, "nothing to seal, no entry");
    // Whatever the session's settings: they are not part of what is hashed.
    db.run(&format!(
        "alter database {0} set timezone = 'Asia/Kathmandu'; alter database {0} set datestyle = 'German'; \
         alter database {0} set intervalstyle = 'sql_standard'; alter database {0} set extra_float_digits = -10; \
         alter database {0} set bytea_output = 'escape'; alter database {0} set default_transaction_isolation = 'serializable'",
        db.name()
    ))
    .await;
    assert!(audit(&db, &["verify"]).await.contains("agrees with its log: 5 records"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_seals_by_itself() {
    let db = database().await;
    insert_failed_records(&db, 2, 0).await;
    let server = Server::without_dedup_cache(&db).await;
    // Within its first sweep, which begins when it starts.
    db.first_value("select 1 from countersign.leaf where record_id is not null").await;
    let records =
        "select array_agg(record_id order by leaf_index) filter (where record_id is not null) from countersign.leaf";
    assert_eq!(db.value(records).await, "{1,2}");
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_cannot_be_changed_or_removed_by_its_owner() {
    let db = three_sealed_records().await;
    let client = db.connect().await;
    for statement in [
        "update countersign.leaf set hash = sha256('x')",
        "update countersign.event set sealed = false",
        "update countersign.event set reason = 'x'",
        "delete from countersign.leaf",
        "delete from countersign.event",
        "truncate countersign.leaf",
        "truncate countersign.tree_node",
        "truncate countersign.checkpoint",
        "truncate countersign.log_key",
        "truncate countersign.record, countersign.leaf cascade",
        "delete from countersign.record",
    ] {
        let error = client.batch_execute(statement).await.unwrap_err();
        assert_eq!(error.code().map(|code| code.code().to_owned()).as_deref(), Some("42501"), "{statement}");
    }
    client.batch_execute("create role plain_login; grant usage on schema countersign to plain_login").await.unwrap();
    for statement in [
        "select countersign.prune_records(now() - interval '2 days', 'x', 0, 10)",
        "select countersign.seal(10)",
        "select countersign.append_leaves('{1}', '{}')",
        "select countersign.note_event('prune', '{}')",
        "select countersign.add_log_key('log+00000000+AA==', 'x')",
        "select countersign.store_checkpoint(1, 'x')",
        "select * from countersign.leaf",
        "update countersign.seal_state set sealable_up_to = 1000",
        "insert into countersign.leaf (log_no) values (9)",
    ] {
        let error = client.batch_execute(&format!("set role plain_login; {statement}")).await.unwrap_err();
        assert_eq!(error.code().map(|code| code.code().to_owned()).as_deref(), Some("42501"), "{statement}");
    }
    client.batch_execute("reset role; drop owned by plain_login; drop role plain_login").await.unwrap();
    assert!(audit(&db, &["verify"]).await.contains("3 records in 5 entries"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_record_that_was_altered_removed_or_inserted_is_named() {
    // The columns of a final record are altered one at a time.
    let db = three_sealed_records().await;
    let second = db.value("select correlation_id from countersign.record where id = 2").await;
    db.run("create table original as select * from countersign.record").await;
    let columns = db
        .rows(
            "select column_name from information_schema.columns where table_name = 'original' and column_name <> 'id' \
             order by ordinal_position",
        )
        .await
        .concat();
    let changes = [
        ("correlation_id", "correlation_id = gen_random_uuid()"),
        ("account_id", "account_id = 'x'"),
        ("actor", "actor = ''"),
        ("session_id", "session_id = ''"),
        ("client_name", "client_name = ''"),
        ("client_version", "client_version = ''"),
        ("trace_id", "trace_id = ''"),
        ("reason", "reason = ''"),
        ("tool_name", "tool_name = 'x'"),
        ("fingerprint", "fingerprint = repeat('1', 64)"),
        ("idempotency_key", "idempotency_key = ''"),
        ("params", "params = '{\"n\": 2 }'"),
        ("params_summary", "params_summary = ''"),
        ("status", "status = 'success', result = '{}', error_code = null"),
        ("duplicate_of", "status = 'duplicate', duplicate_of = correlation_id, error_code = null"),
        ("undo_of", "undo_of = array[correlation_id]"),
        ("result", "result = '1'"),
        ("result_summary", "result_summary = 'x'"),
        ("rows_affected", "rows_affected = 0"),
        ("before_image", "before_image = '[]'"),
        ("after_image", "after_image = '[]'"),
        ("rollback", "rollback = 'null'"),
        ("error_code", "error_code = 'x'"),
        ("error_sqlstate", "error_sqlstate = '00000'"),
        ("error_message", "error_message = 'x'"),
        ("error_detail", "error_detail = 'null'"),
        ("approval", "approval = 'null'"),
        ("caller_context", "caller_context = '{}'"),
        ("evidence", "evidence = '{}'"),
        ("login", "login = 'x'"),
        ("slot", "slot = '', holds_until = 'infinity'"),
        ("holds_until", "slot = '', holds_until = '-infinity'"),
        ("xid", "xid = '7'"),
        ("admitted_at", "admitted_at = admitted_at + interval '1 microsecond'"),
        ("completed_at", "completed_at = 'infinity'"),
        ("part_salt", "part_salt = gen_random_uuid()"),
    ];
    assert_eq!(changes.map(|(column, _)| column).as_slice(), columns, "every column is tried");
    let restored: Vec<String> = columns.iter().map(|column| format!("{column} = o.{column}")).collect();
    for (column, change) in changes {
        tamper(&db, &format!("update countersign.record set {change} where id >= 2")).await;
        let said = audit_discrepancy(&db, &["verify"]).await;
        let is_named = match column {
            "correlation_id" => said.contains("record 2 (correlation id "),
            _ => said.contains(&format!("record 2 (correlation id {second})")),
        };
        assert!(is_named && said.contains("was altered after it was sealed (entry 3 of the log)"), "{change}: {said}");
        let back = format!("update countersign.record a set {} from original o where a.id = o.id", restored.join(", "));
        tamper(&db, &back).await;
    }
    let db = three_sealed_records().await;
    tamper(&db, "delete from countersign.record where id >= 2").await;
    let said = audit_discrepancy(&db, &["verify"]).await;
    assert!(said.contains("record 2 is missing: it was sealed and never pruned (entry 3"), "{said}");

    let db = database().await;
    // An id that was drawn and never committed has no record, and none can be inserted later.
    db.run("begin; select nextval(pg_get_serial_sequence('countersign.record', 'id')); rollback").await;
    insert_failed_records(&db, 1, 0).await;
    audit(&db, &["seal"]).await;
    for id in ["1", "-7"] {
        db.run(&format!(
            "insert into countersign.record (id, correlation_id, account_id, tool_name, fingerprint, params, params_summary, status, \
                 error_code, login, xid, admitted_at, completed_at) \
             overriding system value values ({id}, '00000000-0000-4000-8000-000000000001', 'x', 'x', repeat('0', 64), '{{}}', '', \
                 'failure', 'x', 'x', '3', now(), now())"
        ))
        .await;
        let said = audit_discrepancy(&db, &["verify"]).await;
        let named = format!("record {id} (correlation id 00000000-0000-4000-8000-000000000001) was inserted");
        assert!(said.contains(&named), "{said}");
        tamper(&db, &format!("delete from countersign.record where id = {id}")).await;
    }
    audit(&db, &["verify"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_effects_of_a_write_are_sealed_with_it() {
    let db = database().await;
    db.run("select countersign.track('social.tweet')").await;
    let server = Server::without_dedup_cache(&db).await;
    server.succeed("post_tweet", json!({"text": "sealed"})).await;
    assert_eq!(db.value("select count(*) from countersign.effect").await, "1");
    audit(&db, &["verify"]).await;
    tamper(&db, "update countersign.effect set after = replace(after, 'sealed', 'forged')").await;
    assert!(audit_discrepancy(&db, &["verify"]).await.contains("record 1 (correlation id"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_that_was_altered_or_removed_is_named() {
    for (change, named) in [
        ("update countersign.leaf set hash = sha256('x') where leaf_index = 3", "entry 3 of the log was altered"),
        ("update countersign.leaf set entry = entry || 'x' where leaf_index = 3", "entry 3 of the log was altered"),
        // With the hash that fits: the record is another one then.
        (
            "update countersign.leaf set entry = entry || 'x', hash = sha256('\\x00'::bytea || convert_to(entry || 'x', 'UTF8')) \
             where leaf_index = 3",
            "record 2 (correlation id",
        ),
        ("delete from countersign.leaf where leaf_index = 3", "entry 3 of the log is missing"),
        ("delete from countersign.leaf where leaf_index = 0", "entry 0 of the log is missing"),
        // Renumbered, so that there is no gap: the record is not in the log.
        (
            "delete from countersign.leaf where leaf_index = 3; \
             update countersign.leaf set leaf_index = leaf_index + 1000 where leaf_index > 3; \
             update countersign.leaf set leaf_index = leaf_index - 1001 where leaf_index > 3",
            "was inserted after its range of ids was sealed",
        ),
        (
            "update countersign.event set fields = '{version,2}' where id = 1",
            "event 1 was altered after it was sealed (entry 1",
        ),
        ("delete from countersign.event where id = 1", "event 1 is missing"),
        ("insert into countersign.tree_node values (2, 1, 0, sha256('x'))", "node 0 of level 1 of the tree"),
    ] {
        let db = database().await;
        for _ in 0..3 {
            insert_failed_records(&db, 2, 0).await;
            audit(&db, &["seal"]).await;
        }
        tamper(&db, change).await;
        let said = audit_discrepancy(&db, &["verify"]).await;
        assert!(said.contains(named), "{change}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_verifier_calls_no_function_that_an_attacker_may_have_replaced() {
    let db = three_sealed_records().await;
    tamper(
        &db,
        "update countersign.record set tool_name = 'x' where id = 3; \
         create or replace function countersign.record_entries(ids bigint[]) returns table (id bigint, entry text) language sql as \
             $$ select l.record_id, l.entry from countersign.leaf l where l.record_id = any (ids) $$",
    )
    .await;
    assert!(audit_discrepancy(&db, &["verify"]).await.contains("record 3 (correlation id"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_shows_a_cut_tail_and_a_rewritten_history() {
    let db = database().await;
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let key = at("log.key");
    audit(&db, &["keys", "new", "--signing-key", &key]).await;
    let mut kept = Vec::new();
    for number in 0..3 {
        insert_failed_records(&db, 3, 0).await;
        let path = at(&format!("checkpoint{number}"));
        std::fs::write(&path, audit(&db, &["seal", "--signing-key", &key]).await).unwrap();
        kept.extend(["--checkpoint".to_owned(), path]);
    }
    let verify: Vec<&str> = std::iter::once("verify").chain(kept.iter().map(String::as_str)).collect();
    insert_failed_records(&db, 1, 0).await;
    let said = audit(&db, &verify).await;
    assert!(said.contains("10 records in 13 entries") && said.contains("goes on from all 3 checkpoints"), "{said}");
    assert!(said.contains("Signed: 3 checkpoints, the newest of 12 entries"), "{said}");

    // The last entries and their records are gone. Without the checkpoint nothing is wrong with what is left; and
    // verifying with it does not seal over the cut, so it says the same again.
    tamper(
        &db,
        "delete from countersign.leaf where leaf_index >= 9; delete from countersign.checkpoint where size > 9; \
         delete from countersign.record where id > 6",
    )
    .await;
    insert_failed_records(&db, 1, 0).await;
    for _ in 0..2 {
        let said = audit_discrepancy(&db, &verify).await;
        assert!(said.contains("the log has 9 entries and ") && said.contains("checkpoint2 is of 12"), "{said}");
    }
    // The signer remembers what it has signed.
    let ran = run_audit(&db.url(), &["seal", "--signing-key", &key]).await;
    assert!(ran.code == 1 && ran.err.contains("a checkpoint of 12 was signed"), "{}", ran.err);
    assert!(audit(&db, &["verify"]).await.contains("7 records in 10 entries"));

    // More records go, and the whole log is built anew.
    tamper(&db, &format!("delete from countersign.record where id > 3; {REBUILD_LOG}")).await;
    insert_failed_records(&db, 9, 0).await;
    assert!(audit(&db, &["verify"]).await.contains("No checkpoint is signed"));
    let said = audit_discrepancy(&db, &verify).await;
    assert!(said.contains("are not those of ") && said.contains("history was rewritten"), "{said}");
    let ran = run_audit(&db.url(), &["seal", "--signing-key", &key]).await;
    assert!(ran.code == 1 && ran.err.contains("entries were altered"), "{}", ran.err);
    assert_eq!(db.value("select count(*) from countersign.checkpoint").await, "0", "nothing was signed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_has_no_checkpoint_is_refused_with_its_name() {
    let db = three_sealed_records().await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kept");
    let file = path.to_str().unwrap();
    let ran = run_audit(&db.url(), &["verify", "--checkpoint", file]).await;
    assert!(ran.code == 2 && ran.err.contains("kept cannot be read: No such file"), "{}", ran.err);
    for content in ["", "\n \n", "nonsense\n", "log\n3\nx\n\n"] {
        std::fs::write(&path, content).unwrap();
        let ran = run_audit(&db.url(), &["verify", "--checkpoint", file]).await;
        assert!(ran.code == 2 && ran.err.contains("kept is no checkpoint"), "{content}: {}", ran.err);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_auditor_who_may_only_read_can_verify() {
    let db = three_sealed_records().await;
    db.run(
        "create role auditor_of_this login; grant usage on schema countersign to auditor_of_this; \
            grant select on countersign.schema_history, countersign.record, countersign.mutation, countersign.effect, \
                countersign.reversal, countersign.reversal_part, countersign.tracked, countersign.event, countersign.leaf, countersign.tree_node, \
                countersign.log_key, countersign.witness, countersign.checkpoint, countersign.identity, countersign.attempt to auditor_of_this",
    )
    .await;
    insert_failed_records(&db, 1, 0).await;
    let ran = run_audit(&db.url_as("auditor_of_this"), &["verify"]).await;
    assert!(ran.code == 0 && ran.out.contains("3 records in 5 entries"), "{} {}", ran.out, ran.err);
    assert!(ran.out.contains("Not sealed yet: 1 final records"), "{}", ran.out);
}

#[tokio::test(flavor = "multi_thread")]
async fn marks_of_undone_writes_are_compared_with_the_records_of_undos() {
    // deleted or forged, `audit verify` said ok.
    let db = database().await;
    let server = Server::without_dedup_cache(&db).await;
    let tweet = untouched_tweet(&db).await;
    let liked = server.succeed("like_tweet", json!({"tweet_id": tweet})).await;
    server.succeed("unlike_tweet", liked["meta"]["rollback"]["undo_params"].clone()).await;
    let again = server.succeed("like_tweet", json!({"tweet_id": tweet, "idempotency_key": "again"})).await;
    audit(&db, &["seal"]).await;
    assert!(audit(&db, &["verify"]).await.contains("agrees with its log"));
    let [undone, standing] =
        [&liked, &again].map(|answer| answer["meta"]["correlation_id"].as_str().unwrap().to_owned());
    db.run("create table public.marks as select * from countersign.reversal").await;

    tamper(&db, "delete from countersign.reversal").await;
    let found = run_audit(&db.url(), &["verify"]).await;
    let expected = format!("the write {undone} was undone by ");
    assert!(found.code == 1 && found.out.contains(&expected) && found.out.contains("is not marked"), "{}", found.out);
    let restore = "insert into countersign.reversal select * from public.marks";
    for forged in [
        format!("insert into countersign.reversal values ('{standing}', gen_random_uuid())"),
        format!("insert into countersign.reversal values ('{standing}', '{standing}')"),
        format!("insert into countersign.reversal select '{standing}', reversed_by from public.marks"),
        format!("insert into countersign.reversal_part values ('{standing}', 1, gen_random_uuid())"),
    ] {
        tamper(&db, &format!("delete from countersign.reversal; {restore}; {forged}")).await;
        let found = run_audit(&db.url(), &["verify"]).await;
        let expected = format!("the write {standing} is marked as undone");
        assert!(found.code == 1 && found.out.contains(&expected), "{forged}: {}{}", found.out, found.err);
        tamper(&db, "delete from countersign.reversal; delete from countersign.reversal_part").await;
    }
    tamper(&db, restore).await;
    assert!(audit(&db, &["verify"]).await.contains("agrees with its log"));
}
