//! Sessions that are opened and never closed.

use std::time::Duration;

use futures_util::StreamExt;
use reqwest::Method;
use serde_json::json;
use testkit::{HttpClient, HttpServer, ProcessMemory, database, long_form, say};

use crate::http::sse::Session;

/// Sessions that are opened at the same time.
const AT_ONCE: usize = 32;

/// What they may leave behind, in KiB: less than two KiB each of 5,000.
const LEFT_KIB: u64 = 8 << 10;

/// Opens one as clients do that crash: after the handshake, a call, or with a stream open.
async fn open_and_leave(visitor: HttpClient, number: usize) {
    if number.is_multiple_of(20) {
        drop(Session::open(visitor).await);
        return;
    }
    let session = visitor.open(crate::http::HANDSHAKE, json!({})).await;
    match number % 20 {
        1 => drop(session.request(Method::GET, "/mcp").send().await.unwrap()),
        2..4 => {
            let read =
                session.call("query_database", json!({"query": "select $1::int as n", "params": [number]})).await;
            assert_eq!(read["data"]["rows"][0]["n"], number, "{read}");
        }
        _ => {}
    }
}

async fn wave(visitor: &HttpClient, sessions: usize) {
    let opening = (0..sessions).map(|number| open_and_leave(visitor.clone(), number));
    futures_util::stream::iter(opening).buffer_unordered(AT_ONCE).collect::<Vec<()>>().await;
}

async fn open_sessions(visitor: &HttpClient) -> usize {
    let scraped = visitor.send(visitor.request(Method::GET, "/metrics")).await.body;
    let line = scraped.lines().find_map(|line| line.strip_prefix("countersign_http_sessions "));
    line.expect("the gauge").parse().unwrap()
}

async fn until_given_up(visitor: &HttpClient) {
    let mut ticks = tokio::time::interval(Duration::from_millis(100));
    let given_up = async {
        while open_sessions(visitor).await > 0 {
            ticks.tick().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), given_up).await.expect("sessions that lie idle are given up");
}

/// Whether the memory has come down within a time that is longer than the server's own.
async fn until_given_back(memory: &ProcessMemory) -> bool {
    let mut ticks = tokio::time::interval(Duration::from_millis(100));
    let given_back = async {
        while memory.above_idle_kib() > LEFT_KIB {
            ticks.tick().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), given_back).await.is_ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn thousands_of_abandoned_sessions_expire_and_their_memory_is_freed() {
    let db = database().await;
    let sessions = long_form::choose(1000, 5000);
    let idle_s = long_form::variable_or("COUNTERSIGN_LOAD_IDLE_SECONDS", 2, 3);
    let mut command = HttpServer::command(&db);
    command.args(["--http-requests-per-s", "0", "--http-sessions", "10000", "--http-streams", "1000"]);
    command.args(["--http-session-idle-s", &idle_s.to_string()]);
    let server = HttpServer::start(command).await;
    let visitor = server.http_client();
    // What every server does in its first minutes, some of which it keeps.
    wave(&visitor, 20).await;
    let memory = ProcessMemory::of(server.pid());
    wave(&visitor, sessions).await;
    let at_peak = open_sessions(&visitor).await;
    until_given_up(&visitor).await;
    let peak = memory.peak_above_idle_kib();
    let given_back = until_given_back(&memory).await;
    let after = memory.above_idle_kib();
    say(&format!(
        "abandoned: {at_peak} of {sessions} sessions in hand at the end, {peak} KiB above idle at the peak, {after} KiB after"
    ));
    assert!(given_back, "{after} KiB are not given back, of {peak} KiB");
    // And the server works as before.
    let read = visitor.call("query_database", json!({"query": "select 1 as n"})).await;
    assert_eq!(read["success"], true, "{read}");
}
