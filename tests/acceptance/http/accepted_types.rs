//! What clients accept: real ones send `*/*` or JSON alone, where MCP asks them to list JSON and event streams.

use reqwest::{Method, StatusCode};
use serde_json::json;
use testkit::{HttpAnswer, HttpServer, database};

use super::HANDSHAKE;

fn kind(answer: &HttpAnswer) -> &str {
    answer.header("content-type").unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_accepts_anything_or_json_alone_has_a_session_and_writes() {
    let db = database().await;
    let server = HttpServer::on(&db).await;
    for accepted in ["*/*", "application/json", "application/*;q=0.8"] {
        let client = server.http_client().with("accept", accepted).open(HANDSHAKE, json!({})).await;
        let json_alone = accepted != "*/*";
        let listed = client.post(&json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"})).await;
        assert!(!listed.message()["result"]["tools"].as_array().unwrap().is_empty(), "{}", listed.body);
        assert_eq!(kind(&listed) == "application/json", json_alone, "{accepted}: {}", kind(&listed));
        let read = client.call("query_database", json!({"query": "select 1 as n"})).await;
        assert_eq!(read["data"]["rows"], json!([{"n": 1}]), "{accepted}");
        let text = format!("from {accepted}");
        let written = client.call("post_tweet", json!({"text": text})).await;
        assert_eq!(written["success"], true, "{accepted}: {written}");
        let stored = format!("select count(*) from social.tweet where text = '{text}'");
        assert_eq!(db.value(&stored).await, "1", "{accepted}");
        let failed = client.post(&json!({"jsonrpc": "2.0", "id": 3, "method": "no/such"})).await;
        assert_eq!(failed.message()["error"]["code"], -32601, "{}", failed.body);
        // A GET opens an event stream.
        if json_alone {
            let refused = client.send(client.request(Method::GET, "/mcp")).await;
            assert_eq!(refused.status, StatusCode::NOT_ACCEPTABLE, "{accepted}");
        }
        // Without a session, in the newest protocol.
        let newest = server.http_client().with("accept", accepted);
        assert_eq!(newest.call("query_database", json!({"query": "select 1"})).await["success"], true, "{accepted}");
    }
    for refused in ["text/html", "text/event-stream", "application/json;q=0"] {
        let client = server.http_client().with("accept", refused);
        let answer = client.send(client.calling(1, "query_database", &json!({"query": "select 1"}))).await;
        assert_eq!(answer.status, StatusCode::NOT_ACCEPTABLE, "{refused}: {}", answer.body);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slash_behind_a_path_and_a_proxy_before_the_stream_change_nothing() {
    let db = database().await;
    let server = HttpServer::on(&db).await;
    let client = server.http_client();
    let params = json!({"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": {"name": "x", "version": "0"}});
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
    let opened = client.send(client.request(Method::POST, "/mcp/").body(message.to_string())).await;
    assert_eq!(opened.message()["result"]["protocolVersion"], HANDSHAKE, "{}", opened.body);
    for path in ["/sse", "/sse/"] {
        let stream = client.request(Method::GET, path).send().await.unwrap();
        assert_eq!(stream.status(), StatusCode::OK, "{path}");
        // nginx buffers a stream otherwise.
        assert_eq!(stream.headers()["x-accel-buffering"], "no", "{path}");
    }
}
