//! Sessions: whose they are, where they go, and what is kept of them.

use reqwest::{Method, StatusCode};
use serde_json::json;
use testkit::{HttpServer, database, poll, send_signal};

use super::HANDSHAKE;
use super::direct::WEIGHTED;

#[tokio::test(flavor = "multi_thread")]
async fn a_session_continues_at_another_server_of_its_ledger_and_survives_its_first_server() {
    let db = database().await;
    let mut first = HttpServer::on(&db).await;
    let second = HttpServer::on(&db).await;
    let at_first = first.session(HANDSHAKE).await;
    let written = at_first.call("post_tweet", json!({"text": "moving"})).await;
    let at_second = at_first.connected_to(&second);
    let again = at_second.call("post_tweet", json!({"text": "moving"})).await;
    assert_eq!(again["data"]["original_correlation_id"], written["meta"]["correlation_id"], "{again}");
    send_signal(first.pid(), nix::sys::signal::Signal::SIGKILL);
    first.ended().await;
    assert_eq!(at_second.call("query_database", json!({"query": "select 1"})).await["success"], true);
    // A read needs no session in memory. Several at once that do, and find it not there, take it up once.
    let third = HttpServer::on(&db).await;
    let read = at_first.connected_to(&third).call("query_database", json!({"query": "select 1"})).await;
    assert_eq!(read["success"], true, "{read}");
    let at_third = at_first.connected_to(&third).with("accept", WEIGHTED);
    let calls = (0..8).map(|id| at_third.send(at_third.calling(id, "query_database", &json!({"query": "select 1"}))));
    for answer in futures_util::future::join_all(calls).await {
        assert_eq!(answer.message()["result"]["isError"], false, "{}", answer.body);
    }
    // Two with one id could not be told apart.
    let sleep = json!({"query": "select pg_sleep(1)"});
    for client in [&at_third, &at_second] {
        let (one, other) = tokio::join!(
            client.send(client.calling(7, "query_database", &sleep)),
            client.send(client.calling(7, "query_database", &sleep)),
        );
        let mut statuses = [one.status, other.status];
        statuses.sort_unstable();
        assert_eq!(statuses, [StatusCode::OK, StatusCode::BAD_REQUEST]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_without_a_session_does_not_keep_a_session_from_being_resumed() {
    let db = database().await;
    let folder = tempfile::tempdir().unwrap();
    let (ana, ana_table) = HttpServer::token("ana", &[]).await;
    let (bob, bob_table) = HttpServer::token("bob", &[]).await;
    let config = format!("{ana_table}\n{bob_table}");
    let first = HttpServer::configured(&db, &folder, &config).await;
    let second = HttpServer::configured(&db, &folder, &config).await;
    let protocol = "2025-11-25";
    let ana = first.http_client().with_token(&ana).open(protocol, json!({})).await.connected_to(&second);
    let bob = first.http_client().with_token(&bob).open(protocol, json!({})).await.connected_to(&second);
    // All that a session would say is in the request, which names a session all the same.
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": protocol,
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let lock = db.lock("social.tweet").await;
    let query = json!({"query": "select 1 as n where not exists (select from social.tweet where id < 0)"});
    let params = json!({"name": "query_database", "arguments": query, "_meta": meta});
    let call = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params});
    let running = tokio::spawn({
        let ana = ana.clone();
        async move { ana.post(&call).await }
    });
    let waits = "select 1 from pg_locks where not granted and relation = 'social.tweet'::regclass";
    db.first_value(waits).await;
    for visitor in [bob.with("accept", WEIGHTED), ana.with("accept", WEIGHTED)] {
        let answer = visitor.call("query_database", json!({"query": "select 1"})).await;
        assert_eq!(answer["success"], true, "{answer}");
        assert_eq!(db.rows(waits).await.len(), 1, "the call was waited for");
    }
    lock.release().await;
    let answer = running.await.unwrap();
    assert_eq!(answer.message()["result"]["structuredContent"]["data"]["rows"][0]["n"], 1, "{}", answer.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_id_of_another_ledger_is_not_found() {
    let (db, other) = (database().await, database().await);
    // The databases of the tests are copies of one database, with its keys.
    let server = HttpServer::on(&db).await;
    let elsewhere = HttpServer::on(&other).await;
    let foreign = elsewhere.session(HANDSHAKE).await;
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    assert_eq!(foreign.connected_to(&server).post(&list).await.status, StatusCode::NOT_FOUND);
    let own = server.session(HANDSHAKE).await;
    let id = own.session_id().to_owned();
    for position in [0, 4, 40, id.len() / 2, id.len() - 2] {
        let mut forged = id.clone().into_bytes();
        forged[position] = if forged[position] == b'A' { b'B' } else { b'A' };
        let forged = own.clone().with("mcp-session-id", &String::from_utf8(forged).unwrap());
        assert_eq!(forged.post(&list).await.status, StatusCode::NOT_FOUND, "{position}");
        let stream = forged.send(forged.request(Method::GET, "/mcp")).await;
        assert_eq!(stream.status, StatusCode::NOT_FOUND, "{position}");
    }
    // A client can close its session, with a status that clients take for success.
    let closed = own.send(own.request(Method::DELETE, "/mcp")).await;
    assert_eq!((closed.status, closed.body.as_str()), (StatusCode::NO_CONTENT, ""));
    assert_eq!(own.post(&list).await.status, StatusCode::NOT_FOUND);
    // And without any session there is only the handshake, or a protocol that needs none.
    assert_eq!(server.http_client().post(&list).await.status, StatusCode::BAD_REQUEST);
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_sessions_are_closed_among_many_and_resumed_later() {
    let db = database().await;
    let mut command = HttpServer::command(&db);
    command.args(["--http-sessions", "3", "--http-requests-per-s", "0"]);
    let server = HttpServer::start(command).await;
    let mut sessions = Vec::new();
    for _ in 0..10 {
        sessions.push(server.session(HANDSHAKE).await);
    }
    // Of all ten, in turn: each is there, although three are in hand at once.
    for session in &sessions {
        let session = session.clone().with("accept", WEIGHTED);
        assert_eq!(session.call("query_database", json!({"query": "select 1"})).await["success"], true);
    }
    // Those that are in use stay: with three streams open there is no room for another.
    let mut streams = Vec::new();
    for session in sessions.iter().rev().take(3) {
        let stream = session.request(Method::GET, "/mcp").send().await.unwrap();
        assert_eq!(stream.status(), StatusCode::OK);
        streams.push(stream);
    }
    let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": HANDSHAKE,
        "capabilities": {}, "clientInfo": {"name": "one more", "version": "0"}}});
    let refused = server.http_client().post(&hello).await;
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS, "{}", refused.body);
    assert!(refused.message()["error"]["message"].as_str().unwrap().contains("3 sessions"), "{}", refused.body);
    assert_eq!(refused.header("retry-after"), Some("1"));
    drop(streams);
    // As soon as the server has noticed that they are gone.
    poll::until("there is room for a session", async || {
        server.http_client().post(&hello).await.status == StatusCode::OK
    })
    .await;
}
