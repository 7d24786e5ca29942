//! Receipts where a check, an index or a foreign key takes what is new and not what was there: no cheap verdict is possible.

use crate::receipts_kept::SWEPT;
use crate::trial::Trial;

/// The receipts of this write are true, before a sweep and after it, and promise as much as they can.
async fn is_true(name: &str, schema: &str, sql: &str, is_promised: bool) {
    let mut trial = Trial::new(name, schema).await;
    trial.space = Some("s".to_owned());
    for _ in 0..2 {
        let written = trial.write(sql).await;
        let judged = trial.undo(&written, false).await;
        assert!(judged.wrong.is_empty(), "{name}: {sql}: {:#?}", judged.wrong);
        assert_eq!(written.receipt.is_a_promise(), is_promised, "{name}: {sql}: {:?}", written.receipt);
        trial.change(SWEPT).await;
        let dropped = "drop schema s cascade; drop schema if exists q cascade";
        let untracked = "select countersign.untrack(relation) from countersign.tracked where is_current";
        trial.change(&format!("{untracked}; {dropped}")).await;
        trial.change(schema).await;
        trial.change(SWEPT).await;
    }
}

/// R-6 (a).
#[tokio::test(flavor = "multi_thread")]
async fn a_domain_that_was_never_checked_is_tried() {
    let not_valid = "alter domain s.d add constraint m check (value < 11) not valid; select countersign.track('s.t')";
    for (name, made, new) in [
        ("plain", "create table s.t (id int primary key, n s.d); insert into s.t values (1, 55)", "10"),
        ("array", "create table s.t (id int primary key, n s.d[]); insert into s.t values (1, '{55}')", "'{10}'"),
        (
            "composite",
            "create type s.c as (x s.d); create table s.t (id int primary key, n s.c); insert into s.t values (1, '(55)')",
            "'(10)'",
        ),
        (
            "parent",
            "create table s.p (id s.d primary key); insert into s.p values (55), (10);
             create table s.t (id int primary key, n int references s.p); insert into s.t values (1, 55)",
            "10",
        ),
    ] {
        let schema = format!("create schema s; create domain s.d as int; {made}; {not_valid}");
        // A look at a parent asks no domain.
        let sql = format!("update s.t set n = {new} where id = 1");
        is_true(&format!("domain_{name}"), &schema, &sql, name == "parent").await;
    }
    // The control: one that holds needs no doubt.
    let schema =
        "create schema s; create domain s.d as int check (value < 99); create table s.t (id int primary key, n s.d);
        insert into s.t values (1, 55); select countersign.track('s.t')";
    is_true("domain_valid", schema, "update s.t set n = 10 where id = 1", true).await;
}

/// A constraint of a domain that comes after the sweep is seen by the next write, and an index of a parent after the next sweep.
#[tokio::test(flavor = "multi_thread")]
async fn a_later_constraint_or_index_is_seen() {
    let mut trial = Trial::new(
        "later_rules",
        &format!(
            "{PLACES} create domain s.d as int; create table s.t (id int primary key, n s.d); insert into s.t values (1, 55);
             select countersign.track('s.t'), countersign.track('s.l')"
        ),
    )
    .await;
    trial.space = Some("s".to_owned());
    trial.change(SWEPT).await;
    trial.restores("delete from s.l where id = 1").await;
    trial.change(&format!("alter domain s.d add constraint m check (value < 11) not valid; {INDEX}")).await;
    trial.keeps_its_word("update s.t set n = 10 where id = 1").await;
    trial.change(SWEPT).await;
    trial.keeps_its_word("delete from s.l where id = 2").await;
}

/// R-6 (b).
#[tokio::test(flavor = "multi_thread")]
async fn a_check_that_asks_a_function_is_tried() {
    let schema = "create schema s; create table s.cfg (k int primary key, lim int); insert into s.cfg values (1, 100);
        create function s.ok(int) returns bool language sql stable as $$ select $1 <= (select lim from s.cfg where k = 1) $$;
        create table s.t (id int primary key, n int check (s.ok(n))); insert into s.t values (1, 90), (2, 40); update s.cfg set lim = 50;
        select countersign.track('s.t')";
    is_true("check_function", schema, "update s.t set n = 10 where id = 1", false).await;
    is_true("check_function_holds", schema, "update s.t set n = 10 where id = 2", true).await;
}

/// A parent in another schema, which nobody reads: an index of it calls what only its own search_path finds.
const PLACES: &str = "create schema s; create schema q; create domain q.e as int; create table q.p (id int primary key, x int);
    insert into q.p values (1, 1); create table s.l (id int primary key, p int references q.p, w int); insert into s.l values (1, 1, 1), (2, 1, 2);
    create function s.nothing() returns trigger language plpgsql as $$ begin return null; end $$;";
const INDEX: &str =
    "set search_path = q; create function q.f(int) returns int language sql immutable as 'select $1::e::int';
    create index on q.p (q.f(x)); reset search_path;";

/// R-6 (c) and R-7: the look at a parent fails where an index of it calls what cannot be found. In the transaction of the write every
/// foreign key is looked at, in that of the undo only what changes: what is not known is not said.
#[tokio::test(flavor = "multi_thread")]
async fn a_look_at_a_parent_that_fails_is_not_said_to_be_the_end() {
    let schema = format!("{PLACES} {INDEX} select countersign.track('s.l')");
    is_true("parent_index", &schema, "delete from s.l where id = 2", false).await;
    let schema = format!(
        "{PLACES} {INDEX} create constraint trigger later after update on s.l deferrable initially deferred
         for each row execute function s.nothing(); select countersign.track('s.l')"
    );
    let mut trial = Trial::new("parent_index_kept", &schema).await;
    trial.space = Some("s".to_owned());
    let written = trial.write("update s.l set w = 9 where id = 1").await;
    assert!(written.receipt.reversible && !written.receipt.checked, "{:?}", written.receipt);
    trial.undo(&written, false).await.expect_done("an undo that looks at no parent");
}

///
#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_moves_with_its_parent_is_tried() {
    let parts = "create schema s; create table s.pk (a int primary key) partition by list (a);
        create table s.p1 partition of s.pk for values in (1); create table s.p2 partition of s.pk for values in (2);
        create table s.p3 partition of s.pk for values in (3); create table s.p4 partition of s.pk for values in (4);";
    for (name, child) in [
        ("key", "create table s.c (a int primary key references s.pk (a) on update cascade on delete cascade)"),
        ("other", "create table s.c (id int primary key, a int references s.pk (a) on update cascade)"),
        (
            "parts",
            "create table s.c (a int primary key references s.pk (a) on update cascade) partition by list (a);
             create table s.c1 partition of s.c for values in (1, 2); create table s.c3 partition of s.c for values in (3, 4)",
        ),
    ] {
        let rows = if name == "other" { "(1, 1), (2, 3)" } else { "(1), (3)" };
        let schema = format!(
            "{parts} {child}; insert into s.pk values (1), (3); insert into s.c values {rows}; select countersign.track('s.pk'), countersign.track('s.c')"
        );
        let trial = Trial::new(&format!("moving_{name}"), &schema).await;
        trial.keeps_its_word("update s.pk set a = a + 1").await;
        trial.keeps_its_word("update s.pk set a = 4 where a = 3").await;
    }
}

/// what is neither a clock nor a counter is not what it was, and nobody says that it is.
#[tokio::test(flavor = "multi_thread")]
async fn a_column_that_accumulates_is_no_clock() {
    let trial = Trial::new(
        "accumulates",
        "create schema s; create table s.t (id int primary key, amount int, balance int, prev int, at timestamptz, token uuid);
         insert into s.t values (1, 5, 100, 0, 'epoch', gen_random_uuid());
         create function s.sum() returns trigger language plpgsql as $$ begin new.balance := old.balance + new.amount; new.prev := old.amount;
             new.at := now(); new.token := gen_random_uuid(); return new; end $$;
         create trigger sum before update on s.t for each row execute function s.sum(); select countersign.track('s.t')",
    )
    .await;
    let written = trial.write("update s.t set amount = 10 where id = 1").await;
    assert!(written.receipt.reversible && !written.receipt.checked, "{:?}", written.receipt);
    let note =
        "Its undo leaves s.t balance, prev otherwise than before it: triggers set that again, and it is no clock.";
    assert!(written.receipt.note.ends_with(note), "{:?}", written.receipt);
    let undone = trial.undo(&written, false).await.expect_done("an undo that accumulates");
    assert_eq!(trial.database.value("select balance from s.t").await, "115");
    assert!(!undone.receipt.checked, "{:?}", undone.receipt);
}
