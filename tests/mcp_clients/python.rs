//! The Python SDK's client, which most agent frameworks are built on.

use std::ffi::OsStr;

use testkit::{Database, External, HttpServer, countersign, database, long_form, repository, skip_without};
use tokio::process::Command;

/// What a script of tests/python says that is given the server and a manifest.
async fn said(db: &Database, script: &str, manifest: &str) -> String {
    let manifest = repository().join("manifests").join(manifest);
    said_with(db, script, &[countersign().as_os_str(), manifest.as_os_str()]).await
}

/// Runs a script with an address.
async fn said_over_http(db: &Database, server: &HttpServer, script: &str, path: &str) -> String {
    said_with(db, script, &[server.url(path).as_ref()]).await
}

async fn said_with(db: &Database, script: &str, arguments: &[&OsStr]) -> String {
    let output = Command::new(External::Python.expected_path())
        .arg(repository().join("tests/python").join(script))
        .args(arguments)
        .env("DATABASE_URL", db.url())
        .output()
        .await
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    said
}

#[tokio::test(flavor = "multi_thread")]
async fn the_python_client_reads_writes_and_validates_every_answer_against_its_schema() {
    if skip_without(&[External::Python]) {
        return;
    }
    let db = database().await;
    let said = said(&db, "session.py", "social.toml").await;
    assert!(said.ends_with("session complete\n"), "{said}");
    assert_eq!(db.value("select count(*) from countersign.mutation where status = 'success'").await, "2");
}

#[tokio::test(flavor = "multi_thread")]
async fn fastmcp_finds_the_skills_of_each_profile_and_verifies_their_files() {
    if skip_without(&[External::Frameworks]) {
        return;
    }
    let db = database().await;
    let output = Command::new(External::Frameworks.expected_path())
        .args(["-W", "ignore"])
        .arg(repository().join("tests/python/skills.py"))
        .arg(countersign())
        .arg(repository().join("skills"))
        .env("DATABASE_URL", db.writer_url())
        .output()
        .await
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let expected = "minimal: countersign-read countersign-write\nreadonly: countersign-read\n\
                    write: countersign-read countersign-write countersign-undo\n";
    assert_eq!(said, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_user_of_the_python_client_is_asked_in_both_protocol_eras() {
    if skip_without(&[External::Python]) {
        return;
    }
    let db = database().await;
    let said = said(&db, "elicitation.py", "studio.toml").await;
    assert!(said.ends_with("legacy: 2 questions\nauto: 4 questions\nasked complete\n"), "{said}");
    let decided = "select status, decided_via, count(*) from countersign.proposal group by 1, 2 order by 1, 2";
    let expected =
        [["executed", "confirm_proposal", "2"], ["executed", "elicitation", "2"], ["rejected", "elicitation", "2"]];
    assert_eq!(db.rows(decided).await, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_python_client_does_the_same_over_streamable_http_and_over_sse() {
    if long_form::is_left_out() {
        return;
    }
    if skip_without(&[External::Python]) {
        return;
    }
    for path in ["/mcp", "/sse"] {
        let db = database().await;
        let server = HttpServer::on(&db).await;
        let said = said_over_http(&db, &server, "session.py", path).await;
        assert!(said.ends_with("session complete\n"), "{path}: {said}");
        assert_eq!(db.value("select count(*) from countersign.mutation where status = 'success'").await, "2");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_user_of_the_python_client_is_asked_over_http_in_both_protocol_eras() {
    if long_form::is_left_out() {
        return;
    }
    if skip_without(&[External::Python]) {
        return;
    }
    let db = database().await;
    let mut command = HttpServer::command(&db);
    command.arg("--manifest").arg(repository().join("manifests/studio.toml"));
    let server = HttpServer::start(command).await;
    let said = said_over_http(&db, &server, "elicitation.py", "/mcp").await;
    assert!(said.ends_with("legacy: 2 questions\nauto: 4 questions\nasked complete\n"), "{said}");
}
