//! A migration is an ordinary day (N-3): a server starts and goes on whatever a migration did. The tools that still fit are served,
//! and the others say what does not fit.

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use testkit::{Database, HttpServer, Server, TestManifest, database, run_countersign, send_signal};
use tokio::process::Command;

/// A shop whose table `orders` is tracked, and whose table `log` is not.
const SHOP: &str = "create schema shop;
    create table shop.orders (id bigint primary key, name varchar(20) not null, price numeric);
    create table shop.log (id bigint primary key, line text);
    insert into shop.orders values (1, 'one', 1.5), (2, 'two', 2.5); insert into shop.log values (1, 'l');
    grant usage on schema shop to public; grant all on all tables in schema shop to public";

const TOOLS: &str = r#"
[[tool]]
name = "rename"
access = "write"
description = "Rename it."
sql = "update shop.orders set name = $2 where id = $1 returning id, name"
rows = "one"
param = [{ name = "id", description = "Which." }, { name = "name", description = "Its name." }]

[[tool]]
name = "reprice"
access = "write"
description = "Set its price."
sql = "update shop.orders set price = $2 where id = $1 returning id"
rows = "one"
param = [{ name = "id", description = "Which." }, { name = "price", description = "Its price." }]
undo = { tool = "refund", params = { id = "param.id" } }

[[tool]]
name = "refund"
access = "write"
description = "Take its price away."
sql = "update shop.orders set price = null where id = $1 and name <> '' returning id"
rows = "one"
param = [{ name = "id", description = "Which." }]

[[tool]]
name = "note"
access = "write"
description = "Add a line."
sql = "insert into shop.log (id) values ($1) returning id"
rows = "one"
param = [{ name = "id", description = "Which." }]
undo = { tool = "unnote", params = { id = "param.id" } }

[[tool]]
name = "unnote"
access = "write"
description = "Remove a line."
sql = "delete from shop.log where id = $1 and line is not null returning id"
rows = "one"
param = [{ name = "id", description = "Which." }]
undo = { irreversible = "It is gone." }

[[tool]]
name = "show"
access = "read"
description = "Show the prices."
sql = "select id, price from shop.orders order by id"

[[note]]
on = "shop.orders.name"
text = "As printed."
"#;

async fn shop() -> (Database, TestManifest) {
    let db = database().await;
    db.run(SHOP).await;
    succeed(&db, &["track", "shop.orders"]).await;
    (db, TestManifest::new(TOOLS))
}

async fn succeed(db: &Database, arguments: &[&str]) -> String {
    let said = run_countersign(&db.url(), arguments).await;
    assert_eq!(said.code, 0, "{arguments:?}: {said:?}");
    said.out
}

fn names(tools: &[&str]) -> Vec<String> {
    let own = ["rename", "reprice", "refund", "note", "unnote", "show"];
    own.into_iter().filter(|name| tools.contains(name)).map(str::to_owned).collect()
}

async fn served(server: &Server) -> Vec<String> {
    let own = ["rename", "reprice", "refund", "note", "unnote", "show"];
    server.tool_names().await.into_iter().filter(|name| own.contains(&name.as_str())).collect()
}

fn arguments(manifest: &TestManifest) -> (String, Command) {
    let mut command = Command::new(testkit::countersign());
    command.args(["--log", "info", "serve", "--http", "127.0.0.1:0"]).args(manifest.arguments()).kill_on_drop(true);
    (manifest.path().to_str().unwrap().to_owned(), command)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_starts_whatever_a_migration_did() {
    // N-3
    let (db, manifest) = shop().await;
    db.run("alter table shop.orders rename column name to title; alter table shop.log drop column line").await;
    let server = manifest.serve(&db).await;
    // `note` is not tracked, and goes with its undo tool. The undo tool of `reprice` goes, and its recorded changes stay.
    assert_eq!(served(&server).await, names(&["reprice", "show"]));
    server.succeed("reprice", json!({"id": 1, "price": 3})).await;
    assert_eq!(server.succeed("show", json!({})).await["data"]["rows"][0]["price"], json!(3));
    for (tool, why) in [("rename", "\"name\""), ("refund", "\"name\""), ("unnote", "\"line\""), ("note", "unnote")] {
        let wrong = json!({"unknown": true});
        let error = server.fail(tool, wrong, "tool_outdated").await;
        assert_eq!(error["retryable"], false, "{error}");
        let (message, hint) = (error["message"].as_str().unwrap(), error["hint"].as_str().unwrap());
        assert!(message.contains(why), "{tool}: {message}");
        assert!(message.contains("does not fit the database") && hint.contains("operator"), "{error}");
        assert!(!message.contains("test.toml"), "{message}");
    }
    let preview = json!({"tool": "rename", "params": {"id": 1, "name": "x"}});
    server.fail("preview_mutation", preview, "tool_outdated").await;

    // Each mistake is in the log, in doctor and in readyz, and check and --strict refuse them all.
    let (path, mut command) = arguments(&manifest);
    command.env("DATABASE_URL", db.writer_url());
    let http = HttpServer::start(command).await;
    let ready: Value = serde_json::from_str(
        &http.http_client().send(http.http_client().request(reqwest::Method::GET, "/readyz")).await.body,
    )
    .unwrap();
    assert_eq!(ready["status"], "degraded", "{ready}");
    let tools: Vec<&str> =
        ready["not_served"].as_array().unwrap().iter().map(|it| it["tool"].as_str().unwrap()).collect();
    assert_eq!(tools, ["rename", "refund", "unnote", "note"], "{ready}");
    assert!(ready["not_served"][0]["reason"].as_str().unwrap().contains("\"name\""), "{ready}");
    let strict = manifest.compile_error(&db).await;
    let check = run_countersign(&db.url(), &["check", "--manifest", &path]).await;
    let doctor = run_countersign(&db.url(), &["doctor", "--manifest", &path]).await;
    assert_eq!((check.code, doctor.code), (1, 1));
    for tool in ["rename", "refund", "unnote", "note"] {
        let line = format!("tool {tool}: ");
        for said in [&http.log(), &strict, &check.err, &doctor.out] {
            assert!(said.contains(&line), "{line} in {said}");
        }
    }
    // The note as well.
    http.logged("column \"name\" does not exist").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_or_a_profile_that_is_wrong_by_itself_still_stops_a_start() {
    // N-3
    let (db, _) = shop().await;
    for (text, said) in [
        (format!("{TOOLS}\n[[tool]]\nname = 'no name'"), "no name"),
        (format!("{TOOLS}\n[[tool"), "this is not TOML"),
        (TOOLS.replace("access = \"read\"", "acces = \"read\""), "acces"),
    ] {
        let manifest = TestManifest::new(&text);
        let path = manifest.path().to_str().unwrap().to_owned();
        let refused = run_countersign(&db.url(), &["serve", "--manifest", &path]).await;
        assert_eq!(refused.code, 1);
        assert!(refused.err.contains(said), "{said}: {}", refused.err);
    }
}

/// Migrations after which every tool still fits.
const HARMLESS: [&str; 6] = [
    "alter table shop.orders add column extra text",
    "alter table shop.orders add column doubled numeric generated always as (price * 2) stored",
    "alter table shop.orders alter column name type text",
    "create index on shop.orders (name)",
    "alter table shop.orders add column gone text; alter table shop.orders drop column gone",
    "alter table shop.orders add constraint positive check (price > 0)",
];

#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_tracked_tables_starts_after_columns_were_added_or_widened() {
    // N-3
    for migration in HARMLESS {
        let (db, manifest) = shop().await;
        db.run(migration).await;
        let server = manifest.serve(&db).await;
        assert_eq!(served(&server).await.len(), 6, "{migration}");
        server.succeed("rename", json!({"id": 1, "name": "eins"})).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_server_follows_the_database_and_tells_its_clients() {
    // N-3
    let (db, manifest) = shop().await;
    let mut command = manifest.command(&db);
    command.args(["--drift-check-ms", "100"]);
    let server = Server::start(command).await;
    let mut changes = server.client().tool_changes();
    assert_eq!(served(&server).await.len(), 6);
    for (migration, left) in [
        ("alter table shop.orders rename column name to title", &["reprice", "note", "unnote", "show"][..]),
        (
            "alter table shop.orders rename column title to name",
            &["rename", "reprice", "refund", "note", "unnote", "show"],
        ),
        ("drop table shop.log", &["rename", "reprice", "refund", "show"]),
        (
            "create table shop.log (id bigint primary key, line text); grant all on shop.log to public",
            &["rename", "reprice", "refund", "note", "unnote", "show"],
        ),
        ("revoke all on shop.log from public, countersign_writer", &["rename", "reprice", "refund", "show"]),
    ] {
        db.run(migration).await;
        let told = tokio::time::timeout(std::time::Duration::from_secs(20), changes.changed()).await;
        assert!(told.is_ok_and(|told| told.is_ok()), "{migration}");
        assert_eq!(served(&server).await, names(left), "{migration}");
    }
    server.fail("note", json!({"id": 5}), "tool_outdated").await;
    server.succeed("rename", json!({"id": 2, "name": "zwei"})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trigger_that_a_session_has_planned_does_not_outlive_a_columns_type() {
    let (db, manifest) = shop().await;
    // PL/pgSQL plans the statement once for each session, with the types of then.
    db.run(
        "create table shop.log_of_prices (id int generated always as identity primary key, price numeric);
        grant all on shop.log_of_prices to public;
        create function shop.log_price() returns trigger language plpgsql as $$ begin
            insert into shop.log_of_prices (price) values (case when tg_op = 'INSERT' then new.price else old.price end);
            return null;
        end $$;
        create trigger log_price after insert or update or delete on shop.orders
            for each row execute function shop.log_price();
        select countersign.track('shop.log_of_prices', is_log => true)",
    )
    .await;
    let server = manifest.serve(&db).await;
    let first = server.succeed("rename", json!({"id": 1, "name": "eins"})).await;
    // What the ledger keeps of the table is new: only the session is old.
    let migrate = async |type_name: &str| {
        db.run(&format!("alter table shop.orders alter column price type {type_name}")).await;
        db.run("select countersign.track('shop.orders')").await;
    };
    migrate("double precision").await;
    let second = server.succeed("rename", json!({"id": 2, "name": "zwei"})).await;
    assert_eq!(second["meta"]["rollback"]["reversible"], true, "{second}");
    migrate("numeric").await;
    let tried = json!({"tool": "rename", "params": {"id": 2, "name": "dos"}});
    server.succeed("preview_mutation", tried.clone()).await;
    migrate("double precision").await;
    server.succeed("preview_mutation", tried).await;
    migrate("numeric").await;
    for write in [&first, &second] {
        server.succeed("undo_mutation", write["meta"]["rollback"]["undo_params"].clone()).await;
    }
    assert_eq!(db.value("select string_agg(name, ' ' order by id) from shop.orders").await, "one two");
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_that_people_agree_to_and_their_undos_outlive_a_migration() {
    // R-2
    let db = database().await;
    db.run(
        "create schema s; create table s.t (id int primary key, st text, b int, at timestamptz);
         insert into s.t select n, 'open', 1 from generate_series(1, 3) n;
         create function s.stamp() returns trigger language plpgsql as $$ begin new.at := clock_timestamp(); return new; end $$;
         create trigger stamp before insert or update on s.t for each row execute function s.stamp();
         create table s.plain (id int primary key, st text, b int); insert into s.plain select id, st, b from s.t;
         grant usage on schema s to public; grant all on all tables in schema s to public",
    )
    .await;
    succeed(&db, &["track", "s.t", "s.plain"]).await;
    let manifest = TestManifest::new(TOOLS);
    let mut command = manifest.command(&db);
    command.args(["--profile", "admin", "--execute-sql"]);
    let server = Server::start(command).await;
    let confirmed = async |tool: &str, arguments: Value| {
        let proposal = server.propose(tool, arguments).await;
        let agreement = json!({"proposal_id": proposal["proposal_id"], "digest": proposal["digest"]});
        server.succeed("confirm_proposal", agreement).await["meta"]["correlation_id"].as_str().unwrap().to_owned()
    };
    let write = async |table: &str, id: u32, to: &str| {
        let sql = format!("update s.{table} set st = '{to}' where id = {id}");
        confirmed("execute_sql", json!({"sql": sql})).await
    };
    for (number, migration) in [
        "add column c int default 5",
        "drop column b",
        "rename column c to d",
        "alter column d type bigint",
        "drop column d",
    ]
    .into_iter()
    .enumerate()
    {
        let is_dropped = migration.starts_with("drop");
        for table in ["t", "plain"] {
            let migrate = async || db.run(&format!("alter table s.{table} {migration}")).await;
            let [planned, shown] =
                [write(table, 2, &format!("{number}")).await, write(table, 3, &format!("{number}")).await];
            migrate().await;
            // Each of these is the first to meet the table after the migration in one of the rounds.
            let firsts: [&str; 5] = ["write", "undo", "plan", "dry run", "operator's plan"];
            for first in firsts.iter().cycle().skip(number).take(firsts.len()) {
                let said = match *first {
                    "write" => write(table, 1, &format!("{number} again")).await,
                    // What is restored may have no place any more.
                    "undo" if is_dropped => {
                        server.call("undo_mutation", json!({"correlation_id": planned})).await.to_string()
                    }
                    "undo" => confirmed("undo_mutation", json!({"correlation_id": planned})).await,
                    "plan" => server.succeed("undo_plan", json!({"from": "1h", "mode": "skip"})).await.to_string(),
                    "dry run" => format!("{:?}", run_countersign(&db.url(), &["undo", &shown, "--dry-run"]).await),
                    _ => format!(
                        "{:?}",
                        run_countersign(&db.url(), &["undo", "plan", "--from", "1h", "--mode", "skip"]).await
                    ),
                };
                let is_outdated = ["CS005", "columns of a tracked table"].iter().any(|words| said.contains(words));
                assert!(!is_outdated, "{first} of {table} after {migration}: {said}");
            }
            let value = format!("select st from s.{table} where id = 2");
            assert!(is_dropped || db.value(&value).await != number.to_string(), "{migration} of {table}");
        }
    }
    server.close().await;
}

/// What a trigger refuses in a new session as well is answered, after one more try.
#[tokio::test(flavor = "multi_thread")]
async fn a_trigger_whose_types_never_fit_fails_its_write() {
    let (db, manifest) = shop().await;
    let server = manifest.serve(&db).await;
    server.succeed("rename", json!({"id": 1, "name": "eins"})).await;
    db.run(
        "create function shop.raise() returns trigger language plpgsql as
            $$ begin raise 'it never fits' using errcode = 'datatype_mismatch'; end $$;
        create trigger raise before update on shop.orders for each row execute function shop.raise()",
    )
    .await;
    for _ in 0..2 {
        let error = server.fail("rename", json!({"id": 1, "name": "uno"}), "sql_error").await;
        assert!(error["message"].as_str().unwrap().contains("it never fits"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_picks_a_repaired_tool_up() {
    // N-3
    let (db, manifest) = shop().await;
    db.run("alter table shop.orders rename column name to title").await;
    let server = manifest.serve(&db).await;
    let mut changes = server.client().tool_changes();
    server.fail("rename", json!({"id": 1, "name": "x"}), "tool_outdated").await;
    db.run("alter table shop.orders rename column title to name").await;
    send_signal(server.client().pid().unwrap(), Signal::SIGHUP);
    tokio::time::timeout(std::time::Duration::from_secs(20), changes.changed()).await.expect("a notification").unwrap();
    server.succeed("rename", json!({"id": 1, "name": "eins"})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn track_changed_renews_the_tables_that_have_changed() {
    // N-2, N-3
    let (db, _) = shop().await;
    succeed(&db, &["track", "shop.log"]).await;
    let out = succeed(&db, &["track", "--changed"]).await;
    assert!(out.starts_with("unchanged"), "{out}");
    db.run("alter table shop.orders add column extra text").await;
    let out = succeed(&db, &["track", "--changed", "--schema", "social"]).await;
    assert!(out.starts_with("unchanged"), "{out}");
    let out = succeed(&db, &["track", "--changed"]).await;
    assert!(out.starts_with("tracked  shop.orders: key (id), shape ") && !out.contains("shop.log"), "{out}");
    db.run("alter table shop.log rename to lines").await;
    let out = succeed(&db, &["track", "--changed"]).await;
    assert!(out.starts_with("tracked  shop.lines: ") && out.lines().count() == 1, "{out}");
    assert!(succeed(&db, &["track", "--changed"]).await.starts_with("unchanged"));
    let usage = run_countersign(&db.url(), &["track", "--changed", "shop.orders"]).await;
    assert_eq!(usage.code, 2, "{usage:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn check_doctor_and_scaffold_say_in_the_same_words_how_writes_are_undone() {
    // N-8
    let (db, manifest) = shop().await;
    let path = manifest.path().to_str().unwrap().to_owned();
    let check = succeed(&db, &["check", "--manifest", &path]).await;
    let doctor = run_countersign(&db.url(), &["doctor", "--manifest", &path]).await.out;
    for (tool, way) in [
        ("rename", "undo by recorded changes"),
        ("refund", "undo by recorded changes"),
        ("reprice", "undo by refund or by recorded changes"),
        ("note", "undo by unnote"),
        ("unnote", "cannot be undone: It is gone."),
    ] {
        assert!(
            check.lines().any(|line| line.starts_with(tool) && line.ends_with(&format!("; {way}"))),
            "{tool}: {check}"
        );
        assert!(
            doctor.lines().any(|line| line.contains(tool) && line.ends_with(&format!(": {way}"))),
            "{tool}: {doctor}"
        );
    }
    assert!(!check.contains("undo none"), "{check}");
    let scaffold = run_countersign(&db.url(), &["scaffold", "--schema", "shop"]).await;
    assert!(scaffold.err.contains("undo by recorded changes"), "{}", scaffold.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn check_gives_no_alarm_for_a_partitioned_table_that_before_reads() {
    // N-19
    let (db, _) = shop().await;
    db.run(
        "create table shop.days (day date primary key, n int) partition by range (day);
         create table shop.days_1 partition of shop.days for values from ('2026-01-01') to ('2027-01-01');
         create table shop.days_2 partition of shop.days for values from ('2027-01-01') to ('2028-01-01');
         create table shop.hours (day date references shop.days on delete cascade, hour int, primary key (day, hour)) partition by range (day);
         create table shop.hours_1 partition of shop.hours for values from ('2026-01-01') to ('2028-01-01')",
    )
    .await;
    let tool = |before: &str| {
        TestManifest::new(&format!(
            "[[tool]]\nname = 'drop_day'\naccess = 'write'\ndescription = 'Drop it.'\ntier = 'approve'\n\
             before = \"{before}\"\nsql = 'delete from shop.days where day = $1 returning day'\nrows = 'one'\n\
             undo = {{ irreversible = 'x' }}\nparam = [{{ name = 'day', description = 'Which.' }}]\n"
        ))
    };
    let whole = "select * from shop.days d left join shop.hours h using (day) where day = $1 for update of d";
    for (before, alarms) in [
        (whole, &[][..]),
        (
            "select * from shop.days where day = $1 for update",
            &["shop.hours, by foreign key hours_day_fkey to shop.days"],
        ),
        (
            "select * from shop.orders where $1::date is null for update",
            &[
                "it writes shop.days, which neither before nor after reads",
                "shop.hours, by foreign key hours_day_fkey to shop.days",
            ],
        ),
    ] {
        let manifest = tool(before);
        let said = succeed(&db, &["check", "--manifest", manifest.path().to_str().unwrap()]).await;
        let found: Vec<&str> = said.lines().filter(|line| line.contains("tool drop_day: ")).collect();
        assert_eq!(found.len(), alarms.len(), "{before}: {said}");
        for (line, alarm) in found.iter().zip(alarms) {
            assert!(line.contains(alarm), "{line}");
        }
    }
}
