//! rmcp's own client over streamable HTTP, with a token.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use testkit::{Client, HttpServer, ProtocolGeneration, UserAnswer, arguments, database, repository};

const PRICE: &str = "select price from studio.package where package_id = 1";

async fn envelope(client: &Client, tool: &str, json: Value) -> Value {
    client.call(tool, arguments(json)).await.unwrap().envelope
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rust_client_lists_reads_writes_and_asks_its_user_over_http_in_both_protocol_eras() {
    let (token, table) = HttpServer::token("default", &["--profile", "write"]).await;
    for generation in [ProtocolGeneration::Handshake, ProtocolGeneration::Stateless] {
        let db = database().await;
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("countersign.toml");
        std::fs::write(&config, &table).unwrap();
        let mut command = HttpServer::command(&db);
        command.arg("--manifest").arg(repository().join("manifests/studio.toml")).arg("--config").arg(config);
        let server = HttpServer::start(command).await;

        let questions = Arc::new(AtomicUsize::new(0));
        let asked = Arc::clone(&questions);
        // No to the first question, yes to the second.
        let user = move |question: &str| {
            assert!(question.contains("Add or change a package"), "{question}");
            let is_first = asked.fetch_add(1, Ordering::SeqCst) == 0;
            if is_first {
                tokio::task::block_in_place(|| std::thread::sleep(testkit::READING_TIME));
            }
            Some(if is_first { UserAnswer::Decline } else { UserAnswer::Accept })
        };
        let client = Client::connect_with_user(&server.url("/mcp"), &token, generation, user).await.unwrap();

        let tools = client.list_tools().await.unwrap();
        assert!(["query_database", "upsert_package"].iter().all(|name| tools.iter().any(|tool| tool["name"] == *name)));
        let read = envelope(&client, "query_database", json!({"query": "select 9007199254740993 as big"})).await;
        assert_eq!(read["data"]["rows"].to_string(), r#"[{"big":"9007199254740993"}]"#, "{generation:?}: {read}");
        let posted = envelope(&client, "post_tweet", json!({"text": "Written by rmcp"})).await;
        let id = posted["data"]["id"].to_string();
        let of = db.value(&format!("select account_id from social.tweet where id = {id}")).await;
        assert_eq!(of, "default", "{generation:?}: the token's account");

        let before = db.value(PRICE).await;
        let mut package = json!({"package_id": 1, "title": "Portrait, one hour", "duration_minutes": 60,
            "description": "One person, one backdrop, ten edited pictures.", "price": 151});
        let declined = envelope(&client, "upsert_package", package.clone()).await;
        assert_eq!(declined["error"]["code"], "proposal_rejected", "{generation:?}: {declined}");
        assert_eq!(db.value(PRICE).await, before);
        package["price"] = json!(152);
        let accepted = envelope(&client, "upsert_package", package).await;
        assert_eq!((&accepted["success"], db.value(PRICE).await.as_str()), (&json!(true), "152.00"), "{generation:?}");
        assert_eq!(questions.load(Ordering::SeqCst), 2, "{generation:?}");
        client.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rust_client_with_a_wrong_token_gets_an_error_instead_of_a_session() {
    let db = database().await;
    let folder = tempfile::tempdir().unwrap();
    let (_, table) = HttpServer::token("default", &[]).await;
    let server = HttpServer::configured(&db, &folder, &table).await;
    for generation in [ProtocolGeneration::Handshake, ProtocolGeneration::Stateless] {
        let refused = Client::connect_with_user(&server.url("/mcp"), "wrong", generation, |_| None).await.unwrap_err();
        assert!(refused.to_string().contains("the token is unknown or has expired"), "{generation:?}: {refused}");
    }
}
