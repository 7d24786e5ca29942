//! Calls of protocol 2026-07-28 that are answered without rmcp's HTTP service get the responses that it gives.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use testkit::{HttpAnswer, HttpClient, HttpServer, database};

/// A header that only rmcp's service reads, with the same meaning.
const WEIGHTED: &str = "application/json;q=1, text/event-stream;q=0.5";

/// The parts of a response that do not depend on the time.
fn comparable(answer: &HttpAnswer) -> (StatusCode, Option<String>, Value) {
    let mut message = answer.message();
    if let Some(result) = message.get_mut("result") {
        let text: Value = serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap();
        assert_eq!(text, result["structuredContent"], "{}", answer.body);
        result["content"][0]["text"] = json!(null);
        result["structuredContent"]["meta"]["elapsed_ms"] = json!(null);
    }
    (answer.status, answer.header("content-type").map(str::to_owned), message)
}

#[tokio::test(flavor = "multi_thread")]
async fn direct_calls_get_the_responses_of_rmcp() {
    let db = database().await;
    let server = HttpServer::on(&db).await;
    let direct = server.http_client();
    let by_rmcp = server.http_client().with("accept", WEIGHTED);
    let calls = [
        ("query_database", json!({"query": "select 1.5::float8 as n, 'é\"' as t"})),
        ("query_database", json!({"query": "select nothing"})),
        ("query_database", json!({"query": "delete from social.tweet"})),
        ("query_database", json!({"text": "select 1"})),
        ("describe_database", json!({})),
        ("no_such_tool", json!({})),
    ];
    for (tool, arguments) in calls {
        let answers = [&direct, &by_rmcp].map(async |client| client.send(client.calling(7, tool, &arguments)).await);
        let [ours, theirs] = answers;
        assert_eq!(comparable(&ours.await), comparable(&theirs.await), "{tool} {arguments}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_whose_headers_or_metadata_are_wrong_is_refused() {
    let db = database().await;
    let server = HttpServer::on(&db).await;
    let client = server.http_client();
    let send = async |client: &HttpClient, headers: &[(&str, &str)], meta: Value| {
        let params = json!({"name": "query_database", "arguments": {"query": "select 1 as n"}, "_meta": meta});
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        let mut request = client.request(Method::POST, "/mcp");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        client.send(request.body(message.to_string())).await
    };
    let headers =
        [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call"), ("mcp-name", "query_database")];
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "0"},
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let answer = send(&client, &headers, meta.clone()).await;
    assert_eq!((answer.status, answer.message()["result"]["isError"].clone()), (StatusCode::OK, json!(false)));

    // Each header in turn: missing, different, and twice.
    for index in 0..headers.len() {
        let mut missing = headers.to_vec();
        let (name, value) = missing.remove(index);
        let mut different = missing.clone();
        different.push((name, "other"));
        let mut twice = headers.to_vec();
        twice.push((name, "other"));
        for headers in [missing, different] {
            let answer = send(&client, &headers, meta.clone()).await;
            assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{headers:?}: {}", answer.body);
        }
        let answer = send(&client, &twice, meta.clone()).await;
        let by_rmcp = send(&client.clone().with("accept", WEIGHTED), &twice, meta.clone()).await;
        assert_eq!(answer.status, by_rmcp.status, "{value}: {}", answer.body);
    }
    let mut without = meta.clone();
    without.as_object_mut().unwrap().remove("io.modelcontextprotocol/clientCapabilities");
    let answer = send(&client, &headers, without).await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{}", answer.body);
    let answer = send(&client.with("accept", "application/json"), &headers, meta).await;
    assert_eq!(answer.status, StatusCode::NOT_ACCEPTABLE, "{}", answer.body);
}
