//! The tools change between question and answer: an answer is valid only for the tool that asked.

use serde_json::{Value, json};
use testkit::{Database, Server, TestManifest, database, repository};

use super::again::Session;
use super::{assert_pending, change, envelope, price, proposals, propose, successes};

/// The studio manifest with all tools at this tier.
fn manifest(tier: &str) -> TestManifest {
    let text = std::fs::read_to_string(repository().join("manifests/studio.toml")).unwrap();
    let changed = text.replace("tier = \"confirm\"", &format!("tier = \"{tier}\""));
    assert_ne!(text, changed);
    TestManifest::from_text(&changed)
}

async fn state(db: &Database) -> Value {
    Session::new(Server::studio_command(db)).asked("upsert_package", &change()).await.1
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_prevents_the_write_even_where_no_question_is_needed_any_more() {
    let db = database().await;
    let (state, manifest) = (state(&db).await, manifest("auto"));
    let mut session = Session::new(manifest.command(&db));
    for action in ["decline", "cancel", "accept"] {
        let answer = session.again("upsert_package", &change(), &state, action).await;
        assert_eq!(envelope(&answer)["error"]["code"], "proposal_stale", "{answer}");
        assert_pending(&db).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acceptance_is_not_enough_once_a_reviewer_has_to_approve() {
    let db = database().await;
    let (state, manifest) = (state(&db).await, manifest("approve"));
    let mut session = Session::new(manifest.command(&db));
    let answer = session.again("upsert_package", &change(), &state, "accept").await;
    assert_eq!(envelope(&answer)["error"]["code"], "proposal_stale", "{answer}");
    assert_eq!(proposals(&db).await[0][0], "pending", "another server may have the tool that was proposed");

    let confirm = propose(&db).await;
    let server = manifest.serve(&db).await;
    server.fail("confirm_proposal", confirm, "proposal_stale").await;
    // A proposal from before does not stand for one of now.
    let envelope = server.succeed("upsert_package", change()).await;
    assert_eq!(envelope["data"]["proposal"]["tier"], json!("approve"), "{envelope}");
    server.close().await;
    assert_eq!((price(&db).await, successes(&db).await), ("120.00".into(), "0".into()));
}
