//! Issuers that a server knows by their URLs.

use reqwest::{Method, StatusCode};
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
        "[http]\npublic_url = \"https://mcp.example.com\"\n[oauth]\nissuer = \"{issuer}\"\n\
         scopes = {{ \"cs:write\" = \"write\" }}\n"
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

#[tokio::test(flavor = "multi_thread")]
async fn the_same_subject_of_two_issuers_is_two_accounts_and_each_scope_is_of_its_issuer() {
    let db = database().await;
    let folder = tempfile::tempdir().unwrap();
    let key = SigningKey::new("first");
    let (own, other) = (KeyServer::start(&[&key]).await, KeyServer::start(&[&key]).await);
    // The same key, so that nothing but the claim tells them apart.
    let table = |issuer: &KeyServer, prefix: &str, scope: &str| {
        format!(
            "[[oauth]]\nissuer = \"{}\"\naccount_prefix = \"{prefix}\"\n\
             scopes = {{ \"cs:read\" = \"readonly\", \"{scope}\" = \"write\" }}\n",
            issuer.issuer()
        )
    };
    let http = "[http]\npublic_url = \"https://mcp.example.com\"\n";
    let config = format!("{http}{}{}", table(&own, "own:", "cs:write"), table(&other, "other:", "other"));
    let server = HttpServer::configured(&db, &folder, &config).await;
    let metadata = server.http_client();
    let metadata = metadata.send(metadata.request(Method::GET, "/.well-known/oauth-protected-resource/mcp")).await;
    assert_eq!(metadata.message()["authorization_servers"], json!([own.issuer(), other.issuer()]));
    assert_eq!(metadata.message()["scopes_supported"], json!(["cs:read", "cs:write", "other"]));

    let accounts = "insert into social.account (account_id, handle, display_name) \
                    values ('own:anna', 'anna_1', 'Anna'), ('other:anna', 'anna_2', 'Anna')";
    db.run(accounts).await;
    let token = |issuer: &KeyServer, scope: &str| {
        let mut claims = claims_of(issuer.issuer());
        claims["scope"] = json!(scope);
        key.token(&claims)
    };
    for (issuer, scope) in [(&own, "cs:write"), (&other, "other")] {
        let client = server.http_client().with_token(&token(issuer, scope));
        let written = client.call("post_tweet", json!({"text": "the same"})).await;
        assert!(written["data"]["duplicate"].is_null() && written["data"]["id"].is_i64(), "{written}");
        // The challenge has the scope of this issuer.
        let reading = server.http_client().with_token(&token(issuer, "cs:read"));
        let refused = reading.send(reading.calling(1, "post_tweet", &json!({"text": "x"}))).await;
        let challenge = refused.header("www-authenticate").unwrap();
        assert!(challenge.contains(&format!("scope=\"{scope}\"")), "{challenge}");
        assert_eq!(refused.status, StatusCode::FORBIDDEN);
    }
    let who = "select account_id from countersign.mutation order by id";
    assert_eq!(db.rows(who).await, [["own:anna"], ["other:anna"]]);
    assert_eq!(
        read(&server, &key.token(&claims_of("https://login.example.com/"))).await.status,
        StatusCode::UNAUTHORIZED
    );

    // Without prefixes the same subject would be one account.
    let path = folder.path().join("countersign.toml");
    let config = std::fs::read_to_string(&path).unwrap();
    let shared: String =
        config.lines().filter(|line| !line.starts_with("account_prefix")).map(|line| format!("{line}\n")).collect();
    std::fs::write(&path, shared).unwrap();
    let ended = HttpServer::command(&db).arg("--config").arg(path).output().await.unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert!(
        ended.status.code() == Some(1) && said.contains("account_prefix: an account of this issuer could be one"),
        "{said}"
    );
}

#[test]
fn the_schema_of_the_configuration_takes_one_issuer_and_a_list_of_them() {
    let schema = std::fs::read_to_string(testkit::repository().join("countersign.schema.json")).unwrap();
    let schema = jsonschema::validator_for(&serde_json::from_str(&schema).unwrap()).unwrap();
    let one = json!({"issuer": "https://a", "scopes": {"a": "write"}});
    let with = |name: &str| {
        let mut changed = one.clone();
        changed[name] = json!("x");
        changed
    };
    let both = |mut one: Value| {
        one["jwks_file"] = json!("x");
        one
    };
    for (oauth, is_valid) in [
        (one.clone(), true),
        (json!([one]), true),
        (json!([one, with("jwks_url")]), true),
        (json!({}), false),
        (json!([{}]), false),
        (json!([[one]]), false),
        (with("unknown"), false),
        (json!([with("unknown")]), false),
        (both(with("jwks_url")), false),
        (json!([both(with("jwks_url"))]), false),
        (json!(3), false),
    ] {
        assert_eq!(schema.is_valid(&json!({"oauth": oauth})), is_valid, "{oauth}");
    }
}
