//! Retention of proposals, the limit of waiting proposals, and the list.

use serde_json::json;
use testkit::{Server, database};

use super::{agreement, id, price, state};

#[tokio::test(flavor = "multi_thread")]
async fn an_undecided_proposal_expires_by_the_databases_clock() {
    let db = database().await;
    let mut command = Server::studio_command(&db);
    command.env("COUNTERSIGN_PROPOSAL_LIFETIME_S", "1");
    let server = Server::start(command).await;
    let proposal = server.propose("upsert_package", price("150")).await;
    db.first_value("select 1 from countersign.proposal where expires_at <= clock_timestamp()").await;
    let stored = server.succeed("get_proposal", json!({"proposal_id": proposal["proposal_id"]})).await;
    assert_eq!(stored["data"]["status"], "expired", "also before anybody has ended it");
    server.fail("confirm_proposal", agreement(&proposal), "proposal_expired").await;
    server.fail("reject_proposal", json!({"proposal_id": proposal["proposal_id"]}), "proposal_expired").await;
    assert_eq!(state(&db, &proposal).await, "expired");
    assert_eq!(db.value(super::PRICE).await, "120.00");
    // A new call is a new proposal.
    assert_ne!(server.propose("upsert_package", price("150")).await["proposal_id"], proposal["proposal_id"]);
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approved_proposal_that_is_not_executed_in_time_expires_too() {
    // Nothing stays in confirmed.
    let db = database().await;
    let mut server_of_proposer = Server::studio_command(&db);
    server_of_proposer.env("COUNTERSIGN_PROPOSAL_LIFETIME_S", "1");
    let server = Server::start(server_of_proposer).await;
    let proposal = server.propose("upsert_package", price("150")).await;
    server.close().await;
    // Approved ten minutes ago, when no server was running.
    db.run("alter table countersign.proposal disable trigger user").await;
    db.run("update countersign.proposal set status = 'confirmed', decision = 'confirmed', decided_by = 'default', decided_login = 'x', \
        decided_via = 'confirm_proposal', decided_at = now() - interval '10 minutes', expires_at = now() - interval '5 minutes', \
        attempt_until = now() - interval '9 minutes'").await;
    db.run("update countersign.proposal p set digest = countersign.proposal_digest(p)").await;
    db.run("alter table countersign.proposal enable trigger user").await;
    let server = Server::studio(&db).await;
    db.first_value("select 1 from countersign.proposal where status = 'expired'").await;
    let stored = server.succeed("get_proposal", json!({"proposal_id": proposal["proposal_id"]})).await;
    assert_eq!((&stored["data"]["status"], &stored["data"]["decided_by"]), (&json!("expired"), &json!("default")));
    assert_eq!(db.value(super::PRICE).await, "120.00");
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rejected_and_expired_proposals_are_removed_after_seven_days_and_executed_proposals_stay() {
    let db = database().await;
    let server = Server::studio(&db).await;
    let mut proposals = Vec::new();
    for number in 0..4 {
        proposals.push(server.propose("upsert_package", price(&format!("{}", 150 + number))).await);
    }
    server.succeed("confirm_proposal", agreement(&proposals[0])).await;
    for rejected in &proposals[1..] {
        server.succeed("reject_proposal", json!({"proposal_id": rejected["proposal_id"], "reason": "no"})).await;
    }
    server.close().await;
    db.run("alter table countersign.proposal disable trigger user").await;
    for (days, proposal) in [(30, &proposals[0]), (8, &proposals[1]), (6, &proposals[2])] {
        db.run(&format!(
            "update countersign.proposal set completed_at = now() - interval '{days} days' where proposal_id = '{}'",
            id(proposal)
        ))
        .await;
    }
    db.run("alter table countersign.proposal enable trigger user").await;
    let server = Server::studio(&db).await;
    db.first_value(&format!(
        "select 1 where not exists (select from countersign.proposal where proposal_id = '{}')",
        id(&proposals[1])
    ))
    .await;
    let left = server.succeed("list_proposals", json!({})).await;
    let left: Vec<&str> = left["data"]["proposals"].as_array().unwrap().iter().map(id).collect();
    assert_eq!(left, [id(&proposals[3]), id(&proposals[2]), id(&proposals[0])], "newest first");
    let rejected = server.succeed("list_proposals", json!({"status": "rejected", "limit": 1})).await;
    assert_eq!((&rejected["data"]["count"], id(&rejected["data"]["proposals"][0])), (&json!(1), id(&proposals[3])));
    server.fail("list_proposals", json!({"limit": 101}), "invalid_params").await;
    server.fail("list_proposals", json!({"status": "lost"}), "invalid_params").await;
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_has_at_most_a_hundred_waiting_proposals() {
    let db = database().await;
    let server = Server::studio(&db).await;
    let mut first = None;
    for number in 0..100 {
        let proposal = server.propose("upsert_package", price(&format!("{}", 200 + number))).await;
        first.get_or_insert(proposal);
    }
    let error = server.fail("upsert_package", price("400"), "not_permitted").await;
    assert!(error["hint"].as_str().unwrap().contains("reject_proposal"), "{error}");
    // What waits already is still found, and another account is not in the way.
    assert_eq!(Some(server.propose("upsert_package", price("200")).await), first);
    let mut other = Server::studio_command(&db);
    other.env("COUNTERSIGN_ACCOUNT", "north.light");
    let other = Server::start(other).await;
    other.propose("delete_package", json!({"package_id": 7})).await;
    server.succeed("reject_proposal", json!({"proposal_id": first.unwrap()["proposal_id"]})).await;
    server.propose("upsert_package", price("400")).await;
    other.close().await;
    server.close().await;
}
