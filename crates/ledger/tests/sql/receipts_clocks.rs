//! Receipts of tables whose triggers only set the time or count up: they need no trial, as long as nothing depends on these columns.

use testkit::Database;

use crate::support::{ledger, ledger_without};
use crate::trial::Trial;

/// A table with columns for clocks, and a trigger with this body.
fn with_clock(columns: &str, body: &str, more: &str) -> String {
    format!(
        "create schema s; create table s.t (id int primary key, n int, {columns});
         insert into s.t (id, n) select g, g from generate_series(1, 5) g;
         create function s.clock() returns trigger language plpgsql as $$ begin {body} return new; end $$;
         create trigger clock before update on s.t for each row execute function s.clock(); {more}"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn only_bodies_that_set_the_time_or_count_up_are_clocks() {
    let database = ledger("clock_bodies").await;
    for (body, columns) in [
        ("begin new.updated_at := now(); return new; end", "{updated_at}"),
        ("BEGIN\n    NEW.Updated_At = CURRENT_TIMESTAMP;\n    RETURN NEW;\nEND;\n", "{updated_at}"),
        (
            "begin -- touched\n new.\"Changed At\" := clock_timestamp(); new.v := old.v + 1; return new; end;",
            "{\"Changed At\",v}",
        ),
        ("begin new.at := now() at time zone 'utc'; new.v := coalesce(old.v, 0) + 1; return new; end", "{at,v}"),
        ("begin new.at := now(); new.other := lower(new.other); return new; end", ""),
        ("begin if new.n = 3 then raise exception 'no'; end if; new.at := now(); return new; end", ""),
        ("begin new.at := now(); perform s.f(); return new; end", ""),
        ("begin new.at := now(); return null; end", ""),
        ("begin new.at := now(); return old; end", ""),
        ("declare x int; begin new.at := now(); return new; end", ""),
        ("begin new.at := s.now(); return new; end", ""),
        ("begin new.at := now() - interval '1 day'; return new; end", ""),
        ("begin new.v := old.v - 1; return new; end", ""),
        ("begin new.at := now(); return new; exception when others then raise; end", ""),
        ("begin new.at := now(); /* */ delete from s.t; return new; end", ""),
        ("begin return new; end", ""),
    ] {
        let quoted = body.replace('\'', "''");
        let found = database.value(&format!("select coalesce(countersign.clock_columns('{quoted}')::text, '')")).await;
        assert_eq!(found, columns, "{body}");
    }
}

/// Without the look at what depends on the column, each of these receipts would be false.
#[tokio::test(flavor = "multi_thread")]
async fn a_clock_on_which_a_constraint_depends_is_tried() {
    for (name, columns, body, more) in [
        ("check", "v int not null default 1 check (v < 3)", "new.v := old.v + 1;", ""),
        ("unique", "v int unique", "new.v := old.n + 1;", "update s.t set v = 7 where id = 5"),
        (
            "generated",
            "v int not null default 1, g int generated always as (case when v > 2 then 1 / (3 - v) end) stored",
            "new.v := old.v + 1;",
            "",
        ),
        ("domain", "v s_small not null default 1", "new.v := old.v + 1;", ""),
    ] {
        let domain = if name == "domain" { "create domain s_small as int check (value < 3);" } else { "" };
        let schema = format!("{domain} {}; select countersign.track('s.t')", with_clock(columns, body, more));
        let trial = Trial::new(&format!("clock_{name}"), &schema).await;
        trial.keeps_its_word("update s.t set n = 6 where id = 1").await;
    }
}

/// A trigger that was altered or made after its table was tracked is seen by the next write.
#[tokio::test(flavor = "multi_thread")]
async fn a_trigger_that_is_no_clock_any_more_is_tried() {
    let schema = with_clock("at timestamptz", "new.at := now();", "select countersign.track('s.t')");
    let trial = Trial::new("clock_altered", &schema).await;
    trial.restores("update s.t set n = 6 where id = 1").await;
    trial
        .change(
            "create or replace function s.clock() returns trigger language plpgsql as $$ begin
             if new.n < old.n then raise exception 'n only grows'; end if; new.at := now(); return new; end $$",
        )
        .await;
    let written = trial.write("update s.t set n = 7 where id = 2").await;
    assert!(!written.receipt.reversible, "{:?}", written.receipt);
    let judged = trial.undo(&written, false).await;
    assert!(judged.wrong.is_empty(), "{:#?}", judged.wrong);
}

/// The cost: no trial, which would change the rows a second time. Its control is the same table with another trigger.
#[tokio::test(flavor = "multi_thread")]
async fn a_clock_needs_no_trial() {
    for (name, body, is_tried) in
        [("clock", "new.at := now();", false), ("other", "new.at := date_trunc('second', now());", true)]
    {
        // The trial fails, and with it the write.
        let replaced = [(
            "outcome := countersign.restore_rows(",
            "raise exception 'a trial' using errcode = 'CS999';\n        outcome := countersign.restore_rows(",
        )];
        let database: Database = ledger_without(&format!("trial_{name}"), &replaced).await;
        database.run(crate::snapshot::FUNCTION).await;
        database.run(&with_clock("at timestamptz", body, "select countersign.track('s.t')")).await;
        let trial = Trial::over(database).await;
        for sql in
            ["update s.t set n = 6 where id = 1", "insert into s.t (id, n) values (6, 6)", "update s.t set n = n + 1"]
        {
            // The trigger is not in the way of an undo that deletes the row.
            let expected = is_tried && !sql.starts_with("insert");
            match trial.try_write(sql).await {
                Ok(written) => {
                    assert!(!expected, "{name}: {sql} was not tried");
                    assert!(written.receipt.is_a_promise(), "{name}: {sql}: {:?}", written.receipt);
                }
                Err(refused) => assert!(expected && refused.code == "CS999", "{name}: {sql}: {refused:?}"),
            }
        }
    }
}
