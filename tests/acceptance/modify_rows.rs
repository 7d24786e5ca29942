//! `execute_sql` in the mode `rows`: an agent changes rows of tracked tables with SQL of its own, and nothing else.

mod attacks;

use serde_json::{Value, json};
use testkit::{Database, Server, arguments, database, run_countersign};

use crate::samples::sample;

/// Tables that a tool of this product was not made for: cascades, a history that a trigger writes, mixed-case names, a
/// partitioned table.
const SHOP: &str = "
create schema shop;
create table shop.customer (id int primary key, name text not null, credit int not null default 0);
create table shop.orders (id int generated always as identity primary key, customer int not null references shop.customer on delete cascade, note text);
create table shop.history (id bigint generated always as identity primary key, what text not null, at timestamptz not null default now());
create table shop.visit (id int, day date not null, primary key (id, day)) partition by range (day);
create table shop.visit_2026 partition of shop.visit for values from ('2026-01-01') to ('2027-01-01');
create table shop.\"Color Chart\" (\"No.\" int primary key, \"Name\" text);
insert into shop.customer select n, 'customer ' || n from generate_series(1, 12) n;
insert into shop.orders (customer, note) select n, 'first' from generate_series(1, 3) n, generate_series(1, 2);
insert into shop.visit values (1, '2026-03-01');
insert into shop.\"Color Chart\" values (1, 'red'), (2, 'blue');
create function shop.keep_history() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as
    $$ begin insert into shop.history (what) values (tg_op || ' ' || coalesce(new.id, old.id)); return null; end $$;
create trigger keep_history after update on shop.customer for each row execute function shop.keep_history();
grant usage on schema shop to countersign_writer, countersign_reader;
grant select on all tables in schema shop to countersign_reader;
grant select, insert, update, delete on all tables in schema shop to countersign_writer;
";

const TRACK: &str = "select countersign.track('shop.history', is_log => true), \
                     countersign.track(t) from unnest(array['shop.customer', 'shop.orders', 'shop.visit', \
                     'shop.\"Color Chart\"']::regclass[]) t";

async fn shop() -> Database {
    let db = database().await;
    db.run(SHOP).await;
    db.run(TRACK).await;
    db
}

/// The rows of the shop, without the history: an undo adds to it.
async fn rows(db: &Database) -> Vec<Vec<String>> {
    db.contents("shop").await.into_iter().filter(|row| row[0] != "history").collect()
}

async fn server(db: &Database, more: &[&str]) -> Server {
    Server::with(db, |it| it.args(["--profile", "write", "--execute-sql"]).args(more)).await
}

async fn auto(db: &Database) -> Server {
    server(db, &["--execute-sql-tier", "auto"]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_is_tried_shown_approved_executed_once_and_undone() {
    let db = shop().await;
    let server = server(&db, &[]).await;
    let before = rows(&db).await;
    let call = json!({"sql": "update shop.customer set credit = credit + $1 where id = any ($2) returning id, credit",
                      "params": [5, [1, 2]]});
    let shown = server.propose("execute_sql", call.clone()).await;
    assert_eq!(rows(&db).await, before);
    assert_eq!((&shown["tier"], &shown["preview"]["rows_affected"]), (&json!("confirm"), &json!(2)), "{shown}");
    assert_eq!(shown["preview"]["result"]["rows"], json!([{"id": 1, "credit": 5}, {"id": 2, "credit": 5}]), "{shown}");
    // Two customers, and two rows of the history that the trigger writes.
    assert_eq!(shown["preview"]["effects"]["count"], 4, "{shown}");
    assert_eq!(shown["preview"]["warnings"], Value::Null, "{shown}");
    assert_eq!(shown["preview"]["rollback"]["reversible"], true, "{shown}");

    let confirm = json!({"proposal_id": shown["proposal_id"], "digest": shown["digest"]});
    let done = server.succeed("confirm_proposal", confirm).await;
    let credits = "select string_agg(credit::text, ',' order by id) from shop.customer where id < 4";
    assert_eq!(db.value(credits).await, "5,5,0");
    // The same call again is answered from the record.
    let again = server.succeed("execute_sql", call).await;
    assert_eq!(again["data"]["duplicate"], true, "{again}");
    assert_eq!(db.value(credits).await, "5,5,0");
    let undo = json!({"correlation_id": done["meta"]["correlation_id"]});
    let undo = server.propose("undo_mutation", undo).await;
    server.succeed("confirm_proposal", json!({"proposal_id": undo["proposal_id"], "digest": undo["digest"]})).await;
    assert_eq!(rows(&db).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proposal_whose_rows_have_changed_is_stale() {
    let db = shop().await;
    let server = server(&db, &[]).await;
    let shown = server
        .propose("execute_sql", json!({"sql": "update shop.customer set credit = credit * 2 where id = 1"}))
        .await;
    db.run("update shop.customer set credit = 7 where id = 1").await;
    let confirm = json!({"proposal_id": shown["proposal_id"], "digest": shown["digest"]});
    server.fail("confirm_proposal", confirm, "proposal_stale").await;
    assert_eq!(db.value("select credit from shop.customer where id = 1").await, "7");
}

#[tokio::test(flavor = "multi_thread")]
async fn values_that_nobody_agreed_to_replace_are_not_replaced() {
    let db = shop().await;
    let server = server(&db, &[]).await;
    let call = json!({"sql": "update shop.customer set credit = 9 where id = 1"});
    let shown = server.propose("execute_sql", call).await;
    db.run("update shop.customer set credit = 7 where id = 1").await;
    let id = shown["proposal_id"].as_str().unwrap();
    let checked = run_countersign(&db.url(), &["proposals", "show", id, "--check"]).await.out;
    for part in ["the rows of shop.customer are not as they were shown", "0 -> 7", "not through countersign"] {
        assert!(checked.contains(part), "{part}: {checked}");
    }
    let confirm = json!({"proposal_id": shown["proposal_id"], "digest": shown["digest"]});
    server.fail("confirm_proposal", confirm, "proposal_stale").await;
    assert_eq!(db.value("select credit from shop.customer where id = 1").await, "7");
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_total_that_a_trigger_maintains_may_have_changed() {
    let db = shop().await;
    db.run(
        "create function shop.add_up() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as
             $$ begin update shop.customer set credit = credit + 1 where id = new.customer; return null; end $$;
         create trigger add_up after update of note on shop.orders for each row execute function shop.add_up()",
    )
    .await;
    let server = server(&db, &[]).await;
    let shown = server.propose("execute_sql", json!({"sql": "update shop.orders set note = 'b' where id = 1"})).await;
    db.run("update shop.customer set credit = 7 where id = 1").await;
    let confirm = json!({"proposal_id": shown["proposal_id"], "digest": shown["digest"]});
    server.succeed("confirm_proposal", confirm).await;
    assert_eq!(db.value("select credit from shop.customer where id = 1").await, "8");
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_form_of_a_change_is_executed_and_undone() {
    let db = shop().await;
    let server = auto(&db).await;
    for (sql, affected) in [
        ("insert into shop.customer (id, name) values (901, 'new'), (902, 'newer')", 2),
        (
            "insert into shop.customer values (1, 'again', 1) on conflict (id) do update set credit = excluded.credit + 1",
            1,
        ),
        ("insert into shop.customer values (1, 'again') on conflict do nothing", 0),
        ("insert into shop.customer select id + 1000, upper(name) from shop.customer where id < 3", 2),
        ("delete from shop.customer c using shop.orders o where o.customer = c.id and c.id = 3", 1),
        (
            "with gone as (delete from shop.orders where customer = 1 returning customer) \
          update shop.customer set credit = 9 where id in (select customer from gone)",
            1,
        ),
        ("with made as (insert into shop.customer values (950, 'x') returning id) select id from made", 1),
        ("update shop.visit set day = '2026-04-01' where id = 1", 1),
        ("insert into shop.visit_2026 values (7, '2026-05-05')", 1),
        ("update shop.\"Color Chart\" set \"Name\" = 'dark ' || \"Name\" where \"No.\" = 2", 1),
        ("/* a comment */ update shop.customer set name = $$it's; a -- text$$ where id = 8; -- the end", 1),
        (
            "merge into shop.customer c using (values (1, 10), (960, 20)) v (id, credit) on c.id = v.id \
          when matched then update set credit = v.credit when not matched then insert values (v.id, 'merged', v.credit)",
            2,
        ),
        ("merge into shop.customer c using (values (1)) v (id) on c.id = v.id when matched then do nothing", 0),
    ] {
        if sql.starts_with("merge") && db.cluster().version().major < 15 {
            continue;
        }
        let before = rows(&db).await;
        let done = server.succeed("execute_sql", json!({"sql": sql})).await;
        assert_eq!(done["meta"]["rows_affected"], affected, "{sql}: {done}");
        let rollback = &done["meta"]["rollback"];
        if affected == 0 {
            continue;
        }
        assert_eq!((&rollback["reversible"], &rollback["checked"]), (&json!(true), &json!(true)), "{sql}: {rollback}");
        assert_ne!(rows(&db).await, before, "{sql}");
        server.succeed("undo_mutation", rollback["undo_params"].clone()).await;
        assert_eq!(rows(&db).await, before, "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn more_rows_than_allowed_are_refused_with_cascades_and_triggers_counted() {
    let db = shop().await;
    let server = server(&db, &["--execute-sql-tier", "auto", "--execute-sql-max-rows", "5"]).await;
    let before = rows(&db).await;
    for (sql, count) in [
        ("insert into shop.customer select n, 'x' from generate_series(301, 306) n", 6),
        // Three customers, and a row of the history for each.
        ("update shop.customer set credit = 1 where id <= 3", 6),
        // Two customers, and two orders of each.
        ("delete from shop.customer where id <= 2", 6),
    ] {
        let error = server.fail("execute_sql", json!({"sql": sql}), "row_count_mismatch").await;
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(&format!("{count} row(s)")) && message.contains("at most 5"), "{sql}: {message}");
    }
    assert_eq!(rows(&db).await, before);
    server.succeed("execute_sql", json!({"sql": "update shop.customer set credit = 1 where id <= 2"})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_that_a_disabled_trigger_would_not_record_are_refused() {
    let db = shop().await;
    let server = server(&db, &["--execute-sql-tier", "auto", "--execute-sql-max-rows", "1"]).await;
    let before = rows(&db).await;
    for (table, sql) in [
        ("shop.customer", "update shop.customer set credit = 1"),
        // The trigger of customers writes the history.
        ("shop.history", "update shop.customer set credit = 1 where id = 1"),
        ("shop.visit_2026", "update shop.visit set day = '2026-04-01'"),
    ] {
        db.run(&format!("alter table {table} disable trigger user")).await;
        for (tool, call) in [
            ("execute_sql", json!({"sql": sql})),
            ("preview_mutation", json!({"tool": "execute_sql", "params": {"sql": sql}})),
        ] {
            let error = server.fail(tool, call, "not_permitted").await;
            let message = error["message"].as_str().unwrap();
            assert!(message.contains(&format!("{table} (its trigger is disabled)")), "{sql}: {message}");
        }
        // As the hint says.
        db.run(&format!("alter table {table} enable trigger user")).await;
        db.run(TRACK).await;
    }
    assert_eq!(rows(&db).await, before);
    server.succeed("execute_sql", json!({"sql": "update shop.visit set day = '2026-04-01'"})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_without_a_condition_is_marked() {
    let db = shop().await;
    let server = server(&db, &[]).await;
    for (sql, is_marked) in [
        ("update shop.\"Color Chart\" set \"Name\" = 'grey'", true),
        ("delete from shop.orders", true),
        ("update shop.visit set id = 9", true),
        ("update shop.orders set note = 'x' where true", true),
        ("update shop.orders set note = 'x' where id > 0", false),
        ("delete from shop.orders o using shop.customer c where c.id = o.customer", false),
        ("insert into shop.visit values (3, '2026-01-01')", false),
    ] {
        let shown = server.propose("execute_sql", json!({"sql": sql})).await;
        let table = shown["preview"]["unfiltered"].get(0).and_then(Value::as_str);
        assert_eq!(table.is_some_and(|table| table.starts_with("shop.")), is_marked, "{sql}: {shown}");
        // A preview says the same.
        let preview = server.succeed("preview_mutation", json!({"tool": "execute_sql", "params": {"sql": sql}})).await;
        assert_eq!(
            preview["data"]["warnings"].to_string().contains("every row of the table"),
            is_marked,
            "{sql}: {preview}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_operator_chooses_the_tables() {
    let db = shop().await;
    db.run("create table shop.plain (id int primary key); grant all on shop.plain to countersign_writer").await;
    let only = ["--execute-sql-tier", "auto", "--execute-sql-tables", "shop.orders,shop.Color Chart,shop.visit"];
    let narrow = server(&db, &only).await;
    narrow.succeed("execute_sql", json!({"sql": "update shop.orders set note = 'x' where id = 1"})).await;
    narrow.succeed("execute_sql", json!({"sql": "delete from shop.\"Color Chart\" where \"No.\" = 1"})).await;
    narrow.succeed("execute_sql", json!({"sql": "insert into shop.visit_2026 values (4, '2026-01-01')"})).await;
    let update = json!({"sql": "update shop.customer set credit = 3 where id = 1"});
    let error = narrow.fail("execute_sql", update.clone(), "not_permitted").await;
    assert!(error["message"].as_str().unwrap().contains("shop.customer is not among the tables"), "{error}");
    let wide = server(&db, &["--execute-sql-tier", "auto", "--execute-sql-tables", "shop.*"]).await;
    wide.succeed("execute_sql", update).await;
    let error = wide.fail("execute_sql", json!({"sql": "insert into shop.plain values (1)"}), "not_permitted").await;
    assert!(error["hint"].as_str().unwrap().contains("countersign track shop.plain"), "{error}");
    // A view cannot be tracked.
    db.run(
        "create view shop.seen as select id, count(*) as n from shop.plain group by id; grant insert on shop.seen to countersign_writer;
         create function shop.insert_seen() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as
             $$ begin insert into shop.customer values (new.id + 500, 'x'); return new; end $$;
         create trigger insert_seen instead of insert on shop.seen for each row execute function shop.insert_seen()",
    )
    .await;
    let error = wide.fail("execute_sql", json!({"sql": "insert into shop.seen values (1)"}), "not_permitted").await;
    assert!(error["hint"].as_str().unwrap().starts_with("shop.seen is a view: write to its tables"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_settings_of_the_page_limit_a_statement() {
    let db = shop().await;
    let folder = testkit::ConfigDir::new();
    let config = folder.write("page.toml", &sample("docs/topics/execute-sql.md", "execute_sql = \"rows\""));
    let server = Server::with(&db, |it| it.args(["--config", config.to_str().unwrap(), "--profile", "write"])).await;
    let insert = |rows: u32| json!({"sql": format!("insert into shop.customer select n, 'x' from generate_series(301, {}) n", 300 + rows)});
    server.propose("execute_sql", insert(100)).await;
    server.fail("execute_sql", insert(101), "row_count_mismatch").await;
    let elsewhere = json!({"sql": "delete from social.media where id = 1"});
    let error = server.fail("execute_sql", elsewhere, "not_permitted").await;
    assert!(error["message"].as_str().unwrap().starts_with("social.media is not"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn values_are_checked_and_errors_name_their_place() {
    let db = shop().await;
    let server = auto(&db).await;
    for (call, code, state) in [
        (
            json!({"sql": "update shop.customer set credit = $1 where id = 1", "params": ["many"]}),
            "invalid_params",
            "22P02",
        ),
        (json!({"sql": "update shop.customer set credit = $1 where id = 1"}), "invalid_params", ""),
        (json!({"sql": "update shop.customer set credit = 1 / (id - 1) where id = 1"}), "invalid_params", "22012"),
        (json!({"sql": "insert into shop.customer values (1, 'again')"}), "sql_error", "23505"),
        (json!({"sql": "updat shop.customer set credit = 1"}), "sql_error", "42601"),
        (json!({"sql": "update customers set credit = 1"}), "sql_error", "42P01"),
        (
            json!({"sql": "update shop.customer set credit = 1; update shop.customer set credit = 2"}),
            "sql_error",
            "42601",
        ),
        (json!({"sql": " -- nothing\n"}), "invalid_params", ""),
    ] {
        let error = server.fail("execute_sql", call.clone(), code).await;
        assert_eq!(error["sqlstate"].as_str().unwrap_or_default(), state, "{call}: {error}");
    }
    let error = server.fail("execute_sql", json!({"sql": "update shop.customer set nope = 1"}), "sql_error").await;
    assert_eq!(error["position"], 26, "{error}");
    assert_eq!(db.value("select count(*) from shop.customer where credit <> 0").await, "0");
    for (sql, hint) in [
        ("update customers set credit = 1", "The nearest tables that exist: shop.customer"),
        ("update shop.color_chart set credit = 1", "shop.\"Color Chart\""),
        ("update shop.customer set credits = 1", "The nearest columns that exist: credit (in shop.customer)"),
        ("update shop.customer set credit = 1; update shop.customer set credit = 2", "call once for each"),
    ] {
        let error = server.fail("execute_sql", json!({"sql": sql}), "sql_error").await;
        assert!(error["hint"].as_str().unwrap_or_default().contains(hint), "{sql}: {error}");
        let previewed = json!({"tool": "execute_sql", "params": {"sql": sql}});
        let previewed = server.fail("preview_mutation", previewed, "sql_error").await;
        assert_eq!(previewed["hint"], error["hint"], "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_with_masks_can_neither_execute_nor_preview() {
    let db = shop().await;
    let folder = testkit::ConfigDir::new();
    let config = folder.write(
        "masked.toml",
        "execute_sql = \"rows\"\nexecute_sql_tier = \"auto\"\n[mask]\n\"shop.customer.name\" = \"null\"\n",
    );
    let server = Server::with(&db, |it| it.args(["--config", config.to_str().unwrap(), "--profile", "write"])).await;
    let call = json!({"sql": "update shop.customer set credit = 1 where id = 1 returning name"});
    server.fail("execute_sql", call.clone(), "not_permitted").await;
    let preview = json!({"tool": "execute_sql", "params": call});
    server.fail("preview_mutation", preview, "not_permitted").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_profiles_write_and_admin_have_it() {
    let db = shop().await;
    for (profile, mode, is_served) in
        [("readonly", "rows", false), ("write", "rows", true), ("admin", "rows", true), ("write", "any", false)]
    {
        let server = Server::with(&db, |it| it.args(["--profile", profile, &format!("--execute-sql={mode}")])).await;
        assert_eq!(server.tool_names().await.contains(&"execute_sql".to_owned()), is_served, "{profile} {mode}");
    }
    let server = auto(&db).await;
    let call = arguments(json!({"sql": "update shop.customer set credit = 1 where id = 1"}));
    let answer = server.client().call("execute_sql", call).await.unwrap();
    assert!(!answer.is_error, "{}", answer.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_without_a_schema_are_those_of_reads_and_the_whole_name_is_agreed_to() {
    let db = shop().await;
    db.run(&format!(
        "alter database {} set search_path = shop, public; create schema spare; create table spare.orders (id int primary key);
         create table spare.single (id int primary key, v int); create table spare.twice (id int primary key);
         create table public.\"Twice\" (id int primary key); create schema other; create table other.twice (id int primary key);
         insert into spare.single values (1, 1); grant usage on schema spare, other to countersign_reader, countersign_writer;
         grant select on all tables in schema spare, other to countersign_reader, countersign_writer;
         grant insert, update, delete on all tables in schema spare, other to countersign_writer;
         select countersign.track(t) from unnest(array['spare.single', 'spare.twice', 'other.twice']::regclass[]) t",
        db.name()
    ))
    .await;
    let server = server(&db, &[]).await;
    let sql = "update orders set note = (select max(name) from \"customer\") where orders.id = 1";
    let proposal = server.propose("execute_sql", json!({"sql": sql})).await;
    let whole = "update shop.orders set note = (select max(name) from shop.customer) where orders.id = 1";
    assert_eq!(proposal["params"]["sql"], whole, "{proposal}");
    assert_eq!(proposal["preview"]["effects"]["rows"][0]["table"], "shop.orders", "{proposal}");
    let preview = json!({"tool": "execute_sql", "params": {"sql": sql}});
    assert_eq!(server.succeed("preview_mutation", preview).await["data"]["rows_affected"], 1);
    // Not in the path, and the only one of its name.
    let proposal = server.propose("execute_sql", json!({"sql": "update single set v = 2"})).await;
    assert_eq!(proposal["params"]["sql"], "update spare.single set v = 2");
    // A name within the statement stays, and so does one that may be several tables.
    let cte = "with orders as (select 1 as id) update spare.single set v = 3 where id in (select id from orders)";
    assert_eq!(server.propose("execute_sql", json!({"sql": cte})).await["params"]["sql"], cte);
    let error = server.fail("execute_sql", json!({"sql": "delete from twice"}), "sql_error").await;
    assert!(error["message"].as_str().unwrap().contains("\"twice\" does not exist"), "{error}");
}
