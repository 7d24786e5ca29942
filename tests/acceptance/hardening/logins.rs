//! Attacks by a stolen login, or by SQL of a write, on later sessions.

use std::process::Stdio;

use serde_json::json;
use testkit::{Database, Server, countersign, database};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use super::{named, run_as};
use crate::proposals::{decide_as_person, price};

/// What a server says at its start.
async fn start(db: &Database) -> String {
    let mut command = Command::new(countersign());
    command.env("DATABASE_URL", db.writer_url()).arg("serve").stdin(Stdio::null());
    let output = command.output().await.unwrap();
    String::from_utf8(output.stderr).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_of_a_servers_login_are_named_and_do_not_decide_whose_functions_run() {
    // Otherwise a write could set a search path whose functions run at the next start and read keys and passwords.
    let db = database().await;
    let writer = named(&db, "writer");
    super::succeed(&db.url(), &["init", "--writer", &writer]).await;
    db.run(&format!("create schema evil authorization {writer}; grant usage on schema evil to public")).await;
    run_as(
        &db,
        &writer,
        "create sequence evil.calls; grant usage on sequence evil.calls to public;
         create function evil.to_regclass(text) returns regclass language plpgsql as
             $$ begin perform pg_catalog.nextval('evil.calls'); return null; end $$;
         create function evil.current_setting(text) returns text language plpgsql as
             $$ begin perform pg_catalog.nextval('evil.calls'); return ''; end $$",
    )
    .await;
    let set =
        format!("alter role {writer} set search_path = evil, pg_catalog; alter role {writer} set row_security = off");
    run_as(&db, &writer, &set).await;
    let mut command = Command::new(countersign());
    command.env("DATABASE_URL", db.url_as(&writer)).arg("serve").stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.kill_on_drop(true).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut said = String::new();
    // The end of its input would end it, ready or not.
    while !said.contains("ready")
        && let Some(line) = lines.next_line().await.unwrap()
    {
        said.push_str(&line);
        said.push('\n');
    }
    drop(child.stdin.take());
    child.wait().await.unwrap();
    for setting in ["search_path=evil, pg_catalog", "row_security=off"] {
        let named = format!("role {writer} has the setting {setting}, which a server does not expect");
        assert!(said.contains(&named), "{said}");
    }
    assert!(said.contains("ready"), "{said}");
    assert_eq!(db.value("select c.is_called from evil.calls c").await, "f");
    let (said, _) = super::run(&db.url_as(&writer), &["doctor"]).await;
    assert!(said.contains("has the setting row_security=off"), "{said}");

    let db = database().await;
    db.run(&format!(
        "alter database {} set statement_timeout = '1h'; alter database {0} set search_path = shop",
        db.name()
    ))
    .await;
    let said = start(&db).await;
    assert!(!said.contains("has the setting"), "ordinary settings: {said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_single_call_in_an_approvers_session_approves_nothing() {
    // An attacker who makes an approver run a statement has only one transaction.
    let db = database().await;
    let mut server = Server::studio_command(&db);
    server.args(["--profile", "admin"]);
    let server = Server::start(server).await;
    let proposal = server.propose("delete_package", json!({"package_id": 3})).await;
    let (id, digest) = (proposal["proposal_id"].as_str().unwrap(), proposal["digest"].as_str().unwrap());
    let anna = named(&db, "anna");
    db.run(&format!("create role {anna} login; grant countersign_approver to {anna}")).await;
    let client = testkit::connect(&db.url_as(&anna)).await;
    let decide = |nonce: &str| {
        format!("select countersign.decide_as_reviewer('{id}', 'confirmed', 'anna', '{digest}', null, {nonce})")
    };
    for attempt in [decide("null"), decide("''"), decide("'guessed'")] {
        let said: String = client.query_one(&attempt, &[]).await.unwrap().get(0);
        assert_eq!(said, "nonce_unknown");
    }
    for attempt in [
        decide(&format!("countersign.begin_decision('{id}')")),
        format!(
            "do $$ declare n text := countersign.begin_decision('{id}'); begin \
             perform countersign.decide_as_reviewer('{id}', 'confirmed', 'anna', '{digest}', null, n); end $$"
        ),
    ] {
        let refused = client.batch_execute(&attempt).await.expect_err(&attempt);
        assert_eq!(refused.as_db_error().unwrap().code().code(), "42501", "{refused:?}");
    }
    // A nonce is for one proposal, one login, one decision.
    let nonce: String =
        client.query_one(&format!("select countersign.begin_decision('{id}')"), &[]).await.unwrap().get(0);
    assert_eq!(db.value(&decide(&format!("'{nonce}'"))).await, "nonce_unknown", "another login");
    let said: String = client.query_one(&decide(&format!("'{nonce}'")), &[]).await.unwrap().get(0);
    assert_eq!(said, "done");
    let said: String = client.query_one(&decide(&format!("'{nonce}'")), &[]).await.unwrap().get(0);
    assert_eq!(said, "nonce_unknown", "a second time");
    let other = server.propose("upsert_package", price("150")).await;
    assert_eq!(decide_as_person(&db, &other, "rejected", "anna").await, "done");
    server.close().await;
}
