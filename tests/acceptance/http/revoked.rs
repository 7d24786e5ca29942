//! Streams end with the credential that opened them.

use std::time::Duration;

use futures_util::StreamExt;
use nix::sys::signal::Signal;
use reqwest::{Method, Response, StatusCode};
use serde_json::json;
use testkit::{HttpClient, HttpServer, KeyServer, SigningKey, database, newest_meta, now_s, send_signal};

use super::HANDSHAKE;
use super::tokens::{claims, configuration, with};

/// How long a stream may take to end.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A stream of each kind: of `/sse`, of a session, and a subscription.
async fn open_streams(visitor: &HttpClient) -> Vec<Response> {
    let session = visitor.clone().open(HANDSHAKE, json!({})).await;
    let meta = newest_meta();
    let params = json!({"_meta": meta, "notifications": {"toolsListChanged": true}});
    let listen = json!({"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params});
    let listening = visitor.request(Method::POST, "/mcp").body(listen.to_string());
    let listening = listening.header("mcp-protocol-version", "2026-07-28").header("mcp-method", "subscriptions/listen");
    let requests =
        [visitor.request(Method::GET, "/sse"), session.request(Method::GET, "/mcp"), listening].map(|it| it.send());
    let streams = futures_util::future::join_all(requests).await;
    let streams: Vec<Response> = streams.into_iter().map(Result::unwrap).collect();
    assert!(streams.iter().all(|stream| stream.status() == StatusCode::OK), "{streams:?}");
    streams
}

/// Reads streams to their ends, whatever they say until then.
async fn ended(streams: Vec<Response>) {
    for (number, stream) in streams.into_iter().enumerate() {
        let reading = stream.bytes_stream().for_each(|piece| async { drop(piece.expect("an orderly end")) });
        tokio::time::timeout(TIMEOUT, reading).await.unwrap_or_else(|_| panic!("stream {number} stays open"));
    }
}

async fn open_count(visitor: &HttpClient) -> String {
    let metrics = visitor.send(visitor.request(Method::GET, "/metrics")).await.body;
    metrics.lines().find_map(|line| line.strip_prefix("countersign_http_streams ")).unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_streams_of_a_token_that_is_taken_away_end_and_those_of_others_stay() {
    let db = database().await;
    let folder = tempfile::tempdir().unwrap();
    let (kept, kept_table) = HttpServer::token("default", &[]).await;
    let (revoked, revoked_table) = HttpServer::token("default", &[]).await;
    let (lessened, lessened_table) = HttpServer::token("default", &["--profile", "write"]).await;
    let config = format!("{kept_table}\n{revoked_table}\n{lessened_table}");
    let server = HttpServer::configured(&db, &folder, &config).await;
    let [kept, revoked, lessened] = [kept, revoked, lessened].map(|token| server.http_client().with_token(&token));
    let staying = open_streams(&kept).await;
    let (first, second) = (open_streams(&revoked).await, open_streams(&lessened).await);
    assert_eq!(open_count(&kept).await, "9");

    let lessened_table = lessened_table.replace("\"write\"", "\"readonly\"");
    std::fs::write(folder.path().join("countersign.toml"), format!("{kept_table}\n{lessened_table}")).unwrap();
    send_signal(server.pid(), Signal::SIGHUP);
    ended(first).await;
    ended(second).await;
    assert_eq!(open_count(&kept).await, "3");
    server.logged("a stream was ended").await;
    drop(staying);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_streams_of_a_token_end_when_it_expires() {
    let db = database().await;
    let folder = tempfile::tempdir().unwrap();
    let key = SigningKey::new("first");
    let keys = KeyServer::start(&[&key]).await;
    let (token, table) = HttpServer::token("default", &[]).await;
    // Time enough to start a server and to open them.
    let expires = now_s() + 15;
    let utc = format!("select to_char(to_timestamp({expires}) at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"')");
    let config = format!("{}\n{table}expires = {}\n", configuration(&keys), db.value(&utc).await);
    let server = HttpServer::configured(&db, &folder, &config).await;
    // The clocks of the issuer and of the server may differ by 30 s.
    let jwt = key.token(&with("exp", json!(expires - 30)));
    let mut streams = open_streams(&server.http_client().with_token(&token)).await;
    streams.extend(open_streams(&server.http_client().with_token(&jwt)).await);
    let other = server.http_client().with_token(&key.token(&claims("cs:write")));
    let staying = open_streams(&other).await;
    assert!(now_s() < expires, "it took too long to open them");
    ended(streams).await;
    assert!(now_s() >= expires, "ended before the token had expired");
    assert_eq!(open_count(&other).await, "3");
    drop(staying);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_streams_of_a_jwt_end_when_its_key_is_withdrawn() {
    let db = database().await;
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (SigningKey::new("first"), SigningKey::new("second"));
    let keys = KeyServer::start(&[&first, &second]).await;
    let server = HttpServer::configured(&db, &folder, &configuration(&keys)).await;
    let [old, new] = [&first, &second].map(|key| server.http_client().with_token(&key.token(&claims("cs:write"))));
    let (ending, staying) = (open_streams(&old).await, open_streams(&new).await);
    keys.set_keys(&[&second]);
    send_signal(server.pid(), Signal::SIGHUP);
    ended(ending).await;
    assert_eq!(open_count(&new).await, "3");
    drop(staying);
}
