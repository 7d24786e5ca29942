//! A receipt promises what an undo then does: each kind of write of which one was false, by its number in the findings.

use uuid::Uuid;

use crate::people::{ids, plan, undo_by_person};
use crate::server::{Outcome, perform};
use crate::support::{Call, OPERATOR, connect, ledger, run, server, write};
use crate::trial::Trial;

const ROWS: &str = "create schema s; create table s.t (id int primary key, n int, v text);
    insert into s.t select g, g, 'v' || g from generate_series(1, 5) g; select countersign.track('s.t')";

///
#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_found_its_rows_as_they_should_be_can_be_undone() {
    let trial = Trial::new("a1", ROWS).await;
    trial.restores("update s.t set n = n where id = 1").await;
    trial.restores("update s.t set v = 'v1' where id in (1)").await;
    trial.restores("update s.t set n = n; update s.t set n = 7 where id = 2").await;
}

///
#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_changed_nothing_is_in_no_plans_way() {
    let trial = Trial::new("a1_plan", ROWS).await;
    let person = connect(&trial.database, OPERATOR).await;
    let nothing = trial.write("update s.t set n = n where id = 1").await;
    let something = trial.write("update s.t set n = 9 where id = 2").await;
    for mode in ["strict", "skip", "cascade"] {
        let planned = plan(&person, &[nothing.id, something.id], mode).await;
        assert_eq!(planned["is_ready"], true, "{mode}: {planned:#}");
        assert!(ids(&planned, "writes").contains(&something.id), "{mode}: {planned:#}");
    }
    undo_by_person(&person, &[nothing.id, something.id]).await.unwrap_or_else(|conflict| panic!("{conflict:#}"));
    assert!(trial.state().await.differences(&nothing.before).is_empty());
}

///
#[tokio::test(flavor = "multi_thread")]
async fn a_duplicate_of_a_write_that_changed_nothing_is_answered_only_while_its_row_is_so() {
    let database = ledger("a1_duplicate").await;
    database.run(ROWS).await;
    let mut session = server(&database).await;
    let call = Call::new("tool", "set n to 1");
    let sql = "update s.t set n = 1 where id = 1";
    assert_eq!(perform(&database, &mut session, &call, sql).await, Outcome::Success);
    let again = perform(&database, &mut session, &call.again(), sql).await;
    assert_eq!(again, Outcome::Duplicate(call.correlation_id));
    write(&session, "update s.t set n = 50 where id = 1").await;
    let again = perform(&database, &mut session, &call.again(), sql).await;
    assert_eq!(again, Outcome::AdmitDecision("superseded".to_owned()));
}

const REFERRED: &str = "create schema s; create table s.p (id int primary key, v text);
    create table s.k (id int primary key, p int references s.p on delete cascade);
    create table s.l (id int primary key, p int references s.p on delete set null);
    insert into s.p values (1, 'a'); insert into s.k values (1, 1); insert into s.l values (1, 1); select countersign.track('s.p')";

/// A-2 (a).
#[tokio::test(flavor = "multi_thread")]
async fn an_undo_that_would_cascade_into_a_table_that_is_not_tracked_is_refused() {
    for table in ["k", "l"] {
        let trial = Trial::new(&format!("a2_{table}"), REFERRED).await;
        let written = trial.write("insert into s.p values (2, 'b')").await;
        trial.change(&format!("insert into s.{table} values (2, 2)")).await;
        trial.still_refuses(&written, "referenced", true).await;
        trial.change(&format!("delete from s.{table} where id = 2")).await;
        trial.undo(&written, true).await.expect_done("without a row that refers to it");
    }
}

/// A-2 (a): the key of a row that others refer to.
#[tokio::test(flavor = "multi_thread")]
async fn an_undo_that_would_cascade_a_key_into_a_table_that_is_not_tracked_is_refused() {
    let trial = Trial::new(
        "a2_key",
        "create schema s; create table s.p (id int primary key); create table s.k (id int primary key, p int references s.p on update cascade);
         insert into s.p values (1); select countersign.track('s.p')",
    )
    .await;
    let written = trial.write("update s.p set id = 2").await;
    trial.change("insert into s.k values (1, 2)").await;
    let judged = trial.undo(&written, true).await;
    assert!(judged.wrong.is_empty(), "{:#?}", judged.wrong);
}

/// A-2 (b).
#[tokio::test(flavor = "multi_thread")]
async fn an_undo_whose_trigger_deletes_elsewhere_is_refused() {
    let trial = Trial::new(
        "a2_trigger",
        "create schema s; create table s.p (id int primary key, v text); create table s.k (id int primary key, p int);
         create function s.clean() returns trigger language plpgsql as $$ begin delete from s.k where p = old.id; return old; end $$;
         create trigger clean before delete on s.p for each row execute function s.clean();
         insert into s.k values (1, 1), (2, 2); select countersign.track('s.p')",
    )
    .await;
    let written = trial.write("insert into s.p values (2, 'b')").await;
    trial.still_refuses(&written, "side_effects", true).await;
    trial.change("delete from s.k where p = 2").await;
    let judged = trial.undo(&written, true).await;
    assert!(judged.wrong.is_empty(), "{:#?}", judged.wrong);
}

/// A-2 (c).
#[tokio::test(flavor = "multi_thread")]
async fn an_undo_leaves_the_rows_of_tables_that_inherit_alone() {
    let trial = Trial::new(
        "a2_inherits",
        "create schema s; create table s.up (id int primary key, n int, v text); create table s.down () inherits (s.up);
         insert into s.up values (1, 1, 'a'), (2, 2, 'b'); insert into s.down values (1, 1, 'a'), (2, 2, 'b'), (3, 3, 'c'), (4, 4, 'd');
         select countersign.track('s.up')",
    )
    .await;
    // A child's row with the same key and the same values.
    trial.restores("insert into s.up values (3, 3, 'c')").await;
    trial.restores("insert into s.up values (3, 3, 'c'), (4, 5, 'e')").await;
    trial.restores("update only s.up set n = 9 where id = 1").await;
    trial.restores("update only s.up set n = n + 1, v = 'x'").await;
    trial.restores("delete from only s.up where id = 2").await;
    trial.restores("delete from only s.up").await;
}

/// "make another one the default".
#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_what_is_unique_among_some_rows_can_be_undone() {
    let trial = Trial::new(
        "a3_default",
        "create schema s; create table s.address (id int primary key, customer int not null, is_default boolean not null);
         create unique index one_default on s.address (customer) where is_default;
         insert into s.address values (1, 1, true), (2, 1, false), (3, 1, false); select countersign.track('s.address')",
    )
    .await;
    trial
        .restores("update s.address set is_default = false where customer = 1; update s.address set is_default = true where id = 2")
        .await;
    trial
        .restores("update s.address set is_default = false where customer = 1 and is_default; insert into s.address values (4, 1, true)")
        .await;
}

/// a swap over a free value.
#[tokio::test(flavor = "multi_thread")]
async fn a_swap_of_unique_values_can_be_undone() {
    let trial = Trial::new(
        "a3_swap",
        "create schema s; create table s.t (id int primary key, place int not null unique, v text);
         insert into s.t select g, g, 'v' from generate_series(1, 5) g; select countersign.track('s.t')",
    )
    .await;
    trial
        .restores("update s.t set place = -1 where id = 1; update s.t set place = 1 where id = 2; update s.t set place = 2 where id = 1")
        .await;
    trial
        .restores(
            "update s.t set place = -1 where id = 1; update s.t set place = 1 where id = 2; update s.t set place = 2 where id = 3;
             update s.t set place = 3 where id = 1",
        )
        .await;
    trial
        .restores(
            "delete from s.t where id = 4; update s.t set place = 4 where id = 5; insert into s.t values (4, 5, 'new')",
        )
        .await;
}

/// bookings.
#[tokio::test(flavor = "multi_thread")]
async fn bookings_that_take_each_others_place_can_be_undone() {
    let trial = Trial::new(
        "a3_bookings",
        "create schema s; create table s.booking (id int primary key, room int4range not null, during tsrange not null,
             exclude using gist (room with &&, during with &&));
         insert into s.booking values (1, '[1,1]', '[2026-01-01,2026-01-05)'), (2, '[1,1]', '[2026-01-05,2026-01-09)');
         select countersign.track('s.booking')",
    )
    .await;
    trial
        .restores(
            "update s.booking set during = '[2026-02-01,2026-02-05)' where id = 1;
             update s.booking set during = '[2026-01-01,2026-01-05)' where id = 2;
             update s.booking set during = '[2026-01-05,2026-01-09)' where id = 1",
        )
        .await;
    trial
        .restores(
            "update s.booking set during = '[2026-01-03,2026-01-04)' where id = 1; update s.booking set during = '[2026-01-04,2026-01-09)' where id = 2",
        )
        .await;
}

/// tables that refer to each other.
#[tokio::test(flavor = "multi_thread")]
async fn rows_that_refer_to_each_other_can_be_undone() {
    let trial = Trial::new(
        "a3_cycle",
        "create schema s; create table s.team (id int primary key, lead int); create table s.person (id int primary key, team int not null references s.team);
         alter table s.team add foreign key (lead) references s.person; insert into s.team values (1, null); insert into s.person values (1, 1), (2, 1);
         update s.team set lead = 1; select countersign.track('s.team'), countersign.track('s.person')",
    )
    .await;
    trial
        .restores("insert into s.team values (2, null); insert into s.person values (3, 2); update s.team set lead = 3 where id = 2")
        .await;
    trial
        .restores("update s.team set lead = null where id = 1; delete from s.person where team = 1; delete from s.team where id = 1")
        .await;
}

///
#[tokio::test(flavor = "multi_thread")]
async fn a_plan_that_skips_leaves_out_what_cannot_be_undone() {
    let trial = Trial::new(
        "a5_skip",
        "create schema s; create type s.mood as enum ('sad', 'ok'); create type s.pair as (a int, b int);
         create table s.bare (v text); create table s.m (id int primary key, mood s.mood); create table s.c (id int primary key, pair s.pair);
         create table s.t (id int primary key, n int); insert into s.m values (1, 'sad'); insert into s.c values (1, '(1,2)'); insert into s.t values (1, 1), (2, 2);
         select countersign.track('s.m'), countersign.track('s.c'), countersign.track('s.t')",
    )
    .await;
    let person = connect(&trial.database, OPERATOR).await;
    let mut left_out = Vec::<Uuid>::new();
    for sql in ["insert into s.bare values ('x')", "update s.m set mood = 'ok'", "update s.c set pair = '(3,4)'"] {
        left_out.push(trial.write(sql).await.id);
    }
    let good = trial.write("update s.t set n = 5 where id = 1").await;
    trial.change("alter type s.mood rename value 'sad' to 'gloomy'; alter type s.pair add attribute c int").await;
    let all: Vec<Uuid> = left_out.iter().copied().chain([good.id]).collect();
    let planned = plan(&person, &all, "skip").await;
    assert_eq!(planned["is_ready"], true, "{planned:#}");
    assert_eq!(ids(&planned, "writes"), [good.id], "{planned:#}");
    assert_eq!(planned["left_out"].as_array().unwrap().len(), 3, "{planned:#}");
}

///
#[tokio::test(flavor = "multi_thread")]
async fn a_write_of_a_column_that_is_not_recorded_promises_nothing() {
    let trial = Trial::new(
        "a5_sensitive",
        "create schema s; create table s.t (id int primary key, n int, secret text); insert into s.t values (1, 1, 'hunter2'), (2, 2, 'swordfish');
         select countersign.track('s.t', sensitive => '{secret}')",
    )
    .await;
    trial.restores("update s.t set n = 5 where id = 1").await;
    trial.refuses("update s.t set secret = 'other' where id = 1", "image_missing").await;
    trial.refuses("delete from s.t where id = 2", "image_missing").await;
    // Undone, the row is gone; but the redo would lose its secret.
    let written = trial.write("insert into s.t values (3, 3, 'new')").await;
    let undone = trial.undo(&written, false).await.expect_done("insert with a secret");
    trial.still_refuses(&undone, "image_missing", false).await;
}

///
#[tokio::test(flavor = "multi_thread")]
async fn a_write_of_a_log_is_undone_or_said_to_be_irreversible() {
    let trial = Trial::new(
        "a6",
        "create schema s; create table s.log (id int generated by default as identity primary key, what text); insert into s.log (what) values ('first');
         select countersign.track('s.log', is_log => true)",
    )
    .await;
    let written = trial.write("insert into s.log (what) values ('by hand')").await;
    let judged = trial.undo(&written, false).await;
    assert!(judged.wrong.is_empty(), "{:#?}", judged.wrong);
    let left = trial.database.value("select count(*) from s.log where what = 'by hand'").await;
    match &judged.outcome {
        Ok(_) => assert_eq!(left, "0", "an undo that succeeded"),
        Err(_) => assert_eq!((left.as_str(), judged.receipt.reversible), ("1", false), "an undo that was refused"),
    }
    trial.refuses("update s.log set what = 'changed'", "irreversible").await;
}

///
#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_took_long_says_that_a_call_may_be_too_short_for_its_undo() {
    let trial = Trial::new(
        "a13",
        "create schema s; create table s.t (id int primary key, n int); insert into s.t values (1, 1); select countersign.track('s.t')",
    )
    .await;
    for (limit, expected) in [("1min", "true none"), ("2s", "false undo)."), ("0", "true none")] {
        let statement =
            format!("set local statement_timeout = '{limit}'; select pg_sleep(0.6); update s.t set n = n + 1");
        let id = trial.write(&statement).await.id;
        let receipt = "concat_ws(' ', r.rollback ->> 'checked', coalesce(right(r.rollback ->> 'note', 6), 'none'))";
        let found = format!("select {receipt} from countersign.record r where r.correlation_id = '{id}'");
        assert_eq!(trial.database.value(&found).await, expected, "0.6 s of {limit}");
    }
}

///
#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_reports_no_rows_and_did_something_is_made_once() {
    let database = ledger("a7").await;
    database
        .run(
            "create schema s; create table s.t (id int primary key, n int); create table s.charge (n int); create table s.door (id int primary key);
             create function s.redirect() returns trigger language plpgsql as $$ begin insert into s.charge values (new.id); return null; end $$;
             create trigger redirect before insert on s.door for each row execute function s.redirect();
             insert into s.t values (1, 1); select countersign.track('s.t')",
        )
        .await;
    let mut session = server(&database).await;
    for sql in [
        "with c as (insert into s.charge values (1)) update s.t set n = 2 where id = 99",
        "insert into s.door values (1)",
        "do $$ begin insert into s.charge values (3); end $$",
    ] {
        let call = Call::new("tool", sql).touching(0);
        assert_eq!(perform(&database, &mut session, &call, sql).await, Outcome::Success, "{sql}");
        let again = perform(&database, &mut session, &call.again(), sql).await;
        assert_eq!(again, Outcome::Duplicate(call.correlation_id), "{sql}");
    }
    assert_eq!(database.value("select count(*) from s.charge").await, "3");
    // One that did nothing stands in no call's way.
    let nothing = Call::new("tool", "nothing").touching(0);
    for call in [nothing.clone(), nothing.again()] {
        let outcome = perform(&database, &mut session, &call, "update s.t set n = 2 where id = 99").await;
        assert_eq!(outcome, Outcome::Success);
    }
}

/// PostgreSQL counts the rows of a session, and adds them up once a second.
#[tokio::test(flavor = "multi_thread")]
async fn a_write_is_not_said_to_have_changed_the_untracked_rows_of_earlier_ones_of_its_session() {
    let database = ledger("counts").await;
    if database.value("select current_setting('server_version_num')::int < 150000").await == "t" {
        // It has no way to add them up at once.
        return;
    }
    database.run("create schema s; create table s.untracked (id int primary key, n int)").await;
    let session = server(&database).await;
    write(&session, "insert into s.untracked select g, 0 from generate_series(1, 6) g").await;
    let failed = Call::new("t", "failed");
    failed.run(&session, "delete from s.untracked; select 1 / 0").await.unwrap_err();
    run(&session, &failed.fail("sql_error", "{}")).await.unwrap();
    let (one, none) = (Call::new("t", "one"), Call::new("t", "none").touching(0));
    one.run(&session, "update s.untracked set n = 1 where id = 1").await.unwrap();
    none.run(&session, "update s.untracked set n = 1 where id = 99").await.unwrap();
    let counted = |call: &Call| {
        format!(
            "select coalesce((select string_agg(value::text, ' ') from json_each(r.evidence -> 'untracked')), 'none') \
             from countersign.record r where r.correlation_id = '{}'",
            call.correlation_id
        )
    };
    assert_eq!(database.value(&counted(&one)).await, "[0, 1, 0]");
    // So it does not stand in the way of the same call.
    assert_eq!(database.value(&counted(&none)).await, "none");
    let held = format!("select slot is null from countersign.record where correlation_id = '{}'", none.correlation_id);
    assert_eq!(database.value(&held).await, "t");
}
