//! A call that needs a stronger scope is answered with that scope, over every transport, and works with a token that
//! has it.

use reqwest::StatusCode;
use serde_json::{Value, json};
use testkit::{HttpAnswer, HttpClient, HttpServer, KeyServer, SigningKey, database};

use super::direct::WEIGHTED;
use super::sse::Session;
use super::tokens::{claims, configuration};

const METADATA: &str = "https://mcp.example.com/.well-known/oauth-protected-resource/mcp";

/// A tool of administrators.
const UNDO: &str = "undo_plan";

/// Whether the answer tells the client to request exactly this scope.
fn challenges(answer: &HttpAnswer, scope: &str) -> bool {
    let challenge = answer.header("www-authenticate").unwrap_or_default();
    let has = |part: String| challenge.contains(&part);
    answer.status == StatusCode::FORBIDDEN
        && challenge.starts_with("Bearer ")
        && has(", error=\"insufficient_scope\"".to_owned())
        && has(format!(", scope=\"{scope}\""))
        && has(format!(", resource_metadata=\"{METADATA}\""))
        && answer.message()["error"]["message"].as_str().unwrap().contains(scope)
}

async fn call(client: &HttpClient, tool: &str, arguments: Value) -> HttpAnswer {
    client.send(client.calling(1, tool, &arguments)).await
}

fn is_unknown(answer: &HttpAnswer) -> bool {
    let error = &answer.message()["error"];
    answer.status == StatusCode::OK && error["message"].as_str().unwrap_or_default().starts_with("Unknown tool: ")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_names_the_weakest_scope_that_it_needs_and_works_with_it_in_the_same_session() {
    let db = database().await;
    let folder = tempfile::tempdir().unwrap();
    let key = SigningKey::new("first");
    let keys = KeyServer::start(&[&key]).await;
    let (fixed, table) = HttpServer::token("team", &["--profile", "readonly"]).await;
    let scopes =
        "{ \"cs:read\" = \"readonly\", \"cs:like\" = \"liking\", \"cs:write\" = \"write\", \"cs:admin\" = \"admin\" }";
    let (before, _) = configuration(&keys).split_once("scopes = ").map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    let config = format!(
        "{before}scopes = {scopes}\n{table}\n[profiles.liking]\naccess = [\"read\"]\ntools = [\"like_tweet\"]\n"
    );
    let server = HttpServer::configured(&db, &folder, &config).await;
    db.run("insert into social.account (account_id, handle, display_name) values ('oauth:anna', 'anna_o', 'Anna')")
        .await;
    let client = |scope: &str| server.http_client().with_token(&key.token(&claims(scope)));
    let tweet = |text: &str| json!({"text": text});

    for protocol in ["2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"] {
        let open = async |client: HttpClient| match protocol {
            "2026-07-28" => client,
            _ => client.open(protocol, json!({})).await,
        };
        // In a session and without one, and by rmcp's service, which reads such a header only.
        let reading = open(client("openid cs:read")).await;
        for reading in [reading.clone(), reading.clone().with("accept", WEIGHTED)] {
            let refused = call(&reading, "post_tweet", tweet("not mine to write")).await;
            assert!(challenges(&refused, "cs:write"), "{protocol}: {:?} {}", refused.headers, refused.body);
            assert!(challenges(&call(&reading, UNDO, json!({})).await, "cs:admin"));
            assert!(challenges(&call(&reading, "like_tweet", json!({})).await, "cs:like"));
            assert!(is_unknown(&call(&reading, "no_such_tool", json!({})).await));
            assert_eq!(reading.call("query_database", json!({"query": "select 1"})).await["success"], true);
        }
        // The session stays, with the tools of the token that each request has.
        let stronger = reading.clone().with_token(&key.token(&claims("openid cs:read cs:write")));
        let written = stronger.call("post_tweet", tweet(protocol)).await;
        assert_eq!(written["data"]["text"], protocol, "{written}");
        let list = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"});
        if reading.has_session() {
            for (session, has_it) in [(&stronger, true), (&reading, false)] {
                let tools = session.post(&list).await.message()["result"]["tools"].to_string();
                assert_eq!(tools.contains("\"post_tweet\""), has_it, "{tools}");
            }
        }
        assert!(challenges(&call(&stronger, UNDO, json!({})).await, "cs:admin"));
        assert!(challenges(&call(&reading, "post_tweet", tweet("not mine to write")).await, "cs:write"));
    }
    // Over the transport of 2024-11-05 the POST is refused, and the stream goes on.
    let mut session = Session::open(client("cs:read")).await;
    let params = json!({"name": "post_tweet", "arguments": tweet("not mine to write")});
    let refused = session.try_request(7, "tools/call", params).await.unwrap_err();
    assert!(challenges(&refused, "cs:write"), "{:?} {}", refused.headers, refused.body);
    assert_eq!(session.try_request(7, "ping", json!({})).await.unwrap()["result"], json!({}));

    // A token of the configuration has no scopes, and no scope is stronger than the strongest.
    assert!(is_unknown(&call(&server.http_client().with_token(&fixed), "post_tweet", tweet("x")).await));
    assert!(is_unknown(&call(&client("cs:admin"), "no_such_tool", json!({})).await));
    assert_eq!(db.value("select count(*) from social.tweet where text = 'not mine to write'").await, "0");
    assert_eq!(db.value("select count(*) from countersign.mutation where account_id = 'oauth:anna'").await, "4");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scope_that_a_client_would_only_add_to_a_stronger_one_is_not_named() {
    let db = database().await;
    let folder = tempfile::tempdir().unwrap();
    let key = SigningKey::new("first");
    let keys = KeyServer::start(&[&key]).await;
    // The last one that a token has selects the profile: with both it would still have no post_tweet.
    let config =
        configuration(&keys).replace("\"cs:write\" = \"write\"", "\"cs:write\" = \"write\", \"cs:audit\" = \"audit\"");
    let config = format!("{config}[profiles.audit]\naccess = [\"read\"]\n");
    let server = HttpServer::configured(&db, &folder, &config).await;
    let client = |scope: &str| server.http_client().with_token(&key.token(&claims(scope)));
    assert!(challenges(&call(&client("cs:read"), "post_tweet", json!({"text": "x"})).await, "cs:write"));
    assert!(is_unknown(&call(&client("cs:audit"), "post_tweet", json!({"text": "x"})).await));
    assert!(is_unknown(&call(&client("cs:read cs:audit"), UNDO, json!({})).await));

    // Nor does a session give it what the token lacks: it was opened with a token that has the tool.
    let writing = client("cs:write").open("2025-11-25", json!({})).await;
    let auditing = writing.clone().with_token(&key.token(&claims("cs:audit")));
    for auditing in [auditing.clone(), auditing.with("accept", WEIGHTED)] {
        assert!(is_unknown(&call(&auditing, "post_tweet", json!({"text": "x"})).await));
        let list = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"});
        let tools = auditing.post(&list).await.message()["result"]["tools"].to_string();
        assert!(tools.contains("query_database") && !tools.contains("post_tweet"), "{tools}");
    }
    assert_eq!(db.value("select count(*) from countersign.mutation").await, "0");
    // Another person's token does not get into the session at all.
    let mut other = claims("cs:write");
    other["sub"] = json!("bert");
    let stolen = call(&writing.with_token(&key.token(&other)), "post_tweet", json!({"text": "x"})).await;
    assert_eq!(stolen.status, StatusCode::NOT_FOUND);
}
