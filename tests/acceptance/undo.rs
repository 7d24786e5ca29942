//! Undo by recorded effects: `undo_mutation`, and declared undo tools that are checked against effects.

use serde_json::{Value, json};
use testkit::{Database, Server, TestManifest, database, run_countersign};

/// A shop whose orders keep a total by trigger, and whose items go with their order.
const SHOP: &str = "
create schema shop;
create table shop.customer (id int primary key, spent numeric not null default 0);
create table shop.orders (id int generated always as identity primary key, customer_id int not null references shop.customer,
    amount numeric not null, status text not null default 'open', note jsonb);
create table shop.item (order_id int references shop.orders on delete cascade, line int, name text, primary key (order_id, line));
create function shop.add_up() returns trigger language plpgsql as $$
begin
    update shop.customer c set spent = (select coalesce(sum(o.amount), 0) from shop.orders o where o.customer_id = c.id);
    return null;
end $$;
create trigger add_up after insert or update or delete on shop.orders for each statement execute function shop.add_up();
insert into shop.customer (id) values (1), (2);
insert into shop.orders (customer_id, amount, note) values (1, 10.00, 'null'), (1, 'NaN', null), (2, 7, '{\"a\": [1, null]}');
insert into shop.item values (1, 1, 'pen'), (1, 2, 'ink'), (2, 1, 'cup');
";

const TRACK: &str = "select countersign.track(t) from unnest('{shop.customer, shop.orders, shop.item}'::regclass[]) t";

const TOOLS: &str = r#"
[[tool]]
name = "set_status"
access = "write"
description = "Set the status of an order."
sql = "update shop.orders set status = $2 where id = $1 returning id, status"
rows = "one"
param = [{ name = "id", description = "Which." }, { name = "status", description = "What." }]
before = "select * from shop.orders where id = $1"
undo = { tool = "set_status", params = { id = "param.id", status = "before.status" } }

[[tool]]
name = "drop_order"
access = "write"
description = "Drop an order with its items."
sql = "delete from shop.orders where id = $1 returning id"
rows = "one"
param = [{ name = "id", description = "Which." }]

[[tool]]
name = "add_order"
access = "write"
description = "Add an order."
sql = "insert into shop.orders (customer_id, amount) values ($1, $2) returning id"
rows = "one"
param = [{ name = "customer", description = "Whose." }, { name = "amount", description = "How much." }]

[[tool]]
name = "raise_all"
access = "write"
tier = "approve"
description = "Raise every amount."
before = "select * from shop.orders for update"
sql = "update shop.orders set amount = amount + $1 returning id"
rows = "some"
max_rows = 100
param = [{ name = "by", description = "How much." }]
"#;

async fn shop() -> (Database, TestManifest) {
    let db = database().await;
    db.run(SHOP).await;
    db.run("grant usage on schema shop to countersign_writer; grant all on all tables in schema shop to countersign_writer").await;
    db.run(TRACK).await;
    (db, TestManifest::new(TOOLS))
}

async fn contents(db: &Database) -> Vec<Vec<String>> {
    db.contents("shop").await
}

fn id(answer: &Value) -> Value {
    json!({"correlation_id": answer["meta"]["correlation_id"]})
}

#[tokio::test(flavor = "multi_thread")]
async fn an_undo_restores_every_row_also_those_that_triggers_and_cascades_changed() {
    let (db, manifest) = shop().await;
    let server = manifest.serve(&db).await;
    for (tool, arguments) in [
        ("drop_order", json!({"id": 1})),
        ("drop_order", json!({"id": 2})),
        ("add_order", json!({"customer": 2, "amount": "5.50"})),
        ("set_status", json!({"id": 3, "status": "paid"})),
    ] {
        let before = contents(&db).await;
        let done = server.succeed(tool, arguments).await;
        let after = contents(&db).await;
        assert_ne!(after, before, "{tool}");
        let undone = server.succeed("undo_mutation", id(&done)).await;
        assert_eq!(contents(&db).await, before, "{tool} was undone");
        assert_eq!(undone["data"]["undone"], done["meta"]["correlation_id"]);
        assert_eq!(server.record(&done).await["reversed_by"], json!([undone["meta"]["correlation_id"]]));
        assert_eq!(server.record(&undone).await["reverses"], json!([done["meta"]["correlation_id"]]));

        // The repeated call is the same undo.
        let again = server.succeed("undo_mutation", id(&done)).await;
        assert_eq!((&again["data"]["duplicate"], contents(&db).await), (&json!(true), before.clone()), "{tool}");

        let rollback = &undone["meta"]["rollback"];
        assert_eq!((&rollback["undo_tool"], &rollback["undo_params"]), (&json!("undo_mutation"), &id(&undone)));
        assert_eq!(rollback["checked"], true);
        server.succeed("undo_mutation", rollback["undo_params"].clone()).await;
        assert_eq!(contents(&db).await, after, "{tool} was redone");
        // The first undo stands no more; what is to be undone now is the redo.
        let refused = server.fail("undo_mutation", id(&done), "already_reversed").await;
        assert!(refused["hint"].as_str().unwrap().contains("to undo the write again, undo "), "{refused}");
        assert_eq!(contents(&db).await, after);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_undo_overwrites_no_later_change() {
    let (db, manifest) = shop().await;
    let server = manifest.serve(&db).await;
    let first = server.succeed("set_status", json!({"id": 1, "status": "paid"})).await;
    let second = server.succeed("set_status", json!({"id": 1, "status": "sent"})).await;
    let refused = server.fail("undo_mutation", id(&first), "undo_conflict").await;
    assert_eq!(refused["message"], "the write cannot be undone: 1 row changed since; nothing was changed");
    let conflict = &refused["conflicts"][0];
    assert_eq!(
        (&conflict["code"], &conflict["table"], &conflict["key"]),
        (&json!("changed_since"), &json!("shop.orders"), &json!({"id": 1}))
    );
    let column = json!({"name": "status", "to_restore": "open", "left": "paid", "now": "sent"});
    assert_eq!(conflict["columns"], json!([column]));
    assert_eq!(conflict["changed_by"]["correlation_id"], second["meta"]["correlation_id"]);
    assert_eq!(db.value("select status from shop.orders where id = 1").await, "sent");
    let recorded = "select status || ' ' || error_code || ' ' || (error_detail -> 0 ->> 'code') from countersign.record order by id desc limit 1";
    assert_eq!(db.value(recorded).await, "failure undo_conflict changed_since");

    // In the right order both go back; and a change from outside is found as well.
    server.succeed("undo_mutation", id(&second)).await;
    server.succeed("undo_mutation", id(&first)).await;
    assert_eq!(db.value("select status from shop.orders where id = 1").await, "open");
    let third = server.succeed("set_status", json!({"id": 3, "status": "paid"})).await;
    db.run("update shop.orders set note = '{}' where id = 3").await;
    let refused = server.fail("undo_mutation", id(&third), "undo_conflict").await;
    assert_eq!(refused["conflicts"][0]["changed_by"]["outside"], "outside countersign", "{refused}");
    assert_eq!(db.value("select status || note::text from shop.orders where id = 3").await, "paid{}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_declared_undo_undoes_its_own_write_and_is_checked_where_effects_exist() {
    let (db, manifest) = shop().await;
    let server = manifest.serve(&db).await;
    let a = server.succeed("set_status", json!({"id": 1, "status": "A"})).await;
    let b = server.succeed("set_status", json!({"id": 1, "status": "B"})).await;
    let undo = &b["meta"]["rollback"];
    let key = format!("undo:{}", b["meta"]["correlation_id"].as_str().unwrap());
    assert_eq!(undo["undo_params"], json!({"id": 1, "status": "A", "idempotency_key": key}));
    // The same arguments as those of the write A.
    let undone = server.succeed("set_status", undo["undo_params"].clone()).await;
    assert_eq!(
        (&undone["data"]["duplicate"], db.value("select status from shop.orders where id = 1").await),
        (&Value::Null, "A".into())
    );
    assert_eq!(server.record(&a).await["reversed_by"], Value::Null);
    assert_eq!(server.record(&b).await["reversed_by"], json!([undone["meta"]["correlation_id"]]));
    let refused = server.fail("undo_mutation", id(&b), "already_reversed").await;
    assert!(
        refused["message"].as_str().unwrap().contains(undone["meta"]["correlation_id"].as_str().unwrap()),
        "{refused}"
    );

    // What does not restore the rows is no undo of the write, whatever key it has.
    let c = server.succeed("set_status", json!({"id": 1, "status": "C"})).await;
    let mut wrong = c["meta"]["rollback"]["undo_params"].clone();
    wrong["status"] = "D".into();
    let refused = server.fail("set_status", wrong, "undo_conflict").await;
    assert_eq!(refused["conflicts"][0]["code"], "side_effects", "{refused}");
    assert_eq!(db.value("select status from shop.orders where id = 1").await, "C");
    assert_eq!(server.record(&c).await["reversed_by"], Value::Null);
    server.succeed("set_status", c["meta"]["rollback"]["undo_params"].clone()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_effects_only_the_declared_call_undoes_a_write() {
    let (db, _) = shop().await;
    let description = "description = \"Drop an order with its items.\"\n";
    let undo = format!("{description}undo = {{ irreversible = \"There is no tool for it.\" }}\n");
    let manifest = TestManifest::new(&TOOLS.replace(description, &undo));
    db.run("select countersign.untrack(t) from unnest('{shop.customer, shop.orders, shop.item}'::regclass[]) t").await;
    let server = manifest.serve(&db).await;
    let paid = server.succeed("set_status", json!({"id": 1, "status": "paid"})).await;
    let refused = server.fail("undo_mutation", id(&paid), "undo_conflict").await;
    assert_eq!(refused["conflicts"][0]["code"], "image_missing", "{refused}");
    assert!(refused["hint"].as_str().unwrap().contains("meta.rollback"), "{refused}");
    let key = paid["meta"]["rollback"]["undo_params"]["idempotency_key"].clone();
    for wrong in [
        ("set_status", json!({"id": 1, "status": "lost", "idempotency_key": key})),
        ("set_status", json!({"id": 2, "status": "open", "idempotency_key": key})),
        ("drop_order", json!({"id": 1, "idempotency_key": key})),
    ] {
        let before = contents(&db).await;
        server.fail(wrong.0, wrong.1.clone(), "undo_conflict").await;
        assert_eq!(contents(&db).await, before, "{wrong:?}");
    }
    let undone = server.succeed("set_status", paid["meta"]["rollback"]["undo_params"].clone()).await;
    assert_eq!(server.record(&paid).await["reversed_by"], json!([undone["meta"]["correlation_id"]]));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_undo_needs_the_agreement_that_the_write_needed() {
    let (db, manifest) = shop().await;
    let server = manifest.serve(&db).await;
    let before = contents(&db).await;
    let approve = async |proposal: &Value| {
        let proposal = &proposal["data"]["proposal"];
        let [id, digest] = ["proposal_id", "digest"].map(|name| proposal[name].as_str().unwrap());
        run_countersign(&db.url(), &["proposals", "approve", id, "--digest", digest]).await.succeeded();
        let carried_out = format!("select status from countersign.proposal where proposal_id = '{id}'");
        db.until_value(&carried_out, "executed").await;
    };
    let proposal = server.succeed("raise_all", json!({"by": 1})).await;
    approve(&proposal).await;
    assert_ne!(contents(&db).await, before);
    let write = "select correlation_id from countersign.record where tool_name = 'raise_all'";
    let write = json!({"correlation_id": db.value(write).await});
    let undo = server.succeed("undo_mutation", write.clone()).await;
    assert_eq!(
        (&undo["data"]["requires_approval"], &undo["data"]["proposal"]["tier"]),
        (&json!(true), &json!("approve"))
    );
    // Two orders (NaN stays NaN) and the total that the trigger keeps.
    let shown = &undo["data"]["proposal"]["preview"]["effects"];
    let tables: Vec<&str> =
        shown["rows"].as_array().unwrap().iter().map(|row| row["table"].as_str().unwrap()).collect();
    assert_eq!(tables.iter().filter(|table| **table == "shop.orders").count(), 2, "{shown}");
    assert!(tables.contains(&"shop.customer"), "{shown}");
    assert_ne!(contents(&db).await, before, "it waits");
    approve(&undo).await;
    assert_eq!(contents(&db).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_successful_writes_of_the_account_can_be_undone_and_others_are_named() {
    let (db, manifest) = shop().await;
    let server = manifest.serve(&db).await;
    let other = {
        let mut command = manifest.command(&db);
        command.args(["--account", "other"]);
        Server::start(command).await
    };
    let done = server.succeed("set_status", json!({"id": 1, "status": "paid"})).await;
    other.fail("undo_mutation", id(&done), "not_found").await;
    server.fail("undo_mutation", json!({"correlation_id": "7"}), "invalid_params").await;
    let failed = server.call("set_status", json!({"id": 77, "status": "paid"})).await;
    let refused = server.fail("undo_mutation", id(&failed), "invalid_params").await;
    assert!(refused["message"].as_str().unwrap().contains("has failed and changed nothing"), "{refused}");
    let duplicate = manifest.serve(&db).await.succeed("set_status", json!({"id": 1, "status": "paid"})).await;
    let refused = server.fail("undo_mutation", id(&duplicate), "invalid_params").await;
    assert!(refused["hint"].as_str().unwrap().contains("duplicate_of"), "{refused}");
    assert_eq!(db.value("select status from shop.orders where id = 1").await, "paid");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_duplicate_is_answered_only_while_the_rows_are_as_the_write_left_them() {
    let (db, manifest) = shop().await;
    let server = manifest.serve(&db).await;
    let call = json!({"id": 1, "status": "paid"});
    let done = server.succeed("set_status", call.clone()).await;
    assert_eq!(server.succeed("set_status", call.clone()).await["data"]["duplicate"], true);
    // From memory on this server, and from the ledger on another one.
    db.run("update shop.orders set status = 'lost' where id = 1").await;
    for server in [&server, &manifest.serve(&db).await] {
        let refused = server.fail("set_status", call.clone(), "superseded").await;
        assert!(refused["message"].as_str().unwrap().contains("outside countersign"), "{refused}");
        assert_eq!(refused["retryable"], false);
    }
    db.run("update shop.orders set status = 'paid' where id = 1").await;
    assert_eq!(server.succeed("set_status", call.clone()).await["data"]["duplicate"], true);

    let undone = server.succeed("undo_mutation", id(&done)).await;
    server.fail("set_status", call.clone(), "superseded").await;
    server.succeed("undo_mutation", id(&undone)).await;
    assert_eq!(server.succeed("set_status", call.clone()).await["data"]["duplicate"], true, "redone, it stands");
    db.run("update shop.orders set status = 'lost' where id = 1").await;
    server.fail("set_status", call.clone(), "superseded").await;
    let mut again = call.clone();
    again["idempotency_key"] = "again".into();
    assert_eq!(server.succeed("set_status", again).await["data"]["status"], "paid");
}

#[tokio::test(flavor = "multi_thread")]
async fn all_spellings_of_a_numeric_value_are_one_call() {
    let (db, manifest) = shop().await;
    let server = manifest.serve(&db).await;
    server.succeed("add_order", json!({"customer": 1, "amount": 1})).await;
    for spelling in ["1.0", "1e0", "\"1.00\"", "10e-1"] {
        let same: Value = serde_json::from_str(&format!("{{\"customer\": 1, \"amount\": {spelling}}}")).unwrap();
        assert_eq!(server.succeed("add_order", same).await["data"]["duplicate"], true, "{spelling}");
    }
    server.succeed("add_order", json!({"customer": 1, "amount": "1.01"})).await;
    assert_eq!(db.value("select count(*) from shop.orders").await, "5");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_whose_account_is_frozen_while_it_runs_changes_nothing() {
    let (db, manifest) = shop().await;
    let server = manifest.serve(&db).await;
    let mut blocker = db.connect().await;
    let lock = blocker.transaction().await.unwrap();
    lock.batch_execute("select from shop.orders where id = 1 for update").await.unwrap();
    let freeze = async {
        db.first_value("select 1 from countersign.mutation where status = 'pending'").await;
        assert_eq!(db.value("select countersign.freeze('account', 'default', 'anna')").await, "1", "writes in flight");
        lock.rollback().await.unwrap();
    };
    let write = server.fail("set_status", json!({"id": 1, "status": "paid"}), "account_frozen");
    let (refused, ()) = tokio::join!(write, freeze);
    assert_eq!(refused["retryable"], false);
    server.fail("set_status", json!({"id": 2, "status": "paid"}), "account_frozen").await;
    assert_eq!(db.value("select string_agg(distinct status, ',') from shop.orders").await, "open");
    let recorded = "select string_agg(error_code, ',') from countersign.record";
    assert_eq!(db.value(recorded).await, "account_frozen,account_frozen");
    server.query("select 1 as one").await;
    db.run("select countersign.unfreeze('account', 'default', 'anna')").await;
    server.succeed("set_status", json!({"id": 1, "status": "paid"})).await;
}
