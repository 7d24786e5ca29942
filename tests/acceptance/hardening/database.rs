//! A database whose owner has put a twin in front of each function and operator of PostgreSQL.

use serde_json::json;
use testkit::{Database, FrontEndOutput, Server, front_end, repository};

use super::{named, run_as, succeed};
use crate::proposals::price;

const HOSTILE: &str = include_str!("../../attacks/hostile_database.sql");

/// A database of a user who is no superuser, prepared against everybody who connects to it.
async fn hostile_database(name: &str) -> Database {
    let db = Database::empty(name).await;
    let owner = named(&db, "owner");
    db.run(&format!("create role {owner} login; alter database {name} owner to {owner}")).await;
    run_as(&db, &owner, HOSTILE).await;
    run_as(&db, &owner, &format!("alter database {name} set search_path = evil, pg_catalog, public")).await;
    db
}

/// How many twins were called so far.
async fn calls(db: &Database) -> String {
    db.value("select case when c.is_called then c.last_value else 0 end from evil.calls c").await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_twins_are_called_by_a_session_that_does_not_pin_its_search_path() {
    // The control of the other tests.
    let db = hostile_database("hostile_control").await;
    let refused = db.connect().await.batch_execute("select 1 + 1, format('%s', 'x')").await.expect_err("no twin");
    assert!(refused.as_db_error().unwrap().message().contains("twin"), "{refused:?}");
    assert_eq!(calls(&db).await, "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_command_calls_a_function_of_a_hostile_database() {
    // Settings of the database and of the roles make no difference.
    let db = hostile_database("hostile_commands").await;
    succeed(&db.url(), &["init", "--dry-run"]).await;
    succeed(&db.url(), &["init", "--demo"]).await;
    succeed(&db.url(), &["init"]).await;
    let approver = named(&db, "anna");
    db.run(&format!("create role {approver} login; grant countersign_approver to {approver}")).await;
    for role in ["countersign_writer", "postgres", &approver] {
        let path = "set search_path = evil, pg_catalog, public";
        db.run(&format!("alter role {role} in database {} {path}", db.name())).await;
    }
    let studio = repository().join("manifests/studio.toml");
    let server = Server::with(&db, |it| it.arg("--manifest").arg(&studio).args(["--profile", "admin"])).await;
    server
        .succeed(
            "query_database",
            json!({"query": "select upper('hello') as u, count(*) from social.tweet where id > 0"}),
        )
        .await;
    server.succeed("describe_database", json!({})).await;
    server.succeed("explain_query", json!({"query": "select 1"})).await;
    server.fail("query_database", json!({"query": "select * from social.twet"}), "sql_error").await;
    server.succeed("post_tweet", json!({"text": "on a hostile database"})).await;
    server.succeed("get_recent_mutations", json!({})).await;
    let proposal = server.propose("delete_package", json!({"package_id": 3})).await;
    server.propose("upsert_package", price("150")).await;

    let approver = db.url_as(&approver);
    let id = proposal["proposal_id"].as_str().unwrap();
    succeed(&approver, &["proposals", "list"]).await;
    succeed(&approver, &["proposals", "show", id]).await;
    succeed(&approver, &["proposals", "approve", id, "--yes"]).await;
    server.close().await;
    for url in [db.url(), db.writer_url()] {
        succeed(&url, &["doctor"]).await;
        succeed(&url, &["check", "--manifest", studio.to_str().unwrap()]).await;
        succeed(&url, &["audit", "list"]).await;
        succeed(&url, &["audit", "seal"]).await;
        succeed(&url, &["audit", "verify"]).await;
    }
    succeed(&db.url(), &["audit", "prune", "--older-than", "90d"]).await;
    succeed(&db.url(), &["keys", "rotate"]).await;
    succeed(&db.url(), &["init"]).await;
    assert_eq!(calls(&db).await, "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operators_statement_uses_the_search_path_of_the_login_and_internal_sql_does_not() {
    // The front ends keep the login's own search path: these statements call no twin, so nothing may.
    let db = hostile_database("hostile_front_ends").await;
    succeed(&db.url(), &["init"]).await;
    db.run("create table public.t (id pg_catalog.int4, at pg_catalog.timestamptz, tags pg_catalog.text[])").await;
    for arguments in [
        &["query", "--sql", "select id, at, tags from public.t"] as &[&str],
        &["query", "--write", "--sql", "insert into public.t (id) values ($1)", "--param", "1=7"],
        &["query", "--sql", "select row(id) as r from public.t"],
        &["psql", "-c", "table public.t"],
    ] {
        let [name, rest @ ..] = arguments else { unreachable!("a front end") };
        let told = FrontEndOutput::of(front_end(name, &db).args(rest)).await;
        assert_eq!(told.events.last().unwrap()["code"], "result", "{arguments:?}: {told:?}");
    }
    assert_eq!(calls(&db).await, "0");
}
