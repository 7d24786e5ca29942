//! Sealing and verifying: what was changed behind the ledger's back is named (attacks AU02 to AU05).

use serde_json::{Value, json};
use testkit::audit::{
    REBUILD_SEALS, audit, audit_discrepancy, insert_failed_records, insert_pending_record, run_audit, tamper,
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
    let first: Value = serde_json::from_str(&audit(&db, &["seal"]).await).unwrap();
    assert_eq!((&first["records"], &first["last_id"]), (&json!(3), &json!(3)), "{first}");
    // The reversal is noted at a record that is sealed by now: that is no alteration.
    server.succeed("unlike_tweet", liked["meta"]["rollback"]["undo_params"].clone()).await;
    assert_eq!(db.value("select count(*) from countersign.reversal").await, "1");
    insert_pending_record(&db, 0).await;
    insert_failed_records(&db, 1, 0).await;
    let said = audit(&db, &["verify"]).await;
    assert!(said.contains("agrees with its seals: 5 records in ") && said.contains(" 0 pruned"), "{said}");
    assert!(said.contains("Not sealed yet: 0 final records. Pending: 1."), "{said}");
    let second: Value = serde_json::from_str(&audit(&db, &["seal"]).await).unwrap();
    let third: Value = serde_json::from_str(&audit(&db, &["seal"]).await).unwrap();
    assert_eq!((&second["entries"], &second["hash"]), (&third["entries"], &third["hash"]), "nothing to seal, no entry");
    // Whatever the session's settings: they are not part of what is hashed.
    db.run(&format!(
        "alter database {0} set timezone = 'Asia/Kathmandu'; alter database {0} set datestyle = 'German'; \
         alter database {0} set intervalstyle = 'sql_standard'; alter database {0} set extra_float_digits = -10; \
         alter database {0} set bytea_output = 'escape'; alter database {0} set default_transaction_isolation = 'serializable'",
        db.name()
    ))
    .await;
    assert!(audit(&db, &["verify"]).await.contains("agrees with its seals: 5 records"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_seals_by_itself() {
    let db = database().await;
    insert_failed_records(&db, 2, 0).await;
    let server = Server::without_dedup_cache(&db).await;
    // Within its first sweep, which begins when it starts.
    db.first_value("select 1 from countersign.seal").await;
    assert_eq!(db.value("select record_ids from countersign.seal").await, "{1,2}");
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_chain_cannot_be_changed_or_removed_by_its_owner() {
    // AU02, AU03
    let db = three_sealed_records().await;
    let client = db.connect().await;
    for statement in [
        "update countersign.seal set hash = sha256('x')",
        "delete from countersign.seal",
        "truncate countersign.seal",
        "truncate countersign.record, countersign.seal cascade",
        "delete from countersign.record",
    ] {
        let error = client.batch_execute(statement).await.unwrap_err();
        assert_eq!(error.code().map(|code| code.code().to_owned()).as_deref(), Some("42501"), "{statement}");
    }
    client.batch_execute("create role plain_login; grant usage on schema countersign to plain_login").await.unwrap();
    for statement in [
        "select countersign.prune_records(now() - interval '2 days', 'x', 0, 10)",
        "select countersign.seal_records(10)",
        "select * from countersign.seal",
        "update countersign.seal_state set sealable_up_to = 1000",
        "insert into countersign.seal (no) values (9)",
    ] {
        let error = client.batch_execute(&format!("set role plain_login; {statement}")).await.unwrap_err();
        assert_eq!(error.code().map(|code| code.code().to_owned()).as_deref(), Some("42501"), "{statement}");
    }
    client.batch_execute("reset role; drop owned by plain_login; drop role plain_login").await.unwrap();
    assert!(audit(&db, &["verify"]).await.contains("3 records in 1 entries"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_record_that_was_altered_removed_or_inserted_is_named() {
    // AU04. Each of every column that a final record has, one at a time.
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
        ("login", "login = 'x'"),
        ("slot", "slot = '', holds_until = 'infinity'"),
        ("holds_until", "slot = '', holds_until = '-infinity'"),
        ("xid", "xid = '7'"),
        ("admitted_at", "admitted_at = admitted_at + interval '1 microsecond'"),
        ("completed_at", "completed_at = 'infinity'"),
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
        assert!(
            is_named && said.contains("was altered after it was sealed (entry 1 of the chain)"),
            "{change}: {said}"
        );
        let back = format!("update countersign.record a set {} from original o where a.id = o.id", restored.join(", "));
        tamper(&db, &back).await;
    }
    let db = three_sealed_records().await;
    tamper(&db, "delete from countersign.record where id >= 2").await;
    let said = audit_discrepancy(&db, &["verify"]).await;
    assert!(said.contains("record 2 is missing: it was sealed and never pruned (entry 1"), "{said}");

    let db = database().await;
    // An id that was drawn and never committed is no record, and nobody can put one there later.
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
    // AU04
    for (change, named) in [
        ("update countersign.seal set leaves[1] = sha256('x') where no = 2", "entry 2 of the chain was altered"),
        (
            "update countersign.seal set sealed_at = sealed_at - interval '1 day' where no = 2",
            "entry 2 of the chain was altered",
        ),
        ("update countersign.seal set hash = sha256('x') where no = 2", "entry 2 of the chain was altered"),
        ("delete from countersign.seal where no = 2", "entry 2 of the chain is missing"),
        ("delete from countersign.seal where no = 1", "entry 1 of the chain is missing"),
        // Renumbered and hashed again, so that it fits: the range of ids has a hole.
        (
            "delete from countersign.seal where no = 2; update countersign.seal set no = 2 where no = 3; \
             update countersign.seal s set hash = countersign.seal_hash((select hash from countersign.seal where no = 1), s) where no = 2",
            "entry 2 of the chain was altered",
        ),
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
         create or replace function countersign.seal_hash(previous bytea, e countersign.seal) returns bytea \
             language sql as $$ select e.hash $$",
    )
    .await;
    assert!(audit_discrepancy(&db, &["verify"]).await.contains("record 3 (correlation id"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_shows_a_cut_tail_and_a_rewritten_history() {
    // AU05
    let db = database().await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("checkpoints");
    let file = path.to_str().unwrap();
    let mut kept = audit(&db, &["seal"]).await;
    assert!(kept.starts_with(r#"{"entries":0,"records":0,"last_id":0,"hash":"","at":"#), "{kept}");
    for _ in 0..3 {
        insert_failed_records(&db, 3, 0).await;
        kept += &audit(&db, &["seal"]).await;
    }
    std::fs::write(&path, &kept).unwrap();
    insert_failed_records(&db, 1, 0).await;
    let said = audit(&db, &["verify", "--checkpoint", file]).await;
    assert!(said.contains("10 records in 4 entries") && said.contains("agree with all 4 checkpoints"), "{said}");

    // The last entries and their records are gone. Without the checkpoint nothing is wrong with what is left; and
    // verifying with it does not seal over the cut, so it says the same again.
    tamper(&db, "delete from countersign.seal where no >= 3; delete from countersign.record where id > 6").await;
    insert_failed_records(&db, 1, 0).await;
    for _ in 0..2 {
        let said = audit_discrepancy(&db, &["verify", "--checkpoint", file]).await;
        assert!(said.contains("the chain ends before entry 3") && said.contains("checkpoints, line 4"), "{said}");
    }
    assert!(audit(&db, &["verify"]).await.contains("7 records in 3 entries"));

    // The last three leaves are cut off and the whole chain is built anew.
    tamper(&db, &format!("delete from countersign.record where id > 3; {REBUILD_SEALS}")).await;
    assert!(audit(&db, &["verify"]).await.contains("3 records in 1 entries"));
    let said = audit_discrepancy(&db, &["verify", "--checkpoint", file]).await;
    assert!(said.contains("entry 1 of the chain is not the one that the checkpoint names"), "{said}");
    assert!(said.contains("history was rewritten") && said.contains("line 2"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_holds_no_checkpoint_is_refused_with_its_place() {
    let db = three_sealed_records().await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kept");
    let file = path.to_str().unwrap();
    let ran = run_audit(&db.url(), &["verify", "--checkpoint", file]).await;
    assert!(ran.code == 1 && ran.err.contains("kept cannot be read: No such file"), "{}", ran.err);
    let good = audit(&db, &["seal"]).await;
    for (content, named) in [
        ("", "holds no checkpoint"),
        ("\n \n", "holds no checkpoint"),
        ("\nnonsense\n", "kept, line 2: not a checkpoint"),
        ("{}\n", "missing field `entries`"),
        (r#"{"entries":-1,"records":0,"last_id":0,"hash":"","at":""}"#, "negative"),
        (r#"{"entries":1,"records":0,"last_id":0,"hash":"abc","at":""}"#, "64 hex digits"),
        (&format!("{good}{{"), "line 2: not a checkpoint"),
    ] {
        std::fs::write(&path, content).unwrap();
        let ran = run_audit(&db.url(), &["verify", "--checkpoint", file]).await;
        assert!(ran.code == 1 && ran.err.contains(named), "{content}: {}", ran.err);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_auditor_who_may_only_read_can_verify() {
    let db = three_sealed_records().await;
    db.run(
        "create role auditor_of_this login; grant usage on schema countersign to auditor_of_this; \
            grant select on countersign.schema_history, countersign.record, countersign.mutation, countersign.effect, \
                countersign.reversal, countersign.tracked, countersign.seal to auditor_of_this",
    )
    .await;
    insert_failed_records(&db, 1, 0).await;
    let ran = run_audit(&db.url().replace("user=postgres", "user=auditor_of_this"), &["verify"]).await;
    assert!(ran.code == 0 && ran.out.contains("3 records in 1 entries"), "{} {}", ran.out, ran.err);
    assert!(ran.out.contains("Not sealed yet: 1 final records"), "{}", ran.out);
}
