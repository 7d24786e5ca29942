//! Valid and invalid MCP messages: the server answers and continues.

use serde_json::{Value, json};
use testkit::{RawStdioServer, Server, database, newest_meta};

const PROTOCOL: &str = "2025-06-18";

async fn lives(server: &mut RawStdioServer) {
    let call = json!({"name": "query_database", "arguments": {"query": "select 1 as n"}});
    let answer = server.request(99, "tools/call", call).await;
    assert_eq!(answer["result"]["structuredContent"]["data"]["rows"], json!([{"n": 1}]), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_message_gets_a_json_rpc_error_and_the_server_continues() {
    let db = database().await;
    let mut server = RawStdioServer::start(Server::command(&db), PROTOCOL).await;
    let deep =
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"x","params":{}1{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
    for (line, code) in [
        ("{", -32700),
        ("not json", -32700),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"query_database","arguments":{"query":NaN}}}"#,
            -32700,
        ),
        (r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":{"a":"\ud800"}}}"#, -32700),
        (deep.as_str(), -32700),
        ("[1, 2]", -32600),
        ("5", -32600),
        (r#"{"hello":"world"}"#, -32600),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"like_tweet","arguments":{"tweet_id":1,"tweet_id":2}}}"#,
            -32602,
        ),
    ] {
        server.send(line).await;
        let answer = server.receive().await;
        assert_eq!(answer["error"]["code"], code, "{}: {answer}", &line[..line.len().min(60)]);
        // A client matches its answer by the id.
        let id = if line.contains(r#""id":1,"#) { json!(1) } else { Value::Null };
        assert_eq!(answer["id"], id, "{}: {answer}", &line[..line.len().min(60)]);
        lives(&mut server).await;
    }
    server.send("").await;
    lives(&mut server).await;
    server.send("\u{feff}{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"ping\"}").await;
    let answer = server.receive().await;
    assert_eq!((&answer["id"], &answer["result"]), (&json!(2), &json!({})), "{answer}");
    assert!(server.close().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_tools_methods_and_shapes_are_mcp_errors_and_wrong_arguments_are_envelopes() {
    let db = database().await;
    let mut server = RawStdioServer::start(Server::command(&db), PROTOCOL).await;
    let unknown = server.request(1, "tools/call", json!({"name": "drop_everything", "arguments": {}})).await;
    assert_eq!(unknown["error"]["code"], -32602);
    assert!(unknown["error"]["message"].as_str().unwrap().contains("drop_everything"));
    for params in
        [json!({"name": 5}), json!({"name": "query_database", "arguments": "select 1"}), json!([]), Value::Null]
    {
        let answer = server.request(2, "tools/call", params.clone()).await;
        assert_eq!(answer["error"]["code"], -32602, "{params}: {answer}");
    }
    assert_eq!(server.request(3, "no/such/method", json!({})).await["error"]["code"], -32601);
    let wrong =
        server.request(4, "tools/call", json!({"name": "query_database", "arguments": {"sql": "select 1"}})).await;
    assert_eq!(wrong["result"]["isError"], true);
    let error = &wrong["result"]["structuredContent"]["error"];
    assert_eq!(error["code"], "invalid_params");
    assert!(error["message"].as_str().unwrap().contains("unknown argument \"sql\""), "{error}");
    assert!(error["hint"].as_str().unwrap().contains("query, params, row_limit, row_format"), "{error}");
    lives(&mut server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_protocol_version_since_the_first_gets_a_session() {
    let db = database().await;
    for protocol in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let mut server = RawStdioServer::start(Server::command(&db), protocol).await;
        lives(&mut server).await;
        assert!(server.close().await, "{protocol}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_list_of_prompts_is_empty_and_not_declared() {
    let db = database().await;
    let mut server = RawStdioServer::without_session(Server::command(&db));
    let hello =
        json!({"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": {"name": "test", "version": "0"}});
    let answer = server.request(0, "initialize", hello).await;
    // I-10
    assert_eq!(answer["result"]["capabilities"].get("prompts"), None, "{answer}");
    server.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
    assert_eq!(server.request(1, "prompts/list", json!({})).await["result"]["prompts"], json!([]));
    for (params, words) in [(json!({"name": "x"}), "this server has no prompts"), (json!({}), "prompts/get takes")] {
        let answer = server.request(2, "prompts/get", params).await;
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
        assert!(answer["error"]["message"].as_str().unwrap().contains(words), "{answer}");
    }
    assert!(server.close().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_call_frees_its_backend() {
    let db = database().await;
    let mut server = RawStdioServer::start(Server::command(&db), PROTOCOL).await;
    let call = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call",
        "params": {"name": "query_database", "arguments": {"query": "select pg_sleep(25)"}}});
    server.send(&call.to_string()).await;
    let sleeping = "select pid from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database()";
    let pid = db.first_value(sleeping).await;
    server.send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#).await;
    let gone =
        format!("select 1 where not exists (select from pg_stat_activity where pid = {pid} and state = 'active')");
    let started = std::time::Instant::now();
    db.first_value(&gone).await;
    assert!(started.elapsed().as_secs() < 20, "{:?}", started.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_goes_away_ends_the_server_and_its_backends() {
    let db = database().await;
    let mut server = RawStdioServer::start(Server::command(&db), PROTOCOL).await;
    lives(&mut server).await;
    assert!(server.close().await);
    let gone = "select 1 where not exists (select from pg_stat_activity \
                where application_name = 'countersign' and datname = current_database())";
    db.first_value(gone).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_whose_client_went_away_still_gets_its_outcome() {
    let db = database().await;
    let mut server = RawStdioServer::start(Server::command(&db), PROTOCOL).await;
    let lock = db.lock("social.tweet").await;
    let call = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call",
        "params": {"name": "post_tweet", "arguments": {"text": "said into the void"}}});
    server.send(&call.to_string()).await;
    db.first_value("select 1 from countersign.mutation where status = 'pending'").await;
    server.send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#).await;
    let closing = tokio::spawn(server.close());
    lock.release().await;
    assert!(closing.await.unwrap());
    assert_eq!(db.value("select status from countersign.mutation").await, "success");
    assert_eq!(db.value("select count(*) from social.tweet where text = 'said into the void'").await, "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopping_server_finishes_its_write_first() {
    let db = database().await;
    let mut server = RawStdioServer::start(Server::command(&db), PROTOCOL).await;
    let lock = db.lock("social.tweet").await;
    let call = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call",
        "params": {"name": "post_tweet", "arguments": {"text": "last words"}}});
    server.send(&call.to_string()).await;
    db.first_value("select 1 from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()")
        .await;
    let pid = server.pid().to_string();
    assert!(std::process::Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    lock.release().await;
    assert!(server.close().await);
    assert_eq!(db.value("select status from countersign.mutation").await, "success");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_newest_protocol_needs_no_handshake() {
    let db = database().await;
    let command = Server::command(&db);
    let mut server = RawStdioServer::without_session(command);
    let meta = newest_meta();
    let discovered = server.request(1, "server/discover", json!({"_meta": meta})).await;
    let versions = discovered["result"]["supportedVersions"].as_array().unwrap();
    assert!(versions.contains(&json!("2026-07-28")), "{discovered}");
    let call = json!({"name": "query_database", "arguments": {"query": "select 1 as n"}, "_meta": meta});
    let answer = server.request(2, "tools/call", call).await;
    assert_eq!(answer["result"]["structuredContent"]["data"]["rows"], json!([{"n": 1}]), "{answer}");
    assert!(server.close().await);
}
