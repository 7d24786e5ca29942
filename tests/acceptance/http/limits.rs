//! What one account may take.

use reqwest::{Method, StatusCode};
use serde_json::json;
use testkit::{HttpServer, database};

#[tokio::test(flavor = "multi_thread")]
async fn more_requests_than_an_account_may_send_are_refused_with_the_time_to_come_again() {
    let db = database().await;
    let mut command = HttpServer::command(&db);
    command.args(["--http-requests-per-s", "1", "--http-burst", "5"]);
    let server = HttpServer::start(command).await;
    let visitor = server.visitor();
    let mut statuses = Vec::new();
    for id in 0..7 {
        let answer = visitor.send(visitor.calling(id, "query_database", &json!({"query": "select 1"}))).await;
        if answer.status == StatusCode::TOO_MANY_REQUESTS {
            let seconds: u64 = answer.header("retry-after").unwrap().parse().unwrap();
            assert!((1..=2).contains(&seconds), "{seconds}");
            assert!(answer.message()["error"]["message"].as_str().unwrap().contains("1 a second"), "{}", answer.body);
        }
        statuses.push(answer.status.as_u16());
    }
    assert_eq!(statuses[..5], [200; 5]);
    assert!(statuses.contains(&429), "{statuses:?}");
    // Probes are nobody's.
    assert_eq!(visitor.send(visitor.request(Method::GET, "/readyz")).await.status, StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread")]
async fn more_streams_than_an_account_may_have_are_refused() {
    let db = database().await;
    let mut command = HttpServer::command(&db);
    command.args(["--http-streams", "2"]);
    let server = HttpServer::start(command).await;
    let visitor = server.visitor();
    let open = || visitor.request(Method::GET, "/sse").send();
    let (first, _second) = (open().await.unwrap(), open().await.unwrap());
    assert_eq!(open().await.unwrap().status(), StatusCode::TOO_MANY_REQUESTS);
    drop(first);
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(20);
    while open().await.unwrap().status() != StatusCode::OK {
        assert!(tokio::time::Instant::now() < deadline, "never");
    }
}
