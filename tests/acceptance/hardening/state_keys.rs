//! The keys that seal session ids and states of questions: rotation, and copies of the database.

use reqwest::StatusCode;
use serde_json::json;
use testkit::{Database, HttpClient, HttpServer, database};

use super::{refused, succeed};

async fn keys(db: &Database) -> Vec<Vec<String>> {
    db.rows("select k.id, k.key, k.seals from countersign.state_keys() k").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_key_seals_once_all_servers_have_it_and_unused_keys_are_deleted() {
    let db = database().await;
    let [first] = <[Vec<String>; 1]>::try_from(keys(&db).await).unwrap();
    assert_eq!(first[2], "t");
    refused(&db.writer_url(), &["keys", "rotate"], &["use a member of countersign_owner"]).await;
    succeed(&db.url(), &["keys", "rotate"]).await;
    let [old, new] = <[Vec<String>; 2]>::try_from(keys(&db).await).unwrap();
    assert_eq!((&old[1], old[2].as_str(), new[2].as_str()), (&first[1], "t", "f"), "not yet");
    db.run("update countersign.state_key set seals_from = clock_timestamp() where seals_from > clock_timestamp()")
        .await;
    let [old, new] = <[Vec<String>; 2]>::try_from(keys(&db).await).unwrap();
    assert_eq!((old[2].as_str(), new[2].as_str()), ("f", "t"));
    // What the first key has sealed is no longer good: it goes with the next rotation.
    db.run("update countersign.state_key set seals_from = clock_timestamp() - interval '26 hours' where id = (select max(id) from countersign.state_key)").await;
    succeed(&db.url(), &["keys", "rotate"]).await;
    assert!(keys(&db).await.iter().all(|key| key[1] != first[1]));
    assert_eq!(keys(&db).await.len(), 2);
    succeed(&db.url(), &["keys", "rotate", "--at-once"]).await;
    let [only] = <[Vec<String>; 1]>::try_from(keys(&db).await).unwrap();
    assert_eq!(only[2], "t");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_the_database_does_not_open_what_the_original_sealed() {
    let db = database().await;
    let original = keys(&db).await;
    let maintenance = db.beside("postgres");
    let end = format!("select pg_terminate_backend(pid, 10000) from pg_stat_activity where datname = '{}'", db.name());
    maintenance.run(&end).await;
    maintenance.run(&format!("create database copied_ledger template {}", db.name())).await;
    let copy = db.beside("copied_ledger");
    let copied = keys(&copy).await;
    assert_eq!(original.len(), copied.len());
    assert_ne!(original[0][1], copied[0][1]);
    let key = "select encode(key, 'hex') from countersign.state_key";
    assert_eq!(db.value(key).await, copy.value(key).await, "the control: the stored key is the same");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_outlives_a_rotation_and_not_one_at_once() {
    // One server opens the session and the next one uses it, as after a deployment.
    let db = database().await;
    let server = HttpServer::on(&db).await;
    let session = server.session("2025-11-25").await;
    drop(server);
    succeed(&db.url(), &["keys", "rotate"]).await;
    db.run("update countersign.state_key set seals_from = '-infinity'").await;
    let server = HttpServer::on(&db).await;
    assert_eq!(list_tools(&session.connected_to(&server)).await, StatusCode::OK, "an older key opens it");
    drop(server);
    succeed(&db.url(), &["keys", "rotate", "--at-once"]).await;
    let server = HttpServer::on(&db).await;
    assert_eq!(list_tools(&session.connected_to(&server)).await, StatusCode::NOT_FOUND);
}

async fn list_tools(session: &HttpClient) -> StatusCode {
    session.post(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})).await.status
}
