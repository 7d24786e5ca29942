//! The user of a client that opens pages is asked to open the console for a write that a reviewer approves.

use serde_json::{Value, json};
use testkit::{ConfigDir, Database, RawStdioServer, database, repository};

use super::within::{asked, say};
use super::{assert_pending, envelope};

/// A server that knows its console, and a client with these capabilities.
async fn server(folder: &ConfigDir, db: &Database, capabilities: Value) -> RawStdioServer {
    let mut command = folder.command("[console]\nurl = \"https://console.example.com\"\n");
    command.env("DATABASE_URL", db.writer_url()).args(["--log", "warn", "serve"]);
    command.arg("--manifest").arg(repository().join("manifests/studio.toml"));
    RawStdioServer::capable(command, "2025-11-25", capabilities).await
}

fn deletion() -> Value {
    json!({"package_id": 3})
}

#[tokio::test(flavor = "multi_thread")]
async fn the_client_gets_the_address_of_the_proposal_and_its_answer_decides_nothing() {
    for (modes, action) in [
        (json!({"url": {}}), "accept"),
        (json!({"url": {}, "form": {}}), "accept"),
        (json!({"url": {}}), "decline"),
        (json!({"url": {}}), "cancel"),
    ] {
        let (db, folder) = (database().await, ConfigDir::new());
        let mut server = server(&folder, &db, json!({"elicitation": modes})).await;
        let request = asked(&mut server, 7, "delete_package", deletion()).await;
        assert_pending(&db).await;
        say(&mut server, &request, json!({"action": action})).await;
        let answer = server.receive().await;
        let proposal = &envelope(&answer)["data"]["proposal"];
        assert_eq!((&answer["id"], &proposal["status"]), (&json!(7), &json!("pending")), "{modes} {action}: {answer}");
        let asked = &request["params"];
        assert_eq!((&asked["mode"], &asked["url"]), (&json!("url"), &proposal["review_url"]), "{request}");
        assert_eq!(asked["elicitationId"], proposal["proposal_id"], "{request}");
        let id = proposal["proposal_id"].as_str().unwrap();
        assert_eq!(asked["url"], format!("https://console.example.com/proposals/{id}"), "{request}");
        assert_pending(&db).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn other_clients_open_nothing_and_a_client_without_forms_opens_what_its_user_confirms() {
    for capabilities in [json!({}), json!({"elicitation": {}}), json!({"elicitation": {"form": {}}})] {
        let (db, folder) = (database().await, ConfigDir::new());
        let mut server = server(&folder, &db, capabilities.clone()).await;
        // `call` takes the very next line for the answer.
        let answer = server.call("delete_package", deletion()).await;
        assert!(answer["data"]["proposal"]["review_url"].is_string(), "{capabilities}: {answer}");
    }
    let (db, folder) = (database().await, ConfigDir::new());
    let mut server = server(&folder, &db, json!({"elicitation": {"url": {}}})).await;
    let request = asked(&mut server, 7, "upsert_package", super::change()).await;
    let message = request["params"]["message"].as_str().unwrap();
    assert!(message.starts_with("A person has to approve this in the console. "), "{request}");
    say(&mut server, &request, json!({"action": "accept"})).await;
    let answer = server.receive().await;
    let message = envelope(&answer)["data"]["message"].as_str().unwrap();
    assert!(message.contains(request["params"]["url"].as_str().unwrap()), "{answer}");
    assert_pending(&db).await;
}
