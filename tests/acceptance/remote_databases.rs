//! What acts on another server does not end with the transaction that asked for it: functions and tables of Citus, and foreign
//! tables (DI-1, DI-2). Citus is not installed here; an extension of its name stands in for it.

use serde_json::json;
use testkit::{Database, Proxy, Server, TestManifest, config_home, countersign, database, lone_database};

use crate::hardening::{run, run_as, succeed};
use crate::samples::sample;

const CITUS: &str = include_str!("remote_databases/citus.sql");

/// Queries that insert into `public.victim`, with the functions that everybody may call.
const ATTACKS: [&str; 16] = [
    "select run_command_on_workers('insert into victim values (1) returning id::text')",
    "select * from run_command_on_workers('insert into victim values (1) returning id::text', false)",
    "select pg_catalog.\"run_command_on_workers\"(command := 'insert into victim values (1) returning id::text')",
    "select 1 where exists (select from run_command_on_workers('insert into victim values (1) returning id::text'))",
    "with r as materialized (select * from run_command_on_workers('insert into victim values (1) returning id::text')) select * from r",
    "select run_command_on_all_nodes('insert into victim values (1) returning id::text')",
    "select run_command_on_coordinator('insert into victim values (1) returning id::text')",
    "select run_command_on_shards('victim', 'insert into %s values (1) returning id::text')",
    "select run_command_on_placements('victim', 'insert into %s values (1) returning id::text')",
    "select run_command_on_colocated_placements('victim', 'victim', 'insert into %s values (1) returning id::text')",
    "select * from master_run_on_worker(array['w1'], array[5432], array['insert into victim values (1) returning id::text'], false)",
    "select broadcast_intermediate_result('a', 'insert into victim values (1) returning id::text')",
    "select citus_check_connection_to_node('w1')",
    "select citus_move_shard_placement(1, 1, 2)",
    "select count(*) from victim group by (select result from run_command_on_workers('insert into victim values (1) returning id::text') limit 1)",
    "select run_command_on_workers($$alter role countersign_reader superuser; select ''::text$$)",
];

/// A plan does not show the rows of VALUES, nor the count of LIMIT.
const HIDDEN_ATTACKS: [&str; 2] = [
    "values ((select result from run_command_on_workers('insert into victim values (1) returning id::text'))), ('x')",
    "select 1 limit (select length(result) from run_command_on_workers('insert into victim values (1) returning id::text'))",
];

/// With some other text, it ends the server. The view `citus_tables` calls it.
const CRASH: &str = "select column_to_column_name('victim', '{RANGEVAR}')";

async fn assert_unharmed(db: &Database, attack: &str) {
    assert_eq!(db.value("select count(*) from victim").await, "0", "{attack}");
    let is_super = "select rolsuper from pg_roles where rolname = 'countersign_reader'";
    assert_eq!(db.value(is_super).await, "f", "{attack}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_read_acts_on_other_nodes_of_citus() {
    // DI-1: by the policy alone, since everybody may execute these functions.
    let db = lone_database().await;
    db.run(CITUS).await;
    run_as(
        &db,
        "countersign_reader",
        "select run_command_on_workers('insert into victim values (0) returning id::text')",
    )
    .await;
    assert_eq!(db.value("select count(*) from victim").await, "1", "the attack works without the policy");
    db.run("truncate victim").await;
    let server = Server::on(&db).await;
    for attack in ATTACKS {
        let refused = server.fail("query_database", json!({"query": attack}), "not_permitted").await;
        let message = refused["message"].as_str().unwrap();
        assert!(message.contains("it may act on other nodes, beyond the transaction"), "{attack}: {message}");
        server.call("explain_query", json!({"query": attack})).await;
        assert_unharmed(&db, attack).await;
    }
    let refused = server.fail("query_database", json!({"query": CRASH}), "not_permitted").await;
    assert!(refused["message"].as_str().unwrap().contains("it can crash the server"), "{refused}");
    assert_unharmed(&db, CRASH).await;
    assert_eq!(server.query("select citus_version() as v").await, [json!({"v": "Citus 13.2-1"})]);
    // Citus puts it into the plans of queries with subqueries.
    let put_aside = "select a from read_intermediate_result('1_1', 'binary') as r (a int)";
    assert_eq!(server.query(put_aside).await, [json!({"a": 1})]);
}

#[tokio::test(flavor = "multi_thread")]
async fn init_revokes_the_functions_of_citus_that_act_on_other_nodes() {
    // DI-1: by the login alone, which does not depend on plans.
    let db = lone_database().await;
    db.run(CITUS).await;
    let planned = succeed(&db.url(), &["init", "--dry-run"]).await;
    assert!(
        planned.contains("revoke execute on routine run_command_on_workers(text,boolean) from public;"),
        "{planned}"
    );
    let said = succeed(&db.url(), &["init"]).await;
    assert!(said.contains("revoked 11 functions of Citus from PUBLIC, which act on other nodes"), "{said}");
    assert!(said.contains("the workers of Citus have these functions as well"), "{said}");
    for attack in ATTACKS.iter().chain(&HIDDEN_ATTACKS).chain([&CRASH]) {
        let client = testkit::connect(&db.url_as("countersign_reader")).await;
        let error = client.batch_execute(attack).await.unwrap_err();
        assert_eq!(error.code().map(|code| code.code()), Some("42501"), "{attack}: {error}");
        assert_unharmed(&db, attack).await;
    }
    // Citus calls it for writes of ordinary logins.
    let may = "select has_function_privilege('countersign_reader', 'lock_shard_resources(int, bigint[])', 'execute')";
    assert_eq!(db.value(may).await, "t");
    let said = succeed(&db.url(), &["init"]).await;
    assert!(!said.contains("Citus"), "{said}");

    // A role that may not revoke them says so.
    db.run("grant execute on function run_command_on_workers(text, boolean) to public; create role admin login createrole; \
            grant countersign_owner to admin").await;
    let (said, _) = run(&db.url_as("admin"), &["init"]).await;
    assert!(said.contains("run init as a superuser"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn init_keeps_the_ledger_out_of_citus() {
    // Citus would create it on every node, and grants belong there.
    let db = lone_database().await;
    db.run("drop schema countersign cascade").await;
    db.run(CITUS).await;
    let planned = succeed(&db.url(), &["init", "--dry-run"]).await.to_lowercase();
    let steps = [
        "set local citus.enable_ddl_propagation = off",
        "set local citus.use_citus_managed_tables = off",
        "create schema countersign",
        "create function countersign.",
        "set local citus.enable_ddl_propagation = default",
        "grant select on",
    ];
    let places = steps.map(|step| planned.find(step).unwrap_or_else(|| panic!("{step}: {planned}")));
    assert!(places.is_sorted(), "{places:?} {planned}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commands_of_the_page_revoke_the_functions_on_the_coordinator_and_on_a_worker() {
    let (coordinator, worker) = (lone_database().await, lone_database().await);
    for node in [&coordinator, &worker] {
        node.run(CITUS).await;
    }
    let commands = sample("docs/setup/databases.md", "countersign init --dry-run");
    let (here, on_worker) = commands.split_once("psql -h 10.0.0.22 ").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut shell = tokio::process::Command::new("sh");
    shell.args(["-ec", &here.replace("countersign init", &format!("{} init", countersign().display()))]);
    shell.env("DATABASE_URL", coordinator.url()).env("XDG_CONFIG_HOME", config_home()).current_dir(folder.path());
    let output = shell.output().await.unwrap();
    assert!(output.status.success(), "{output:?}");
    let file = on_worker.trim_end().rsplit_once("-f ").unwrap().1;
    worker.run(&std::fs::read_to_string(folder.path().join(file)).unwrap()).await;
    for node in [&coordinator, &worker] {
        let may = "select bool_or(has_function_privilege('countersign_reader', p.oid, 'execute')) from pg_proc p where p.proname ~ '^run_command_on'";
        assert_eq!(node.value(may).await, "f");
    }
}

/// Tables `shop.here`, in this database, and `shop.there`, a foreign table over `shop.rows`, and a partitioned table over both.
const FOREIGN: &str = "
create extension postgres_fdw;
create schema shop;
create table shop.rows (id int, note text);
create table shop.here (id int, note text);
do $$ begin
    execute format('create server loop foreign data wrapper postgres_fdw options (host %L, port %L, dbname %L)',
        split_part(current_setting('unix_socket_directories'), ',', 1), current_setting('port'), current_database());
end $$;
create user mapping for public server loop options (user 'postgres', password_required 'false');
create foreign table shop.there (id int, note text) server loop options (schema_name 'shop', table_name 'rows');
create table shop.parts (id int, note text) partition by range (id);
create table shop.parts_here partition of shop.parts for values from (0) to (100);
create foreign table shop.parts_there partition of shop.parts for values from (100) to (200) server loop options (schema_name 'shop', table_name 'rows');
create table shop.copied (id int, note text);
create function shop.copy() returns trigger language plpgsql as $$ begin insert into shop.there values (new.id, new.note); return new; end $$;
create trigger copy after insert on shop.copied for each row execute function shop.copy();
create table shop.deferred (id int, note text);
create constraint trigger copy after insert on shop.deferred deferrable initially deferred for each row execute function shop.copy();
grant usage on schema shop to public; grant all on all tables in schema shop to public;
";

fn add(table: &str) -> String {
    format!(
        "[[tool]]\nname = \"add_{table}\"\naccess = \"write\"\ndescription = \"Add a row.\"\n\
         sql = \"insert into shop.{table} (id, note) values ($1, 'x') returning id\"\nrows = \"one\"\n\
         undo = {{ irreversible = \"for the test\" }}\n\n[[tool.param]]\nname = \"id\"\ndescription = \"The id.\"\n\n"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_to_a_foreign_table_is_refused_by_the_compiler() {
    // DI-2
    let db = database().await;
    db.run(FOREIGN).await;
    let tools = ["here", "there", "parts", "copied"].map(add).concat();
    let error = TestManifest::new(&tools).compile_error(&db).await;
    for (tool, table) in [("add_there", "shop.there"), ("add_parts", "shop.parts_there")] {
        assert!(error.contains(tool) && error.contains(&format!("writes {table}, a foreign table")), "{error}");
    }
    assert!(!error.contains("add_here"), "{error}");
    // It need not be visible in the plan.
    assert!(!error.contains("add_copied"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_reaches_a_foreign_table_in_another_way_is_rolled_back_on_both_servers() {
    // DI-2: by a trigger, by a deferred trigger, and by a statement of the caller.
    let db = database().await;
    db.run(FOREIGN).await;
    let tools = ["here", "copied", "deferred"].map(add).concat();
    let manifest = TestManifest::new(&tools);
    let mut command = manifest.command(&db);
    command.args(["--profile", "admin", "--execute-sql=any", "--execute-sql-tier", "auto"]);
    let server = Server::start(command).await;
    server.succeed("add_here", json!({"id": 1})).await;
    for (tool, arguments, table) in [
        ("add_copied", json!({"id": 1}), "shop.there"),
        ("add_deferred", json!({"id": 1}), "shop.there"),
        ("execute_sql", json!({"sql": "insert into shop.there values (1, 'x')"}), "shop.there"),
        ("execute_sql", json!({"sql": "insert into shop.parts values (150, 'x')"}), "shop.parts_there"),
        ("execute_sql", json!({"sql": "truncate shop.there"}), "shop.there"),
    ] {
        let refused = server.fail(tool, arguments.clone(), "not_permitted").await;
        let message = refused["message"].as_str().unwrap();
        assert!(message.contains(&format!("the write changes {table}, a foreign table")), "{message}");
        assert_eq!(db.value("select status from countersign.mutation order by id desc limit 1").await, "failure");
        assert_eq!(db.value("select (select count(*) from shop.rows) + (select count(*) from shop.copied) + (select count(*) from shop.deferred)").await, "0");
    }
    // Reading it is no write.
    server
        .succeed(
            "execute_sql",
            json!({"sql": "insert into shop.here select 2, (select count(*)::text from shop.there)"}),
        )
        .await;
    assert_eq!(db.value("select count(*) from shop.here").await, "2");
}

/// `shop.there` is a table of Citus. A trigger of `shop.copied` writes it, one of `shop.joined` writes `shop.other` in
/// another session, as Citus does with tables of this database that a statement joins with its own.
const DISTRIBUTED: &str = "
create schema shop; create table shop.here (id int, note text); create table shop.there (id int, note text);
create table shop.copied (id int, note text); create table shop.joined (id int, note text); create table shop.other (id int, note text);
create function shop.copy() returns trigger language plpgsql as $$ begin insert into shop.there values (new.id, new.note); return new; end $$;
create trigger copy after insert on shop.copied for each row execute function shop.copy();
create function shop.join() returns trigger language plpgsql security definer as $$ begin
    perform public.dblink_connect('own', format('dbname=%s port=%s host=%s user=postgres application_name=''citus_internal gpid=%s''',
        current_database(), current_setting('port'), split_part(current_setting('unix_socket_directories'), ',', 1), pg_backend_pid()));
    perform public.dblink_exec('own', 'begin'); perform public.dblink_exec('own', 'insert into shop.other values (1)'); return new;
end $$;
create trigger copy after insert on shop.joined for each row execute function shop.join();
grant usage on schema shop to public; grant all on all tables in schema shop to public;
insert into pg_dist_partition values ('shop.there', 'h')";

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_citus_carries_out_in_a_session_of_its_own_is_refused() {
    // DI-2
    let db = lone_database().await;
    db.run(CITUS).await;
    db.run(DISTRIBUTED).await;
    let tools = ["here", "copied", "joined"].map(add).concat();
    let server = TestManifest::new(&tools).serve(&db).await;
    server.succeed("add_here", json!({"id": 1})).await;
    for (tool, table) in [("add_copied", "shop.there"), ("add_joined", "shop.other")] {
        let refused = server.fail(tool, json!({"id": 1}), "not_permitted").await;
        let message = refused["message"].as_str().unwrap();
        let expected =
            format!("the write changes {table} in a session of Citus: it may commit although this one does not");
        assert!(message.contains(&expected), "{message}");
        let rows = "select (select count(*) from shop.there) + (select count(*) from shop.copied) + (select count(*) from shop.joined)";
        assert_eq!(db.value(rows).await, "0");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn check_names_the_table_of_citus_that_a_tool_writes() {
    // DI-12: by the locks of planning, since the plan of Citus has the names of shards, or none; and by those of parsing, since
    // Citus plans no INSERT whose distribution column is a parameter.
    let db = lone_database().await;
    db.run(CITUS).await;
    db.run(DISTRIBUTED).await;
    let unplanned = add("there").replace("add_there", "add_unplanned").replace("'x')", "(1 / 0)::text)");
    let error = TestManifest::new(&[add("here"), add("there"), unplanned].concat()).compile_error(&db).await;
    for tool in ["add_there", "add_unplanned"] {
        let expected = format!("tool {tool}: sql writes shop.there, a table of Citus");
        assert!(error.contains(&expected), "{error}");
    }
    assert!(!error.contains("add_here") && !error.contains("no plan"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_of_citus_is_not_tracked() {
    // DI-9: it takes the triggers of some tables, and with citus.enable_unsafe_triggers of all.
    let db = lone_database().await;
    db.run(CITUS).await;
    db.run(DISTRIBUTED).await;
    for arguments in [&["track", "shop.there"][..], &["track", "--schema", "shop"]] {
        let (said, succeeded) = run(&db.url(), arguments).await;
        assert!(
            !succeeded && said.contains("shop.there is a table of Citus") && said.contains("every write would fail"),
            "{said}"
        );
    }
    succeed(&db.url(), &["track", "shop.here"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn other_engines_are_told_that_they_cannot_hold_a_ledger() {
    // They cannot be had here. The proxy adds what they report when a session starts to what PostgreSQL reports.
    for (name, value, engine) in [
        ("crdb_version", "CockroachDB CCL v24.1.0", "CockroachDB"),
        ("server_version", "15.2-YB-2025.1.0.0-b0", "YugabyteDB"),
    ] {
        let db = lone_database().await;
        db.run("drop schema countersign cascade").await;
        let proxy = Proxy::before(&db);
        proxy.report(name, value);
        let manifest = TestManifest::new(&add("here"));
        let path = manifest.path();
        let serve = ["serve", "--manifest", path.to_str().unwrap()];
        for arguments in [&["init"][..], &["init", "--dry-run"], &serve] {
            let (said, succeeded) = run(&proxy.url(), arguments).await;
            let expected = format!("is on {engine}, which cannot hold a ledger (0A000): it has no system columns");
            assert!(
                !succeeded && said.contains(&expected) && said.contains("docs/setup/databases.md"),
                "{arguments:?} {said}"
            );
        }
        // Reads need no ledger.
        let mut command = Server::bare_command(&db);
        command.env("DATABASE_URL", proxy.url().replace("user=postgres", "user=countersign_reader"));
        let server = Server::start(command).await;
        assert_eq!(server.query("select 1 as one").await, [json!({"one": 1})]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_another_server_refuses_can_be_tried_again() {
    // DI-8: class 08, for a read and for a write, which was rolled back.
    let db = database().await;
    db.run(FOREIGN).await;
    db.run("alter server loop options (set port '1')").await;
    let tool = add("here").replace("values ($1, 'x')", "select $1, min(note) from shop.there");
    let server = TestManifest::new(&tool).serve(&db).await;
    let read = server.fail("query_database", json!({"query": "select count(*) from shop.there"}), "sql_error").await;
    let write = server.fail("add_here", json!({"id": 1, "idempotency_key": "k"}), "sql_error").await;
    for error in [read, write] {
        assert_eq!((&error["sqlstate"], &error["retryable"]), (&json!("08001"), &json!(true)), "{error}");
    }
    db.run("do $$ begin execute format('alter server loop options (set port %L)', current_setting('port')); end $$")
        .await;
    server.succeed("add_here", json!({"id": 1, "idempotency_key": "k"})).await;
}
