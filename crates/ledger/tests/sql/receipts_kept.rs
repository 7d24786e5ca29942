//! What is kept of a table is what the catalog says of it, and is not believed once the catalog says something else.

use crate::support::{ledger_without, run};
use crate::trial::Trial;

/// A write whose kept facts differ from those in the catalog fails.
pub(crate) const COMPARED: (&str, &str) = (
    "    return facts;\nend $$;\ncomment on function countersign.facts_of_write",
    "    if facts is distinct from countersign.examine_write(write, undone) then
        raise exception 'kept %, in the catalog %', facts, countersign.examine_write(write, undone) using errcode = 'CS999';
    end if;
    return facts;\nend $$;\ncomment on function countersign.facts_of_write",
);

/// The control: what is kept is believed for ever.
const BELIEVED: (&str, &str) = (
    "and t.catalog_versions = countersign.catalog_versions(w.relation, t.clock_numbers <> '{}')) is not true",
    ") is not true",
);

const TABLE: &str = "create schema s; create table s.t (id int primary key, n int, at timestamptz);
    insert into s.t select g, g from generate_series(1, 9) g;
    create function s.clock() returns trigger language plpgsql as $$ begin new.at := now(); return new; end $$;
    create function s.other() returns trigger language plpgsql as $$ begin new.n := abs(new.n); return new; end $$;
    create function s.nothing() returns trigger language plpgsql as $$ begin return null; end $$;";
pub(crate) const SWEPT: &str = "select countersign.sweep('1 minute', 10)";
const CLOCK: &str = "create trigger clock before update on s.t for each row execute function s.clock();";

/// Makes what is kept of the table false, by one statement of somebody else.
const CHANGES: [(&str, &str); 13] = [
    ("", "create trigger other before update on s.t for each row execute function s.other()"),
    ("", "create trigger other after update on s.t for each statement execute function s.nothing()"),
    ("", "create rule r as on update to s.t do also notify changed"),
    ("", "create table s.child () inherits (s.t)"),
    ("", "alter table s.t add constraint c check (n > 0) not valid"),
    (
        "create table s.r (t_id int); create trigger other after update on s.r for each statement execute function s.nothing();",
        "alter table s.r add foreign key (t_id) references s.t on update cascade",
    ),
    (
        "create trigger other before update on s.t for each row execute function s.other(); alter table s.t disable trigger other;",
        "alter table s.t enable trigger other",
    ),
    (CLOCK, "alter table s.t add constraint c check (at > '2000-01-01')"),
    (CLOCK, "create unique index concurrently on s.t (at)"),
    (CLOCK, "alter table s.t disable trigger clock"),
    (CLOCK, "drop trigger clock on s.t"),
    (CLOCK, "alter function s.clock() set datestyle = iso"),
    (
        CLOCK,
        "create or replace function s.clock() returns trigger language plpgsql as $$ begin new.n := abs(new.n); return new; end $$",
    ),
];

/// The same table under both: each change must be noticed, and the control must not notice it.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_the_catalog_ends_what_was_kept() {
    let noticed = ledger_without("kept", &[COMPARED]).await;
    let believed = ledger_without("kept_control", &[BELIEVED, COMPARED]).await;
    for (database, is_control) in [(noticed, false), (believed, true)] {
        database.run(crate::snapshot::FUNCTION).await;
        let trial = Trial::over(database).await;
        for (before, change) in CHANGES {
            trial.change(&format!("{TABLE} {before} select countersign.track('s.t')")).await;
            trial.change(SWEPT).await;
            let kept =
                run(&trial.other, "select plain_changes from countersign.tracked where is_current").await.unwrap();
            assert!(kept[0].contains('U'), "{before}: {kept:?}");
            trial.write("update s.t set n = 10 where id = 1").await;
            trial.change(change).await;
            let after_change = trial.try_write("update s.t set n = 11 where id = 2").await;
            assert_eq!(
                after_change.as_ref().is_err_and(|refused| refused.code == "CS999"),
                is_control,
                "{change}: {after_change:?}"
            );
            // A sweep finds what is true now.
            trial.change(SWEPT).await;
            for sql in
                ["update s.t set n = 12 where id = 3", "insert into s.t values (10, 1)", "delete from s.t where id = 4"]
            {
                trial.write(sql).await;
            }
            trial.change("select countersign.untrack('s.t'); drop schema s cascade").await;
        }
    }
}

/// A table that a migration has changed is plain again after a sweep, and has its columns then.
#[tokio::test(flavor = "multi_thread")]
async fn a_sweep_keeps_what_a_migration_has_made() {
    let database = ledger_without("kept_again", &[COMPARED]).await;
    database.run(crate::snapshot::FUNCTION).await;
    database.run(&format!("{TABLE} {CLOCK} select countersign.track('s.t')")).await;
    let trial = Trial::over(database).await;
    trial.change(SWEPT).await;
    let kept = async |trial: &Trial| {
        let sql = "select plain_changes || clock_columns::text from countersign.tracked t where t.is_current
                   and t.catalog_versions = countersign.catalog_versions(t.relation, t.clock_numbers <> '{}')";
        run(&trial.other, sql).await.unwrap()
    };
    assert_eq!(kept(&trial).await, ["UID{at}"]);
    trial.change("alter table s.t add column note text").await;
    assert_eq!(kept(&trial).await, [""; 0]);
    let written = trial.write("update s.t set note = 'x' where id = 1").await;
    assert!(written.receipt.is_a_promise(), "{:?}", written.receipt);
    trial.change(SWEPT).await;
    assert_eq!(kept(&trial).await, ["UID{at}"]);
    trial.restores("update s.t set note = 'y' where id = 2").await;
}

/// The control: facts are kept by the transaction that tracks the table.
const KEPT_AT_ONCE: (&str, &str) = (
    "    return shape;\nend $$;\ncomment on function countersign.track(",
    "    perform countersign.keep_table_facts();\n    return shape;\nend $$;\ncomment on function countersign.track(",
);

/// All that one transaction makes of a row of the catalog has the same version, so nothing is kept before its end.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_in_the_transaction_that_tracks_the_table_is_noticed() {
    let as_it_is = ledger_without("kept_later", &[COMPARED]).await;
    let control = ledger_without("kept_at_once", &[KEPT_AT_ONCE, COMPARED]).await;
    for (database, is_control) in [(as_it_is, false), (control, true)] {
        database.run(crate::snapshot::FUNCTION).await;
        let trial = Trial::over(database).await;
        let trigger = "create trigger other before update on s.t for each row execute function s.other()";
        let tracked = "alter table s.t disable trigger other; select countersign.track('s.t')";
        trial.change(&format!("{TABLE} {trigger}; {tracked}; alter table s.t enable trigger other")).await;
        let written = trial.try_write("update s.t set n = 10 where id = 1").await;
        assert_eq!(written.as_ref().is_err_and(|refused| refused.code == "CS999"), is_control, "{written:?}");
    }
}
