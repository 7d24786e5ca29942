//! Attacks on the agreement that undos need: a redo is a write, and what a person undid stays undone.

use serde_json::{Value, json};
use testkit::{Database, Server, TestManifest, database, run_countersign};

use crate::shop::{SET_STATUS, SHOP};

/// Deletions need an approval, and undoing them does not. Orders are put back by a tool that needs none, and closed by one that does.
const TOOLS: &str = r#"
[[tool]]
name = "drop_item"
access = "write"
tier = "approve"
undo_tier = "auto"
description = "Drop an item."
before = "select * from shop.item where order_id = $1 for update"
sql = "delete from shop.item where order_id = $1 returning order_id, line"
rows = "one"
param = [{ name = "id", description = "Which order's." }]
undo = { tool = "add_item", params = { id = "param.id", line = "before.line" } }

[[tool]]
name = "add_item"
access = "write"
description = "Add an item."
sql = "insert into shop.item values ($1, $2) returning order_id"
rows = "one"
param = [{ name = "id", description = "Which order's." }, { name = "line", description = "Which line." }]

[[tool]]
name = "open_order"
access = "write"
undo_tier = "auto"
description = "Open an order."
sql = "update shop.orders set status = 'open' where id = $1 returning id"
rows = "one"
param = [{ name = "id", description = "Which." }]
undo = { tool = "close_order", params = { id = "param.id" } }

[[tool]]
name = "close_order"
access = "write"
tier = "approve"
description = "Close an order."
before = "select * from shop.orders where id = $1 for update"
sql = "update shop.orders set status = 'closed' where id = $1 returning id"
rows = "one"
param = [{ name = "id", description = "Which." }]
"#;

struct Attack {
    db: Database,
    manifest: TestManifest,
    server: Server,
}

impl Attack {
    async fn begin() -> Self {
        let db = database().await;
        db.run(SHOP).await;
        let manifest = TestManifest::new(&format!("{SET_STATUS}{TOOLS}"));
        let mut command = manifest.command(&db);
        command.args(["--profile", "admin"]);
        let server = Server::start(command).await;
        Self { db, manifest, server }
    }

    /// The receipt of the deletion of the item of order 1, which a person has approved.
    async fn dropped(&self) -> String {
        let proposed = self.server.succeed("drop_item", json!({"id": 1})).await;
        let proposal = &proposed["data"]["proposal"];
        let [id, digest] = ["proposal_id", "digest"].map(|name| proposal[name].as_str().unwrap());
        run_countersign(&self.db.url(), &["proposals", "approve", id, "--digest", digest]).await.succeeded();
        self.db
            .until_value(&format!("select status from countersign.proposal where proposal_id = '{id}'"), "executed")
            .await;
        self.db.value(&format!("select correlation_id from countersign.proposal where proposal_id = '{id}'")).await
    }

    async fn items(&self) -> String {
        self.db.value("select count(*) from shop.item").await
    }

    async fn undo(&self, write: &str) -> Value {
        self.server.succeed("undo_mutation", json!({"correlation_id": write})).await
    }

    /// The receipt of the undo of this write by a person.
    async fn undone_by_person(&self, write: &str) -> String {
        let ran = run_countersign(&self.db.url(), &["undo", write]).await;
        assert_eq!(ran.code, 0, "{} {}", ran.out, ran.err);
        self.db.value(&format!("select reversed_by from countersign.reversal where correlation_id = '{write}'")).await
    }
}

fn receipt(answer: &Value) -> &str {
    answer["meta"]["correlation_id"].as_str().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redo_needs_the_agreement_of_the_write_itself() {
    // S-2
    let attack = Attack::begin().await;
    let dropped = attack.dropped().await;
    assert_eq!(attack.items().await, "8");
    let undone = attack.undo(&dropped).await;
    assert_eq!((&undone["data"]["rows"], attack.items().await.as_str()), (&json!(1), "9"), "undo_tier is auto");

    let redo = attack.undo(receipt(&undone)).await;
    assert_eq!(redo["data"]["proposal"]["tier"], "approve", "{redo}");
    assert_eq!(attack.items().await, "9");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_undo_of_a_declared_undo_is_a_redo_too() {
    // S-2: the undo tool needs no agreement, and what it undid did.
    let attack = Attack::begin().await;
    let dropped = attack.dropped().await;
    let record = attack.server.succeed("get_mutation_detail", json!({"correlation_id": dropped})).await;
    let rollback = &record["data"]["rollback_action"];
    assert_eq!(rollback["undo_tool"], "add_item", "{record}");
    let restored = attack.server.succeed("add_item", rollback["undo_params"].clone()).await;
    assert_eq!(attack.items().await, "9");
    let redo = attack.undo(receipt(&restored)).await;
    assert_eq!(redo["data"]["proposal"]["tier"], "approve", "{redo}");
    assert_eq!(attack.items().await, "9");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_person_undid_is_not_an_agents_to_reverse() {
    // S-2
    let attack = Attack::begin().await;
    let status = "select status from shop.orders where id = 1";
    let paid = attack.server.succeed("set_status", json!({"id": 1, "status": "paid"})).await;
    let undo = attack.undone_by_person(receipt(&paid)).await;
    let refused = attack.server.fail("undo_mutation", json!({"correlation_id": undo}), "not_permitted").await;
    assert!(refused["hint"].as_str().unwrap().contains(&format!("countersign undo {undo}")), "{refused}");
    let asked = json!({"tool": "undo_mutation", "params": {"correlation_id": undo}});
    attack.server.fail("preview_mutation", asked, "not_permitted").await;
    // The key of the undo, at a tool that does the same to the row: the write may be made, and reverses nothing.
    let disguised = json!({"id": 1, "status": "paid", "idempotency_key": format!("undo:{undo}")});
    let refused = attack.server.fail("set_status", disguised, "undo_conflict").await;
    assert_eq!(refused["conflicts"][0]["code"], "not_permitted", "{refused}");
    assert_eq!(attack.db.value(status).await, "open");

    // A whole plan of a person.
    attack.server.succeed("set_status", json!({"id": 2, "status": "paid"})).await;
    let plan =
        run_countersign(&attack.db.url(), &["undo", "plan", "--account", "default", "--from", "1h", "--json"]).await;
    let plan: Value = serde_json::from_str(plan.out.lines().next().unwrap()).unwrap();
    let [id, digest] = ["plan_id", "digest"].map(|name| plan[name].as_str().unwrap());
    let ran = run_countersign(&attack.db.url(), &["undo", "run", id, "--digest", digest]).await;
    assert_eq!(ran.code, 0, "{} {}", ran.out, ran.err);
    let run = attack.db.value("select correlation_id from countersign.record where tool_name = 'undo_run'").await;
    attack.server.fail("undo_mutation", json!({"correlation_id": run}), "not_permitted").await;
    assert_eq!(attack.db.value("select string_agg(distinct status, ' ') from shop.orders").await, "open");

    // The person can, and what a person made again is not the agent's to take back either.
    let redo = attack.undone_by_person(&undo).await;
    assert_eq!(attack.db.value(status).await, "paid");
    attack.server.fail("undo_mutation", json!({"correlation_id": redo}), "not_permitted").await;
    // U-3: its plan says so.
    let plan = attack.server.succeed("undo_plan", json!({"from": "1h"})).await["data"].clone();
    assert_eq!((&plan["write_count"], &plan["writes"]), (&json!(0), &json!([])), "{plan}");
    let left_out = &plan["left_out"][0];
    assert_eq!(
        (&left_out["code"], &left_out["write"]["correlation_id"]),
        (&json!("not_permitted"), &json!(redo)),
        "{plan}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_undo_by_effects_needs_what_the_declared_undo_tool_needs() {
    // S-8
    let attack = Attack::begin().await;
    attack.server.succeed("set_status", json!({"id": 1, "status": "closed"})).await;
    let opened = attack.server.succeed("open_order", json!({"id": 1})).await;
    let undo = attack.undo(receipt(&opened)).await;
    assert_eq!(undo["data"]["proposal"]["tier"], "approve", "{undo}");
    assert_eq!(attack.db.value("select status from shop.orders where id = 1").await, "open");

    let manifest = attack.manifest.path();
    let checked = run_countersign(&attack.db.url(), &["check", "--manifest", manifest.to_str().unwrap()]).await;
    let line = |tool: &str| checked.out.lines().find(|line| line.starts_with(tool)).unwrap_or_default().to_owned();
    assert!(
        line("open_order").ends_with("; undo by close_order or by recorded changes; undo_mutation approve"),
        "{}{}",
        checked.out,
        checked.err
    );
    assert!(
        line("drop_item").ends_with("; undo by add_item or by recorded changes; undo_mutation auto"),
        "{}",
        checked.out
    );
    assert!(!line("set_status").contains("undo_mutation"), "{}", checked.out);
}

const PAY_OUT: &str = r#"
[[tool]]
name = "pay_out"
access = "write"
description = "Pay an order out."
sql = "update shop.orders set status = 'paid out' where id = $1 returning id"
rows = "one"
param = [{ name = "id", description = "Which." }]
undo = { irreversible = "The customer has the money." }
"#;

/// Q-2: the preview, the receipt, the undo and `check` agree.
#[tokio::test(flavor = "multi_thread")]
async fn no_agent_undoes_what_the_manifest_calls_irreversible() {
    let db = database().await;
    db.run(SHOP).await;
    let manifest = TestManifest::new(&format!("{SET_STATUS}{PAY_OUT}"));
    let server = manifest.serve(&db).await;
    let note = "The customer has the money. Its rows are on record: a person may restore them (countersign undo).";
    let status = "select status from shop.orders where id = 1";
    let before = db.value(status).await;

    let preview = server.succeed("preview_mutation", json!({"tool": "pay_out", "params": {"id": 1}})).await;
    assert_eq!(preview["data"]["rollback"]["note"], note, "{preview}");
    let paid = server.succeed("pay_out", json!({"id": 1})).await;
    let rollback = &paid["meta"]["rollback"];
    assert_eq!((&rollback["reversible"], &rollback["note"]), (&json!(false), &json!(note)));
    let refused = server.fail("undo_mutation", json!({"correlation_id": receipt(&paid)}), "not_permitted").await;
    assert!(refused["message"].as_str().unwrap().ends_with("is undone: The customer has the money."), "{refused}");
    assert_eq!(db.value(status).await, "paid out");

    let ran = run_countersign(&db.url(), &["undo", receipt(&paid)]).await;
    assert_eq!(ran.code, 0, "{} {}", ran.out, ran.err);
    assert_eq!(db.value(status).await, before);
}

/// U-7: the undo sets the column of a trigger as well, and leaves it to the trigger.
#[tokio::test(flavor = "multi_thread")]
async fn an_undo_under_a_clock_is_not_announced_as_final() {
    let attack = Attack::begin().await;
    attack
        .db
        .run(
            "alter table shop.orders add updated_at timestamptz not null default now();
             create function shop.touch() returns trigger language plpgsql as $$ begin new.updated_at := now(); return new; end $$;
             create trigger touch before update on shop.orders for each row execute function shop.touch();
             select countersign.track('shop.orders')",
        )
        .await;
    let paid = attack.server.succeed("set_status", json!({"id": 1, "status": "paid"})).await;
    let asked = json!({"tool": "undo_mutation", "params": {"correlation_id": receipt(&paid)}});
    let previewed = attack.server.succeed("preview_mutation", asked).await;
    let undone = attack.undo(receipt(&paid)).await;
    for rollback in [&previewed["data"]["rollback"], &undone["meta"]["rollback"]] {
        assert_eq!((&rollback["reversible"], &rollback["checked"]), (&json!(true), &json!(true)), "{rollback}");
    }
}
