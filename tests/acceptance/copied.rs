//! A copied database contains its original's ledger. No server works on it, and no reviewer can decide on its
//! proposals, until the ledger has been forked.

use serde_json::json;
use testkit::{Database, Server, TestManifest, database, external, poll, run, run_countersign, startup_error};
use tokio::process::Command;

use crate::proposals::state;

/// A copy of the database, as CREATE DATABASE .. TEMPLATE makes it.
pub(crate) async fn copy_of(db: &Database) -> Database {
    let name = format!("copy_of_{}", db.name());
    let there = db.beside("postgres");
    // PostgreSQL copies a database without connections only.
    there.run(&format!("alter database {} allow_connections false", db.name())).await;
    there.run(&format!("select pg_terminate_backend(pid) from pg_stat_activity where datname = '{}'", db.name())).await;
    let alone = format!("select count(*) = 0 from pg_stat_activity where datname = '{}'", db.name());
    poll::until("the database is not used", async || there.value(&alone).await == "t").await;
    there.run(&format!("create database {name} template {}", db.name())).await;
    there.run(&format!("alter database {} allow_connections true", db.name())).await;
    there.beside(&name)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copied_ledger_executes_nothing_until_it_is_forked() {
    let db = database().await;
    let server = Server::studio(&db).await;
    let proposal = server.propose("delete_package", json!({"package_id": 3})).await;
    server.close().await;
    let id = proposal["proposal_id"].as_str().unwrap();
    let copy = copy_of(&db).await;

    let mut command = Server::studio_command(&copy);
    let said = startup_error(&mut command).await;
    assert!(said.contains("was made for another database") && said.contains("countersign audit fork"), "{said}");
    let refused = run_countersign(&copy.url(), &["proposals", "approve", id, "--yes"]).await;
    assert!(refused.code != 0 && refused.err.contains("made for another database"), "{}", refused.err);
    let doctor = run_countersign(&copy.url(), &["doctor"]).await;
    assert!(doctor.code != 0 && doctor.out.contains("made for another database"), "{}", doctor.out);
    // Its log does not go on.
    let refused = run_countersign(&copy.url(), &["audit", "seal"]).await;
    assert!(refused.code == 1 && refused.err.contains("does not go on in a copy"), "{}", refused.err);
    // An auditor still reads it.
    assert_eq!(run_countersign(&copy.url(), &["audit", "list"]).await.code, 0);

    let refused = run_countersign(&copy.writer_url(), &["audit", "fork", "--yes"]).await;
    assert!(refused.code != 0 && refused.err.contains("countersign_owner"), "{}", refused.err);
    let forked = run_countersign(&copy.url(), &["audit", "fork", "--yes"]).await;
    assert!(forked.code == 0 && forked.out.contains("1 open proposals"), "{}{}", forked.out, forked.err);
    assert_eq!(state(&copy, &proposal).await, "expired");
    let server = Server::studio(&copy).await;
    server.propose("delete_package", json!({"package_id": 3})).await;
    server.close().await;

    // The original is what it was.
    let server = Server::studio(&db).await;
    assert_eq!(state(&db, &proposal).await, "pending");
    server.close().await;
    let again = run_countersign(&db.url(), &["audit", "fork", "--yes"]).await;
    assert!(again.code == 0 && again.out.contains("Nothing was changed"), "{}", again.out);
    db.beside("postgres").run(&format!("drop database {} with (force)", copy.name())).await;
}

/// The database from a dump of another one, as pg_restore makes it. `None` without the programs of PostgreSQL's clients.
async fn dumped_and_restored(db: &Database) -> Option<Database> {
    let name = format!("dump_of_{}", db.name());
    let programs = ["pg_dump", "psql"].map(|program| db.cluster().binaries().program(program));
    if let Some(missing) = programs.iter().find(|program| !program.exists()) {
        external::skip_without_program(&format!("there is no {}", missing.display()));
        return None;
    }
    let there = db.beside("postgres");
    there.run(&format!("create database {name}")).await;
    let copy = there.beside(&name);
    let dump = tempfile::NamedTempFile::new().unwrap();
    let [pg_dump, psql] = programs.map(Command::new);
    for (mut command, url, arguments) in
        [(pg_dump, db.url(), &["--file"][..]), (psql, copy.url(), &["-q", "-v", "ON_ERROR_STOP=1", "-f"])]
    {
        run(command.args(arguments).arg(dump.path()).args(["--dbname", &url])).await.succeeded();
    }
    Some(copy)
}

///
#[tokio::test(flavor = "multi_thread")]
async fn writes_from_before_a_dump_can_be_undone_after_its_restore() {
    let db = database().await;
    db.run(
        "create schema ward; create type ward.state as enum ('free', 'taken');
         create function ward.stamp() returns trigger language plpgsql as $$ begin new.seen_at := now(); return new; end $$;
         create table ward.old (id int primary key); create table ward.gone (id int primary key);
         create table ward.bed (id int primary key, dropped int, state ward.state, seen_at timestamptz);
         alter table ward.bed drop column dropped;
         create trigger stamp before update on ward.bed for each row execute function ward.stamp();
         insert into ward.bed values (1, 'free', '2026-01-01'), (2, 'free', '2026-01-01'); insert into ward.old values (1);
         grant usage on schema ward to countersign_writer; grant select, insert, update, delete on all tables in schema ward to countersign_writer",
    )
    .await;
    run_countersign(&db.url(), &["track", "ward.bed", "ward.old", "ward.gone"]).await.succeeded();
    db.run("drop table ward.gone").await;
    let tool = |name: &str, sql: &str| {
        format!(
            "[[tool]]\nname = \"{name}\"\naccess = \"write\"\ndescription = \"A test.\"\nrows = \"one\"\nsql = \"{sql}\"\n\
             param = [{{ name = \"id\", description = \"Which.\" }}]\n"
        )
    };
    let tools = [
        tool("take", "update ward.bed set state = 'taken' where id = $1 returning id"),
        tool("remove", "delete from ward.old where id = $1 returning id"),
    ];
    let manifest = TestManifest::new(&tools.concat());
    let server = manifest.serve(&db).await;
    let mut written = Vec::new();
    for name in ["take", "remove"] {
        let done = server.succeed(name, json!({"id": 1})).await;
        written.push(done["meta"]["correlation_id"].as_str().unwrap().to_owned());
    }
    server.close().await;
    let Some(copy) = dumped_and_restored(&db).await else { return };
    let forked = run_countersign(&copy.url(), &["audit", "fork", "--yes"]).await;
    assert_eq!(forked.code, 0, "{}{}", forked.out, forked.err);
    for id in &written {
        let undone = run_countersign(&copy.url(), &["undo", id]).await;
        assert_eq!(undone.code, 0, "{}{}", undone.out, undone.err);
    }
    let rows = "select string_agg(concat_ws(' ', id, state), ', ' order by id) || (select count(*) from ward.old) from ward.bed";
    assert_eq!(copy.value(rows).await, "1 free, 2 free1");
    // It goes on.
    let server = manifest.serve(&copy).await;
    let done = server.succeed("take", json!({"id": 2})).await;
    let undo = server.succeed("undo_mutation", json!({"correlation_id": done["meta"]["correlation_id"]})).await;
    assert_eq!(undo["data"]["rows"], 1, "{undo}");
    server.close().await;
    assert_eq!(copy.value(rows).await, "1 free, 2 free1");
    let doctor = run_countersign(&copy.url(), &["doctor"]).await;
    let about: Vec<&str> =
        doctor.out.lines().filter(|line| line.contains("tracking") && !line.starts_with("ok")).collect();
    assert!(about.is_empty(), "{about:?}");
    db.beside("postgres").run(&format!("drop database {} with (force)", copy.name())).await;
}
