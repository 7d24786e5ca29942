//! A copied database contains its original's ledger (F-68). No server works on it, and no reviewer can decide on its
//! proposals, until the ledger has been forked.

use serde_json::json;
use testkit::{Database, Server, database, poll, run_countersign, startup_error};

use crate::proposals::state;

/// A copy of the database, as CREATE DATABASE .. TEMPLATE makes it.
async fn copy_of(db: &Database) -> Database {
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
