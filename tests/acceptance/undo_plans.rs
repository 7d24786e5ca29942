//! Plans of operators: what they select, what they show, and that one bad write never blocks the others.

use serde_json::{Value, json};
use testkit::{CommandOutput, Database, Server, run_countersign};

use crate::shop::{self, DROP_ORDER, SET_STATUS};

const ADD_ORDER: &str = r#"
[[tool]]
name = "add_order"
access = "write"
description = "Add an order."
sql = "insert into shop.orders (id) values ($1) returning id"
rows = "one"
param = [{ name = "id", description = "Which." }]

[[tool]]
name = "add_item"
access = "write"
description = "Add an item to an order."
sql = "insert into shop.item values ($1, $2) returning order_id"
rows = "one"
param = [{ name = "order", description = "Which order." }, { name = "line", description = "Which line." }]
"#;

/// The database, a server of an agent, and the connection string of an operator.
async fn shop() -> (Database, Server, String) {
    shop::with_operator(&format!("{SET_STATUS}{DROP_ORDER}{ADD_ORDER}")).await
}

async fn undo(url: &str, arguments: &[&str]) -> CommandOutput {
    run_countersign(url, &[&["undo"], arguments].concat()).await
}

fn object(ran: &CommandOutput) -> Value {
    serde_json::from_str(ran.out.lines().next().unwrap()).unwrap()
}

async fn run(url: &str, plan: &Value) -> CommandOutput {
    let [id, digest] = ["plan_id", "digest"].map(|name| plan[name].as_str().unwrap());
    undo(url, &["run", id, "--digest", digest]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn times_are_read_in_every_form_and_a_mistake_is_never_nothing_to_undo() {
    // N-5
    let (_db, server, url) = shop().await;
    server.succeed("set_status", json!({"id": 1, "status": "paid"})).await;
    for from in ["90s", "30m", "12h", "2w", "1h30m", "1 hour ago", "yesterday", "2026-11-22 09:00", "2026-11-22T09:00Z"]
    {
        let shown = undo(&url, &["plan", "--from", from]).await;
        assert!(
            shown.code == 0 && shown.out.contains("1 writes, 1 row: 1 clean"),
            "{from}: {}{}",
            shown.out,
            shown.err
        );
    }
    for (arguments, named) in [
        (&["--from", "soon"][..], "give one such as 30m, '2026-11-22 09:00' (UTC) or"),
        (&["--from", "30 fortnights"], "give one such as 30m, '2026-11-22 09:00' (UTC) or"),
        (&["--from", "1h", "--to", "2h"], "the range of time is empty"),
        (&["--from", "2999-01-01"], "begins in the future"),
        (&["--from", "1h", "--tool", "set_stauts"], "the tool set_stauts is on no record; did you mean set_status?"),
        (
            &["--from", "1h", "--table", "shop.order"],
            "the table shop.order is not tracked and never was; did you mean shop.orders?",
        ),
        (&["--from", "1h", "--account", "defualt"], "did you mean default?"),
        (&["--from", "1h", "--actor", "nobody"], "the actor nobody is on no record"),
        (&["--from", "1h", "--session", "nothing"], "the session nothing is on no record"),
        (&["--from", "1h", "--client", "nothing"], "the client nothing is on no record"),
    ] {
        let refused = undo(&url, &[&["plan"], arguments].concat()).await;
        assert!([1, 2].contains(&refused.code) && refused.out.is_empty(), "{arguments:?}: {}", refused.out);
        assert!(refused.err.contains(named) && !refused.err.contains("SQLSTATE"), "{arguments:?}: {}", refused.err);
    }
    // What is known and has no write in the time is an empty plan (A-15).
    let empty = undo(&url, &["plan", "--from", "2d", "--to", "1d", "--tool", "set_status"]).await;
    assert!(empty.code == 1 && empty.out.contains("There is nothing to undo."), "{}", empty.out);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_shows_each_row_and_folds_many() {
    let (db, server, url) = shop().await;
    server.succeed("set_status", json!({"id": 1, "status": "paid"})).await;
    server.succeed("drop_order", json!({"id": 2})).await;
    let shown = undo(&url, &["plan", "--from", "1h"]).await;
    for line in [
        "The undo changes these rows (now -> after):\n",
        "  ~ update 1 row of shop.orders\n    id=1\n    status  paid -> open\n",
        "  + insert 1 row of shop.orders\n    id=2\n    status  open\n",
        "  + insert 1 row of shop.item\n    line=1, order_id=2\n",
    ] {
        assert!(shown.out.contains(line), "{line}: {}", shown.out);
    }
    db.run("insert into shop.orders select g, 'open' from generate_series(10, 40) g").await;
    for id in 10..=40 {
        server.succeed("set_status", json!({"id": id, "status": "paid"})).await;
    }
    let folded = undo(&url, &["plan", "--from", "1h"]).await;
    for line in [
        "  ~ update 32 rows of shop.orders\n    status: 32 rows become open (32 were paid)\n    row    status\n",
        "    and 24 more rows: --full shows all of them\n",
        "  + insert 1 row of shop.item\n",
        "  + insert 1 row of shop.orders\n",
    ] {
        assert!(folded.out.contains(line), "{line}: {}", folded.out);
    }
    assert!(!folded.out.contains("id=40"), "{}", folded.out);
    let full = undo(&url, &["plan", "--from", "1h", "--full"]).await;
    assert!(full.out.contains("    id=40  paid -> open\n"), "{}", full.out);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_write_that_cannot_be_undone_blocks_no_plan_that_skips() {
    // A-3, A-5
    let (db, server, url) = shop().await;
    db.run(
        "create function shop.guard() returns trigger language plpgsql as $$ begin \
           if old.status = 'sent' and new.status = 'open' then raise exception 'a parcel does not come back'; end if; \
           return new; end $$; \
         create trigger guard before update on shop.orders for each row execute function shop.guard()",
    )
    .await;
    let before = db.contents("shop").await;
    for (id, status) in [(1, "paid"), (2, "sent"), (3, "paid"), (4, "sent"), (5, "paid")] {
        server.succeed("set_status", json!({"id": id, "status": status})).await;
    }
    let strict = undo(&url, &["plan", "--from", "1h"]).await;
    assert_eq!(strict.code, 2, "{}{}", strict.out, strict.err);
    assert!(strict.out.contains("a parcel does not come back"), "{}", strict.out);

    let shown = undo(&url, &["plan", "--from", "1h", "--mode", "skip"]).await;
    assert_eq!(shown.code, 0, "{}{}", shown.out, shown.err);
    assert!(shown.out.contains("3 writes, 2 left out"), "{}", shown.out);
    assert_eq!(shown.out.matches(": a parcel does not come back\n").count(), 2, "{}", shown.out);
    let plan = object(&undo(&url, &["plan", "--from", "1h", "--mode", "skip", "--json"]).await);
    let done = run(&url, &plan).await;
    assert_eq!(done.code, 0, "{}{}", done.out, done.err);
    let statuses = "select string_agg(status, ' ' order by id) from shop.orders where id < 6";
    assert_eq!(db.value(statuses).await, "open sent open sent open");
    // Nothing is left that could be undone.
    let rest = undo(&url, &["plan", "--from", "1h", "--mode", "skip"]).await;
    assert!(rest.code == 1 && rest.out.contains("There is nothing to undo."), "{}{}", rest.out, rest.err);
    db.run("alter table shop.orders disable trigger guard; update shop.orders set status = 'open'").await;
    assert_eq!(db.contents("shop").await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_that_refer_to_each_other_are_one_part() {
    // A-4: the order went first, and its item was in the way for good.
    let (db, server, url) = shop().await;
    let before = db.contents("shop").await;
    server.succeed("add_order", json!({"id": 10})).await;
    server.succeed("add_item", json!({"order": 10, "line": 1})).await;
    server.succeed("set_status", json!({"id": 10, "status": "paid"})).await;
    server.succeed("set_status", json!({"id": 1, "status": "paid"})).await;
    let plan = object(&undo(&url, &["plan", "--from", "1h", "--max-rows", "1", "--json"]).await);
    let parts: Vec<usize> =
        plan["parts"].as_array().unwrap().iter().map(|part| part["writes"].as_array().unwrap().len()).collect();
    assert_eq!(parts, [1, 3], "{plan}");
    let done = run(&url, &plan).await;
    assert_eq!(done.code, 0, "{}{}", done.out, done.err);
    assert_eq!(db.contents("shop").await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_that_cannot_be_undone_one_after_another_are_one_transaction() {
    // A-4
    let (db, server, url) = shop().await;
    db.run("update shop.orders set status = 'at ' || id; alter table shop.orders add unique (status)").await;
    let before = db.contents("shop").await;
    // The first order leaves a status, the second takes it, and the newest write is of the first one.
    for (id, status) in [(1, "away"), (2, "at 1"), (1, "gone")] {
        server.succeed("set_status", json!({"id": id, "status": status})).await;
    }
    let plan = object(&undo(&url, &["plan", "--from", "1h", "--max-rows", "1", "--json"]).await);
    assert_eq!(plan["parts"].as_array().unwrap().len(), 1, "{plan}");
    let done = run(&url, &plan).await;
    assert_eq!(done.code, 0, "{}{}", done.out, done.err);
    assert_eq!(db.contents("shop").await, before);
}

/// An outbox that a trigger fills.
const OUTBOX: &str = "
create table shop.queue (id int generated always as identity primary key, what text);
create function shop.enqueue() returns trigger language plpgsql as $$ begin insert into shop.queue (what) values (new.status); return null; end $$;
create trigger enqueue after update on shop.orders for each row execute function shop.enqueue();
grant all on shop.queue to public; select countersign.track('shop.queue')";

/// F-1, R-3.
#[tokio::test(flavor = "multi_thread")]
async fn what_stays_in_an_outbox_is_said_before_the_undo_and_agreed_to_by_a_person() {
    let (db, server, url) = shop().await;
    db.run(OUTBOX).await;
    let paid = server.succeed("set_status", json!({"id": 1, "status": "paid"})).await;
    let (receipt, id) = (&paid["meta"]["rollback"], paid["meta"]["correlation_id"].as_str().unwrap());
    assert_eq!((&receipt["checked"], &receipt["not_restored"]), (&json!(false), &json!(["shop.queue"])), "{receipt}");
    let refused = server.fail("undo_mutation", json!({"correlation_id": id}), "undo_conflict").await;
    let conflict = &refused["conflicts"][0];
    assert_eq!((&conflict["code"], &conflict["table"]), (&json!("side_effects"), &json!("shop.queue")), "{refused}");
    assert!(
        conflict["message"].as_str().unwrap().contains("declare it with --is-log, or else with --not-log"),
        "{refused}"
    );

    let stays = "Stays: 1 row of shop.queue, to which triggers add: the undo leaves what is there, and adds 1 ";
    let tried = undo(&url, &[id, "--dry-run"]).await.succeeded();
    assert!(tried.out.contains(stays), "{}", tried.out);
    let shown = undo(&url, &["plan", "--from", "1h"]).await.succeeded();
    assert!(shown.out.contains("1 writes, 1 row: 1 clean") && shown.out.contains(stays), "{}", shown.out);
    assert!(!shown.out.contains("delete 1 row of shop.queue"), "{}", shown.out);
    let plan = object(&undo(&url, &["plan", "--from", "1h", "--json"]).await);
    assert_eq!(plan["report"]["not_restored"], json!([{"table": "shop.queue", "left": 1, "added": 1}]), "{plan}");
    let ran = run(&url, &plan).await.succeeded();
    assert!(ran.out.contains(stays), "{}", ran.out);
    let rows = "select string_agg(what, ' ' order by id) from shop.queue";
    assert_eq!(db.value(rows).await, "paid open");

    // A log by declaration grows by anybody's undo.
    db.run("select countersign.track('shop.queue', is_log => true)").await;
    let sent = server.succeed("set_status", json!({"id": 1, "status": "sent"})).await;
    assert_eq!(sent["meta"]["rollback"]["checked"], true, "{sent}");
    server.succeed("undo_mutation", json!({"correlation_id": sent["meta"]["correlation_id"]})).await;
    assert_eq!(db.value(rows).await, "paid open sent open");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_says_which_columns_triggers_set_again() {
    let (db, server, url) = shop().await;
    db.run("alter table shop.orders add column touched timestamptz not null default '2020-01-01';
            create function shop.touch() returns trigger language plpgsql as $$ begin new.touched := clock_timestamp(); return new; end $$;
            create trigger touch before update on shop.orders for each row execute function shop.touch();
            select countersign.track('shop.orders')")
        .await;
    server.succeed("set_status", json!({"id": 1, "status": "paid"})).await;
    let again = "But for what triggers set again: shop.orders touched\n";
    let plan = undo(&url, &["plan", "--from", "1h"]).await.out;
    assert!(plan.contains(again) && plan.contains(" -> (generated)\n") && !plan.contains("-> 2020-01-01"), "{plan}");
    let write = db.value("select correlation_id from countersign.record where tool_name = 'set_status'").await;
    let tried = undo(&url, &[&write, "--dry-run"]).await.out;
    assert!(tried.contains(again), "{tried}");
    let made: Value = serde_json::from_str(&undo(&url, &["plan", "--from", "1h", "--json"]).await.out).unwrap();
    assert_eq!(made["report"]["set_again"], json!({"shop.orders": ["touched"]}), "{made}");
    let run = ["run", made["plan_id"].as_str().unwrap(), "--digest", made["digest"].as_str().unwrap()];
    assert!(undo(&url, &run).await.out.contains(again.trim_end()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_names_the_columns_that_the_table_has_after_a_migration() {
    let (db, server, url) = shop().await;
    db.run(
        "alter table shop.orders drop column status, add column a int, add column status text not null default 'open', \
         add column c int default 1; select countersign.track('shop.orders')",
    )
    .await;
    server.succeed("set_status", json!({"id": 1, "status": "paid"})).await;
    // The columns behind a dropped one come earlier, and one has another name.
    db.run("alter table shop.orders drop column a; alter table shop.orders rename column status to state").await;
    let plan = undo(&url, &["plan", "--from", "1h", "--json"]).await;
    let plan = object(&plan);
    let row = &plan["effects"]["rows"][0];
    assert_eq!(row["columns"], json!({"state": {"before": "paid", "after": "open"}}), "{plan}");
    assert!(run(&url, &plan).await.out.contains("1 row"), "{plan}");
    assert_eq!(db.value("select state from shop.orders where id = 1").await, "open");
}
