//! Effects in the view of agents and operators: by table and key, with the columns before and after.

use serde_json::{Value, json};
use testkit::{Database, Server, TestManifest, database, run_countersign};

use crate::shop::{DROP_ORDER, SET_STATUS};

const SHOP: &str = "
create schema shop;
create table shop.orders (id int primary key, status text not null default 'open', secret text, note text);
create table shop.item (order_id int references shop.orders on delete cascade, line int, name text, primary key (order_id, line));
insert into shop.orders select g, 'open', 'hunter2', repeat(md5(g::text), 15) from generate_series(1, 300) g;
insert into shop.item values (1, 1, 'pen'), (1, 2, 'ink');
select countersign.track('shop.orders', sensitive => '{secret}'), countersign.track('shop.item', all_writers => true);
grant usage on schema shop to countersign_writer;
grant all on all tables in schema shop to countersign_writer;
";

const TOOLS: &str = r#"
[[tool]]
name = "set_secret"
access = "write"
description = "Set the secret of an order."
sql = "update shop.orders set secret = $2 where id = $1 returning id"
rows = "one"
param = [{ name = "id", description = "Which." }, { name = "secret", description = "What.", sensitive = true }]

[[tool]]
name = "set_all"
access = "write"
description = "Set the status of all orders."
sql = "update shop.orders set status = $1 returning id"
rows = "some"
max_rows = 1000
param = [{ name = "status", description = "What." }]
"#;

async fn shop() -> (Database, Server) {
    let db = database().await;
    db.run(SHOP).await;
    let server = TestManifest::new(&format!("{SET_STATUS}{DROP_ORDER}{TOOLS}")).serve(&db).await;
    (db, server)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_shows_what_its_write_changed_by_table_and_key() {
    let (_db, server) = shop().await;
    let paid = server.succeed("set_status", json!({"id": 2, "status": "paid"})).await;
    let changed = json!([{"table": "shop.orders", "key": {"id": 2}, "change": "update",
                          "columns": {"status": {"before": "open", "after": "paid"}}}]);
    assert_eq!(server.record(&paid).await["effects"], json!({"count": 1, "rows": changed}));
    let preview = json!({"tool": "drop_order", "params": {"id": 1}});
    let previewed = server.succeed("preview_mutation", preview).await["data"]["effects"].clone();
    let dropped = server.succeed("drop_order", json!({"id": 1})).await;
    let effects = server.record(&dropped).await["effects"].clone();
    assert_eq!((&effects["count"], &previewed), (&json!(3), &effects), "a preview shows what the write then does");
    let mut rows = effects["rows"].as_array().unwrap().clone();
    rows.iter_mut().for_each(|row| drop(row.as_object_mut().unwrap().remove("has_sensitive_changes")));
    let item = json!({"table": "shop.item", "key": {"line": 1, "order_id": 1}, "change": "delete",
                      "columns": {"order_id": "1", "line": "1", "name": "pen"}});
    assert!(rows.contains(&item), "{effects}");
    let order = rows.iter().find(|row| row["table"] == "shop.orders").unwrap();
    assert_eq!((&order["change"], &order["columns"]["status"]), (&json!("delete"), &json!("open")));
    assert!(!effects.to_string().contains("hunter2") && order["columns"].get("secret").is_none(), "{effects}");

    // That a sensitive column has changed is said, and not to what.
    let hidden = server.succeed("set_secret", json!({"id": 3, "secret": "swordfish"})).await;
    let effects = server.record(&hidden).await["effects"].clone();
    let expected = json!({"table": "shop.orders", "key": {"id": 3}, "change": "update", "columns": {}, "has_sensitive_changes": true});
    assert_eq!(effects["rows"], json!([expected]));

    // Of many effects the first hundred are shown, and how many there are.
    let all = server.succeed("set_all", json!({"status": "sent"})).await;
    let ask = json!({"correlation_id": all["meta"]["correlation_id"], "rows": "all"});
    let effects = server.succeed("get_mutation_detail", ask).await["data"]["effects"].clone();
    assert_eq!((&effects["count"], effects["rows"].as_array().unwrap().len()), (&json!(299), 100));
    let failed = server.call("set_status", json!({"id": 777, "status": "paid"})).await;
    assert_eq!(server.record(&failed).await.get("effects"), None);
}

/// A promise that was not checked is none.
#[tokio::test(flavor = "multi_thread")]
async fn a_record_whose_undo_was_not_checked_says_so() {
    let (db, server) = shop().await;
    db.run(
        "create table shop.counter (n int); insert into shop.counter values (0); \
         grant all on shop.counter to countersign_writer; \
         create function shop.count() returns trigger language plpgsql as \
         'begin update shop.counter set n = n + 1; return null; end'; \
         create trigger count after update on shop.orders for each statement execute function shop.count()",
    )
    .await;
    let paid = server.succeed("set_status", json!({"id": 6, "status": "paid"})).await;
    let rollback = &paid["meta"]["rollback"];
    assert_eq!((&rollback["reversible"], &rollback["checked"]), (&json!(true), &json!(false)), "{rollback}");
    let id = paid["meta"]["correlation_id"].as_str().unwrap();
    let shown = run_countersign(&db.url(), &["audit", "show", id]).await.out;
    let words = "Whether it can be undone with undo_mutation was not checked: the undo may be refused. \
                 An undo does not restore shop.counter.";
    assert!(shown.lines().any(|line| line.starts_with("undo ") && line.ends_with(words)), "{shown}");
}

/// A receipt is of its time. What is in the way of the undo since then is said where the record is shown.
#[tokio::test(flavor = "multi_thread")]
async fn a_record_says_how_it_can_be_undone_now() {
    let (db, server) = shop().await;
    let url = db.url();
    let undo = async |of: &Value| {
        let id = of["meta"]["correlation_id"].as_str().unwrap();
        let shown = run_countersign(&url, &["audit", "show", id]).await.out;
        let line = shown.lines().find(|line| line.starts_with("undo ")).unwrap_or_else(|| panic!("{shown}"));
        (line.trim_start_matches("undo").trim_start().to_owned(), server.record(of).await["undo_obstacles"].clone())
    };
    let open = "It can be undone, as long as its rows are as it left them.".to_owned();
    let paid = server.succeed("set_status", json!({"id": 4, "status": "paid"})).await;
    assert_eq!(undo(&paid).await, (open.clone(), json!([])));

    let sent = server.succeed("set_status", json!({"id": 4, "status": "sent"})).await;
    let (said, obstacles) = undo(&paid).await;
    let by = sent["meta"]["correlation_id"].as_str().unwrap();
    let start = format!(
        "It cannot be undone now: shop.orders has rows needed by later writes ({} set_status). To do: ",
        &by[..8]
    );
    assert!(said.starts_with(&start), "{said}");
    assert_eq!(
        (&obstacles[0]["code"], &obstacles[0]["changed_by"]["correlation_id"]),
        (&json!("needed_by"), &json!(by))
    );
    assert_eq!(undo(&sent).await, (open.clone(), json!([])));
    server.succeed("undo_mutation", json!({"correlation_id": by})).await;
    assert_eq!(undo(&sent).await, ("It was undone.".to_owned(), Value::Null));
    assert_eq!(undo(&paid).await, (open.clone(), json!([])), "a write and its undo cancel each other");

    // Changes from outside and migrations are in the way as well, unless they touch nothing that comes back.
    db.run("alter table shop.orders add column extra int; select countersign.track('shop.orders', sensitive => '{secret}', all_writers => true)").await;
    let other = server.succeed("set_status", json!({"id": 5, "status": "paid"})).await;
    assert_eq!(undo(&paid).await, (open.clone(), json!([])));
    db.run("update shop.orders set note = 'by hand' where id = 5").await;
    let (said, _) = undo(&other).await;
    assert!(
        said.starts_with(
            "It cannot be undone now: shop.orders has rows needed by later writes (outside countersign, postgres)"
        ),
        "{said}"
    );
    let tried = run_countersign(&db.writer_url(), &["doctor", "--undo-drill"]).await.out;
    let last = |words: &str| tried.lines().any(|line| line.contains(words));
    assert!(last("the newest write of set_status") && last("cannot be undone now: 1 row changed since"), "{tried}");
    db.run("alter table shop.orders rename column status to state; alter table shop.orders drop column state").await;
    server.succeed("drop_order", json!({"id": 6})).await;
    let (said, obstacles) = undo(&paid).await;
    assert!(
        said.starts_with("It cannot be undone now: shop.orders has rows of a table whose columns have changed."),
        "{said}"
    );
    assert_eq!(obstacles, json!([{"code": "schema_changed", "table": "shop.orders"}]));
}

#[tokio::test(flavor = "multi_thread")]
async fn auditors_see_the_effects_of_a_record_and_the_history_of_a_row() {
    let (db, server) = shop().await;
    let paid = server.succeed("set_status", json!({"id": 1, "status": "paid"})).await;
    let dropped = server.succeed("drop_order", json!({"id": 1})).await;
    db.run("insert into shop.orders (id) values (1); insert into shop.item values (1, 2, 'cup')").await;
    let [paid, dropped] = [&paid, &dropped].map(|answer| answer["meta"]["correlation_id"].as_str().unwrap());
    let url = db.url();
    let audit = async |arguments: &[&str]| run_countersign(&url, &[&["audit"], arguments].concat()).await;
    let shown = audit(&["show", paid]).await;
    assert!(shown.out.contains("\nchanged rows     shop.orders id=1: status open -> paid\n"), "{}", shown.out);
    let shown = audit(&["show", dropped]).await;
    assert!(
        shown.out.contains("shop.item line=2, order_id=1: removed, with order_id 1, line 2, name ink\n"),
        "{}",
        shown.out
    );

    let history = audit(&["row", "shop.item", "order_id=1,line=2"]).await.succeeded();
    let lines: Vec<&str> = history.out.lines().collect();
    assert_eq!(lines.len(), 4, "{}", history.out);
    assert!(
        lines[0].contains("  outside countersign, postgres")
            && lines[1] == "    added, with order_id 1, line 2, name cup",
        "{}",
        history.out
    );
    assert!(lines[2].contains(&format!("  {}  drop_order", &dropped[..8])), "{}", history.out);
    let history = audit(&["row", "shop.orders", "1", "--json"]).await;
    let changes: Vec<Value> = history.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |name: &str| changes.iter().map(|change| change[name].clone()).collect::<Vec<_>>();
    assert_eq!(
        (of("change"), of("correlation_id")),
        (vec![json!("delete"), json!("update")], vec![json!(dropped), json!(paid)])
    );

    let listed = audit(&["list", "--table", "shop.orders", "--key", "1", "--json"]).await;
    assert_eq!(listed.out.lines().count(), 2, "{}", listed.out);
    assert_eq!(audit(&["list", "--table", "shop.item", "--json"]).await.out.lines().count(), 1);
    assert_eq!(audit(&["list", "--table", "shop.item", "--key", "line=9,order_id=1"]).await.out, "No records.\n");
    // A reviewer may not use the schema of the tables.
    let reviewer = db.login("reviewer", "countersign_approver").await;
    for table in ["shop.orders", "Shop.Orders"] {
        let history = run_countersign(&reviewer, &["audit", "row", table, "1", "--json"]).await;
        assert_eq!(history.out.lines().count(), 2, "{table}: {}", history.err);
        let listed = run_countersign(&reviewer, &["audit", "list", "--table", table, "--json"]).await;
        assert_eq!(listed.out.lines().count(), 2, "{table}: {}", listed.err);
    }

    db.run("create schema \"Crm\"; create table \"Crm\".\"Item\" (id int primary key); create table \"Crm\".item (id int primary key);
            select countersign.track(t) from unnest(array['\"Crm\".\"Item\"', '\"Crm\".item']::regclass[]) t")
        .await;
    for table in ["orders", "Orders", "shop.orders"] {
        assert_eq!(audit(&["row", table, "1"]).await.succeeded().out.lines().count(), 4, "{table}");
    }
    for table in ["Crm.Item", "\"Crm\".\"Item\"", "Item"] {
        assert_eq!(
            audit(&["row", table, "1"]).await.succeeded().out,
            "No change of this row is recorded.\n",
            "{table}"
        );
    }

    for (arguments, said) in [
        (&["row", "shop.nothing", "1"][..], "the table shop.nothing is not tracked"),
        (&["row", "item", "1"], "several tracked tables have the name item: \"Crm\".item, shop.item"),
        (
            &["row", "shop.item", "1"],
            "the key of shop.item is order_id, line: give a value for each, such as order_id=7,line=7",
        ),
        (&["row", "shop.orders", "x"], "invalid input syntax for type integer: \"x\""),
        (&["list", "--key", "1"], "--table"),
    ] {
        let refused = audit(arguments).await;
        assert!(refused.code != 0 && refused.err.contains(said), "{arguments:?}: {}", refused.err);
    }
}

const ASKING: &str = r#"
[[tool]]
name = "drop_order"
access = "write"
tier = "confirm"
description = "Drop an order with its items."
before = "select id, status from shop.orders where id = $1 for update"
sql = "delete from shop.orders where id = $1 returning id"
rows = "one"
param = [{ name = "id", description = "Which." }]

[[tool]]
name = "add_item"
access = "write"
tier = "confirm"
description = "Add an item."
sql = "insert into shop.item values ($1, $2, 'cup') returning line"
rows = "one"
param = [{ name = "id", description = "Which order." }, { name = "line", description = "Which line." }]
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_proposal_that_would_change_other_rows_than_shown_is_not_executed() {
    let db = database().await;
    db.run(SHOP).await;
    db.run(
        "create table shop.count (one int primary key, items bigint); insert into shop.count values (1, 2); \
         create function shop.count_items() returns trigger language plpgsql security definer as \
         $$ begin update shop.count set items = (select count(*) from shop.item); return null; end $$; \
         create trigger count_items after insert or delete on shop.item for each statement execute function shop.count_items(); \
         select countersign.track('shop.count')",
    )
    .await;
    let server = TestManifest::new(ASKING).serve(&db).await;
    let confirm = async |proposal: &Value, expected: Option<&str>| {
        let proposal = &proposal["data"]["proposal"];
        let arguments = json!({"proposal_id": proposal["proposal_id"], "digest": proposal["digest"]});
        match expected {
            None => server.succeed("confirm_proposal", arguments).await,
            Some(code) => server.fail("confirm_proposal", arguments, code).await,
        }
    };
    let drop_order = async || server.succeed("drop_order", json!({"id": 1})).await;
    let orders = "select count(*) from shop.orders where id = 1";

    // The order itself is as it was shown; what goes with it is not.
    for (change, because) in [
        (
            "insert into shop.item values (1, 3, 'cup')",
            "it would change 5 row(s) of tracked tables now, and 4 were shown",
        ),
        ("update shop.item set name = 'gold' where line = 1", "other rows or columns of shop.item would be changed"),
        ("update shop.item set line = 9 where line = 1", "other rows or columns of shop.item would be changed"),
    ] {
        let proposal = drop_order().await;
        db.run(change).await;
        let refused = confirm(&proposal, Some("proposal_stale")).await;
        assert!(refused["message"].as_str().unwrap().contains(because), "{change}: {refused}");
        assert_eq!(db.value(orders).await, "1", "{change}");
    }
    // A total that a trigger keeps may have moved since: it is the same row and the same column.
    let proposal = server.succeed("add_item", json!({"id": 2, "line": 1})).await;
    db.run("insert into shop.item values (3, 1, 'pen'), (3, 2, 'ink')").await;
    confirm(&proposal, None).await;
    confirm(&drop_order().await, None).await;
    assert_eq!(db.value(orders).await, "0");
}

/// N-22: names in other letter case, or misspelt.
#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_is_not_tracked_is_answered_with_the_nearest_that_are() {
    let db = database().await;
    db.run("create schema staff; create table staff.\"Employee\" (id int primary key); create table staff.shift (id int primary key)").await;
    run_countersign(&db.url(), &["track", "staff.\"Employee\"", "staff.shift"]).await.succeeded();
    for (table, nearest) in [
        ("shfit", "staff.shift"),
        ("employee", "staff.\"Employee\""),
        ("staff.employee", "staff.\"Employee\""),
        ("staf.shift", "staff.shift"),
    ] {
        let refused = run_countersign(&db.url(), &["audit", "row", table, "1"]).await;
        let hint = format!("; the nearest tracked tables are: {nearest}\n");
        assert!(refused.code == 1 && refused.err.ends_with(&hint), "{table}: {}", refused.err);
    }
}
