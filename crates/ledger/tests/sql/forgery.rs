//! What a login of a server may not do, within a write and outside of one: no effect without its write, no record of its own making.

use crate::support::{Call, connect, ledger, outcome, run, server};

/// Refused to the login at any time, by a privilege.
const FORBIDDEN: &[&str] = &[
    "insert into countersign.record (correlation_id, account_id, tool_name, fingerprint, params, params_summary, status, error_code, login, xid, admitted_at, completed_at)
     values (gen_random_uuid(), 'a', 't', '', '{}', '', 'failure', 'x', 'x', '1', now(), now())",
    "update countersign.record set status = 'success'",
    "delete from countersign.record",
    "truncate countersign.record",
    "insert into countersign.effect (position, relation, shape, op) values (1, 1, 1, 'U')",
    "delete from countersign.effect",
    "insert into countersign.reversal values (gen_random_uuid(), gen_random_uuid())",
    "insert into countersign.attempt (slot) values ('')",
    "select * from countersign.attempt",
    "select * from countersign.admission",
    "update countersign.admission set account_id = 'a'",
    "delete from countersign.admission",
    "select * from countersign.secret_key",
    "update countersign.tracked set maintained = columns",
    "insert into countersign.freeze (kind, name, frozen_by) values ('all', '', 'x')",
    "insert into countersign.writer_login values ('x')",
    "alter table s.t disable trigger \"!countersign\"",
    "drop trigger \"!countersign\" on s.t",
    "set session_replication_role = replica",
    "set role countersign_owner",
    "set session authorization postgres",
    "create or replace function countersign.refuse_within_a_write() returns void language sql as ''",
    "select countersign.track('s.t')",
    "select countersign.untrack('s.t')",
    "select countersign.keyed_hash('x')",
    "select countersign.end_attempt(null, 'success', null, null, null, null, null)",
    "select countersign.prove_undo(null)",
    "select countersign.execute_proposal(null)",
    "select countersign.admit_undo(gen_random_uuid(), null, null, null, null, null, null, null)",
    "select countersign.freeze('all', '', 'x')",
    "select countersign.prune_records('2000-01-01', 'x', 0, 1)",
    "select countersign.fork()",
];

#[tokio::test(flavor = "multi_thread")]
async fn the_ledger_changes_by_its_protocol_only() {
    let database = ledger("forbidden").await;
    database.run("create schema s; create table s.t (id int primary key, n int); insert into s.t values (1, 0); select countersign.track('s.t')").await;
    let session = server(&database).await;
    let own = Call::new("t", "1");
    own.run(&session, "update s.t set n = 1").await.unwrap();
    // The first sweep keeps what the catalog says of the table.
    run(&session, "select countersign.sweep('0 s', 1)").await.unwrap();
    let ledger = async || database.contents("countersign").await;
    let before = ledger().await;
    for statement in FORBIDDEN {
        let refused = run(&session, statement).await.expect_err(statement);
        assert!(["42501", "42P01"].contains(&refused.code.as_str()), "{statement}: {refused:?}");
        let call = Call::new("t", statement);
        let refused = call.run(&session, statement).await.expect_err(statement);
        assert!(["42501", "42P01"].contains(&refused.code.as_str()), "within a write: {statement}: {refused:?}");
        run(&session, "select countersign.sweep('0 s', 1)").await.unwrap();
    }
    // The attempts above are records of failures now.
    let after: Vec<_> = ledger().await.into_iter().filter(|row| row[0] != "record").collect();
    assert_eq!(after, before.into_iter().filter(|row| row[0] != "record").collect::<Vec<_>>());
    assert_eq!(database.value("select count(*) from countersign.record where status = 'success'").await, "1");
    assert_eq!(database.value("select n from s.t").await, "1");
}

/// Within a write, before its statement: each is refused, or the statement's effect is recorded as this write's all the same.
#[tokio::test(flavor = "multi_thread")]
async fn no_statement_of_a_write_takes_another_identity() {
    let database = ledger("identity").await;
    database.run("create schema s; create table s.t (id int primary key, n int); insert into s.t values (1, 0); select countersign.track('s.t')").await;
    let (session, other_session) = (server(&database).await, connect(&database, crate::support::OTHER_WRITER).await);
    let update = "update s.t set n = n + 1";
    // Admitted by another server, and not claimed yet.
    let other = Call::new("t", "other").by("victim");
    run(&other_session, &other.admission()).await.unwrap();
    let (id, slot) = (other.correlation_id, other.slot());
    let made_up = Call::new("t", "made up").by("victim");
    let without_begin =
        made_up.admission().replace("begin isolation level read committed; ", "").replace("; commit", "");
    let tricks = [
        "select set_config('countersign.at', '', true)".to_owned(),
        "select set_config('countersign.at', '(0,1)', true)".to_owned(),
        "select set_config('countersign.at', '(999,9)', false)".to_owned(),
        "set local countersign.at = 'x'".to_owned(),
        "reset all".to_owned(),
        other.claim(true),
        without_begin,
        format!("select countersign.fail('{id}', {slot}, 'x', null, null)"),
        format!("select countersign.answer_duplicate('{id}', {slot}, gen_random_uuid())"),
        format!("select countersign.finish('{id}', '{{}}', '', 1)"),
        format!("select * from countersign.resolve('{id}', {slot}, 1)"),
        "select countersign.sweep('0 s', 100)".to_owned(),
        made_up.record_failure("x", "{}"),
        made_up.begin().replace("begin isolation level read committed; ", ""),
        made_up.admit().replace("begin isolation level read committed; ", "").replace("; commit", ""),
        "select countersign.reader_credentials()".to_owned(),
        "select countersign.state_keys()".to_owned(),
        "select countersign.caller_key()".to_owned(),
    ];
    for (number, trick) in tricks.iter().enumerate() {
        let call = Call::new("t", &format!("trick {number}"));
        let before: u32 = database.value("select n from s.t").await.parse().unwrap();
        let outcome = call.run(&session, &format!("{trick}; {update}")).await;
        let after: u32 = database.value("select n from s.t").await.parse().unwrap();
        let effects: u32 = database
            .value(&format!("select count(*) from countersign.effect where correlation_id = '{}'", call.correlation_id))
            .await
            .parse()
            .unwrap();
        match outcome {
            Ok(()) => assert_eq!((after - before, effects), (1, 1), "{trick}"),
            Err(refused) => assert_eq!((after - before, effects), (0, 0), "{trick}: {refused:?}"),
        }
        run(&session, &call.fail("x", "{}")).await.unwrap();
    }
    assert_eq!(database.value("select count(*) from countersign.attempt").await, "1", "the other server's");
    assert_eq!(database.value("select count(*) from countersign.mutation where account_id = 'victim'").await, "1");
    // The other server goes on as if nothing had been.
    run(&other_session, &other.carry_out(update)).await.unwrap();
    assert_eq!(outcome(&database, other.correlation_id).await, "success");
}

/// An attempt with the slot of another call could run beside that one, or keep it from running.
#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_with_the_slot_of_another_call_is_not_claimed_and_binds_nothing() {
    let database = ledger("slots").await;
    database.run("create schema s; create table s.t (n int); insert into s.t values (0)").await;
    let session = server(&database).await;
    let (victim, made_up) = (Call::new("t", "victim"), Call::new("t", "made up").keyed("k"));
    let forgeries = [
        (made_up.slot(), victim.slot()),
        (made_up.slot(), "'\\x00'".to_owned()),
        (format!("'{}'", made_up.fingerprint()), "'short'".to_owned()),
    ];
    for (number, (from, to)) in forgeries.iter().chain(&forgeries).enumerate() {
        let call = Call { is_admitted_first: number < forgeries.len(), ..made_up.again() };
        let forged = call.protocol("update s.t set n = n + 1").replace(from, to);
        let refused = run(&session, &forged).await.unwrap_err();
        assert_eq!(refused.code, "42501", "{number}");
        run(&session, &format!("rollback; {}", call.fail("x", "{}").replace(from, to))).await.unwrap();
    }
    assert_eq!(database.value("select n from s.t").await, "0");
    assert_eq!(database.value("select count(*) from countersign.attempt").await, "0");
    let bound = format!("select count(*) from countersign.record where slot <> {}", made_up.slot());
    assert_eq!(database.value(&bound).await, "0");
    victim.run(&session, "update s.t set n = n + 1").await.unwrap();
}

/// A login marks nothing as reversed that was not.
#[tokio::test(flavor = "multi_thread")]
async fn no_undo_is_marked_without_its_proof() {
    let database = ledger("unproved").await;
    database.run("create schema s; create table s.t (id int primary key, n int); insert into s.t values (1, 0), (2, 0); select countersign.track('s.t'); \
        create table s.untracked (n int); insert into s.untracked values (0)").await;
    let session = server(&database).await;
    let written = crate::support::write(&session, "update s.t set n = 5 where id = 1").await;
    // A write without effects is not marked along with one whose undo is proved.
    let other = Call::new("t", "untracked").touching(1);
    other.run(&session, "update s.untracked set n = 1").await.unwrap();
    let both = Call::undo(&[written, other.correlation_id]);
    let refused = both.run(&session, "update s.t set n = 0 where id = 1").await.unwrap_err();
    assert_eq!((refused.code.as_str(), refused.detail.as_str()), ("CS002", r#"[{"code": "image_missing"}]"#));
    run(&session, &both.fail("x", "{}")).await.unwrap();
    for statement in [
        "select 1",
        "update s.t set n = 1 where id = 1",
        "update s.t set n = 0, id = id + 10",
        "delete from s.t where id = 1",
        "update s.t set n = 0 where id = 2",
    ] {
        let call = Call::undo(&[written]);
        let refused = call.run(&session, statement).await.unwrap_err();
        assert_eq!(refused.code, "CS002", "{statement}");
        run(&session, &call.fail("x", "{}")).await.unwrap();
    }
    assert_eq!(database.value("select count(*) from countersign.reversal").await, "0");
    // The exact inverse by a declared tool counts, and is linked.
    let declared = Call { tool: "set_back".to_owned(), ..Call::undo(&[written]) };
    declared.run(&session, "update s.t set n = 0 where id = 1").await.unwrap();
    assert_eq!(
        database.value("select reversed_by from countersign.reversal").await,
        declared.correlation_id.to_string()
    );
}
