//! The first seconds of a server, and whom it tells why it is not ready.

use std::time::{Duration, Instant};

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use testkit::{HttpClient, HttpServer, Proxy, database};

/// What a start has to read.
const LOCK: &str = "lock table countersign.schema_history in access exclusive mode";

#[tokio::test(flavor = "multi_thread")]
async fn a_request_waits_for_a_server_that_is_starting() {
    let db = database().await;
    let mut blocker = db.connect().await;
    let lock = blocker.transaction().await.unwrap();
    lock.batch_execute(LOCK).await.unwrap();
    let server = HttpServer::listening(HttpServer::command(&db)).await;
    let visitor = server.http_client();
    let early = tokio::spawn(async move { visitor.call("query_database", json!({"query": "select 1"})).await });
    // A later request is answered: the early one has arrived, as far as can be told.
    let not_yet = server.until_status("/readyz", StatusCode::SERVICE_UNAVAILABLE).await;
    assert!(not_yet.contains("the server is starting"), "{not_yet}");
    lock.rollback().await.unwrap();
    assert_eq!(early.await.unwrap()["success"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_does_not_wait_longer_than_five_seconds() {
    let db = database().await;
    let mut blocker = db.connect().await;
    let lock = blocker.transaction().await.unwrap();
    lock.batch_execute(LOCK).await.unwrap();
    let server = HttpServer::listening(HttpServer::command(&db)).await;
    let begun = Instant::now();
    let visitor = server.http_client();
    let stream = visitor.send(visitor.request(Method::GET, "/sse"));
    let call = visitor.send(visitor.calling(1, "query_database", &json!({"query": "select 1"})));
    let (stream, call) = tokio::join!(stream, call);
    for refused in [stream, call] {
        assert_eq!((refused.status, refused.header("retry-after")), (StatusCode::SERVICE_UNAVAILABLE, Some("1")));
        assert!(refused.body.contains("the server is starting"), "{}", refused.body);
    }
    let took = begun.elapsed();
    assert!(took > Duration::from_secs(4) && took < Duration::from_secs(20), "{took:?}");
    lock.rollback().await.unwrap();
}

/// What `/readyz` says of a database that is not there.
async fn reason(visitor: &HttpClient) -> Option<String> {
    let answer = visitor.send(visitor.request(Method::GET, "/readyz")).await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    let said: Value = serde_json::from_str(&answer.body).unwrap();
    assert_eq!(said["status"], "unavailable");
    said["reason"].as_str().map(str::to_owned)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_reason_of_readyz_is_for_this_machine_and_for_callers_with_a_token() {
    let db = database().await;
    let folder = tempfile::tempdir().unwrap();
    let (token, table) = HttpServer::token("default", &[]).await;
    let config = format!("[http]\npublic_url = \"https://mcp.example.com\"\n{table}");
    let proxy = Proxy::before(&db);
    proxy.refuse();
    let start = async |config: String| {
        let path = folder.path().join("countersign.toml");
        std::fs::write(&path, config).unwrap();
        let mut command = HttpServer::command(&db);
        command.env("DATABASE_URL", proxy.url()).arg("--config").arg(path);
        let server = HttpServer::listening(command).await;
        server.logged("the database is not there yet").await;
        server
    };
    let server = start(config.clone()).await;
    let local = server.http_client();
    let told = reason(&local).await.unwrap();
    assert!(told.contains("Cannot connect to database"), "{told}");
    // Headers of a proxy on this machine that forwards a remote client.
    let elsewhere = [
        local.clone().with("host", "mcp.example.com"),
        local.clone().with("x-forwarded-for", "198.51.100.1"),
        local.clone().with("forwarded", "for=198.51.100.1"),
        local.clone().with("via", "1.1 proxy"),
    ];
    for proxied in elsewhere {
        assert_eq!(reason(&proxied).await, None);
        assert_eq!(reason(&proxied.clone().with_token("cs_wrong")).await, None);
        assert!(reason(&proxied.with_token(&token)).await.is_some());
    }
    let config = config.replace("[http]\n", "[http]\ntrusted_proxies = [\"127.0.0.1\"]\n");
    let behind = start(config).await;
    assert_eq!(reason(&behind.http_client()).await, None, "a trusted proxy asks for others");
    assert!(reason(&behind.http_client().with_token(&token)).await.is_some());
}
