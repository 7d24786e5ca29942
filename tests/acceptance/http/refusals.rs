//! The cost of refused requests, and the requests that the limits exempt.

use reqwest::StatusCode;
use serde_json::json;
use testkit::{HttpClient, HttpServer, KeyServer, SigningKey, database, poll};

use super::raw::{RawAnswer, RawConnection, get};
use super::tokens::{claims, configuration};

/// More than an address may have of refused attempts at once.
const FLOOD: usize = 1_000;

async fn status(visitor: &HttpClient) -> StatusCode {
    visitor.send(visitor.calling(1, "query_database", &json!({"query": "select 1"}))).await.status
}

/// Sends this many requests or more with these lines in their heads, over as many connections as that takes.
async fn flood(server: &HttpServer, lines: &[&str], requests: usize) -> Vec<RawAnswer> {
    let mut answers = Vec::new();
    while answers.len() < requests {
        let mut connection = RawConnection::to(server).await;
        while let Some(answer) = connection.ask(&get("/sse", lines)).await {
            answers.push(answer);
        }
    }
    answers
}

fn count(answers: &[RawAnswer], status: u16) -> usize {
    answers.iter().filter(|answer| answer.status == status).count()
}

/// Waits until a visitor is told to pause, while others of its address go on failing: a pause is a second.
async fn until_paused(server: &HttpServer, lines: &[&str], visitor: impl Fn() -> HttpClient) {
    poll::until("the pause", async || {
        flood(server, lines, 50).await;
        status(&visitor()).await == StatusCode::TOO_MANY_REQUESTS
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_requests_without_a_token_costs_little_and_shuts_out_no_token() {
    let db = database().await;
    let folder = tempfile::tempdir().unwrap();
    let (token, table) = HttpServer::token("team-a", &[]).await;
    let server = HttpServer::configured(&db, &folder, &table).await;
    let before = server.log().len();
    let answers = flood(&server, &["authorization: Bearer cs_wrong"], FLOOD).await;
    let (refused, paused) = (count(&answers, 401), count(&answers, 429));
    assert!(refused >= 100 && paused > refused && refused + paused == answers.len(), "{refused} {paused}");
    let pause = answers.iter().find(|answer| answer.status == 429).unwrap();
    assert!(pause.closes() && pause.head.contains("retry-after: 1"), "{}", pause.head);
    // From the same address, at once.
    assert_eq!(status(&server.http_client().with_token(&token)).await, StatusCode::OK);

    let summary = server.logged("more requests were refused than are logged one by one").await;
    assert!(summary.contains("WARN") && summary.contains("429: ") && summary.contains("from 127.0.0.1 ("), "{summary}");
    let log = server.log();
    let written = log.len() - before;
    assert!(written < 40 * FLOOD, "{written} bytes");
    let lines = log.lines().filter(|line| line.contains("a request was refused")).count();
    assert!((50..200).contains(&lines), "{lines} lines");
    assert!(!log.contains("cs_wrong"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_ends_after_some_refusals_despite_pipelined_requests() {
    let db = database().await;
    let folder = tempfile::tempdir().unwrap();
    let (token, table) = HttpServer::token("team-a", &[]).await;
    let server = HttpServer::configured(&db, &folder, &table).await;
    let mut pipelined = RawConnection::to(&server).await;
    assert!(pipelined.try_send(&get("/sse", &[]).repeat(100)).await);
    let mut answers = Vec::new();
    while let Some(answer) = pipelined.answer().await {
        answers.push(answer);
    }
    assert!(answers.iter().all(|answer| answer.status == 401), "{answers:?}");
    assert_eq!(answers.len(), 8);
    assert!(answers.iter().rev().skip(1).all(|answer| !answer.closes()) && answers[7].closes());
    // With a request that is answered between them it goes on.
    let mut mixed = RawConnection::to(&server).await;
    for _ in 0..5 {
        for _ in 0..5 {
            assert_eq!(mixed.ask(&get("/sse", &[])).await.unwrap().status, 401);
        }
        let bearer = format!("authorization: Bearer {token}");
        assert_eq!(mixed.ask(&get("/metrics", &[&bearer])).await.unwrap().status, 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn forged_signatures_are_not_looked_at_without_end_and_verified_tokens_keep_working() {
    let db = database().await;
    let folder = tempfile::tempdir().unwrap();
    let (key, stranger) = (SigningKey::new("first"), SigningKey::new("first"));
    let keys = KeyServer::start(&[&key]).await;
    let server = HttpServer::configured(&db, &folder, &configuration(&keys)).await;
    let known = server.http_client().with_token(&key.token(&claims("cs:write")));
    assert_eq!(status(&known).await, StatusCode::OK);

    let forged = format!("authorization: Bearer {}", stranger.token(&claims("cs:write")));
    assert!(count(&flood(&server, &[&forged], FLOOD).await, 429) > FLOOD / 2);
    assert_eq!(status(&known).await, StatusCode::OK, "one that was verified before");
    // A new one is refused although it is good: nothing has looked whether it is.
    let new = || server.http_client().with_token(&key.token(&claims("cs:write")));
    until_paused(&server, &[&forged], new).await;
    poll::until("the pause ends", async || status(&new()).await == StatusCode::OK).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn behind_a_trusted_proxy_each_client_has_its_own_limit_and_no_other_peer_can_name_one() {
    let db = database().await;
    let folder = tempfile::tempdir().unwrap();
    let key = SigningKey::new("first");
    let keys = KeyServer::start(&[&key]).await;
    let config = configuration(&keys).replace("[http]\n", "[http]\ntrusted_proxies = [\"127.0.0.0/8\"]\n");
    for (config, is_trusted) in [(config, true), (configuration(&keys), false)] {
        let server = HttpServer::configured(&db, &folder, &config).await;
        let of = |client: &str| {
            let visitor = server.http_client().with_token(&key.token(&claims("cs:write")));
            visitor.with("x-forwarded-for", &format!("198.51.100.1, {client}"))
        };
        let failing = ["x-forwarded-for: 203.0.113.7, 198.51.100.1"];
        until_paused(&server, &failing, || of("198.51.100.1")).await;
        if is_trusted {
            flood(&server, &failing, FLOOD).await;
            assert_eq!(status(&of("198.51.100.2")).await, StatusCode::OK);
        } else {
            until_paused(&server, &failing, || of("198.51.100.2")).await;
        }
        let client = if is_trusted { "client=198.51.100.1 " } else { "client=127.0.0.1 " };
        let log = server.log();
        assert!(log.contains(client), "{log}");
        let warnings = log.lines().filter(|line| line.contains("list it there")).count();
        assert_eq!(warnings, usize::from(!is_trusted), "{log}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_line_of_a_refusal_has_only_source_and_target() {
    let db = database().await;
    let folder = tempfile::tempdir().unwrap();
    let (expired, table) = HttpServer::token("team-a", &["--label", "old bot"]).await;
    let config = format!("{table}expires = 2020-01-01T00:00:00Z\n");
    let server = HttpServer::configured(&db, &folder, &config).await;
    let mut connection = RawConnection::to(&server).await;
    assert_eq!(connection.ask(&get("/mcp?access_token=hidden", &[])).await.unwrap().status, 401);
    let line = server.logged("a request was refused").await;
    for part in ["status=401", "client=127.0.0.1", "path=\"/mcp\"", "this server requires a token"] {
        assert!(line.contains(part), "{part}: {line}");
    }
    assert_eq!(status(&server.http_client().with_token(&expired)).await, StatusCode::UNAUTHORIZED);
    let line = server.logged("has expired").await;
    assert!(line.contains("old bot"), "{line}");
    let long = format!("/{}", "x".repeat(5_000));
    connection.ask(&get(&long, &["origin: http://evil.example"])).await.unwrap();
    let line = server.logged("the Origin header").await;
    assert!(line.contains("status=403") && line.len() < 500, "{line}");
    assert!(!server.log().contains("hidden"));
    // One line each.
    assert_eq!(server.log().lines().filter(|line| line.contains("refused")).count(), 3, "{}", server.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_root_is_one_page_about_the_server() {
    let db = database().await;
    let server = HttpServer::on(&db).await;
    let mut connection = RawConnection::to(&server).await;
    // As a link on another site opens it.
    let page = connection.ask(&get("/", &["sec-fetch-site: cross-site", "sec-fetch-mode: navigate"])).await.unwrap();
    assert_eq!(page.status, 200);
    assert!(page.head.contains("content-type: text/plain"), "{}", page.head);
    assert!(page.body.contains("MCP server for PostgreSQL") && page.body.contains("/mcp"), "{}", page.body);
}
