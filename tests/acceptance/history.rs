//! Rows of tracked tables as they were: `audit row --at` and `audit table --at`, compared with what the tables were.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use testkit::audit::audit;
use testkit::{CommandOutput, Database, Server, TestManifest, database, run_countersign};

use crate::hospital::{TABLES, calls, hospital};
use crate::shop::{DROP_ORDER, SET_STATUS, SHOP};

/// The rows of a table without the ledger: each a JSON object with the text of every column.
const SNAPSHOT: &str = "create function public.snapshot(of regclass) returns text language plpgsql
    set timezone = utc set datestyle = 'iso, ymd' set intervalstyle = postgres set bytea_output = hex set lc_monetary = 'C' as $$
declare
    found text;
begin
    execute (select format('select coalesce(json_agg(json_build_object(%s)), ''[]'')::text from %s',
                string_agg(format('%L, case when %I is null then null else format(''%%s'', %I) end', attname, attname, attname), ', '), of)
             from pg_attribute where attrelid = of and attnum > 0 and not attisdropped) into found;
    return found;
end $$";

async fn now(db: &Database) -> String {
    db.value("select to_char(clock_timestamp() at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')").await
}

async fn snapshot(db: &Database, table: &str) -> Vec<Map<String, Value>> {
    let text = db.value(&format!("select public.snapshot('{table}')")).await;
    serde_json::from_str(&text).expect("an array of rows")
}

async fn past(url: &str, arguments: &[&str]) -> Value {
    let CommandOutput { code, out, err } =
        run_countersign(url, &[&["audit"][..], arguments, &["--json"]].concat()).await;
    assert_eq!((code, err.as_str()), (0, ""), "{arguments:?}: {out}");
    serde_json::from_str(&out).expect("one object")
}

async fn refused(url: &str, arguments: &[&str]) -> String {
    let CommandOutput { code, out, err } = run_countersign(url, &[&["audit"][..], arguments].concat()).await;
    assert_eq!((code, out.as_str()), (1, ""), "{arguments:?}: {err}");
    err
}

/// A migration, and what a server does about it.
async fn renew(db: &Database, sql: &str) {
    db.run(sql).await;
    db.run("select countersign.renew_shapes()").await;
}

fn as_text(rows: impl Iterator<Item = Map<String, Value>>) -> BTreeSet<String> {
    rows.map(|row| json!(row.into_iter().collect::<std::collections::BTreeMap<_, _>>()).to_string()).collect()
}

/// The known columns of each row that the command shows.
fn shown(past: &Value) -> BTreeSet<String> {
    as_text(past["rows"].as_array().unwrap().iter().map(|row| row["columns"].as_object().unwrap().clone()))
}

fn statuses(past: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let mut all: Vec<(String, String)> = past["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (text(&row["columns"]["id"]), text(&row["columns"]["status"])))
        .collect();
    all.sort();
    all
}

/// The shop, tracked with every writer's changes or with those of servers only.
async fn shop(all_writers: bool) -> (Database, Server) {
    let db = database().await;
    db.run(SHOP).await;
    if all_writers {
        db.run(
            "select countersign.track(t, all_writers => true) from unnest('{shop.orders, shop.item}'::regclass[]) t",
        )
        .await;
    }
    let server = TestManifest::new(&format!("{SET_STATUS}{DROP_ORDER}")).serve(&db).await;
    (db, server)
}

/// A small generator, so that a failure is repeated by its seed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    /// A statement of somebody outside countersign.
    fn statement(&mut self) -> String {
        let (n, m) = (self.below(12) + 1, self.below(9) + 1);
        match self.below(11) {
            0 => format!("update hospital.prescription set times_per_day = {m} where id = {n}"),
            1 => format!("delete from hospital.prescription where id = {n}"),
            2 => format!(
                "insert into hospital.prescription (admission_id, medication_id, times_per_day, note) values ({n}, {m}, 1, repeat('x', {n} * 400))"
            ),
            3 => format!(
                "update \"Billing\".\"Invoice\" set total = total + {m}, lines = lines || '[{m}]' where \"InvoiceNo\" = 'INV-{n}'"
            ),
            4 => format!("insert into \"Billing\".payment (invoice_no, paid, iban) values ('INV-{n}', {m}, null)"),
            5 => format!("delete from \"Billing\".payment where id = {n}"),
            6 => format!(
                "update hospital.setting set key = key || '{m}', value = to_jsonb({n}) where key not like '%{m}%'"
            ),
            7 => format!(
                "update hospital.equipment set location = point({m}, {n}), serviced = daterange('2026-01-0{m}', null) where ward_id = {n}"
            ),
            8 => format!("delete from staffing.shift_employee where shift_id = {n}"),
            9 => format!(
                "insert into staffing.shift_employee values ({n}, {m}) on conflict (shift_id, employee_id) do update set hours = '{m} hours 30 minutes'"
            ),
            _ => format!(
                "update staffing.shift_employee set employee_id = 40 + {m} where shift_id = {n} and employee_id = {m}"
            ),
        }
    }
}

const WATCHED: [&str; 6] = [
    "hospital.prescription",
    "\"Billing\".\"Invoice\"",
    "\"Billing\".payment",
    "hospital.setting",
    "hospital.equipment",
    "staffing.shift_employee",
];

#[tokio::test(flavor = "multi_thread")]
async fn tables_are_read_as_they_were_after_any_changes() {
    let Some((db, manifest)) = hospital().await else { return };
    db.run(SNAPSHOT).await;
    let track = [&["track", "--all-writers"][..], TABLES].concat();
    assert_eq!(run_countersign(&db.url(), &track).await.code, 0);
    let server = manifest.serve(&db).await;
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    let mut calls = calls(&db).await.into_iter();
    let mut remembered = Vec::new();
    for step in 0..8 {
        let mut rows = Vec::new();
        for table in WATCHED {
            rows.push((table, snapshot(&db, table).await));
        }
        remembered.push((now(&db).await, rows));
        for _ in 0..6 {
            let several: Vec<String> = (0..=random.below(3)).map(|_| random.statement()).collect();
            db.run(&format!("begin; {}; commit", several.join("; "))).await;
        }
        if let Some((tool, arguments)) = calls.next() {
            server.succeed(tool, arguments).await;
        }
        match step {
            2 => renew(&db, "alter table hospital.prescription add column risk int default 3").await,
            5 => renew(&db, "alter table hospital.prescription drop column active; alter table hospital.equipment rename column kind to sort").await,
            _ => {}
        }
    }
    let url = db.url();
    let mut compared = 0;
    for (at, tables) in &remembered {
        for (table, rows) in tables {
            let found = past(&url, &["table", table, "--at", at, "--limit", "100000"]).await;
            let unknown: Vec<&str> = found["unknown_columns"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|it| it["column"].as_str())
                .collect();
            let wanted = as_text(rows.iter().map(|row| {
                let renamed = row.clone().into_iter().map(|(name, value)| match name.as_str() {
                    "kind" if *table == "hospital.equipment" => ("sort".to_owned(), value),
                    _ => (name, value),
                });
                renamed.filter(|(name, _)| !unknown.contains(&name.as_str())).collect()
            }));
            let shown = shown(&found);
            let (extra, missing): (Vec<_>, Vec<_>) =
                (shown.difference(&wanted).collect(), wanted.difference(&shown).collect());
            assert!(extra.is_empty() && missing.is_empty(), "{table} at {at}: {extra:#?} instead of {missing:#?}");
            assert!(found["unknown_rows"].is_null() && found["gaps"].is_null(), "{table} at {at}: {found:#}");
            assert_eq!(found["is_complete"], json!(unknown.is_empty()), "{table} at {at}");
            compared += rows.len();
        }
    }
    assert!(compared > 10_000, "{compared} rows");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_was_not_recorded_makes_a_row_unknown() {
    for all_writers in [false, true] {
        let (db, server) = shop(all_writers).await;
        let url = db.url();
        server.succeed("set_status", json!({"id": 1, "status": "paid"})).await;
        server.succeed("set_status", json!({"id": 2, "status": "paid"})).await;
        let before = now(&db).await;
        db.run("update shop.orders set status = 'by hand' where id = 1").await;
        let after = now(&db).await;
        server.succeed("set_status", json!({"id": 1, "status": "sent"})).await;
        db.run("update shop.orders set status = 'by hand' where id = 2").await;
        let one = async |at: &str, id: &str| past(&url, &["row", "shop.orders", id, "--at", at]).await;
        let known = |status: &str| json!([{"key": {"id": 1}, "columns": {"id": "1", "status": status}}]);
        let (first, second, other) = (one(&before, "1").await, one(&after, "1").await, one(&after, "2").await);
        let all = past(&url, &["table", "shop.orders", "--at", &after]).await;
        if all_writers {
            assert_eq!((&first["rows"], &second["rows"]), (&known("paid"), &known("by hand")));
            assert_eq!(other["rows"][0]["columns"]["status"], "paid");
            assert_eq!((&all["is_complete"], all["rows"].as_array().unwrap().len()), (&json!(true), 9), "{all:#}");
        } else {
            // The recorded changes are open -> paid, by hand -> sent: when it became by hand is not known.
            for unknown in [&first, &second] {
                assert_eq!((&unknown["rows"], &unknown["unknown_rows"]), (&json!([]), &json!([{"id": 1}])));
            }
            // Its last recorded change left it paid, and it is not paid now.
            assert_eq!(other["unknown_rows"], json!([{"id": 2}]));
            assert_eq!((&all["gaps"], &all["is_complete"]), (&json!(["outside_not_recorded"]), &json!(false)));
            assert_eq!(all["rows"].as_array().unwrap().len(), 7);
            let said = audit(&db, &["row", "shop.orders", "1", "--at", &after]).await;
            assert!(said.contains("id=1: not known: ") && said.contains("track --all-writers"), "{said}");
        }
        // Rows that came and went.
        let there = now(&db).await;
        server.succeed("drop_order", json!({"id": 7})).await;
        assert_eq!(one(&there, "7").await["rows"][0]["columns"]["status"], "open");
        let now = now(&db).await;
        let gone = one(&now, "7").await;
        assert_eq!((&gone["rows"], &gone["unknown_rows"]), (&json!([]), &Value::Null));
        let said = audit(&db, &["row", "shop.orders", "7", "--at", &now]).await;
        assert!(said.contains("\n  no row\n"), "{said}");
    }
}

/// A transaction counts by its last recorded change, whenever it committed: half of one is never shown.
#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_counts_as_a_whole() {
    let (db, _server) = shop(true).await;
    let url = db.url();
    let all = async |at: &str| statuses(&past(&url, &["table", "shop.orders", "--at", at]).await);
    let changed = |statuses: &[(String, String)]| -> Vec<String> {
        statuses.iter().filter(|(_, status)| status != "open").map(|(id, _)| id.clone()).collect()
    };
    let (across, before) = (db.connect().await, db.connect().await);
    across.batch_execute("begin; update shop.orders set status = 'across' where id = 1").await.unwrap();
    // A subtransaction has an id of its own.
    before
        .batch_execute("begin; savepoint s; update shop.orders set status = 'before' where id = 3; release s")
        .await
        .unwrap();
    before.batch_execute("update shop.orders set status = 'before' where id = 4").await.unwrap();
    let at = now(&db).await;
    assert!(changed(&all(&at).await).is_empty(), "what has not committed is not there");
    across.batch_execute("savepoint s; update shop.orders set status = 'across' where id = 2; commit").await.unwrap();
    before.batch_execute("commit").await.unwrap();
    db.run("update shop.orders set status = 'later' where id in (1, 3)").await;
    let found = all(&at).await;
    assert_eq!(changed(&found), ["3", "4"]);
    assert_eq!(found[2].1, "before");
    assert_eq!(changed(&all(&now(&db).await).await), ["1", "2", "3", "4"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_state_is_shown_of_a_time_of_which_nothing_is_known() {
    let db = database().await;
    let before = now(&db).await;
    db.run(SHOP).await;
    let url = db.url();
    let table = async |at: &str| run_countersign(&url, &["audit", "table", "shop.orders", "--at", at]).await;
    let track = "select countersign.track('shop.orders', all_writers => true)";
    db.run(track).await;
    let said = refused(&url, &["table", "shop.orders", "--at", &before]).await;
    assert!(said.contains(" are not known: its changes are recorded since 20"), "{said}");
    assert!(refused(&url, &["row", "shop.orders", "1", "--at", &before]).await.contains(" are not known: "));
    assert!(refused(&url, &["table", "shop.orders", "--at", "2999-01-01"]).await.contains("in the future"));
    let said = refused(&url, &["table", "shop.nothing", "--at", "1h"]).await;
    assert!(said.contains("shop.nothing is not tracked"), "{said}");

    // Neither what happened while it was not tracked, nor while its trigger was away.
    for gap in ["select countersign.untrack('shop.orders')", "alter table shop.orders disable trigger \"!countersign\""]
    {
        let at = now(&db).await;
        assert_eq!(table(&at).await.code, 0);
        db.run(&format!("{gap}; update shop.orders set status = 'unseen' where id = 1")).await;
        db.run(track).await;
        assert!(table(&at).await.err.contains("its changes are recorded since"), "{gap}");
        assert_eq!(table(&now(&db).await).await.code, 0);
    }
    // A renewed tracking is no gap.
    let at = now(&db).await;
    db.run(track).await;
    assert_eq!(table(&at).await.code, 0);

    let said = refused(&url, &["table", "shop.orders", "--at", &at, "--where", "secret=1"]).await;
    assert!(said.contains("no row is found by secret"), "{said}");
    let at = now(&db).await;
    db.run("update shop.orders set status = 'sent' where id = 3").await;
    let few = past(&url, &["table", "shop.orders", "--at", &at, "--where", "status=unseen", "--where", "id=1"]).await;
    assert_eq!(statuses(&few), [("1".to_owned(), "unseen".to_owned())]);
    let few = past(&url, &["table", "shop.orders", "--at", &at, "--where", "status=open", "--limit", "4"]).await;
    assert_eq!((few["rows"].as_array().unwrap().len(), &few["is_cut"]), (4, &json!(true)));

    db.run("begin; truncate shop.orders cascade; insert into shop.orders values (1, 'new'); commit").await;
    assert!(table(&at).await.err.contains("TRUNCATE removed its rows at 20"));
    assert_eq!(statuses(&past(&url, &["table", "shop.orders", "--at", &now(&db).await]).await).len(), 1);

    let at = now(&db).await;
    renew(&db, "alter table shop.orders rename column id to number").await;
    assert!(table(&at).await.err.contains("its key was changed"));
    db.run("alter table shop.orders drop constraint orders_pkey cascade").await;
    assert!(table(&at).await.err.contains("run `countersign track` again"));
}

/// Pruning removes the changes of whole transactions, and with them what was before.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_pruned_is_not_known() {
    let (db, _server) = shop(true).await;
    let url = db.url();
    db.run("update shop.orders set status = 'old' where id = 1").await;
    db.run("begin; update shop.orders set status = 'spans' where id = 2; update shop.orders set status = 'spans' where id = 3; commit").await;
    // As if it had all happened earlier, and the last transaction had lasted for four days.
    db.run(
        "alter table countersign.effect disable trigger protect_effect;
         update countersign.effect set changed_at = changed_at - interval '4 days' where key <> '{\"id\": 3}';
         alter table countersign.effect enable trigger protect_effect;
         update countersign.tracked set unbroken_since = now() - interval '9 days', all_writers_since = now() - interval '9 days',
             since = now() - interval '9 days';
         update countersign.identity set since = now() - interval '9 days'",
    )
    .await;
    let at = async |time: &str| statuses(&past(&url, &["table", "shop.orders", "--at", time]).await);
    assert_eq!(at("5d").await[0].1, "open");
    audit(&db, &["prune", "--older-than", "2d"]).await;
    assert_eq!(db.value("select count(*) from countersign.effect").await, "2");
    assert!(refused(&url, &["table", "shop.orders", "--at", "5d"]).await.contains("were pruned"));
    let found = at("1d").await;
    assert_eq!((found[0].1.as_str(), found[1].1.as_str(), found[2].1.as_str()), ("old", "open", "open"));
}

#[tokio::test(flavor = "multi_thread")]
async fn columns_that_are_not_known_are_said() {
    let db = database().await;
    db.run(
        "create schema shop; create table shop.orders (id int generated always as identity primary key, \"Status\" text, secret text, note text,
             cents int, euros numeric generated always as (cents / 100.0) stored);
         insert into shop.orders (\"Status\", secret, note, cents) select 'open', 'hunter2', repeat('n', 2000), g from generate_series(1, 3) g;
         select countersign.track('shop.orders', sensitive => '{secret}', all_writers => true)",
    )
    .await;
    let url = db.url();
    let at = now(&db).await;
    db.run("update shop.orders set \"Status\" = 'paid', secret = 'swordfish' where id = 1").await;
    let first = past(&url, &["row", "shop.orders", "1", "--at", &at]).await;
    let columns = &first["rows"][0]["columns"];
    assert_eq!((&columns["Status"], &columns["cents"]), (&json!("open"), &json!("1")));
    assert_eq!(columns["euros"].as_str().unwrap().trim_end_matches('0'), "0.01");
    assert_eq!(columns["note"].as_str().unwrap().len(), 2000);
    assert_eq!(first["unknown_columns"], json!([{"column": "secret", "reason": "sensitive"}]));
    assert!(!first.to_string().contains("hunter2"), "{first}");

    // What somebody does between the migration and its renewal is not told by columns that it does not have.
    db.run("alter table shop.orders add column risk int default 3, alter column cents type bigint using cents * 100, drop column euros").await;
    db.run("update shop.orders set \"Status\" = 'odd' where id = 2").await;
    db.run("select countersign.renew_shapes(); update shop.orders set \"Status\" = 'sent', risk = 4 where id = 1")
        .await;
    let all = past(&url, &["table", "shop.orders", "--at", &at]).await;
    let wanted = json!([
        {"column": "secret", "reason": "sensitive"},
        {"column": "cents", "reason": "type_changed"},
        {"column": "euros", "reason": "dropped"},
        {"column": "risk", "reason": "added"}
    ]);
    assert_eq!(all["unknown_columns"], wanted);
    assert_eq!(all["unknown_rows"], json!([{"id": 2}]), "{all:#}");
    let rows = all["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2);
    let names: Vec<&String> = rows[0]["columns"].as_object().unwrap().keys().collect();
    assert_eq!(names, ["id", "Status", "note"]);
    assert_eq!((&rows[0]["columns"]["Status"], &rows[1]["columns"]["Status"]), (&json!("open"), &json!("open")));
    let said = audit(&db, &["table", "shop.orders", "--at", &at]).await;
    assert!(said.contains("Column risk: not known, it was added since"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_sees_no_rows_that_it_may_not_read() {
    let (db, server) = shop(true).await;
    let at = now(&db).await;
    server.succeed("set_status", json!({"id": 1, "status": "paid"})).await;
    let reviewer = db.login("reviewer", "countersign_approver").await;
    let said = refused(&reviewer, &["table", "shop.orders", "--at", &at]).await;
    assert!(said.contains("this login may not read: it needs SELECT on the table"), "{said}");
    // The changes themselves are in the ledger, which it reads.
    let one = past(&reviewer, &["row", "shop.orders", "1", "--at", &at]).await;
    assert_eq!((&one["rows"][0]["columns"]["status"], &one["gaps"]), (&json!("open"), &json!(["not_compared"])));
    let other = past(&reviewer, &["row", "shop.orders", "2", "--at", &at]).await;
    assert_eq!((&other["rows"], &other["unknown_rows"]), (&json!([]), &json!([{"id": 2}])));
    // Row security is said, and its functions cannot write.
    db.run(
        "grant usage on schema shop to public; grant select on shop.orders to public; create table shop.seen (id int);
         grant insert on shop.seen to public; create function shop.see(id int) returns boolean language plpgsql as
             'begin insert into shop.seen values (id); return true; end';
         alter table shop.orders enable row level security; create policy one on shop.orders using (id < 4)",
    )
    .await;
    let hidden = past(&reviewer, &["table", "shop.orders", "--at", &at]).await;
    assert_eq!((&hidden["gaps"], hidden["rows"].as_array().unwrap().len()), (&json!(["row_security"]), 3));
    db.run("alter policy one on shop.orders using (shop.see(id))").await;
    let said = refused(&reviewer, &["table", "shop.orders", "--at", &at]).await;
    assert!(said.contains("read-only transaction"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn partitions_and_keys_of_several_columns_are_read_as_they_were() {
    let db = database().await;
    db.run(SNAPSHOT).await;
    db.run(
        "create table \"Shop Items\" (\"Order\" int, line text, \"Val\" numeric, at timestamptz default now(), primary key (\"Order\", line))
             partition by hash (line);
         create table p0 partition of \"Shop Items\" for values with (modulus 2, remainder 0);
         create table p1 (line text not null, \"Order\" int not null, at timestamptz, \"Val\" numeric);
         alter table \"Shop Items\" attach partition p1 for values with (modulus 2, remainder 1);
         insert into \"Shop Items\" select g, 'l\"' || g, g * 1.5 from generate_series(1, 8) g;
         select countersign.track('\"Shop Items\"', all_writers => true)",
    )
    .await;
    let (before, at) = (snapshot(&db, "\"Shop Items\"").await, now(&db).await);
    db.run("update \"Shop Items\" set line = line || line, \"Val\" = 0 where \"Order\" < 6; delete from \"Shop Items\" where \"Order\" = 7").await;
    let url = db.url();
    let found = past(&url, &["table", "public.\"Shop Items\"", "--at", &at]).await;
    assert_eq!(shown(&found), as_text(before.into_iter()));
    assert_eq!(found["gaps"], json!(["partitions"]));
    let one = past(&url, &["row", "public.\"Shop Items\"", "Order=7,line=l\"7", "--at", &at]).await;
    assert_eq!(one["rows"][0]["columns"]["Val"], "10.5");
    let one = past(&url, &["row", "public.\"Shop Items\"", "Order=1,line=l\"1l\"1", "--at", &at]).await;
    assert_eq!((&one["rows"], &one["unknown_rows"]), (&json!([]), &Value::Null));
}

/// 100,000 changes, by the indexes that there are.
#[tokio::test(flavor = "multi_thread")]
async fn many_changes_are_answered_in_bounded_time() {
    let (db, _server) = shop(true).await;
    let at = now(&db).await;
    db.run("insert into shop.orders select g from generate_series(10, 10000) g").await;
    for round in 0..9 {
        db.run(&format!("update shop.orders set status = 'round {round}'")).await;
    }
    let url = db.url();
    let started = std::time::Instant::now();
    assert_eq!(past(&url, &["table", "shop.orders", "--at", &at]).await["rows"].as_array().unwrap().len(), 9);
    let whole = started.elapsed();
    let one = past(&url, &["row", "shop.orders", "7", "--at", &at]).await;
    assert_eq!(one["rows"][0]["columns"]["status"], "open");
    assert!(whole.as_secs() < 60, "{whole:?}");
    println!("{} changes: the table in {whole:?}", db.value("select count(*) from countersign.effect").await);
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
    renew(&db, "update public.page set content = 'short'").await;
    db.run("update public.page set content = 'shorter'").await;
    let rows = past(&db.url(), &["table", "public.page", "--at", &now(&db).await]).await;
    assert_eq!(rows["rows"][0]["columns"]["content"], "shorter", "{rows}");
}
