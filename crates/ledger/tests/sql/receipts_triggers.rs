//! Receipts and undos of tables with triggers, of the kinds that ordinary databases have.

use crate::people::undo_by_person;
use crate::support::{OPERATOR, connect, undo};
use crate::trial::Trial;

/// A table with a trigger of its own.
fn stamped(column: &str, body: &str, clause: &str) -> String {
    format!(
        "create schema s; create table s.t (id int primary key, n int, v text, {column});
         insert into s.t select g, g, 'v' || g from generate_series(1, 5) g;
         create function s.stamp() returns trigger language plpgsql as $$ begin {body}; return new; end $$;
         create trigger stamp {clause} on s.t for each row execute function s.stamp(); select countersign.track('s.t')"
    )
}

const WRITES: &[&str] = &[
    "update s.t set n = 10 where id = 1",
    "update s.t set n = n + 1, v = 'x' where id = 2",
    "update s.t set n = n + 1",
    "update s.t set n = 3 where id = 3; update s.t set v = 'y' where id = 3",
    "insert into s.t (id, n, v) values (6, 6, 'v6')",
    "delete from s.t where id = 4",
    "insert into s.t (id, n, v) values (5, 50, 'w'), (7, 7, 'v7') on conflict (id) do update set n = excluded.n",
];

/// N-1.
#[tokio::test(flavor = "multi_thread")]
async fn columns_that_triggers_set_need_no_declaration() {
    for (name, column, body, clause) in [
        ("now", "updated_at timestamptz not null default now()", "new.updated_at := now()", "before update"),
        (
            "clock",
            "updated_at timestamptz not null default now()",
            "new.updated_at := clock_timestamp()",
            "before insert or update",
        ),
        ("version", "version int not null default 1", "new.version := old.version + 1", "before update"),
        (
            "login",
            "modified_by text",
            "new.modified_by := current_user || clock_timestamp()::text",
            "before insert or update",
        ),
    ] {
        let trial = Trial::new(&format!("n1_{name}"), &stamped(column, body, clause)).await;
        for sql in WRITES {
            // Who wrote last is neither a time nor a counter: what it was is not promised.
            if name == "login" { trial.keeps_its_word(sql).await } else { trial.restores(sql).await }
        }
    }
}

/// N-1: a probe by an empty UPDATE would not see these.
#[tokio::test(flavor = "multi_thread")]
async fn columns_that_triggers_set_when_a_row_changes_need_no_declaration() {
    let schema = "create schema s; create table s.t (id int primary key, n int, v text, updated_at timestamptz not null default now(), version int not null default 1);
         insert into s.t select g, g, 'v' || g from generate_series(1, 5) g;
         create function s.touch() returns trigger language plpgsql as $$ begin new.updated_at := clock_timestamp(); return new; end $$;
         create function s.count() returns trigger language plpgsql as $$ begin new.version := new.version + 1; return new; end $$;
         create trigger \"~touch\" before update on s.t for each row when (old.* is distinct from new.*) execute function s.touch();
         create trigger \"!a\" before update of n on s.t for each row when (old.n is distinct from new.n) execute function s.count();
         select countersign.track('s.t')";
    let trial = Trial::new("n1_when", schema).await;
    for sql in WRITES {
        trial.restores(sql).await;
    }
}

/// N-1: what the write itself assigned is proved exactly, whatever triggers do to it.
#[tokio::test(flavor = "multi_thread")]
async fn a_column_that_the_write_assigned_comes_back_exactly_or_the_undo_is_refused() {
    let schema = stamped(
        "updated_at timestamptz not null default 'epoch'",
        "new.updated_at := coalesce(nullif(new.updated_at, old.updated_at), clock_timestamp())",
        "before update",
    );
    let mut trial = Trial::new("n1_assigned", &schema).await;
    trial.facts.assigned.insert("s.t.updated_at".to_owned());
    trial.keeps_its_word("update s.t set updated_at = '2026-01-01' where id = 1").await;
    trial.keeps_its_word("update s.t set updated_at = '2026-01-01', n = 4 where id in (2, 3)").await;
    let schema = stamped("mail text default 'Old@X'", "new.mail := lower(new.mail)", "before insert or update");
    let mut trial = Trial::new("n1_lower", &schema).await;
    trial.facts.assigned.insert("s.t.mail".to_owned());
    trial.restores("insert into s.t (id, mail) values (8, 'New@X')").await;
    trial.change("update s.t set mail = 'a@x' where id = 1").await;
    trial.restores("update s.t set mail = 'B@X' where id = 1").await;
    trial.keeps_its_word("update s.t set mail = 'B@X' where id = 2").await;
}

/// N-1: a counter that a trigger keeps in another tracked table, with a stamp on both.
#[tokio::test(flavor = "multi_thread")]
async fn a_counter_of_a_parent_with_a_stamp_can_be_undone() {
    let trial = Trial::new(
        "n1_counter",
        "create schema s; create table s.owner (id int primary key, total int not null default 0, updated_at timestamptz not null default now());
         create table s.item (id int primary key, owner int references s.owner, n int, updated_at timestamptz not null default now());
         create function s.touch() returns trigger language plpgsql as $$ begin new.updated_at := clock_timestamp(); return new; end $$;
         create function s.count() returns trigger language plpgsql as $$ begin
             if tg_op <> 'INSERT' then update s.owner set total = total - old.n where id = old.owner; end if;
             if tg_op <> 'DELETE' then update s.owner set total = total + new.n where id = new.owner; end if;
             return null; end $$;
         create trigger touch before update on s.owner for each row execute function s.touch();
         create trigger touch before update on s.item for each row execute function s.touch();
         insert into s.owner values (1), (2); insert into s.item values (1, 1, 1), (2, 1, 2), (3, 2, 3); update s.owner set total = 3;
         create trigger count after insert or update or delete on s.item for each row execute function s.count();
         select countersign.track('s.owner'), countersign.track('s.item')",
    )
    .await;
    for sql in [
        "update s.item set n = 10 where id = 1",
        "insert into s.item values (4, 2, 4)",
        "delete from s.item where id = 3",
        "update s.item set owner = 2",
        "update s.item set n = n + 1",
    ] {
        trial.restores(sql).await;
    }
}

/// A side in a table that is not tracked is said (receipts.md, 4).
#[tokio::test(flavor = "multi_thread")]
async fn a_trigger_that_writes_to_a_table_that_is_not_tracked_is_named() {
    let trial = Trial::new(
        "not_restored",
        "create schema s; create table s.t (id int primary key, state text); create table s.event_log (at timestamptz default clock_timestamp(), what text);
         create function s.note() returns trigger language plpgsql as $$ begin insert into s.event_log (what) values (tg_op); return null; end $$;
         create trigger note after update of state on s.t for each row execute function s.note();
         insert into s.t values (1, 'a'), (2, 'b'); insert into s.event_log (what) values ('first'); select countersign.track('s.t')",
    )
    .await;
    trial.restores("update s.t set state = 'c' where id = 1").await;
    trial.restores("insert into s.t values (3, 'c')").await;
    trial.restores("insert into s.event_log (what) values ('by hand'); update s.t set state = 'd' where id = 2").await;
}

/// The action of a foreign key runs triggers for statements, even where no row refers to the row that goes.
#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_a_referring_tables_trigger_writes_is_named() {
    let trial = Trial::new(
        "not_restored_by_reference",
        "create schema s; create table s.p (id int primary key, code text unique); create table s.log (at timestamptz default clock_timestamp(), what text);
         create table s.k (id int primary key, p int references s.p on delete cascade, code text references s.p (code) on update cascade);
         create function s.note() returns trigger language plpgsql as $$ begin insert into s.log (what) values (tg_op); return null; end $$;
         create trigger note after update or delete on s.k for each statement execute function s.note();
         insert into s.p values (1, 'a'), (2, 'b'); select countersign.track('s.p'), countersign.track('s.k')",
    )
    .await;
    let actions =
        "select string_agg(proname, ' ' order by oid) from pg_proc where oid in (1646, 1647, 1650, 1651, 1652, 1653)";
    assert_eq!(
        trial.database.value(actions).await,
        "RI_FKey_cascade_del RI_FKey_cascade_upd RI_FKey_setnull_del RI_FKey_setnull_upd RI_FKey_setdefault_del RI_FKey_setdefault_upd"
    );
    trial.keeps_its_word("insert into s.p values (3, 'c')").await;
    trial.keeps_its_word("update s.p set code = 'd' where id = 2").await;
    trial.keeps_its_word("delete from s.p where id = 1").await;
}

/// a profile with its user.
#[tokio::test(flavor = "multi_thread")]
async fn rows_that_a_trigger_makes_can_be_undone() {
    let trial = Trial::new(
        "a8_profile",
        "create schema s; create table s.person (id int primary key, name text);
         create table s.profile (person int primary key references s.person on delete cascade, bio text not null default '');
         create function s.make() returns trigger language plpgsql as $$ begin insert into s.profile (person) values (new.id); return null; end $$;
         create trigger make after insert on s.person for each row execute function s.make();
         insert into s.person values (1, 'ana'), (2, 'bob'); update s.profile set bio = 'hello' where person = 1;
         select countersign.track('s.person'), countersign.track('s.profile')",
    )
    .await;
    for sql in [
        "insert into s.person values (3, 'eve')",
        "delete from s.person where id = 1",
        "delete from s.person",
        "insert into s.person values (4, 'dan'); update s.profile set bio = 'x' where person = 4",
    ] {
        trial.restores(sql).await;
    }
}

/// a mirror.
#[tokio::test(flavor = "multi_thread")]
async fn a_mirror_that_triggers_keep_can_be_undone() {
    let trial = Trial::new(
        "a8_mirror",
        "create schema s; create table s.t (id int primary key, n int); create table s.mirror (id int primary key, n int);
         create function s.copy() returns trigger language plpgsql as $$ begin
             if tg_op <> 'INSERT' then delete from s.mirror where id = old.id; end if;
             if tg_op <> 'DELETE' then insert into s.mirror values (new.id, new.n); end if; return null; end $$;
         create trigger copy after insert or update or delete on s.t for each row execute function s.copy();
         insert into s.t values (1, 1), (2, 2), (3, 3); select countersign.track('s.t'), countersign.track('s.mirror')",
    )
    .await;
    for sql in [
        "update s.t set n = 9 where id = 1",
        "insert into s.t values (4, 4)",
        "delete from s.t where id = 2",
        "delete from s.t",
        "update s.t set id = 20 where id = 3",
    ] {
        trial.restores(sql).await;
    }
}

/// rows that a trigger hides instead of deleting them.
#[tokio::test(flavor = "multi_thread")]
async fn soft_deletes_keep_what_their_receipts_say() {
    let trial = Trial::new(
        "a8_soft",
        "create schema s; create table s.t (id int primary key, n int, deleted_at timestamptz);
         create function s.hide() returns trigger language plpgsql as $$ begin update s.t set deleted_at = now() where id = old.id; return null; end $$;
         create trigger hide before delete on s.t for each row execute function s.hide();
         insert into s.t values (1, 1), (2, 2); select countersign.track('s.t')",
    )
    .await;
    trial.restores("delete from s.t where id = 1").await;
    trial.restores("update s.t set n = 5 where id = 2").await;
    trial.keeps_its_word("insert into s.t values (3, 3)").await;
}

/// keys by trigger.
#[tokio::test(flavor = "multi_thread")]
async fn keys_that_a_trigger_gives_keep_what_their_receipts_say() {
    let trial = Trial::new(
        "a8_keys",
        "create schema s; create sequence s.numbers start 100; create table s.t (id int primary key, n int); create table s.u (id int primary key, n int);
         insert into s.t values (1, 1); insert into s.u values (1, 1);
         create function s.give() returns trigger language plpgsql as $$ begin if new.id is null then new.id := nextval('s.numbers'); end if; return new; end $$;
         create function s.force() returns trigger language plpgsql as $$ begin new.id := nextval('s.numbers'); return new; end $$;
         create trigger give before insert on s.t for each row execute function s.give();
         create trigger force before insert on s.u for each row execute function s.force();
         select countersign.track('s.t'), countersign.track('s.u')",
    )
    .await;
    trial.restores("insert into s.t (n) values (7)").await;
    trial.restores("delete from s.t where id = 1").await;
    trial.keeps_its_word("insert into s.u (n) values (7)").await;
    trial.keeps_its_word("delete from s.u where id = 1").await;
}

/// A table that a trigger fills, tracked in this way.
fn with_history(tracked: &str) -> String {
    format!(
        "create schema s; create table s.t (id int primary key, n int);
         create table s.history (id int generated always as identity primary key, what text, n int);
         create function s.note() returns trigger language plpgsql as $$ begin
             insert into s.history (what, n) values (tg_op, case when tg_op = 'INSERT' then new.n else old.n end); return null; end $$;
         create trigger note after insert or update or delete on s.t for each row execute function s.note();
         insert into s.t values (1, 1), (2, 2); select countersign.track('s.t'), {tracked}"
    )
}

const WITH_HISTORY: [&str; 4] = [
    "update s.t set n = 9 where id = 1",
    "insert into s.t values (3, 3)",
    "delete from s.t where id = 2",
    "update s.t set n = n + 1; delete from s.t where id = 1",
];

/// history.
#[tokio::test(flavor = "multi_thread")]
async fn a_declared_history_grows_and_refuses_no_undo() {
    for tracked in ["countersign.track('s.history', is_log => true)", "1"] {
        let trial = Trial::new(&format!("a8_history_{}", tracked.len()), &with_history(tracked)).await;
        for sql in WITH_HISTORY {
            trial.restores(sql).await;
        }
    }
}

/// what nobody has declared to be a log is named, and only a person agrees to leave rows in it.
#[tokio::test(flavor = "multi_thread")]
async fn a_history_that_nobody_has_declared_is_named_and_left_to_people() {
    let trial = Trial::new("r3_history", &with_history("countersign.track('s.history')")).await;
    let person = connect(&trial.database, OPERATOR).await;
    for sql in WITH_HISTORY {
        let written = trial.write(sql).await;
        let receipt = &written.receipt;
        assert!(receipt.reversible && !receipt.checked && receipt.not_restored("s.history"), "{sql}: {receipt:?}");
        assert!(receipt.note.contains("of s.history and adds"), "{sql}: {receipt:?}");
        trial.still_refuses(&written, "side_effects", false).await;
        let rows = "select string_agg(t::text, ' ' order by id) from s.t t";
        let kept = trial.database.value("select count(*) from s.history").await;
        undo_by_person(&person, &[written.id]).await.unwrap();
        assert_eq!(trial.database.value(rows).await, "(1,1) (2,2)", "{sql}");
        assert!(trial.database.value("select count(*) from s.history").await > kept, "{sql}");
    }
    // Declared to be none, nobody leaves rows there.
    trial.change("select countersign.track('s.history', is_log => false)").await;
    let written = trial.write(WITH_HISTORY[0]).await;
    assert!(!written.receipt.reversible, "{:?}", written.receipt);
    trial.still_refuses(&written, "side_effects", false).await;
    undo_by_person(&person, &[written.id]).await.unwrap_err();
}

/// a table that a trigger fills and empties.
#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_a_trigger_fills_and_empties_is_restored_or_named() {
    let trial = Trial::new(
        "r3_saved",
        "create schema s; create table s.p (id int primary key, saved timestamptz);
         create table s.s (id int generated always as identity primary key, p int, saved timestamptz not null);
         create function s.f() returns trigger language plpgsql as $$ begin
             if new.saved is not null then insert into s.s (p, saved) values (new.id, new.saved);
             else delete from s.s where p = new.id; end if; return null; end $$;
         create trigger a after insert or update on s.p for each row execute function s.f();
         insert into s.p values (3, '2020-01-01'), (4, null); select countersign.track('s.p'), countersign.track('s.s')",
    )
    .await;
    trial.keeps_its_word("update s.p set saved = '2024-01-01' where id = 3").await;
    trial.keeps_its_word("update s.p set saved = '2024-01-01' where id = 4").await;
    trial.keeps_its_word("update s.p set saved = null where id = 3").await;
}

/// guards.
#[tokio::test(flavor = "multi_thread")]
async fn a_guard_that_stops_an_undo_is_a_conflict_with_its_message() {
    let trial = Trial::new(
        "a8_guard",
        "create schema s; create table s.t (id int primary key, state text, n int);
         create function s.guard() returns trigger language plpgsql as $$ begin raise exception 'closed orders stay closed'; end $$;
         create trigger guard before update or delete on s.t for each row when (old.state = 'closed') execute function s.guard();
         insert into s.t values (1, 'open', 1), (2, 'open', 2); select countersign.track('s.t')",
    )
    .await;
    trial.restores("update s.t set n = 5 where id = 1").await;
    for sql in ["update s.t set state = 'closed' where id = 1", "insert into s.t values (3, 'closed', 3)"] {
        let written = trial.write(sql).await;
        let judged = trial.undo(&written, false).await;
        assert!(judged.wrong.is_empty(), "{sql}: {:#?}", judged.wrong);
        let conflict = undo(&trial.session, &[written.id]).await.unwrap_err();
        assert_eq!(conflict["status"], "conflict", "{sql}: {conflict:#}");
        assert!(conflict["conflicts"].to_string().contains("closed orders stay closed"), "{sql}: {conflict:#}");
    }
}
