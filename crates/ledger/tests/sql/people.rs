//! People: undo of any account's writes, freezing, and undo of many writes by a plan.

use serde_json::Value;
use testkit::Database;
use tokio_postgres::Client;
use uuid::Uuid;

use crate::server::{Outcome, perform};
use crate::support::{
    Call, OPERATOR, Refused, array, codes, connect, finish_undo, ledger, outcome, run, server, undo, write,
};

const TABLE: &str = "create schema s; create table s.t (id int primary key, n int); insert into s.t select g, 0 from generate_series(1, 9) g;
                     select countersign.track('s.t')";

/// An undo as a person does it.
pub(crate) async fn undo_by_person(session: &Client, writes: &[Uuid]) -> Result<Uuid, Value> {
    let call = Call { tool: "undo_mutation".to_owned(), ..Call::undo(writes).admitted_first() };
    let sql = format!(
        "begin isolation level read committed; select verdict from countersign.admit_undo('{}', {}, 'olga@example', 'undo_mutation', '{{}}', '{{}}', '{}', 'digest'); commit and chain; \
         {}; select countersign.undo({})",
        call.correlation_id,
        array(writes),
        call.fingerprint(),
        call.claim(true),
        array(writes)
    );
    finish_undo(session, &call, run(session, &sql).await).await.map(|_| call.correlation_id)
}

async fn numbers(database: &Database) -> String {
    database.value("select string_agg(n::text, ' ' order by id) from s.t").await
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_undo_the_writes_of_any_account_and_the_record_names_them() {
    let database = ledger("people").await;
    database.run(TABLE).await;
    let (session, person) = (server(&database).await, connect(&database, OPERATOR).await);
    let written = write(&session, "update s.t set n = 1 where id = 1").await;
    let undone = undo_by_person(&person, &[written]).await.unwrap();
    assert_eq!(database.value("select n from s.t where id = 1").await, "0");
    let record = format!(
        "select actor, login, account_id, approval::jsonb from countersign.record where correlation_id = '{undone}'"
    );
    let approval = r#"{"decided_by": "olga@example", "decided_login": "olga"}"#;
    assert_eq!(database.rows(&record).await, [["olga@example", OPERATOR, "agent", approval]]);
    // What a person has undone is not the agent's to reverse, although it is on record under its account.
    let refused = undo(&session, &[undone]).await.unwrap_err();
    assert_eq!(codes(&refused), ["not_permitted"]);
    undo_by_person(&person, &[undone]).await.unwrap();
    // A person does nothing else with the ledger, and a server none of this.
    for statement in [
        "insert into countersign.admission (slot) values ('')",
        "select countersign.sweep('0 s', 1)",
        "delete from countersign.record",
    ] {
        assert_eq!(run(&person, statement).await.unwrap_err().code, "42501", "{statement}");
    }
    for statement in [
        "select countersign.store_plan(null, '{}', '[]', '{}', 'digest', 'x')",
        "select countersign.unfreeze('all', '', 'x')",
    ] {
        assert_eq!(run(&session, statement).await.unwrap_err().code, "42501", "{statement}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_account_writes_nothing_after_the_freeze() {
    let database = ledger("frozen").await;
    database.run(TABLE).await;
    let (mut session, busy_session, person) =
        (server(&database).await, server(&database).await, connect(&database, OPERATOR).await);
    let written = write(&session, "update s.t set n = 1 where id = 1").await;
    // A write in flight does not get through either.
    let busy = Call::new("t", "busy").admitted_first();
    run(&busy_session, &format!("{}; update s.t set n = 7 where id = 7", busy.begin())).await.unwrap();
    assert_eq!(
        run(&person, "select countersign.freeze('account', 'agent', 'olga', 'it went mad')").await.unwrap(),
        ["1"]
    );
    let refused: Refused = run(&busy_session, &busy.finish()).await.unwrap_err();
    assert_eq!((refused.code.as_str(), refused.detail.as_str()), ("CS001", "frozen"));
    run(&busy_session, "rollback").await.unwrap();
    run(&busy_session, &busy.fail("account_frozen", "{}")).await.unwrap();

    let call = Call::new("t", "frozen");
    let frozen = Outcome::AdmitDecision("frozen".to_owned());
    assert_eq!(perform(&database, &mut session, &call, "update s.t set n = 2 where id = 2").await, frozen);
    assert_eq!(outcome(&database, call.correlation_id).await, "failure account_frozen");
    let other = Call::new("t", "other").by("another");
    assert_eq!(perform(&database, &mut session, &other, "update s.t set n = 3 where id = 3").await, Outcome::Success);
    // People go on undoing.
    undo_by_person(&person, &[written]).await.unwrap();
    assert_eq!(numbers(&database).await, "0 0 3 0 0 0 0 0 0");
    assert_eq!(run(&person, "select countersign.unfreeze('account', 'agent', 'olga')").await.unwrap(), ["t"]);
    assert_eq!(
        perform(&database, &mut session, &call.again(), "update s.t set n = 2 where id = 2").await,
        Outcome::Success
    );
    assert_eq!(
        database
            .rows("select kind, name, frozen_by, frozen_login, reason, unfrozen_login from countersign.freeze")
            .await,
        [["account", "agent", "olga", OPERATOR, "it went mad", OPERATOR]]
    );
    for (kind, name) in [("actor", "ana"), ("all", "")] {
        run(&person, &format!("select countersign.freeze('{kind}', '{name}', 'olga')")).await.unwrap();
        assert_eq!(perform(&database, &mut session, &Call::new("t", kind), "select 1").await, frozen, "{kind}");
        run(&person, &format!("select countersign.unfreeze('{kind}', '{name}', 'olga')")).await.unwrap();
    }
}

pub(crate) async fn plan(session: &Client, writes: &[Uuid], mode: &str) -> Value {
    let sql = format!("select countersign.undo_plan({}, '{mode}')", array(writes));
    serde_json::from_str(&run(session, &sql).await.unwrap()[0]).unwrap()
}

pub(crate) fn ids(plan: &Value, field: &str) -> Vec<Uuid> {
    plan[field].as_array().unwrap().iter().map(|id| Uuid::parse_str(id.as_str().unwrap()).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn many_writes_are_undone_together_by_their_net_effect() {
    let database = ledger("plans").await;
    database.run(TABLE).await;
    let (session, person) = (server(&database).await, connect(&database, OPERATOR).await);
    let before = numbers(&database).await;
    for statement in [
        "update s.t set n = n + 1 where id < 4",
        "update s.t set n = n * 10",
        "delete from s.t where id = 9",
        "insert into s.t values (10, 10)",
        "update s.t set n = 5 where id = 10",
    ] {
        write(&session, statement).await;
    }
    let selected = "select correlation_id from countersign.selected_writes('agent', null, null, null, 'tool', 's.t', now() - interval '1 hour', now())";
    let writes: Vec<Uuid> =
        run(&person, selected).await.unwrap().iter().map(|id| Uuid::parse_str(id).unwrap()).collect();
    assert_eq!(writes.len(), 5);
    let strict = plan(&person, &writes, "strict").await;
    assert_eq!(strict["is_ready"], true, "{strict:#}");
    assert_eq!(plan(&person, &writes, "strict").await["digest"], strict["digest"]);
    let undone = undo_by_person(&person, &writes).await.unwrap();
    assert_eq!(numbers(&database).await, before);
    assert_eq!(database.value("select count(*) from countersign.reversal").await, "5");
    assert!(run(&person, selected).await.unwrap().is_empty());
    // The whole can be taken back as one.
    let redone = undo_by_person(&person, &[undone]).await.unwrap();
    assert_eq!(database.value("select n from s.t where id = 10").await, "5");

    // U-3: that one stands for the writes. Of some of them alone it is left out, since it makes the others again, too.
    let standing = |window: &str, account: &str| {
        format!(
            "select concat_ws(' ', correlation_id, cardinality(makes_again), left_out ->> 'code') \
             from countersign.selected_writes('agent', null, null, null, 'tool', 's.t', {window}, null, {account})"
        )
    };
    let (hour, first) = ("now() - interval '1 hour', now()", format!("'-infinity', {}", completed(&writes[0])));
    for (window, account, expected) in [
        (hour, "null", format!("{redone} 5")),
        (hour, "'agent'", format!("{redone} 5 not_permitted")),
        (&first, "null", format!("{redone} 1 needed_by")),
    ] {
        assert_eq!(run(&person, &standing(window, account)).await.unwrap(), [expected], "{window} {account}");
    }
    // Whoever selects the redo alone gets it; with its undo it makes no difference.
    let of_undos = |first: Uuid| {
        format!(
            "select correlation_id from countersign.selected_writes(null, null, null, null, null, null, {}, now())",
            completed(&first)
        )
    };
    assert_eq!(run(&person, &of_undos(redone)).await.unwrap(), [redone.to_string()]);
    assert!(run(&person, &of_undos(undone)).await.unwrap().is_empty());
    undo_by_person(&person, &[redone]).await.unwrap();
    assert_eq!(numbers(&database).await, before);
    assert!(run(&person, selected).await.unwrap().is_empty());
    assert!(run(&person, &of_undos(redone)).await.unwrap().is_empty());
}

/// SQL: when a write was completed.
fn completed(write: &Uuid) -> String {
    format!("(select completed_at from countersign.record where correlation_id = '{write}')")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_skips_or_adds_whole_writes_and_never_ignores_a_change() {
    let database = ledger("plan_modes").await;
    database.run(TABLE).await;
    let (session, person) = (server(&database).await, connect(&database, OPERATOR).await);
    let a = write(&session, "update s.t set n = 1 where id in (1, 2)").await;
    let b = write(&session, "update s.t set n = 2 where id in (2, 3)").await;
    let c = write(&session, "update s.t set n = 3 where id = 4").await;
    let later = write(&session, "update s.t set n = 9 where id = 3").await;

    let strict = plan(&person, &[a, b, c], "strict").await;
    assert_eq!((&strict["is_ready"], codes(&strict)), (&Value::Bool(false), vec!["changed_since", "needed_by"]));
    // b stands under `later`, and a under b.
    let skip = plan(&person, &[a, b, c], "skip").await;
    assert_eq!((ids(&skip, "writes"), skip["is_ready"].as_bool()), (vec![c], Some(true)), "{skip:#}");
    let cascade = plan(&person, &[a, b, c], "cascade").await;
    assert_eq!((ids(&cascade, "added"), cascade["is_ready"].as_bool()), (vec![later], Some(true)), "{cascade:#}");
    undo_by_person(&person, &ids(&cascade, "writes")).await.unwrap();
    assert_eq!(numbers(&database).await, "0 0 0 0 0 0 0 0 0");

    // A-B-A: somebody changed the row and changed it back, between two of the writes.
    let first = write(&session, "update s.t set n = 1 where id = 5").await;
    database.run("update s.t set n = 0 where id = 5").await;
    let second = write(&session, "update s.t set n = 1 where id = 5").await;
    let broken = plan(&person, &[first, second], "strict").await;
    assert_eq!((codes(&broken), broken["is_ready"].as_bool()), (vec!["changed_since"], Some(false)), "{broken:#}");
    assert!(undo_by_person(&person, &[first, second]).await.is_err());
    // And by recorded writes that are not selected.
    let first = write(&session, "update s.t set n = 1 where id = 6").await;
    write(&session, "update s.t set n = 2 where id = 6").await;
    write(&session, "update s.t set n = 1 where id = 6").await;
    let broken = plan(&person, &[first], "strict").await;
    assert_eq!(broken["is_ready"], false, "{broken:#}");
    // A change from outside is never undone, whatever the mode.
    database.run("update s.t set n = 100 where id = 6").await;
    assert_eq!(plan(&person, &[first], "cascade").await["is_ready"], false);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_that_skips_leaves_out_what_cannot_be_undone_and_names_it() {
    // A-5
    let database = ledger("plan_skips").await;
    database.run(TABLE).await;
    database
        .run(
            "create table s.untracked (id int primary key);
             create table s.gone (id int primary key, n int); select countersign.track('s.gone');
             create table s.secret (id int primary key, pin text); insert into s.secret values (1, 'x');
             select countersign.track('s.secret', sensitive => '{pin}')",
        )
        .await;
    let (session, person) = (server(&database).await, connect(&database, OPERATOR).await);
    let good = write(&session, "update s.t set n = 1 where id = 1").await;
    let untracked = write(&session, "insert into s.untracked values (1)").await;
    let gone = write(&session, "insert into s.gone values (1, 1)").await;
    let below = write(&session, "update s.t set n = 1 where id = 2").await;
    let secret = write(&session, "with t as (update s.t set n = 2 where id = 2) update s.secret set pin = 'y'").await;
    database.run("drop table s.gone").await;
    let writes = [good, untracked, gone, below, secret];

    let strict = plan(&person, &writes, "strict").await;
    assert_eq!(strict["is_ready"], false);
    assert_eq!(codes(&strict), ["image_missing", "schema_changed", "image_missing"], "{strict:#}");
    let skip = plan(&person, &writes, "skip").await;
    assert_eq!((ids(&skip, "writes"), skip["is_ready"].as_bool()), (vec![good], Some(true)), "{skip:#}");
    let mut left_out: Vec<(String, Value, Value)> = skip["left_out"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| {
            (one["write"]["correlation_id"].as_str().unwrap().to_owned(), one["code"].clone(), one["table"].clone())
        })
        .collect();
    let mut expected: Vec<(String, Value, Value)> = [
        (untracked, "image_missing", Value::Null),
        (gone, "schema_changed", "s.gone".into()),
        (below, "needed_by", "s.t".into()),
        (secret, "image_missing", "s.secret".into()),
    ]
    .map(|(id, code, table)| (id.to_string(), code.into(), table))
    .to_vec();
    left_out.sort_by(|a, b| a.0.cmp(&b.0));
    expected.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(left_out, expected, "{skip:#}");
    undo_by_person(&person, &[good]).await.unwrap();
    assert_eq!(numbers(&database).await, "0 2 0 0 0 0 0 0 0");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_over_one_row_takes_time_in_proportion_to_its_writes() {
    // A-13: 1,000 writes of one row took 2.6 s, and 3,000 took 43 s.
    let database = ledger("plan_linear").await;
    database.run(TABLE).await;
    let (session, person) = (server(&database).await, connect(&database, OPERATOR).await);
    let first = write(&session, "update s.t set n = 1 where id = 1").await;
    // Further records and effects as the ledger has them, without the time of as many transactions.
    let more = format!(
        "alter table countersign.record disable trigger user;
         do $$ declare r countersign.record; e countersign.effect; begin
             select * into r from countersign.record where correlation_id = '{first}';
             select * into e from countersign.effect where correlation_id = '{first}';
             for i in 2 .. 3000 loop
                 r.correlation_id := gen_random_uuid(); r.id := r.id + 1; r.slot := null;
                 e.correlation_id := r.correlation_id; e.position := nextval('countersign.effect_position');
                 e.before := '(1,' || i - 1 || ')'; e.after := '(1,' || i || ')';
                 insert into countersign.record overriding system value select r.*; insert into countersign.effect select e.*;
             end loop; end $$;
         alter table countersign.record enable trigger user;
         set session_replication_role = replica; update s.t set n = 3000 where id = 1"
    );
    database.run(&more).await;
    let writes: Vec<Uuid> = database
        .rows("select correlation_id from countersign.record where status = 'success' order by id")
        .await
        .iter()
        .map(|row| Uuid::parse_str(&row[0]).unwrap())
        .collect();
    assert_eq!(writes.len(), 3000);
    let timed = async |count: usize| {
        let began = std::time::Instant::now();
        let made = plan(&person, &writes[3000 - count..], "strict").await;
        assert_eq!((&made["is_ready"], &made["rows"]), (&Value::Bool(true), &Value::from(1)), "{made:#}");
        began.elapsed().as_secs_f64()
    };
    timed(10).await;
    let (few, many) = (timed(300).await, timed(3000).await);
    assert!(many < 30.0 * few.max(0.02), "300 writes took {few:.3} s, and 3,000 took {many:.3} s");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_found_everything_as_it_should_be_blocks_no_plan() {
    // A-1
    let database = ledger("plan_no_op").await;
    database.run(TABLE).await;
    let (session, person) = (server(&database).await, connect(&database, OPERATOR).await);
    let first = write(&session, "update s.t set n = 1 where id = 1").await;
    let same = write(&session, "update s.t set n = 1 where id = 1").await;
    let last = write(&session, "update s.t set n = 2 where id = 1").await;
    for mode in ["strict", "skip", "cascade"] {
        let made = plan(&person, &[first, same, last], mode).await;
        assert_eq!((made["is_ready"].as_bool(), ids(&made, "writes").len()), (Some(true), 3), "{mode}: {made:#}");
    }
    // It is no later change that the first one would have to be undone with.
    let made = plan(&person, &[first, last], "strict").await;
    assert_eq!(made["is_ready"], true, "{made:#}");
    undo_by_person(&person, &[first, same, last]).await.unwrap();
    assert_eq!(numbers(&database).await, "0 0 0 0 0 0 0 0 0");
}
