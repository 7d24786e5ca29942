//! The tool `row_history`: the changes of a row, only for callers that PostgreSQL lets read all of its table, with masks, and with no
//! word about who else wrote.

use serde_json::{Value, json};
use testkit::audit::audit;
use testkit::{ConfigDir, Database, Server, TestManifest, database, poll};

use crate::shop::{DROP_ORDER, SET_STATUS};

/// Tracked with every writer's changes; the reader's login may read them.
const TABLES: &str = r#"
create schema shop;
create table shop.orders (id int primary key, status text not null default 'open', note text);
create table shop."Line Item" ("Order" int, line text, "Val" numeric, primary key ("Order", line));
insert into shop.orders select g from generate_series(1, 9) g;
insert into shop."Line Item" select g, 'l"' || g, g * 1.5 from generate_series(1, 3) g;
create table shop.untracked (id int primary key);
select countersign.track(t, all_writers => true) from unnest('{shop.orders, "shop.\"Line Item\""}'::regclass[]) t;
grant usage on schema shop to countersign_writer, countersign_reader;
grant all on all tables in schema shop to countersign_writer;
grant select on all tables in schema shop to countersign_reader;
"#;

async fn tables() -> Database {
    let db = database().await;
    db.run(TABLES).await;
    db
}

async fn served() -> (Database, Server) {
    let db = tables().await;
    let server = TestManifest::new(&format!("{SET_STATUS}{DROP_ORDER}")).serve(&db).await;
    (db, server)
}

fn order(id: u32) -> Value {
    json!({"table": "shop.orders", "key": {"id": id}})
}

async fn history(server: &Server, arguments: Value) -> Value {
    server.succeed("row_history", arguments).await["data"].clone()
}

/// The kind and the columns of each change.
fn changes(data: &Value) -> Vec<(String, Value)> {
    let one = |change: &Value| (change["change"].as_str().unwrap().to_owned(), change["columns"].clone());
    data["changes"].as_array().unwrap().iter().map(one).collect()
}

async fn refused(server: &Server, arguments: Value, code: &str) -> String {
    server.fail("row_history", arguments, code).await.to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_is_told_newest_first_and_only_who_wrote_the_own_changes() {
    let (db, server) = served().await;
    let manifest = TestManifest::new(SET_STATUS);
    let mut command = Server::bare_command(&db);
    command.args(manifest.arguments()).args(["--account", "other", "--actor", "Mallory"]);
    let other = Server::start(command).await;
    let own = server.succeed("set_status", json!({"id": 1, "status": "paid"})).await;
    let theirs = other.succeed("set_status", json!({"id": 1, "status": "sent"})).await;
    db.run("set application_name = 'nightly-job'; update shop.orders set id = 21, note = 'moved' where id = 1").await;
    db.run("update shop.orders set id = 1 where id = 21").await;
    server.succeed("drop_order", json!({"id": 1})).await;
    db.run("insert into shop.orders values (1, 'new')").await;
    let told = history(&server, order(1)).await;
    assert_eq!(
        changes(&told),
        [
            ("insert".to_owned(), json!({"id": "1", "status": "new"})),
            ("delete".to_owned(), json!({"id": "1", "status": "sent", "note": "moved"})),
            ("update".to_owned(), json!({"id": {"before": "21", "after": "1"}})),
            (
                "update".to_owned(),
                json!({"id": {"before": "1", "after": "21"}, "note": {"before": null, "after": "moved"}})
            ),
            ("update".to_owned(), json!({"status": {"before": "paid", "after": "sent"}})),
            ("update".to_owned(), json!({"status": {"before": "open", "after": "paid"}})),
        ]
    );
    let all = told["changes"].as_array().unwrap();
    assert_eq!(
        (&all[5]["correlation_id"], &all[5]["tool_name"]),
        (&own["meta"]["correlation_id"], &json!("set_status"))
    );
    let text = told.to_string();
    for word in [theirs["meta"]["correlation_id"].as_str().unwrap(), "Mallory", "nightly-job", "postgres", "other"] {
        assert!(!text.contains(word), "{word}: {text}");
    }
    // Complete since it was tracked for all writers, and the limit is told.
    let [known, complete] = ["known_from", "complete_from"].map(|key| told[key].as_str().unwrap().to_owned());
    let first = told["changes"][5]["changed_at"].as_str().unwrap().to_owned();
    assert!(known <= complete && complete < first && told.get("gaps").is_none(), "{told}");
    let mut few = order(1);
    few["limit"] = json!(2);
    let few = history(&server, few).await;
    assert_eq!((changes(&few).len(), &few["truncated_by"]), (2, &json!("row_limit")), "{few}");
    // Rows without changes, and rows that never were.
    assert_eq!(changes(&history(&server, order(5)).await), []);
    assert_eq!(changes(&history(&server, order(99)).await), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn names_and_keys_are_those_of_sql_and_wrong_ones_are_named() {
    let (db, server) = served().await;
    db.run("update shop.\"Line Item\" set \"Val\" = 7 where \"Order\" = 2").await;
    db.run("create table shop.pair (a int, b int); select countersign.track('shop.pair', all_writers => true); grant select on shop.pair to countersign_reader").await;
    let item = |key: Value| json!({"table": "shop.\"Line Item\"", "key": key});
    let told = history(&server, item(json!({"line": "l\"2", "Order": 2}))).await;
    assert_eq!(changes(&told), [("update".to_owned(), json!({"Val": {"before": "3.0", "after": "7"}}))]);
    // SQL folds what is not quoted.
    let upper = json!({"table": "SHOP.Orders", "key": {"id": "1"}});
    assert_eq!(changes(&history(&server, upper).await), []);
    for (arguments, code, words) in [
        (item(json!({"Order": 2})), "invalid_params", "the key is Order, line"),
        (item(json!({"order": 2, "line": "x"})), "invalid_params", "the key is Order, line"),
        (item(json!({})), "invalid_params", "the key is Order, line"),
        (item(json!({"Order": [2], "line": "x"})), "invalid_params", "Order"),
        (item(json!({"Order": 2, "line": "a\u{0}b"})), "invalid_params", "line"),
        (item(json!({"Order": "two", "line": "x"})), "invalid_params", "invalid input syntax for type integer"),
        (json!({"table": "shop.untracked", "key": {"id": 1}}), "not_found", "is not tracked"),
        (json!({"table": "shop.orders; drop table x", "key": {"id": 1}}), "not_found", "is not tracked"),
        (json!({"table": "countersign.record", "key": {"id": 1}}), "not_found", "is not tracked"),
        (json!({"table": "shop.pair", "key": {"a": 1}}), "not_permitted", "has no key"),
    ] {
        let said = refused(&server, arguments.clone(), code).await;
        assert!(said.contains(words) && !said.contains("nearest"), "{arguments}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_read_each_column_of_the_table_sees_nothing() {
    let (db, server) = served().await;
    db.run("update shop.orders set status = 'paid', note = 'classified' where id = 1").await;
    for privileges in [
        "revoke all on shop.orders from countersign_reader",
        "grant select (id, status) on shop.orders to countersign_reader",
        "grant select on shop.orders to countersign_reader; revoke usage on schema shop from countersign_reader",
    ] {
        db.run(privileges).await;
        for arguments in [
            order(1),
            // Neither what the key is.
            json!({"table": "shop.orders", "key": {}}),
        ] {
            let said = refused(&server, arguments, "not_permitted").await;
            assert!(said.contains("permission denied"), "{privileges}: {said}");
            assert!(!said.contains("classified") && !said.contains("the key is"), "{privileges}: {said}");
        }
    }
    db.run("grant usage on schema shop to countersign_reader").await;
    assert!(history(&server, order(1)).await.to_string().contains("classified"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_with_a_policy_for_the_reader_is_refused() {
    let (db, server) = served().await;
    db.run(
        "update shop.orders set status = 'hidden' where id = 1; alter table shop.orders enable row level security; \
            create policy rest on shop.orders to countersign_reader using (id > 1)",
    )
    .await;
    for arguments in [order(1), order(2)] {
        let said = refused(&server, arguments, "not_permitted").await;
        assert!(said.contains("row level security") && !said.contains("hidden"), "{said}");
    }
    // A policy that does not apply hides nothing.
    db.run("alter table shop.orders disable row level security").await;
    assert_eq!(changes(&history(&server, order(1)).await).len(), 1);
}

/// Values are told by the names and privileges that columns have now: nothing is told from when a column had another name.
#[tokio::test(flavor = "multi_thread")]
async fn changes_under_other_columns_are_counted_and_not_shown() {
    let (db, server) = served().await;
    let renew = async |sql: &str| {
        db.run(sql).await;
        db.run("select countersign.renew_shapes()").await;
    };
    db.run("update shop.orders set note = 'classified' where id = 1").await;
    renew("alter table shop.orders rename note to remark").await;
    db.run("update shop.orders set status = 'paid' where id = 1").await;
    let told = history(&server, order(1)).await;
    assert_eq!(changes(&told), [("update".to_owned(), json!({"status": {"before": "open", "after": "paid"}}))]);
    assert_eq!(told["other_shapes"], 1, "{told}");
    assert!(told["complete_from"].as_str().unwrap() > told["known_from"].as_str().unwrap(), "{told}");
    // Columns that swapped their names, before the tracking is renewed.
    db.run(
        "alter table shop.orders rename status to x; alter table shop.orders rename remark to status; \
            alter table shop.orders rename x to remark",
    )
    .await;
    let told = history(&server, order(1)).await;
    assert_eq!((changes(&told), &told["other_shapes"], &told["complete_from"]), (vec![], &json!(2), &Value::Null));
    db.run("select countersign.renew_shapes()").await;
    // A row that was recorded while the table had one more column.
    db.run("alter table shop.orders add column extra int").await;
    db.run("update shop.orders set status = 'unseen' where id = 1").await;
    renew("alter table shop.orders drop column extra").await;
    let told = history(&server, order(1)).await;
    assert!(!told.to_string().contains("unseen") && !told.to_string().contains("classified"), "{told}");
    assert_eq!(told["other_shapes"], 3, "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_all_writers_no_time_is_complete() {
    let (db, server) = served().await;
    db.run("select countersign.untrack('shop.orders'); select countersign.track('shop.orders')").await;
    let told = history(&server, order(1)).await;
    assert_eq!((&told["complete_from"], &told["gaps"]), (&Value::Null, &json!(["outside_not_recorded"])), "{told}");
    assert!(told["known_from"].is_string(), "{told}");
}

/// Nothing is known from before the table was tracked anew, pruned or emptied, or before its key was changed.
#[tokio::test(flavor = "multi_thread")]
async fn the_history_of_a_row_begins_where_a_change_may_be_missing() {
    let (db, server) = served().await;
    let mut known = history(&server, order(1)).await["known_from"].as_str().unwrap().to_owned();
    let track = "select countersign.track('shop.orders', all_writers => true)";
    for (what, and_then, begins_anew) in [
        ("update shop.orders set status = 'sent' where id = 1", track, false),
        ("select countersign.untrack('shop.orders')", track, true),
        ("alter table shop.orders disable trigger \"!countersign\"", track, true),
        ("insert into countersign.pruned_changes (until) values (clock_timestamp())", "", true),
        ("begin; truncate shop.orders; insert into shop.orders values (1, 'new'); commit", "", true),
        ("alter table shop.orders alter id type bigint", "select countersign.renew_shapes()", true),
    ] {
        db.run(what).await;
        db.run(and_then).await;
        let told = history(&server, order(1)).await;
        let from = told["known_from"].as_str().unwrap().to_owned();
        assert_eq!(from > known, begins_anew, "{what}: {told}");
        known = from;
    }
    db.run("alter table shop.orders disable trigger \"!countersign\"").await;
    assert_eq!(history(&server, order(1)).await["gaps"], json!(["not_recording"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn other_programs_go_on_writing_after_a_migration() {
    let db = database().await;
    db.run(
        "create table public.page (id int primary key, note text, body text); \
         insert into public.page values (1, repeat('n', 900), repeat('b', 900)); \
         select countersign.track('public.page', all_writers => true)",
    )
    .await;
    for change in ["rename column body to content", "drop column note"] {
        db.run(&format!("alter table public.page {change}")).await;
        db.run("update public.page set content = content || 'x'").await;
    }
    let recorded = "select count(*) from countersign.effect where relation = 'public.page'::regclass";
    assert_eq!(db.value(recorded).await, "2");
    db.run("update public.page set content = 'short'").await;
    db.run("select countersign.renew_shapes()").await;
    db.run("update public.page set content = 'shorter'").await;
    let changes = audit(&db, &["row", "public.page", "1", "--json"]).await;
    let newest: Value = serde_json::from_str(changes.lines().next().unwrap()).unwrap();
    assert_eq!(newest["columns"]["content"], json!({"before": "short", "after": "shorter"}), "{changes}");
}

fn config(db: &Database, masks: &str) -> (ConfigDir, tokio::process::Command) {
    let folder = ConfigDir::new();
    let url = db.writer_url();
    let mut command = folder.command(&format!("database_url = {url:?}\nlog = \"warn\"\n[mask]\n{masks}"));
    command.arg("serve");
    (folder, command)
}

#[tokio::test(flavor = "multi_thread")]
async fn masked_columns_are_masked_before_and_after_and_in_every_other_text() {
    let db = tables().await;
    // Of a text that is cut, no part of a masked value is left.
    db.run(
        "update shop.orders set note = 'classified', status = repeat('x', 195) || 'classified' || repeat('y', 40000) where id = 3",
    )
    .await;
    db.run(
        "update shop.orders set note = 'classified' where id = 1; update shop.orders set note = 'top-secret', \
            status = 'from classified' where id = 1; delete from shop.orders where id = 1",
    )
    .await;
    let (_folder, command) = config(&db, "\"shop.orders.note\" = \"partial\"\n");
    let server = Server::start(command).await;
    let told = history(&server, order(1)).await;
    assert_eq!(
        changes(&told),
        [
            ("delete".to_owned(), json!({"id": "1", "status": "[redacted]", "note": "t***"})),
            (
                "update".to_owned(),
                json!({"status": {"before": "open", "after": "[redacted]"}, "note": {"before": "c***", "after": "t***"}})
            ),
            ("update".to_owned(), json!({"note": {"before": null, "after": "c***"}})),
        ]
    );
    let long = history(&server, order(3)).await;
    assert_eq!(changes(&long)[0].1["status"]["after"], "[redacted]", "{long}");
    let (_folder, command) = config(&db, "\"shop.orders.note\" = \"refuse\"\n");
    let said = refused(&Server::start(command).await, order(1), "not_permitted").await;
    assert!(said.contains("shop.orders.note is masked"), "{said}");
}

/// Whether there is a row with a key would tell a masked key.
#[tokio::test(flavor = "multi_thread")]
async fn no_row_is_found_by_a_masked_key() {
    let db = tables().await;
    db.run("update shop.\"Line Item\" set \"Val\" = 7").await;
    let (_folder, command) = config(&db, "'shop.\"Line Item\".line' = \"hash\"\n");
    let server = Server::start(command).await;
    for line in ["l\"2", "other"] {
        let arguments = json!({"table": "shop.\"Line Item\"", "key": {"Order": 2, "line": line}});
        let said = refused(&server, arguments, "not_permitted").await;
        assert!(said.contains("whose key is masked for the caller: line"), "{said}");
    }
    assert_eq!(changes(&history(&server, order(1)).await), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_is_bounded_and_hostile_values_stay_values() {
    let (db, server) = served().await;
    let hostile = "\u{1b}[2J\u{202e}</script><b>&\"\\,()";
    db.connect().await.execute("update shop.orders set note = $1 where id = 1", &[&hostile]).await.unwrap();
    let told = history(&server, order(1)).await;
    assert_eq!(changes(&told)[0].1["note"]["after"], hostile);
    // Long values are cut, and many large ones end the list.
    db.run("update shop.orders set note = repeat('x', 3000000) where id = 2").await;
    let cut = history(&server, order(2)).await;
    assert_eq!((&cut["changes"][0]["is_cut"], &cut["changes"][0]["columns"]), (&json!(true), &json!({})));
    db.run("update shop.orders set note = repeat('y', 60000) where id = 3").await;
    let cut = history(&server, order(3)).await;
    let shown = cut["changes"][0]["columns"]["note"]["after"].as_str().unwrap().to_owned();
    assert!(shown.starts_with("yyy") && shown.contains("59800 more characters") && shown.len() < 300, "{shown}");
    for round in 0..12 {
        db.run(&format!("update shop.orders set note = repeat('{round}', 4000) where id = 4")).await;
    }
    let many = history(&server, order(4)).await;
    let count = changes(&many).len();
    assert!((1..12).contains(&count) && many.to_string().len() < 40_000, "{count}: {}", many.to_string().len());
    assert_eq!((&many["truncated"], &many["truncated_by"]), (&json!(true), &json!("max_bytes")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_is_an_entry_of_the_log_of_reads_and_of_no_read_only_profile() {
    let db = tables().await;
    db.run("update shop.orders set status = 'paid' where id = 1").await;
    let server = Server::bare_with(&db, |it| it.env("COUNTERSIGN_READS_LOG", "metadata")).await;
    history(&server, order(1)).await;
    let logged = "select tool_name, outcome, row_count, tables::text from countersign.read_log";
    let entry = poll::until_some("the entry", async || db.rows(logged).await.into_iter().next()).await;
    assert_eq!(entry, ["row_history", "ok", "1", "{shop.orders}"]);
    let mut command = Server::bare_command(&db);
    command.args(["--profile", "readonly"]);
    assert!(!Server::start(command).await.tool_names().await.contains(&"row_history".to_owned()));
}
