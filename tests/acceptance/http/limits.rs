//! Limits of one account.

use std::time::{Duration, Instant};

use reqwest::{Method, StatusCode};
use serde_json::json;
use testkit::{HttpClient, HttpServer, database, newest_meta, poll};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::console::Console;

#[tokio::test(flavor = "multi_thread")]
async fn requests_beyond_an_accounts_limit_are_refused_with_retry_after() {
    let db = database().await;
    let mut command = HttpServer::command(&db);
    command.args(["--http-requests-per-s", "1", "--http-burst", "5"]);
    let server = HttpServer::start(command).await;
    let visitor = server.http_client();
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
    // Probes belong to no account.
    assert_eq!(visitor.send(visitor.request(Method::GET, "/readyz")).await.status, StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_names_no_session_is_a_request_like_any_other() {
    let db = database().await;
    let mut command = HttpServer::command(&db);
    command.args(["--http-requests-per-s", "1", "--http-burst", "2"]);
    let server = HttpServer::start(command).await;
    let visitor = server.http_client();
    let mut statuses = Vec::new();
    for path in ["/message", "/message?sessionId=x&sessionId=y", "/message", "/message"] {
        statuses.push(visitor.send(visitor.request(Method::POST, path).body("{}")).await.status.as_u16());
    }
    assert_eq!(statuses[..2], [400, 400]);
    assert!(statuses.contains(&429), "{statuses:?}");
}

const SLEEPING: &str = "select 1 from pg_stat_activity where usename = 'countersign_reader' and state = 'active' \
                        and datname = current_database() and query like '%pg_sleep%' having count(*) = ";

/// Sends so many reads that take longer than any may, beside the test; they go with what is returned.
fn sleepers(visitor: &HttpClient, count: u32) -> JoinSet<reqwest::Result<String>> {
    let call = |id| visitor.calling(id, "query_database", &json!({"query": "select pg_sleep(600)"}));
    (0..count).map(call).map(|call| async move { call.send().await?.text().await }).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_account_blocks_the_reads_of_others() {
    let db = database().await;
    let folder = tempfile::tempdir().unwrap();
    let (ana, ana_table) = HttpServer::token("ana", &[]).await;
    let (bob, bob_table) = HttpServer::token("bob", &[]).await;
    let limits = "[limits]\nread_sessions = 4\n";
    let server = HttpServer::configured(&db, &folder, &format!("{limits}{ana_table}\n{bob_table}")).await;
    let visitor = server.http_client();
    for ana in
        [visitor.clone().with_token(&ana), visitor.clone().with_token(&ana).open(super::HANDSHAKE, json!({})).await]
    {
        let sleeping = sleepers(&ana, 12);
        db.first_value(&format!("{SLEEPING} 3")).await;
        let began = Instant::now();
        let read = visitor.clone().with_token(&bob).call("query_database", json!({"query": "select 1 as n"})).await;
        assert_eq!(read["data"]["rows"], json!([{"n": 1}]), "{read}");
        // Less than the others may take.
        assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
        assert_eq!(db.rows(&format!("{SLEEPING} 3")).await.len(), 1, "ana has another number of reads at work");
        drop(sleeping);
        db.first_value(&format!("{SLEEPING} 0")).await;
    }
    // A single account may use the whole server.
    let alone = HttpServer::configured(&db, &folder, &format!("{limits}{ana_table}\n")).await;
    let _sleeping = sleepers(&alone.http_client().with_token(&ana), 12);
    db.first_value(&format!("{SLEEPING} 4")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_that_waits_for_others_of_its_account_has_no_more_time_than_any_other() {
    let db = database().await;
    let folder = tempfile::tempdir().unwrap();
    let (ana, ana_table) = HttpServer::token("ana", &[]).await;
    let (_, bob_table) = HttpServer::token("bob", &[]).await;
    let limits = "[limits]\nquery_timeout_ms = 2000\n[http]\nreads = 1\n";
    let server = HttpServer::configured(&db, &folder, &format!("{limits}{ana_table}\n{bob_table}")).await;
    let visitor = server.http_client().with_token(&ana);
    let sleeping = sleepers(&visitor, 1);
    db.first_value(&format!("{SLEEPING} 1")).await;
    let began = Instant::now();
    let waited = visitor.call("query_database", json!({"query": "select pg_sleep(601)"})).await;
    let took = began.elapsed();
    // It had what the one before it left, or not even its place.
    assert!(["timeout", "database_unavailable"].contains(&waited["error"]["code"].as_str().unwrap()), "{waited}");
    assert!(waited["error"]["message"].as_str().unwrap().contains("this account"), "{waited}");
    assert!(
        waited["meta"]["elapsed_ms"].as_u64().unwrap() >= 2000 && took < Duration::from_secs(9),
        "{took:?}: {waited}"
    );
    db.first_value(&format!("{SLEEPING} 0")).await;
    drop(sleeping);
    assert_eq!(visitor.call("query_database", json!({"query": "select 1"})).await["success"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn more_streams_than_an_account_may_have_are_refused() {
    let db = database().await;
    let mut command = HttpServer::command(&db);
    command.args(["--http-streams", "2"]);
    let server = HttpServer::start(command).await;
    let visitor = server.http_client();
    let open = || visitor.request(Method::GET, "/sse").send();
    let (first, _second) = (open().await.unwrap(), open().await.unwrap());
    assert_eq!(open().await.unwrap().status(), StatusCode::TOO_MANY_REQUESTS);
    drop(first);
    poll::until("there is room for a stream", async || open().await.unwrap().status() == StatusCode::OK).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_is_limited_as_a_stream_and_requests_that_open_a_session_are_short() {
    let db = database().await;
    let mut command = HttpServer::command(&db);
    command.args(["--http-streams", "1"]);
    let server = HttpServer::start(command).await;
    let visitor = server.http_client();
    let listen = || {
        let meta = newest_meta();
        let params = json!({"_meta": meta, "notifications": {"toolsListChanged": true}});
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params});
        let request = visitor.request(Method::POST, "/mcp").body(message.to_string());
        request.header("mcp-protocol-version", "2026-07-28").header("mcp-method", "subscriptions/listen").send()
    };
    let open = listen().await.unwrap();
    assert_eq!(open.status(), StatusCode::OK);
    assert_eq!(listen().await.unwrap().status(), StatusCode::TOO_MANY_REQUESTS);

    let client = json!({"name": "x".repeat(100_000), "version": "0"});
    let params = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client});
    let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
    assert_eq!(visitor.post(&hello).await.status, StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test(flavor = "multi_thread")]
async fn abandoned_readiness_probes_take_no_session_from_writes() {
    let db = database().await;
    let server = HttpServer::on(&db).await;
    server.http_client().call("post_tweet", json!({"text": "warm"})).await;
    let backends = "select string_agg(pid::text, ' ' order by pid) from pg_stat_activity \
                    where usename = 'countersign_writer' and datname = current_database()";
    let before = db.value(backends).await;
    for _ in 0..200 {
        let mut stream = tokio::net::TcpStream::connect(server.address()).await.unwrap();
        let request = format!("GET /readyz HTTP/1.1\r\nhost: {}\r\n\r\n", server.address());
        tokio::io::AsyncWriteExt::write_all(&mut stream, request.as_bytes()).await.unwrap();
    }
    server.until_ready().await;
    server.http_client().call("post_tweet", json!({"text": "still warm"})).await;
    let lost = format!("select 1 from pg_stat_activity where pid = any(string_to_array('{before}', ' ')::int[])");
    assert_eq!(db.rows(&lost).await.len(), before.split(' ').count(), "{before}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_head_of_a_request_is_bounded_for_any_body_and_response() {
    let db = database().await;
    let server = HttpServer::on(&db).await;
    let console = Console::on(&db).await;
    // A head of this many bytes, in writes of at most `part`.
    let answer = async |address: &str, bytes: usize, end: &str, part: usize| {
        let start = format!("GET /healthz HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\nx-long: ");
        let mut stream = TcpStream::connect(address).await.unwrap();
        let filling = "x".repeat(bytes - start.len() - end.len());
        for part in format!("{start}{filling}{end}").as_bytes().chunks(part) {
            // The server may have answered already.
            if stream.write_all(part).await.is_err() {
                break;
            }
        }
        let mut answer = Vec::new();
        // What the server did not read resets the connection, after its answer.
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8_lossy(&answer).lines().next().unwrap_or_default().to_owned()
    };
    let refused = "HTTP/1.1 431 Request Header Fields Too Large";
    for address in [server.address().as_str(), console.url.strip_prefix("http://").unwrap()] {
        for part in [usize::MAX, 50_000, 1_000] {
            for bytes in [60 << 10, 65_535, 65_536, 66_000, 100_000, 130_000] {
                let status = answer(address, bytes, "\r\n\r\n", part).await;
                assert!(status.starts_with("HTTP/1.1 "), "{address}, {bytes} in {part}: {status}");
                assert_eq!(status == refused, bytes > 65_535, "{address}, {bytes} in {part}: {status}");
            }
            // The server does not wait for the end of an oversized head.
            let status = answer(address, 64 << 10, "", part).await;
            assert_eq!(status, refused, "{address}, {part}");
        }
    }
    let long = json!({"query": "select length($1) as n, repeat('y', 900000) as y", "params": ["x".repeat(3_000_000)]});
    let visitor = server.http_client();
    for client in [visitor.clone(), visitor.open(super::HANDSHAKE, json!({})).await] {
        let read = client.call("query_database", long.clone()).await;
        let row = &read["data"]["rows"][0];
        assert_eq!(row["n"], 3_000_000, "{read}");
        assert_eq!(row["y"].as_str().map(str::len), Some(900_000));
    }
}
