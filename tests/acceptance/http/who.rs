//! Identity of callers: tokens over HTTP, and accounts that see nothing of each other.

use nix::sys::signal::Signal;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use testkit::{HttpServer, database, send_signal};

use super::HANDSHAKE;

#[tokio::test(flavor = "multi_thread")]
async fn without_a_valid_token_requests_are_refused_with_a_challenge() {
    let db = database().await;
    let folder = tempfile::tempdir().unwrap();
    let (good, table) = HttpServer::token("team-a", &["--profile", "readonly", "--label", "bot"]).await;
    let (expired, old) = HttpServer::token("team-a", &["--label", "old"]).await;
    let config = format!("{table}\n{old}expires = 2020-01-01T00:00:00Z\n");
    let server = HttpServer::configured(&db, &folder, &config).await;
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    for (method, path) in [
        ("POST", "/mcp"),
        ("GET", "/mcp"),
        ("DELETE", "/mcp"),
        ("GET", "/sse"),
        ("POST", "/message?sessionId=x"),
        ("POST", "/message?sessionId=x&sessionId=y"),
        ("POST", "/message"),
        ("GET", "/metrics"),
    ] {
        let visitor = server.http_client();
        for visitor in [visitor.clone(), visitor.clone().with_token("wrong"), visitor.with_token(&expired)] {
            let request = visitor.request(method.parse::<Method>().unwrap(), path).body(list.to_string());
            let answer = visitor.send(request).await;
            assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{method} {path}: {}", answer.body);
            assert!(answer.header("www-authenticate").unwrap().starts_with("Bearer "), "{:?}", answer.headers);
        }
        let visitor = server.http_client();
        let in_query = format!("{path}{}access_token={good}", if path.contains('?') { '&' } else { '?' });
        let answer = visitor.send(visitor.request(method.parse::<Method>().unwrap(), &in_query)).await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{method} {in_query}");
    }
    for probe in ["/healthz", "/readyz"] {
        assert_eq!(
            server.http_client().send(server.http_client().request(Method::GET, probe)).await.status,
            StatusCode::OK
        );
    }
    // The token says which tools there are.
    let session = server.http_client().with_token(&good).open(HANDSHAKE, json!({})).await;
    let tools = session.post(&list).await.message();
    let names: Vec<&str> =
        tools["result"]["tools"].as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"query_database") && !names.contains(&"post_tweet"), "{names:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_account_sees_anothers_records_duplicates_or_sessions() {
    let db = database().await;
    let folder = tempfile::tempdir().unwrap();
    let (ana, ana_table) = HttpServer::token("ana", &["--label", "agent of ana"]).await;
    let (bob, bob_table) = HttpServer::token("bob", &[]).await;
    let (reading, reading_table) =
        HttpServer::token("ana", &["--profile", "readonly", "--label", "agent of ana"]).await;
    let users = "insert into social.account (account_id, handle, display_name) \
                 values ('ana', 'ana_a', 'Ana'), ('bob', 'bob_b', 'Bob') on conflict do nothing";
    db.run(users).await;
    let server = HttpServer::configured(&db, &folder, &format!("{ana_table}\n{bob_table}\n{reading_table}")).await;
    let ana = server.http_client().with_token(&ana).open(HANDSHAKE, json!({})).await;
    let bob = server.http_client().with_token(&bob).open(HANDSHAKE, json!({})).await;

    let of_ana = ana.call("post_tweet", json!({"text": "the same", "idempotency_key": "k"})).await;
    let of_bob = bob.call("post_tweet", json!({"text": "the same", "idempotency_key": "k"})).await;
    assert!(of_ana["data"]["id"].is_i64() && of_bob["data"]["id"].is_i64(), "{of_ana} {of_bob}");
    let who = "select account_id || ' ' || coalesce(actor, '-') from countersign.mutation order by id";
    assert_eq!(db.rows(who).await, [["ana agent of ana"], ["bob -"]]);
    let receipt = &of_ana["meta"]["correlation_id"];
    let seen = bob.call("get_mutation_detail", json!({"correlation_id": receipt})).await;
    assert_eq!(seen["error"]["code"], "not_found", "{seen}");
    let recent = bob.call("get_recent_mutations", json!({})).await;
    assert!(!recent.to_string().contains(receipt.as_str().unwrap()), "{recent}");

    // A session is that of the token that opened it: not another account's, nor that of a token with less or more.
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    for thief in [&bob, &server.http_client().with_token(&reading)] {
        let stolen = thief.clone().with("mcp-session-id", ana.session_id());
        assert_eq!(stolen.post(&list).await.status, StatusCode::NOT_FOUND);
        let closed = stolen.send(stolen.request(Method::DELETE, "/mcp")).await;
        assert_eq!(closed.status, StatusCode::NOT_FOUND);
    }
    assert_eq!(ana.post(&list).await.status, StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_protocol_without_sessions_gives_no_access_to_a_session_of_another_account() {
    let db = database().await;
    let folder = tempfile::tempdir().unwrap();
    let (ana, ana_table) = HttpServer::token("ana", &[]).await;
    let (bob, bob_table) = HttpServer::token("bob", &[]).await;
    let server = HttpServer::configured(&db, &folder, &format!("{ana_table}\n{bob_table}")).await;
    let bob = server.http_client().with_token(&bob).open(HANDSHAKE, json!({})).await;
    let session = bob.session_id().to_owned();
    let lock = db.lock("social.tweet").await;
    let running = tokio::spawn({
        let query = json!({"query": "select 1 as n where not exists (select from social.tweet where id < 0)"});
        let request = bob.calling(7, "query_database", &query);
        async move { bob.send(request).await }
    });
    let waits = "select 1 from pg_locks where not granted and relation = 'social.tweet'::regclass";
    db.first_value(waits).await;

    // The id of a request that is being answered, in a session that is in hand.
    let thief = server.http_client().with_token(&ana).with("mcp-session-id", &session);
    let thief_of = |version: &str| thief.clone().with("mcp-protocol-version", version);
    let client = json!({"name": "thief", "version": "0"});
    let params = json!({"protocolVersion": "2026-07-28", "capabilities": {}, "clientInfo": client});
    let hello = json!({"jsonrpc": "2.0", "id": 7, "method": "initialize", "params": params});
    let opened = thief_of("2026-07-28").post(&hello).await;
    assert_eq!(opened.status, StatusCode::OK, "{}", opened.body);
    assert!(opened.message()["result"]["serverInfo"].is_object(), "{}", opened.body);
    assert!(opened.header("mcp-session-id").is_some_and(|own| own != session), "{:?}", opened.headers);
    // An unknown version.
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "later"});
    let params = json!({"name": "query_database", "arguments": {"query": "select 1"}, "_meta": meta});
    let call = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params});
    let refused = thief_of("later").post(&call).await;
    assert!(refused.status.is_client_error(), "{}: {}", refused.status, refused.body);

    lock.release().await;
    let answer = running.await.unwrap();
    assert_eq!(answer.message()["id"], 7, "{}", answer.body);
    assert_eq!(answer.message()["result"]["structuredContent"]["data"]["rows"][0]["n"], 1, "{}", answer.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn after_sighup_a_token_removed_from_the_file_is_refused() {
    let db = database().await;
    let folder = tempfile::tempdir().unwrap();
    let (kept, kept_table) = HttpServer::token("default", &[]).await;
    let (revoked, revoked_table) = HttpServer::token("default", &[]).await;
    let server = HttpServer::configured(&db, &folder, &format!("{kept_table}\n{revoked_table}")).await;
    let (kept, revoked) = (server.http_client().with_token(&kept), server.http_client().with_token(&revoked));
    let session = revoked.clone().open(HANDSHAKE, json!({})).await;
    assert_eq!(revoked.call("query_database", json!({"query": "select 1"})).await["success"], true);

    let path = folder.path().join("countersign.toml");
    std::fs::write(&path, &kept_table).unwrap();
    send_signal(server.pid(), Signal::SIGHUP);
    server.logged("are served").await;
    let call = json!({"jsonrpc": "2.0", "id": 9, "method": "tools/list"});
    assert_eq!(session.post(&call).await.status, StatusCode::UNAUTHORIZED);
    assert_eq!(kept.call("query_database", json!({"query": "select 1"})).await["success"], true);

    // Without any token everybody would be let in: that is no change to make by a signal.
    std::fs::write(&path, "log = \"info\"\n").unwrap();
    send_signal(server.pid(), Signal::SIGHUP);
    server.logged("neither tokens nor an issuer").await;
    assert_eq!(server.http_client().post(&call).await.status, StatusCode::UNAUTHORIZED);
    assert_eq!(kept.call("query_database", json!({"query": "select 1"})).await["success"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_of_an_issuer_learn_where_to_get_a_token() {
    let db = database().await;
    let folder = tempfile::tempdir().unwrap();
    let config = "[http]\npublic_url = \"https://mcp.example.com\"\n\
        [oauth]\nissuer = \"https://login.example.com\"\naudience = \"https://mcp.example.com/mcp\"\n\
        jwks_file = \"jwks.json\"\nscopes = { \"countersign:read\" = \"readonly\", \"countersign:write\" = \"write\" }\n";
    let keys = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/jwks.json");
    std::fs::copy(keys, folder.path().join("jwks.json")).unwrap();
    let server = HttpServer::configured(&db, &folder, config).await;
    let visitor = server.http_client().with("host", "mcp.example.com");
    let refused = visitor.send(visitor.request(Method::POST, "/mcp").body("{}")).await;
    assert_eq!(refused.status, StatusCode::UNAUTHORIZED);
    let challenge = refused.header("www-authenticate").unwrap();
    let metadata = "https://mcp.example.com/.well-known/oauth-protected-resource/mcp";
    assert!(challenge.contains(&format!("resource_metadata=\"{metadata}\"")), "{challenge}");
    for path in ["/.well-known/oauth-protected-resource/mcp", "/.well-known/oauth-protected-resource"] {
        let answer = visitor.send(visitor.request(Method::GET, path)).await;
        let metadata: Value = serde_json::from_str(&answer.body).unwrap();
        assert_eq!(metadata["resource"], "https://mcp.example.com/mcp", "{metadata}");
        assert_eq!(metadata["authorization_servers"], json!(["https://login.example.com"]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_and_refusals_are_counted() {
    let db = database().await;
    let server = HttpServer::on(&db).await;
    let client = server.session(HANDSHAKE).await;
    client.call("post_tweet", json!({"text": "counted"})).await;
    client.call("post_tweet", json!({"text": "counted"})).await;
    let foreign = server.http_client().with("host", "evil.example");
    foreign.send(foreign.request(Method::GET, "/made/up")).await;
    let scraped = client.send(client.request(Method::GET, "/metrics")).await;
    assert_eq!(scraped.header("content-type"), Some("application/openmetrics-text; version=1.0.0; charset=utf-8"));
    for line in [
        r#"countersign_tool_calls_total{tool="post_tweet",outcome="success"} 1"#,
        r#"countersign_tool_calls_total{tool="post_tweet",outcome="duplicate"} 1"#,
        r#"countersign_http_requests_total{route="other",status="403"} 1"#,
        r#"countersign_http_refused_total{reason="host"} 1"#,
        "countersign_http_sessions 1",
        "countersign_database_up 1",
    ] {
        assert!(scraped.body.lines().any(|found| found == line), "{line}\n{}", scraped.body);
    }
}
