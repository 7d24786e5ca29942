//! JWTs of an issuer, from the signature to the record: what one is taken for, and which ones are not taken.

use nix::sys::signal::Signal;
use reqwest::StatusCode;
use serde_json::{Value, json};
use testkit::{Database, HttpServer, KeyServer, SigningKey, database, now_s, send_signal};

use super::HANDSHAKE;

const ISSUER: &str = "https://login.example.com/";
const AUDIENCE: &str = "https://mcp.example.com/mcp";

pub(super) fn claims(scope: &str) -> Value {
    json!({"iss": ISSUER, "aud": AUDIENCE, "sub": "anna", "email": "anna@example.com", "scope": scope,
        "iat": now_s(), "nbf": now_s(), "exp": now_s() + 600})
}

/// Default claims with one of them changed; null removes it.
pub(super) fn with(name: &str, value: Value) -> Value {
    let mut claims = claims("cs:write");
    match value {
        Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
        value => claims[name] = value,
    }
    claims
}

/// The configuration of a server that takes the tokens of this issuer.
pub(super) fn configuration(keys: &KeyServer) -> String {
    // Without an audience: it is what clients ask for.
    format!(
        "[http]\npublic_url = \"https://mcp.example.com\"\n[oauth]\nissuer = \"{ISSUER}\"\njwks_url = \"{}\"\nlabel_claim = \"email\"\n\
         scopes = {{ \"cs:read\" = \"readonly\", \"cs:write\" = \"write\" }}\n",
        keys.url()
    )
}

async fn server(db: &Database, folder: &tempfile::TempDir, keys: &KeyServer) -> HttpServer {
    HttpServer::configured(db, folder, &configuration(keys)).await
}

async fn status(server: &HttpServer, token: &str) -> StatusCode {
    let visitor = server.http_client().with_token(token);
    visitor.send(visitor.calling(1, "query_database", &json!({"query": "select 1"}))).await.status
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signed_token_determines_the_account_and_its_scope_the_profile() {
    let db = database().await;
    let folder = tempfile::tempdir().unwrap();
    let key = SigningKey::new("first");
    let keys = KeyServer::start(&[&key]).await;
    let server = server(&db, &folder, &keys).await;
    db.run("insert into social.account (account_id, handle, display_name) values ('oauth:anna', 'anna_o', 'Anna')")
        .await;
    // In each era: the account and the label of the record are those of the token.
    let writing = server.http_client().with_token(&key.token(&claims("openid cs:write")));
    for client in [writing.clone().open(HANDSHAKE, json!({})).await, writing] {
        let text = format!("signed, {}", client.has_session());
        let written = client.call("post_tweet", json!({"text": text})).await;
        assert_eq!(written["data"]["text"], text, "{written}");
    }
    let who = "select distinct account_id, actor from countersign.mutation";
    assert_eq!(db.rows(who).await, [["oauth:anna", "anna@example.com"]]);

    // Less scope, fewer tools; none, nothing.
    let reading = server.http_client().with_token(&key.token(&claims("cs:read")));
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    let session = reading.open(HANDSHAKE, json!({})).await;
    let tools = session.post(&list).await.message()["result"]["tools"].to_string();
    assert!(tools.contains("query_database") && !tools.contains("post_tweet"), "{tools}");
    for scope in ["openid", ""] {
        assert_eq!(status(&server, &key.token(&claims(scope))).await, StatusCode::FORBIDDEN, "{scope:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_is_not_the_issuers_for_this_server_now_is_refused() {
    let db = database().await;
    let folder = tempfile::tempdir().unwrap();
    let (key, stranger) = (SigningKey::new("first"), SigningKey::new("first"));
    let keys = KeyServer::start(&[&key]).await;
    let server = server(&db, &folder, &keys).await;
    assert_eq!(status(&server, &key.token(&claims("cs:write"))).await, StatusCode::OK);
    let good = key.token(&claims("cs:write"));
    let (signed, signature) = good.rsplit_once('.').unwrap();
    let (_, payload) = signed.split_once('.').unwrap();
    let none = key.token_with(&json!({"alg": "none"}), &claims("cs:write"));
    let refused = [
        ("expired", key.token(&with("exp", json!(now_s() - 60)))),
        ("without an end", key.token(&with("exp", Value::Null))),
        ("not yet", key.token(&with("nbf", json!(now_s() + 600)))),
        ("another audience", key.token(&with("aud", json!("https://other.example.com/mcp")))),
        ("no audience", key.token(&with("aud", Value::Null))),
        ("another issuer", key.token(&with("iss", json!("https://login.example.com")))),
        ("nobody", key.token(&with("sub", Value::Null))),
        ("alg none, signed", none.clone()),
        ("alg none", format!("{}.", none.rsplit_once('.').unwrap().0)),
        ("another algorithm", key.token_with(&json!({"alg": "HS256", "kid": "first"}), &claims("cs:write"))),
        ("somebody else's key of the same name", stranger.token(&claims("cs:write"))),
        ("without its signature", format!("{signed}.")),
        (
            "with the signature of another",
            format!("{}.{signature}", signed.replace(payload, &payload.replace('e', "f"))),
        ),
    ];
    for (what, token) in refused {
        let visitor = server.http_client().with_token(&token);
        let answer = visitor.send(visitor.calling(1, "query_database", &json!({"query": "select 1"}))).await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{what}: {}", answer.body);
        assert!(answer.header("www-authenticate").unwrap().contains("invalid_token"), "{what}: {:?}", answer.headers);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fixed_audience_is_accepted_with_a_warning() {
    let db = database().await;
    let folder = tempfile::tempdir().unwrap();
    let key = SigningKey::new("first");
    let keys = KeyServer::start(&[&key]).await;
    let usual = server(&db, &folder, &keys).await;
    assert!(!usual.log().contains("audience"), "{}", usual.log());
    let config = std::fs::read_to_string(folder.path().join("countersign.toml")).unwrap();
    let config = config.replace("[oauth]\n", "[oauth]\naudience = \"api://fixed\"\n");
    let fixed = HttpServer::configured(&db, &folder, &config).await;
    let warning = fixed.logged("clients ask the issuer for tokens for the resource").await;
    assert!(warning.contains("WARN") && warning.contains("api://fixed") && warning.contains(AUDIENCE), "{warning}");
    assert_eq!(status(&fixed, &key.token(&with("aud", json!("api://fixed")))).await, StatusCode::OK);
    assert_eq!(status(&fixed, &key.token(&claims("cs:write"))).await, StatusCode::UNAUTHORIZED);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_issuer_without_an_address_for_clients_stops_the_start() {
    let db = database().await;
    let folder = tempfile::tempdir().unwrap();
    let keys = KeyServer::start(&[&SigningKey::new("first")]).await;
    drop(server(&db, &folder, &keys).await);
    let path = folder.path().join("countersign.toml");
    let config = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, config.replace("public_url", "# public_url")).unwrap();
    let ended = HttpServer::command(&db).arg("--config").arg(path).output();
    let ended = tokio::time::timeout(std::time::Duration::from_secs(30), ended).await.expect("it ends").unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert!(ended.status.code() == Some(1) && said.contains("set public_url in [http]"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_issuers_keys_clients_get_retry_after() {
    let db = database().await;
    let folder = tempfile::tempdir().unwrap();
    let key = SigningKey::new("first");
    let keys = KeyServer::start(&[&key]).await;
    let nowhere = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    drop(server(&db, &folder, &keys).await);
    let config = std::fs::read_to_string(folder.path().join("countersign.toml")).unwrap();
    let config = config.replace(keys.url(), &format!("http://{nowhere}/keys"));
    let server = HttpServer::configured(&db, &folder, &config).await;
    let visitor = server.http_client().with_token(&key.token(&claims("cs:write")));
    let answer = visitor.send(visitor.calling(1, "query_database", &json!({"query": "select 1"}))).await;
    assert_eq!((answer.status, answer.header("retry-after")), (StatusCode::SERVICE_UNAVAILABLE, Some("5")));
}

/// By itself a server looks up a key that is not there once a minute at most (the tests of `mcp::auth` have that); SIGHUP
/// makes it look at once.
#[tokio::test(flavor = "multi_thread")]
async fn after_sighup_a_new_key_is_accepted_and_a_withdrawn_key_is_not() {
    let db = database().await;
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (SigningKey::new("first"), SigningKey::new("second"));
    let keys = KeyServer::start(&[&first]).await;
    let server = server(&db, &folder, &keys).await;
    let old = first.token(&claims("cs:write"));
    let new = second.token(&claims("cs:write"));
    assert_eq!(status(&server, &old).await, StatusCode::OK);
    let session = server.http_client().with_token(&old).open(HANDSHAKE, json!({})).await;
    assert_eq!(status(&server, &new).await, StatusCode::UNAUTHORIZED);

    keys.set_keys(&[&second]);
    send_signal(server.pid(), Signal::SIGHUP);
    server.logged("are served").await;
    assert_eq!(status(&server, &new).await, StatusCode::OK);
    assert_eq!(status(&server, &old).await, StatusCode::UNAUTHORIZED);
    // The session is the account's, so it goes on with the new token, and not with the old one.
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    assert_eq!(session.post(&list).await.status, StatusCode::UNAUTHORIZED);
    assert_eq!(session.with_token(&new).post(&list).await.status, StatusCode::OK);
}
