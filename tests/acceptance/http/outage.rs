//! A database that is not there yet, or not any more: the process stays, says so, and recovers by itself.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use reqwest::StatusCode;
use serde_json::json;
use testkit::{HttpServer, Proxy, database, lone_database};

#[tokio::test(flavor = "multi_thread")]
async fn a_server_waits_for_its_database_and_reports_why_it_is_not_ready() {
    let db = database().await;
    let proxy = Proxy::before(&db);
    proxy.refuse();
    let mut command = HttpServer::command(&db);
    command.env("DATABASE_URL", proxy.url());
    let server = HttpServer::listening(command).await;
    server.until_status("/healthz", StatusCode::OK).await;
    let why = server.until_status("/readyz", StatusCode::SERVICE_UNAVAILABLE).await;
    assert!(why.contains("unavailable"), "{why}");
    server.logged("the database is not there yet").await;
    let visitor = server.http_client();
    let refused = visitor.send(visitor.calling(1, "query_database", &json!({"query": "select 1"}))).await;
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(refused.header("retry-after").is_some());
    assert!(refused.message()["error"]["message"].as_str().unwrap().contains("database"), "{}", refused.body);

    proxy.accept_connections();
    server.until_ready().await;
    let written = visitor.call("post_tweet", json!({"text": "here at last"})).await;
    assert_eq!(written["success"], true, "{written}");

    proxy.refuse();
    let why = server.until_status("/readyz", StatusCode::SERVICE_UNAVAILABLE).await;
    assert!(why.contains("Cannot connect to database") || why.contains("lost"), "{why}");
    let down = visitor.call("post_tweet", json!({"text": "nobody there"})).await;
    assert_eq!(down["error"]["code"], "database_unavailable", "{down}");
    assert_eq!(down["error"]["retryable"], true);
    proxy.accept_connections();
    server.until_ready().await;
    let again = visitor.call("post_tweet", json!({"text": "nobody there"})).await;
    assert_eq!(again["data"]["text"], "nobody there", "{again}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_that_does_not_match_the_database_ends_a_strict_process() {
    let db = database().await;
    db.run("drop table social.tweet_like cascade").await;
    let mut command = HttpServer::command(&db);
    command.arg("--strict");
    let mut server = HttpServer::listening(command).await;
    assert!(!server.ended().await.success());
    server.logged("tweet_like").await;
}

/// Processes that are stopped until this is dropped.
struct StoppedProcesses(Vec<Pid>);

impl StoppedProcesses {
    fn stop(&mut self, pid: &str) {
        let pid = Pid::from_raw(pid.parse().unwrap());
        kill(pid, Signal::SIGSTOP).unwrap();
        self.0.push(pid);
    }
}

impl Drop for StoppedProcesses {
    fn drop(&mut self) {
        for pid in &self.0 {
            kill(*pid, Signal::SIGCONT).ok();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hanging_database_is_reported() {
    let db = lone_database().await;
    let server = HttpServer::on(&db).await;
    let own = db.connect().await;
    let own_pid: i32 = own.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
    let postmaster = db.value("select split_part(pg_read_file('postmaster.pid'), e'\\n', 1)").await;
    let mut stopped = StoppedProcesses(Vec::new());
    // A stopped postmaster starts no session, and its processes do not answer. `pg_stat_activity` would not show a session
    // that is just starting.
    stopped.stop(&postmaster);
    let children = std::fs::read_to_string(format!("/proc/{postmaster}/task/{postmaster}/children")).unwrap();
    for child in children.split_ascii_whitespace().filter(|pid| *pid != own_pid.to_string()) {
        stopped.stop(child);
    }
    let why = server.until_status("/readyz", StatusCode::SERVICE_UNAVAILABLE).await;
    assert!(why.contains("the database did not answer within 2 s"), "{why}");
    drop(stopped);
    server.until_ready().await;
}
