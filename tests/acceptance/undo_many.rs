//! `undo_plan` and `undo_run`: an agent with the profile `admin` undoes many writes of its account.

use serde_json::{Value, json};
use testkit::{Database, Server, TestManifest, database, run_countersign};

use crate::shop::{DROP_ORDER, SET_STATUS, SHOP};

/// Tool whose write needs an approval and whose undo needs none.
const CLOSE_ORDER: &str = r#"
[[tool]]
name = "close_order"
access = "write"
tier = "approve"
undo_tier = "auto"
description = "Close an order."
before = "select * from shop.orders where id = $1 for update"
sql = "update shop.orders set status = 'closed' where id = $1 returning id"
rows = "one"
param = [{ name = "id", description = "Which." }]
"#;

/// The tools of the shop. An undo of `drop_order` needs an approval.
fn tools(drop_order: &str) -> String {
    format!("{SET_STATUS}{drop_order}undo_tier = \"approve\"\n{CLOSE_ORDER}")
}

struct Shop {
    db: Database,
    manifest: TestManifest,
    server: Server,
}

impl Shop {
    async fn open() -> Self {
        let db = database().await;
        db.run(SHOP).await;
        let manifest = TestManifest::new(&tools(DROP_ORDER));
        let server = Self::serve(&db, &manifest, "default").await;
        Self { db, manifest, server }
    }

    async fn serve(db: &Database, manifest: &TestManifest, account: &str) -> Server {
        let mut command = manifest.command(db);
        command.args(["--profile", "admin", "--account", account]);
        Server::start(command).await
    }

    async fn of_account(&self, account: &str) -> Server {
        Self::serve(&self.db, &self.manifest, account).await
    }

    async fn set(&self, id: u32, status: &str) -> Value {
        self.server.succeed("set_status", json!({"id": id, "status": status})).await
    }

    async fn contents(&self) -> Vec<Vec<String>> {
        self.db.contents("shop").await
    }

    /// The plan over everything of the last hour, in this mode.
    async fn plan(&self, mode: &str) -> Value {
        self.server.succeed("undo_plan", json!({"from": "1h", "mode": mode})).await["data"].clone()
    }

    async fn approve(&self, proposal: &Value) {
        let proposal = &proposal["data"]["proposal"];
        let [id, digest] = ["proposal_id", "digest"].map(|name| proposal[name].as_str().unwrap());
        run_countersign(&self.db.url(), &["proposals", "approve", id, "--digest", digest]).await.succeeded();
        let carried_out = format!("select status from countersign.proposal where proposal_id = '{id}'");
        self.db.until_value(&carried_out, "executed").await;
    }
}

/// What `undo_run` takes.
fn run_of(plan: &Value) -> Value {
    assert_eq!(plan["is_ready"], true, "{plan}");
    json!({"plan_id": plan["plan_id"], "digest": plan["digest"]})
}

fn receipt(answer: &Value) -> &Value {
    &answer["meta"]["correlation_id"]
}

#[tokio::test(flavor = "multi_thread")]
async fn the_writes_of_a_plan_are_taken_back_together_once_and_can_be_redone() {
    let shop = Shop::open().await;
    let before = shop.contents().await;
    let writes = [shop.set(1, "paid").await, shop.set(1, "sent").await, shop.set(2, "paid").await];
    let after = shop.contents().await;
    let plan = shop.plan("strict").await;
    assert_eq!((&plan["write_count"], &plan["row_count"]), (&json!(3), &json!(2)), "{plan}");
    let listed: Vec<&Value> = plan["writes"].as_array().unwrap().iter().map(|write| &write["correlation_id"]).collect();
    assert_eq!(listed, writes.iter().map(receipt).collect::<Vec<_>>());
    assert_eq!(shop.contents().await, after, "a plan changes nothing");
    let rows = json!([
        {"table": "shop.orders", "key": {"id": 1}, "change": "update", "columns": {"status": {"before": "sent", "after": "open"}}},
        {"table": "shop.orders", "key": {"id": 2}, "change": "update", "columns": {"status": {"before": "paid", "after": "open"}}},
    ]);
    assert_eq!(plan["effects"], json!({"count": 2, "rows": rows}), "what is there now, and after it");
    let summary = json!([{"table": "shop.orders", "change": "update", "rows": 2, "changed": {"status": 2}}]);
    assert_eq!(plan["summary"], summary);

    let previewed = shop.server.succeed("preview_mutation", json!({"tool": "undo_run", "params": run_of(&plan)})).await;
    assert_eq!(previewed["data"]["effects"]["count"], 2, "{previewed}");
    let ran = shop.server.succeed("undo_run", run_of(&plan)).await;
    assert_eq!(ran["data"], json!({"writes": 3, "rows": 2}));
    assert_eq!(shop.contents().await, before);
    for write in &writes {
        assert_eq!(shop.server.record(write).await["reversed_by"], json!([receipt(&ran)]));
    }
    // Again, on this server and on another one, it is the same undo.
    let other = shop.of_account("default").await;
    for server in [&shop.server, &other] {
        let again = server.succeed("undo_run", run_of(&plan)).await;
        assert_eq!((&again["data"]["duplicate"], shop.contents().await), (&json!(true), before.clone()));
    }
    let nothing = shop.plan("strict").await;
    assert_eq!((&nothing["is_ready"], &nothing["write_count"]), (&json!(false), &json!(0)), "{nothing}");
    assert_eq!(nothing["plan_id"], Value::Null);

    // Redone, each of them stands as the redo, and no undo of one alone is left.
    shop.server.succeed("undo_mutation", ran["meta"]["rollback"]["undo_params"].clone()).await;
    assert_eq!(shop.contents().await, after);
    shop.server.fail("undo_run", run_of(&plan), "already_reversed").await;
    shop.server.fail("undo_mutation", json!({"correlation_id": receipt(&writes[0])}), "already_reversed").await;
    assert_eq!(shop.contents().await, after);

    // U-3: the next plan undoes the redo, and it names what that made again.
    let plan = shop.plan("strict").await;
    assert_eq!((&plan["write_count"], &plan["row_count"]), (&json!(1), &json!(2)), "{plan}");
    let again = plan["writes"][0]["makes_again"].as_array().unwrap();
    assert!(again.len() == 3 && writes.iter().all(|write| again.contains(receipt(write))), "{plan}");
    shop.server.succeed("undo_run", run_of(&plan)).await;
    assert_eq!(shop.contents().await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_that_differs_from_the_plan_shown_changes_nothing() {
    let shop = Shop::open().await;
    shop.set(1, "paid").await;
    let stranger = shop.of_account("stranger").await;
    let plan = shop.plan("strict").await;
    // By another account: not known to it, and its own writes are no part of a plan here.
    stranger.fail("undo_run", run_of(&plan), "not_found").await;
    stranger.succeed("set_status", json!({"id": 3, "status": "theirs"})).await;
    let wrong = json!({"plan_id": plan["plan_id"], "digest": "0".repeat(64)});
    shop.server.fail("undo_run", wrong, "digest_mismatch").await;
    assert_eq!(shop.plan("strict").await["write_count"], 1);

    // Changed and changed back by others: the rows are as they were, and the plan does not pass over that.
    for status in ["x", "paid"] {
        stranger.succeed("set_status", json!({"id": 1, "status": status})).await;
    }
    let refused = shop.server.fail("undo_run", run_of(&plan), "undo_conflict").await;
    assert_eq!(refused["conflicts"][0]["code"], "needed_by", "{refused}");
    let strict = shop.plan("strict").await;
    assert_eq!((&strict["is_ready"], &strict["conflict_count"]), (&json!(false), &json!(2)), "{strict}");
    // Nothing of another account is taken along.
    let cascade = shop.plan("cascade").await;
    assert_eq!((&cascade["is_ready"], &cascade["added"]), (&json!(false), &json!([])), "{cascade}");

    shop.set(2, "paid").await;
    let skip = shop.plan("skip").await;
    assert_eq!((&skip["write_count"], skip["left_out"].as_array().unwrap().len()), (&json!(1), 1), "{skip}");
    shop.server.succeed("undo_run", run_of(&skip)).await;
    let statuses = "select string_agg(status, ' ' order by id) from shop.orders where id < 4";
    assert_eq!(shop.db.value(statuses).await, "paid open theirs");
}

#[tokio::test(flavor = "multi_thread")]
async fn later_writes_of_the_account_are_taken_along_in_mode_cascade() {
    let shop = Shop::open().await;
    let before = shop.contents().await;
    shop.set(1, "paid").await;
    let until = shop.db.value("select clock_timestamp()::text").await;
    let later = shop.set(1, "sent").await;
    let plan = shop.server.succeed("undo_plan", json!({"from": "1h", "to": until, "mode": "cascade"})).await;
    let plan = &plan["data"];
    assert_eq!((&plan["write_count"], &plan["added"]), (&json!(2), &json!([receipt(&later)])), "{plan}");
    shop.server.succeed("undo_run", run_of(plan)).await;
    assert_eq!(shop.contents().await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_undo_needs_the_agreement_that_the_manifest_asks_of_it() {
    let shop = Shop::open().await;
    let before = shop.contents().await;
    // The write was made at once, and its undo is approved.
    let dropped = shop.server.succeed("drop_order", json!({"id": 1})).await;
    shop.set(2, "paid").await;
    let undo = shop.server.succeed("undo_mutation", json!({"correlation_id": receipt(&dropped)})).await;
    assert_eq!(undo["data"]["proposal"]["tier"], "approve", "{undo}");
    let proposal = shop.server.succeed("undo_run", run_of(&shop.plan("strict").await)).await;
    assert_eq!(proposal["data"]["proposal"]["tier"], "approve", "the strictest: {proposal}");
    assert_eq!(proposal["data"]["proposal"]["preview"]["effects"]["count"], 3, "{proposal}");
    assert_ne!(shop.contents().await, before, "it waits");
    shop.approve(&proposal).await;
    assert_eq!(shop.contents().await, before);

    // The write was approved, and its undo is made at once.
    let proposal = shop.server.succeed("close_order", json!({"id": 3})).await;
    shop.approve(&proposal).await;
    let closed = "select correlation_id from countersign.record where tool_name = 'close_order'";
    let closed = json!({"correlation_id": shop.db.value(closed).await});
    assert_eq!(shop.server.succeed("undo_mutation", closed).await["data"]["rows"], 1);
    assert_eq!(shop.contents().await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_input_is_named_and_other_profiles_do_not_have_the_tools() {
    let shop = Shop::open().await;
    for (arguments, part) in [
        (json!({"from": "yesterday evening"}), "from: \"yesterday evening\" is no time: give one such as 30m"),
        (json!({"from": "1h", "to": "99999-99-99"}), "to: \"99999-99-99\" is no time"),
        (json!({"from": "1h", "to": "2h"}), "the range of time is empty"),
        (json!({"from": "1h", "tool": "set_stauts"}), "the tool set_stauts is on no record"),
        (json!({"from": "1h", "mode": "force"}), "mode"),
        (json!({}), "from"),
        (json!({"from": "1h", "account": "stranger"}), "account"),
    ] {
        let refused = shop.server.fail("undo_plan", arguments.clone(), "invalid_params").await;
        assert!(refused["message"].as_str().unwrap().contains(part), "{arguments}: {refused}");
    }
    let digest = "0".repeat(64);
    shop.server.fail("undo_run", json!({"plan_id": "7", "digest": digest}), "invalid_params").await;
    let unknown = json!({"plan_id": "3f0c1a52-9c1e-4c7e-8a55-0d9f6b1f2a34", "digest": digest});
    let refused = shop.server.fail("undo_run", unknown, "not_found").await;
    assert!(refused["hint"].as_str().unwrap().contains("undo_plan"), "{refused}");
    let writer = shop.manifest.serve(&shop.db).await;
    assert!(writer.tool_names().await.iter().all(|name| name != "undo_plan" && name != "undo_run"));

    let text = tools(&DROP_ORDER.replace("access = \"write\"", "access = \"read\""));
    let error = TestManifest::new(&text).compile_error(&shop.db).await;
    assert!(error.contains("a read leaves nothing to undo: undo_tier is for writes"), "{error}");
}
