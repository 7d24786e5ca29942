//! Tables of applications whose triggers, defaults, constraints and indexes call functions that name tables and types
//! without their schema: `write_search_path` says where these are looked up.

use serde_json::{Value, json};
use testkit::{CommandOutput, Database, Server, TestManifest, database, run_countersign};

/// Each function has names without a schema, as applications have them.
const APP: &str = "
create schema app;
create domain app.code as text check (value <> '');
create table app.counter (id int primary key, last int not null);
insert into app.counter values (1, 10);
create table app.log (id int generated always as identity primary key, line text not null);
create function app.next_number() returns int language plpgsql as
    $$ begin update counter set last = last + 1; return (select last from counter); end $$;
create function app.is_code(what text) returns boolean language plpgsql immutable as
    $$ begin return what::code is not null; end $$;
create function app.folded(what text) returns text language plpgsql immutable as
    $$ begin return upper(what)::code; end $$;
create table app.item (id int primary key, number int not null default app.next_number(), name text not null check (app.is_code(name)));
create index item_folded on app.item (app.folded(name));
insert into app.log (line) values ('begun');
create function app.note() returns trigger language plpgsql as
    $$ begin insert into log (line) values (tg_op || ' ' || coalesce(new.name, old.name)); return null; end $$;
create trigger note after insert or update or delete on app.item for each row execute function app.note();
create function app.note_late() returns trigger language plpgsql as
    $$ begin insert into log (line) values ('late ' || new.name); return null; end $$;
create constraint trigger late after insert or update on app.item deferrable initially deferred
    for each row execute function app.note_late();
";

const ROWS: &str = "set search_path = app; insert into app.item values (1, 1, 'chair'), (2, 2, 'table'); set constraints all immediate; reset search_path";

const TRACK: &str = "
grant usage on schema app to countersign_writer;
grant select, insert, update, delete on all tables in schema app to countersign_writer;
select countersign.track('app.log', is_log => true), countersign.track('app.item'), countersign.track('app.counter');
";

const TOOLS: &str = r#"
[[tool]]
name = "rename_item"
access = "write"
description = "Rename an item."
sql = "update app.item set name = $2 where id = $1 returning id, name"
rows = "one"
param = [ { name = "id", description = "Which." }, { name = "name", description = "What." } ]
"#;

async fn app() -> Database {
    let db = database().await;
    for sql in [APP, ROWS, TRACK] {
        db.run(sql).await;
    }
    db
}

async fn serve(db: &Database, more: &[&str]) -> Server {
    let manifest = TestManifest::new(TOOLS);
    let mut command = manifest.command(db);
    command.args(["--profile", "write", "--execute-sql", "--execute-sql-tier", "auto"]).args(more);
    Server::start(command).await
}

async fn items(db: &Database) -> Vec<Vec<String>> {
    db.rows("select id, number, name from app.item order by id").await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_write_calls_looks_names_up_there_and_its_undo_too() {
    let db = app().await;
    let server = serve(&db, &["--write-search-path", "app"]).await;
    let before = items(&db).await;
    let lines = || async { db.rows("select line from app.log order by id").await.concat() };

    server.succeed("rename_item", json!({"id": 1, "name": "stool"})).await;
    assert_eq!(
        lines().await,
        ["begun", "INSERT chair", "INSERT table", "late chair", "late table", "UPDATE stool", "late stool"]
    );
    for sql in [
        "insert into app.item (id, name) values (3, 'lamp') returning id",
        "delete from app.item where id = 2",
        "update app.item set name = name || 's' where app.folded(name) = 'LAMP'",
    ] {
        let written = server.succeed("execute_sql", json!({"sql": sql})).await;
        assert_eq!(written["meta"]["rows_affected"], 1, "{sql}: {written}");
    }
    assert_eq!(items(&db).await, [vec!["1", "1", "stool"], vec!["3", "11", "lamps"]]);
    // The trial of the receipt, the undo of an agent and that of an operator run what they run under the same path.
    let receipts =
        db.rows("select correlation_id::text, rollback::text from countersign.record order by id desc").await;
    assert_eq!(receipts.len(), 4);
    for (n, receipt) in receipts.iter().enumerate() {
        let rollback: Value = serde_json::from_str(&receipt[1]).unwrap();
        assert_eq!((&rollback["reversible"], &rollback["checked"]), (&json!(true), &json!(true)), "{rollback}");
        if n % 2 == 0 {
            server.succeed("undo_mutation", json!({"correlation_id": receipt[0]})).await;
        } else {
            let undone = undo(&db, &receipt[0], "[\"app\"]").await;
            assert_eq!(undone.code, 0, "{undone:?}");
        }
    }
    assert_eq!(items(&db).await, before);
    server.close().await;
}

/// `undo` with a configuration file that has this path.
async fn undo(db: &Database, id: &str, schemas: &str) -> CommandOutput {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("app.toml");
    std::fs::write(&config, format!("write_search_path = {schemas}")).unwrap();
    run_countersign(&db.url(), &["--config", config.to_str().unwrap(), "undo", id]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn without_it_the_write_fails_and_the_hint_says_what_to_do() {
    let db = app().await;
    let server = serve(&db, &[]).await;
    let failure = server.fail("rename_item", json!({"id": 1, "name": "stool"}), "sql_error").await;
    assert!(failure["message"].as_str().unwrap().contains("type \"code\" does not exist"), "{failure}");
    db.run("drop index app.item_folded; alter table app.item drop constraint item_name_check").await;
    let failure = server.fail("rename_item", json!({"id": 1, "name": "bench"}), "sql_error").await;
    let hint = failure["hint"].as_str().unwrap_or_default();
    assert!(hint.contains("app.note() runs as a trigger") && hint.contains("write_search_path"), "{failure}");
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schema_in_which_others_create_or_that_is_missing_is_refused() {
    let db = app().await;
    db.run("create schema open; grant create on schema open to public").await;
    for (schema, reason) in [
        (r#"["app", "open"]"#, "write_search_path has the schema open, in which PUBLIC may create objects"),
        (r#"["app", "gone"]"#, "write_search_path has the schema gone, which the database does not have"),
    ] {
        let refused = undo(&db, "11111111", schema).await;
        assert!(refused.code == 1 && refused.err.contains(reason), "{refused:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn init_counts_such_functions_and_configures_their_schema() {
    let db = Database::empty("path_init").await;
    db.run(APP).await;
    let folder = tempfile::tempdir().unwrap();
    let (config, writer) = (folder.path().join("app.toml"), format!("writer_{}", db.name()));
    let init = ["init", "--schema", "app", "--writer", &writer];
    let said = run_countersign(&db.url(), &[&init[..], &["--config", config.to_str().unwrap()]].concat()).await;
    assert!(
        said.out.contains(
            "triggers 2 functions of triggers of app may use names without a schema: write_search_path has the schema"
        ),
        "{said:?}"
    );
    let text = std::fs::read_to_string(&config).unwrap();
    assert!(text.contains("write_search_path = [\"app\"]"), "{text}");
    let again = run_countersign(&db.url(), &init).await;
    assert!(again.out.contains("set write_search_path = [\"app\"] where servers are configured"), "{again:?}");
}
