//! `countersign undo`: operators undo writes, one by one or by a plan.

use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::{
    CommandOutput, ConnectionFault, Database, FaultPoint, Proxy, Server, countersign, poll, run_countersign,
};
use tokio::process::Command;

use crate::shop::{self, DROP_ORDER, SET_STATUS};

/// The database, a server of an agent, and the connection string of an operator.
async fn shop() -> (Database, Server, String) {
    shop::with_operator(&format!("{SET_STATUS}{DROP_ORDER}")).await
}

async fn undo(url: &str, arguments: &[&str]) -> CommandOutput {
    run_countersign(url, &[&["undo"], arguments].concat()).await
}

fn receipt(answer: &Value) -> String {
    answer["meta"]["correlation_id"].as_str().unwrap().to_owned()
}

fn objects(ran: &CommandOutput) -> Vec<Value> {
    ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_undoes_a_write_of_any_account_once_and_is_recorded() {
    let (db, server, url) = shop().await;
    let before = db.contents("shop").await;
    let dropped = receipt(&server.succeed("drop_order", json!({"id": 1})).await);
    let tried = undo(&url, &[&dropped, "--dry-run"]).await.succeeded();
    let first = format!("Nothing was changed. Undoing the write {dropped} would put 2 rows back.\n");
    assert!(tried.out.starts_with(&first), "{}", tried.out);
    for line in [
        "The undo changes these rows (now -> after):",
        "  + insert 1 row of shop.orders",
        "    id=1",
        "  + insert 1 row of shop.item",
    ] {
        assert!(tried.out.contains(line), "{line}: {}", tried.out);
    }
    let tried = undo(&url, &[&dropped, "--dry-run", "--json"]).await.succeeded();
    let object = &objects(&tried)[0];
    assert_eq!((&object["rows"], &object["effects"]["count"]), (&json!(2), &json!(2)), "{object}");
    assert_ne!(db.contents("shop").await, before);

    let done = undo(&url, &[&dropped[..8]]).await;
    assert_eq!((done.code, done.err.as_str()), (0, ""));
    assert_eq!(db.contents("shop").await, before);
    for line in [
        "2 rows are as before it:",
        "  shop.orders id=1: added, with id 1, status open",
        "To have it back: countersign undo ",
    ] {
        assert!(done.out.contains(line), "{line}: {}", done.out);
    }
    let login = format!("operator_{}", db.name());
    let record = "select login, approval ->> 'decided_login', idempotency_key, account_id from countersign.record order by id desc limit 1";
    assert_eq!(db.rows(record).await, [[&login, &login, &format!("undo:{dropped}"), "default"]]);

    let again = undo(&url, &[&dropped, "--json"]).await;
    assert_eq!(again.code, 2);
    assert_eq!(objects(&again)[0]["code"], "already_reversed");
    let undone = again.out.clone();
    let by = objects(&again)[0]["changed_by"]["correlation_id"].as_str().unwrap().to_owned();
    assert!(done.out.contains(&by), "{undone}");
    // Back again; and for the agent the write stands.
    assert_eq!(undo(&url, &[&by]).await.code, 0);
    assert_eq!(server.succeed("drop_order", json!({"id": 1})).await["data"]["duplicate"], true);
    // U-3: who wants it undone is told what to undo, and a plan has it.
    let redo = db.value(&format!("select reversed_by from countersign.reversal where correlation_id = '{by}'")).await;
    let refused = undo(&url, &[&dropped, "--dry-run"]).await;
    assert!(refused.out.contains(&format!("it is in force again by {redo}: undo that")), "{}", refused.out);
    let plan = undo(&url, &["plan", "--from", "1h"]).await;
    let named = format!("undo_mutation, which made {} again\n", &dropped[..8]);
    assert!(plan.out.contains(&named) && plan.out.contains("\n1 writes, 2 rows: 2 clean\n"), "{}", plan.out);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conflict_names_the_row_its_values_and_who_changed_it() {
    let (db, server, url) = shop().await;
    let first = receipt(&server.succeed("set_status", json!({"id": 1, "status": "paid"})).await);
    let second = receipt(&server.succeed("set_status", json!({"id": 1, "status": "sent"})).await);
    let refused = undo(&url, &[&first]).await;
    assert_eq!(refused.code, 2, "{}", refused.err);
    for line in [
        "1 row: 0 clean, 1 row changed since\n",
        "\nchanged_since  shop.orders id=1\n",
        "  status: to restore open, left paid, now sent\n",
        &format!("  changed by: {second} set_status, "),
        "  do: undo the later change first",
    ] {
        assert!(refused.out.contains(line), "{line}: {}", refused.out);
    }
    assert_eq!(db.value("select status from shop.orders where id = 1").await, "sent");
    let recorded =
        "select error_code || ' ' || (error_detail -> 0 ->> 'code') from countersign.record order by id desc limit 1";
    assert_eq!(db.value(recorded).await, "undo_conflict changed_since");

    let failed = receipt(&server.call("set_status", json!({"id": 77, "status": "paid"})).await);
    let refused = undo(&url, &[&failed, "--json"]).await;
    assert_eq!((refused.code, objects(&refused)[0]["code"].as_str()), (2, Some("irreversible")));
    let unknown = undo(&url, &["0b9f7c52-6d3e-4a57-9b0a-1f2e3d4c5b6a"]).await;
    assert_eq!((unknown.code, unknown.err.contains("no record has the correlation id")), (1, true), "{}", unknown.err);
    let server_login = undo(&db.writer_url(), &[&second]).await;
    assert_eq!(server_login.code, 1);
    assert!(server_login.err.contains("grant countersign_operator"), "{}", server_login.err);
    assert_eq!(db.value("select status from shop.orders where id = 1").await, "sent");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trial_finds_failures_that_appear_only_after_the_rows_are_restored() {
    let (db, server, url) = shop().await;
    db.run(
        "create function shop.shout() returns trigger language plpgsql as $$ begin new.status := upper(new.status); return new; end $$; \
         create trigger shout before update on shop.orders for each row execute function shop.shout()",
    )
    .await;
    let write = receipt(&server.succeed("set_status", json!({"id": 1, "status": "paid"})).await);
    let now = db.contents("shop").await;
    for arguments in
        [vec![write.as_str(), "--dry-run"], vec![&write], vec!["plan", "--tool", "set_status", "--from", "1h"]]
    {
        let refused = undo(&url, &arguments).await;
        assert_eq!((refused.code, refused.err.as_str()), (2, ""), "{arguments:?}: {}", refused.out);
        assert!(refused.out.contains("side_effects  shop.orders id=1"), "{arguments:?}: {}", refused.out);
    }
    let preview = json!({"tool": "undo_mutation", "params": {"correlation_id": write}});
    let refused = server.fail("preview_mutation", preview, "undo_conflict").await;
    assert_eq!(refused["conflicts"][0]["code"], "side_effects", "{refused}");
    assert_eq!(db.contents("shop").await, now);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_is_shown_before_it_runs_and_runs_as_it_was_shown_or_not_at_all() {
    let (db, server, url) = shop().await;
    let before = db.contents("shop").await;
    for (id, status) in [(1, "paid"), (1, "sent"), (2, "paid")] {
        server.succeed("set_status", json!({"id": id, "status": status})).await;
    }
    server.succeed("drop_order", json!({"id": 3})).await;
    let shown = undo(&url, &["plan", "--tool", "set_status", "--from", "1h"]).await;
    assert_eq!(shown.code, 0, "{}{}", shown.out, shown.err);
    assert!(shown.out.contains("3 writes, 2 rows: 2 clean"), "{}", shown.out);
    let plan = objects(&undo(&url, &["plan", "--account", "default", "--from", "1h", "--json"]).await).remove(0);
    assert_eq!((&plan["report"]["rows"], &plan["writes"].as_array().unwrap().len()), (&json!(4), &4));
    let [id, digest] = ["plan_id", "digest"].map(|name| plan[name].as_str().unwrap());
    assert_ne!(db.contents("shop").await, before, "nothing is undone yet");

    let wrong = undo(&url, &["run", id, "--digest", "0"]).await;
    assert_eq!((wrong.code, wrong.err.contains("nothing was changed")), (1, true), "{}", wrong.err);
    // A selected row was changed since: the plan is not what was shown.
    let changed = server.succeed("set_status", json!({"id": 2, "status": "lost"})).await;
    let refused = undo(&url, &["run", id, "--digest", digest]).await;
    assert_eq!(refused.code, 2, "{}{}", refused.out, refused.err);
    assert!(refused.out.contains("changed_since  shop.orders id=2"), "{}", refused.out);
    // Also when the row looks as before: others have it in hand.
    server.succeed("set_status", json!({"id": 2, "status": "paid", "idempotency_key": "back"})).await;
    let refused = undo(&url, &["run", id, "--digest", digest]).await;
    assert_eq!((refused.code, refused.out.contains("needed_by  shop.orders id=2")), (2, true), "{}", refused.out);
    let back = db.value("select correlation_id from countersign.record where idempotency_key = 'back'").await;
    server.succeed("undo_mutation", json!({"correlation_id": back})).await;
    // a plan of nothing is none.
    let empty = undo(&url, &["plan", "--tool", "set_status", "--from", "2d", "--to", "1d"]).await;
    assert_eq!((empty.code, empty.out.contains("There is nothing to undo.")), (1, true), "{}", empty.out);
    assert!(!empty.out.contains("undo run"), "{}", empty.out);

    server.succeed("undo_mutation", json!({"correlation_id": receipt(&changed)})).await;
    let run = ["run", id, "--digest", digest];
    let (here, there) = tokio::join!(undo(&url, &run), undo(&url, &run));
    let mut codes = [here.code, there.code];
    codes.sort_unstable();
    assert_ne!(codes, [0, 0], "one of two people undoes it: {} {}", here.out, there.out);
    assert_eq!(codes[0], 0, "{}{} {}{}", here.out, here.err, there.out, there.err);
    assert_eq!(db.contents("shop").await, before);
    assert_eq!(
        db.value("select count(*) from countersign.record where tool_name = 'undo_run' and status = 'success'").await,
        "1"
    );
    let again = undo(&url, &["run", id, "--digest", digest]).await;
    assert_eq!((again.code, again.out.contains("was executed before")), (2, true), "{}", again.out);
    let again = undo(&url, &["run", id, "--digest", digest, "--json"]).await;
    assert_eq!((again.code, &objects(&again)[0]["status"]), (2, &json!("undone_before")), "{}", again.out);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_of_many_rows_runs_in_parts_and_goes_on_where_it_stopped() {
    let (db, server, url) = shop().await;
    let before = db.contents("shop").await;
    for id in 1..=4 {
        server.succeed("set_status", json!({"id": id, "status": "paid"})).await;
    }
    let plan = undo(&url, &["plan", "--tool", "set_status", "--from", "1h", "--max-rows", "1", "--json"]).await;
    let plan = objects(&plan).remove(0);
    assert_eq!(plan["parts"].as_array().unwrap().len(), 4);
    let [id, digest] = ["plan_id", "digest"].map(|name| plan[name].as_str().unwrap());
    // In the way of the last part.
    db.run("update shop.orders set status = 'lost' where id = 1").await;
    let stopped = undo(&url, &["run", id, "--digest", digest]).await;
    assert_eq!(stopped.code, 2, "{}{}", stopped.out, stopped.err);
    assert_eq!(
        db.value("select count(*) from shop.orders where status <> 'open'").await,
        "1",
        "three parts stay undone"
    );
    db.run("update shop.orders set status = 'paid' where id = 1").await;
    let resumed = undo(&url, &["run", id, "--digest", digest]).await;
    assert_eq!(resumed.code, 0, "{}{}", resumed.out, resumed.err);
    assert!(resumed.out.contains("3 parts had been undone before."), "{}", resumed.out);
    assert_eq!(db.contents("shop").await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_mode_decides_whether_later_writes_are_skipped_or_included() {
    let (db, server, url) = shop().await;
    server.succeed("set_status", json!({"id": 1, "status": "paid"})).await;
    server.succeed("set_status", json!({"id": 2, "status": "paid"})).await;
    server.succeed("drop_order", json!({"id": 1})).await;
    let plan = async |mode: &str| {
        let ran = undo(&url, &["plan", "--tool", "set_status", "--from", "1h", "--mode", mode, "--json"]).await;
        objects(&ran).remove(0)
    };
    let strict = plan("strict").await;
    let codes: Vec<&Value> = strict["report"]["conflicts"].as_array().unwrap().iter().map(|one| &one["code"]).collect();
    assert!(codes.contains(&&json!("needed_by")), "{strict}");
    let refused =
        undo(&url, &["run", strict["plan_id"].as_str().unwrap(), "--digest", strict["digest"].as_str().unwrap()]).await;
    assert_eq!((refused.code, refused.err.contains("has conflicts")), (1, true), "{}", refused.err);
    assert_eq!(plan("skip").await["report"]["writes"].as_array().unwrap().len(), 1);
    let cascade = plan("cascade").await;
    assert_eq!(cascade["report"]["added"].as_array().unwrap().len(), 1);
    let ran =
        undo(&url, &["run", cascade["plan_id"].as_str().unwrap(), "--digest", cascade["digest"].as_str().unwrap()])
            .await;
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    assert_eq!(
        db.value("select count(*) || ' ' || min(status) || ' ' || max(status) from shop.orders").await,
        "9 open open"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_connection_at_commit_is_answered_with_the_truth() {
    let (db, server, _) = shop().await;
    for (when, code, status, said) in [
        (FaultPoint::AfterCommit, 0, "open", "1 row is as before it:"),
        (
            FaultPoint::BeforeCommit,
            1,
            "paid",
            "the connection was lost before the write committed; nothing was written",
        ),
    ] {
        let paid = server
            .succeed("set_status", json!({"id": 1, "status": "paid", "idempotency_key": said.replace(' ', "-")}))
            .await;
        let proxy = Proxy::before(&db);
        let _fired = proxy.arm(when, ConnectionFault::Cut);
        let told = undo(&proxy.url(), &[&receipt(&paid)]).await;
        assert_eq!(told.code, code, "{told:?}");
        assert!(format!("{}{}", told.out, told.err).contains(said), "{told:?}");
        assert_eq!(db.value("select status from shop.orders where id = 1").await, status);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_undo_leaves_nothing_partial_and_blocks_no_other_write() {
    let (db, server, url) = shop().await;
    let before = db.contents("shop").await;
    let dropped = receipt(&server.succeed("drop_order", json!({"id": 1})).await);
    // In the way: the undo inserts the order.
    let mut other = db.connect().await;
    let held = other.transaction().await.unwrap();
    held.batch_execute("insert into shop.orders (id) values (1)").await.unwrap();
    let mut killed = Command::new(countersign());
    killed.env("DATABASE_URL", &url).args(["undo", &dropped]).stdout(Stdio::null()).stderr(Stdio::null());
    let mut killed = killed.kill_on_drop(true).spawn().unwrap();
    let waits = format!(
        "select count(*) from pg_stat_activity where usename = 'operator_{}' and wait_event_type = 'Lock'",
        db.name()
    );
    poll::until("the undo waits", async || db.value(&waits).await == "1").await;
    killed.kill().await.unwrap();
    held.rollback().await.unwrap();
    let began = Instant::now();
    let undone = undo(&url, &[&dropped]).await;
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    assert_eq!((undone.code, undone.err.as_str()), (0, ""), "{}", undone.out);
    assert_eq!(db.contents("shop").await, before);
    db.until_value("select count(*) from countersign.attempt", "0").await;
}
