//! Calls that are answered without rmcp's HTTP service get the responses that it gives: those of protocol 2026-07-28,
//! and reads in sessions.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use testkit::{HttpAnswer, HttpClient, HttpServer, database, newest_meta};

use super::HANDSHAKE;

/// An Accept header that only rmcp's service reads, with the same meaning.
pub(super) const WEIGHTED: &str = "application/json;q=1, text/event-stream;q=0.5";

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
    let meta = newest_meta();
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
    let answer = send(&client.with("accept", "text/event-stream"), &headers, meta).await;
    assert_eq!(answer.status, StatusCode::NOT_ACCEPTABLE, "{}", answer.body);
}

/// rmcp answers with an event stream, which has the same message.
#[tokio::test(flavor = "multi_thread")]
async fn reads_in_a_session_get_the_messages_of_rmcp() {
    let db = database().await;
    let server = HttpServer::on(&db).await;
    for protocol in ["2025-03-26", HANDSHAKE, "2025-11-25"] {
        let direct = server.session(protocol).await;
        let by_rmcp = direct.clone().with("accept", WEIGHTED);
        for (tool, arguments) in [
            ("query_database", json!({"query": "select 1.5::float8 as n, 'é\"' as t"})),
            ("query_database", json!({"query": "select nothing"})),
            ("query_database", json!({"text": "select 1"})),
            ("describe_database", json!({})),
        ] {
            let ours = direct.send(direct.calling(7, tool, &arguments)).await;
            let theirs = by_rmcp.send(by_rmcp.calling(8, tool, &arguments)).await;
            let (status, kind, mut message) = comparable(&ours);
            assert_eq!((status, kind.as_deref()), (StatusCode::OK, Some("application/json")), "{protocol} {tool}");
            message["id"] = json!(8);
            let (status, kind, expected) = comparable(&theirs);
            assert_eq!((status, kind.as_deref()), (StatusCode::OK, Some("text/event-stream")), "{protocol} {tool}");
            assert_eq!(message, expected, "{protocol} {tool} {arguments}");
        }
        // What writes, and what no tool has, is rmcp's.
        for (tool, arguments) in [("post_tweet", json!({"text": protocol})), ("no_such_tool", json!({}))] {
            let answer = direct.send(direct.calling(9, tool, &arguments)).await;
            assert_eq!(answer.header("content-type"), Some("text/event-stream"), "{}", answer.body);
        }
        let wrong = direct.clone().with("mcp-protocol-version", "2024-01-01");
        let refused = wrong.send(wrong.calling(10, "query_database", &json!({"query": "select 1"}))).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{}", refused.body);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_in_a_session_ends_with_its_cancellation_and_with_its_session_and_with_nobody_elses() {
    let db = database().await;
    let server = HttpServer::on(&db).await;
    let sleeping = |seconds: u32| json!({"query": format!("select pg_sleep({seconds})")});
    let runs = async |seconds: u32, wanted: bool| {
        let like = format!("state = 'active' and query like '%pg_sleep({seconds})%' and pid <> pg_backend_pid()");
        let sql = format!("select exists (select from pg_stat_activity where {like})");
        db.until_value(&sql, if wanted { "t" } else { "f" }).await;
    };
    let (one, other) = (server.session(HANDSHAKE).await, server.session(HANDSHAKE).await);
    let calls = [(&one, 5, 61), (&one, 6, 62), (&other, 5, 63)].map(|(client, id, seconds)| {
        let (client, call) = (client.clone(), client.calling(id, "query_database", &sleeping(seconds)));
        tokio::spawn(async move { client.send(call).await })
    });
    for seconds in [61, 62, 63] {
        runs(seconds, true).await;
    }
    // Without the id of a request it cancels none.
    let of_none = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {}});
    assert_eq!(one.post(&of_none).await.status, StatusCode::ACCEPTED);
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}});
    assert_eq!(one.post(&cancel).await.status, StatusCode::ACCEPTED);
    runs(61, false).await;
    runs(62, true).await;
    let closed = one.send(one.request(Method::DELETE, "/mcp")).await;
    assert_eq!(closed.status, StatusCode::NO_CONTENT);
    runs(62, false).await;
    runs(63, true).await;
    assert_eq!(other.post(&cancel).await.status, StatusCode::ACCEPTED);
    runs(63, false).await;
    for call in calls {
        let answer = call.await.unwrap();
        assert_eq!(answer.message()["error"]["message"], "the call was cancelled", "{}", answer.body);
    }
}
