//! Issuers that a server knows by their URLs.

use reqwest::StatusCode;
use serde_json::{Value, json};
use testkit::{HttpAnswer, HttpServer, KeyServer, SigningKey, database, poll};

use super::tokens::claims;

/// Valid claims of this issuer.
fn claims_of(issuer: &str) -> Value {
    let mut claims = claims("cs:write");
    claims["iss"] = json!(issuer);
    claims
}

async fn read(server: &HttpServer, token: &str) -> HttpAnswer {
    let client = server.http_client().with_token(token);
    client.send(client.calling(1, "query_database", &json!({"query": "select 1"}))).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_finds_the_keys_of_its_issuer_as_soon_as_that_answers() {
    let db = database().await;
    let folder = tempfile::tempdir().unwrap();
    let key = SigningKey::new("first");
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let issuer = format!("http://{address}");
    let config = format!(
        "[http]\npublic_url = \"https://mcp.example.com\"\n[oauth]\nissuer = \"{issuer}\"\nscopes = {{ \"cs:write\" = \"write\" }}\n"
    );
    let server = HttpServer::configured(&db, &folder, &config).await;
    let token = key.token(&claims_of(&issuer));
    let answer = read(&server, &token).await;
    assert_eq!((answer.status, answer.header("retry-after")), (StatusCode::SERVICE_UNAVAILABLE, Some("5")));
    let line = server.logged("the issuer's keys could not be fetched").await;
    assert!(line.contains(&format!("{issuer}/.well-known/oauth-authorization-server: ")), "{line}");

    let keys = KeyServer::start_at(address, &[&key]).await;
    assert_eq!(keys.issuer(), issuer);
    poll::until("the issuer is asked again", async || read(&server, &token).await.status == StatusCode::OK).await;
    let stranger = SigningKey::new("first").token(&claims_of(&issuer));
    assert_eq!(read(&server, &stranger).await.status, StatusCode::UNAUTHORIZED);
}
