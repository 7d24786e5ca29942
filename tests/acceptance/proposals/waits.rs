//! What is agreed to waits for a lock that another session holds: who holds it is said, the agreement is not used up, and a
//! person may take it back.

use serde_json::{Value, json};
use testkit::{Database, Server, database, run_countersign};
use tokio_postgres::Client;

use super::{PRICE, agreement, approve, id, price, state};

/// A session of another program that holds the row, until it rolls back.
async fn lock(db: &Database) -> Client {
    let client = db.connect().await;
    let lock = "set application_name = 'billing'; begin; select from studio.package where package_id = 1 for update";
    client.batch_execute(lock).await.unwrap();
    client
}

/// What the ledger says of a proposal that waits between two attempts.
async fn waits(db: &Database, proposal: &Value) -> String {
    let of_it = format!("proposal_id = '{}'", id(proposal));
    let sql = "select error_message from countersign.proposal where status = 'confirmed' and attempt is null and";
    db.first_value(&format!("{sql} {of_it} and error_message <> ''")).await
}

async fn executed(db: &Database, proposal: &Value) {
    let of_it = format!("proposal_id = '{}'", id(proposal));
    let is_whole = "status = 'executed' and error_code is null and error_message is null";
    db.first_value(&format!("select 1 from countersign.proposal where {of_it} and {is_whole}")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_named_in_a_preview_and_uses_no_agreement_up() {
    let db = database().await;
    let server = Server::studio(&db).await;
    let proposal = server.propose("upsert_package", price("150")).await;
    let other = lock(&db).await;
    let named = |message: &Value| {
        let message = message.as_str().unwrap();
        assert!(message.contains("s for a lock of a session of postgres (application billing)"), "{message}");
        assert!(message.ends_with("nothing was written"), "{message}");
    };
    let error = server.fail("upsert_package", price("151"), "timeout").await;
    named(&error["message"]);
    let error = server.fail("confirm_proposal", agreement(&proposal), "timeout").await;
    named(&error["message"]);
    assert!(error["hint"].as_str().unwrap().contains("stays confirmed"), "{error}");
    named(&json!(waits(&db, &proposal).await));
    let shown = run_countersign(&db.url(), &["proposals", "show", id(&proposal)]).await.succeeded().out;
    assert!(shown.contains("waits") && shown.contains("(application billing)"), "{shown}");
    // What is not locked is executed meanwhile.
    let free = server.propose("delete_package", json!({"package_id": 3})).await;
    approve(&db, &free).await;
    executed(&db, &free).await;
    assert_eq!(db.value(PRICE).await, "120.00");
    other.batch_execute("rollback").await.unwrap();
    executed(&db, &proposal).await;
    assert_eq!(db.value(PRICE).await, "150.00");
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_can_be_withdrawn_by_a_person_and_is_never_executed() {
    let db = database().await;
    let server = Server::studio(&db).await;
    let proposal = server.propose("upsert_package", price("150")).await;
    let other = lock(&db).await;
    server.fail("confirm_proposal", agreement(&proposal), "timeout").await;
    waits(&db, &proposal).await;
    // The agent has no such right: the user has agreed.
    let own = json!({"proposal_id": proposal["proposal_id"]});
    server.fail("reject_proposal", own, "duplicate_in_flight").await;
    let withdrawn = ["proposals", "reject", id(&proposal), "--reason", "Billing has done it."];
    let withdraw = async || run_countersign(&db.url(), &withdrawn).await;
    // An attempt may have begun in between.
    let said = testkit::poll::until_some("it is withdrawn", async || {
        let output = withdraw().await;
        (output.code == 0).then_some(output.out)
    });
    assert!(said.await.contains("nothing was written"));
    other.batch_execute("rollback").await.unwrap();
    assert_eq!(state(&db, &proposal).await, "rejected");
    let shown = server.succeed("get_proposal", json!({"proposal_id": proposal["proposal_id"]})).await;
    assert_eq!(shown["data"]["decision_reason"], "Billing has done it.", "{shown}");
    server.fail("confirm_proposal", agreement(&proposal), "proposal_rejected").await;
    assert_eq!(db.value(PRICE).await, "120.00");
    let said = "select array_agg(fields[array_position(fields, 'decision') + 1] order by id) from countersign.event";
    let of_it = format!("kind = 'decision' and '{}' = any (fields)", id(&proposal));
    assert_eq!(db.value(&format!("{said} where {of_it}")).await, "{confirmed,rejected}");
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_of_an_executing_server_cannot_be_withdrawn() {
    let db = database().await;
    let server = Server::studio(&db).await;
    let proposal = server.propose("upsert_package", price("150")).await;
    let of_it = format!("where proposal_id = '{}'", id(&proposal));
    db.run(&format!(
        "update countersign.proposal set status = 'confirmed', decision = 'confirmed', decided_by = 'x', decided_login = 'x', \
         decided_via = 'confirm_proposal', decided_at = now(), attempt = gen_random_uuid(), attempt_until = now() + interval '1 hour' {of_it}"
    ))
    .await;
    let refused = run_countersign(&db.url(), &["proposals", "reject", id(&proposal)]).await;
    assert!(refused.code == 1 && refused.err.contains("about to be"), "{}", refused.err);
    let change = format!(
        "update countersign.proposal set status = 'rejected', decision = 'rejected', completed_at = now() {of_it}"
    );
    let error = db.connect().await.batch_execute(&change).await.unwrap_err();
    assert!(error.as_db_error().unwrap().message().contains("cannot become rejected"), "{error:?}");
    server.close().await;
}
