//! A server on standard input and output whose database is not there yet, or refuses its login: a client sees why, and
//! gets the tools once the server is connected.

use std::time::{Duration, Instant};

use pg_embedded::Cluster;
use serde_json::{Value, json};
use testkit::{Database, Server, database, lone_database, poll, repository, startup_error};
use tokio::process::Command;
use tokio::sync::watch;

use super::{assert_says, serve};

const READING: [&str; 3] = ["query_database", "describe_database", "explain_query"];

/// What a query is answered with while there is no database.
async fn unavailable(server: &Server) -> Value {
    server.fail("query_database", json!({"query": "select 1"}), "database_unavailable").await
}

async fn told(changes: &mut watch::Receiver<u64>) {
    tokio::time::timeout(Duration::from_secs(40), changes.changed()).await.expect("a notification").unwrap();
}

/// Runs it with the cluster, on a thread that may block.
async fn with_cluster(db: &Database, act: fn(&Cluster) -> Result<(), pg_embedded::Error>) {
    let cluster = db.cluster().clone();
    tokio::task::spawn_blocking(move || act(&cluster)).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_are_announced_when_postgresql_is_started_later() {
    let db = lone_database().await;
    with_cluster(&db, Cluster::stop_immediate).await;
    let server = Server::start(Server::command(&db)).await;
    let mut changes = server.client().tool_changes();
    assert_eq!(server.tool_names().await, READING);
    let error = unavailable(&server).await;
    assert_says(error["message"].as_str().unwrap(), &["Cannot connect to database at ["]);
    assert_eq!(error["retryable"], true);
    assert!(error["hint"].as_str().unwrap().contains("list_changed"), "{error}");

    with_cluster(&db, Cluster::restart).await;
    told(&mut changes).await;
    let names = server.tool_names().await;
    assert!(
        names.iter().any(|name| name == "post_tweet") && names.starts_with(&READING.map(str::to_owned)),
        "{names:?}"
    );
    assert_eq!(server.query("select 1 as n").await, [json!({"n": 1})]);
    let posted = server.succeed("post_tweet", json!({"text": "later"})).await;
    assert_eq!(db.value("select count(*) from countersign.mutation where status = 'success'").await, "1");
    assert!(posted["meta"]["correlation_id"].is_string(), "{posted}");
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_login_is_reported_and_retried() {
    let db = database().await;
    let role = format!("guarded_{}", db.name());
    db.run(&format!("create role {role} nologin in role countersign_writer")).await;
    let mut command = Command::new(testkit::countersign());
    let url = db.url_as(&role);
    command.env("DATABASE_URL", url).args(["--log", "error", "serve", "--manifest"]);
    command.arg(repository().join("manifests/social.toml")).kill_on_drop(true);
    let server = Server::start(command).await;
    let mut changes = server.client().tool_changes();
    let error = unavailable(&server).await;
    assert_says(error["message"].as_str().unwrap(), &[&role, "not permitted to log in"]);
    // A repeated call gets an equal answer until the operator acts.
    assert_eq!(error["retryable"], false, "{error}");
    db.run(&format!("alter role {role} login")).await;
    told(&mut changes).await;
    assert!(server.tool_names().await.contains(&"post_tweet".to_owned()));
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_does_not_wait_for_a_database_that_never_answers() {
    // A listener that never accepts stands for an address that does not answer.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let begun = Instant::now();
    let url = format!("postgresql://me:hunter2@127.0.0.1:{port}/shop?connect_timeout=60");
    let server = Server::start(serve(&url)).await;
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    let error = unavailable(&server).await;
    assert_says(error["message"].as_str().unwrap(), &["the database has not answered yet"]);
    assert!(!error.to_string().contains("hunter2"), "{error}");
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_that_is_wrong_by_itself_stops_the_start_without_a_database() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("wrong.toml");
    std::fs::write(&path, "name = \"wrong\"\nversion = \"1\"\n[[tool]]\nname = \"a\"\naccess = \"write\"\n").unwrap();
    let mut command = serve("host=/nowhere user=me dbname=shop");
    command.arg("--manifest").arg(&path);
    assert_says(&startup_error(&mut command).await, &["the manifests cannot be used", "wrong.toml:", "tool a"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_that_does_not_match_a_late_database_is_reported_in_the_responses() {
    let db = lone_database().await;
    db.run("alter table social.tweet rename to tweets").await;
    with_cluster(&db, Cluster::stop_immediate).await;
    let server = Server::with(&db, |it| it.arg("--strict")).await;
    let mut changes = server.client().tool_changes();
    unavailable(&server).await;
    with_cluster(&db, Cluster::restart).await;
    let unfit = async || {
        let message = unavailable(&server).await["message"].as_str().unwrap().to_owned();
        Some(message).filter(|message| message.contains("the manifests do not fit the database"))
    };
    let message = poll::until_some("the server says what does not fit", unfit).await;
    assert_says(&message, &["the server cannot start", "social.tweet"]);
    db.run("alter table social.tweets rename to tweet").await;
    told(&mut changes).await;
    assert!(server.tool_names().await.contains(&"post_tweet".to_owned()));
    server.close().await;
}
