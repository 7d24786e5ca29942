//! Every state with every action: allowed actions work, the others get a clear code and change nothing.

use serde_json::{Value, json};
use testkit::{Database, Server, database};

use super::{PRICE, agreement, decide_as_person, id, price, state};

const STATES: [&str; 7] = ["pending", "confirmed", "rejected", "expired", "executed", "failed", "stale"];

/// Where each state may go; a confirmed one stays so when another attempt takes it up.
const ALLOWED: [(&str, &[&str]); 7] = [
    ("pending", &["confirmed", "rejected", "expired"]),
    ("confirmed", &["confirmed", "executed", "failed", "stale", "expired"]),
    ("rejected", &[]),
    ("expired", &[]),
    ("executed", &[]),
    ("failed", &[]),
    ("stale", &[]),
];

/// Columns that a row needs in this state.
fn columns(state: &str) -> String {
    let decided = "decided_by = 'reviewer', decided_login = 'postgres', decided_at = coalesce(decided_at, now())";
    let decision = match state {
        "pending" => {
            "decision = null, decided_by = null, decided_login = null, decided_via = null, decided_at = null".to_owned()
        }
        "expired" => "decision = decision".to_owned(),
        "rejected" => format!("decision = 'rejected', decided_via = 'reject_proposal', {decided}"),
        _ => format!("decision = 'confirmed', decided_via = 'confirm_proposal', {decided}"),
    };
    let completed = if ["pending", "confirmed"].contains(&state) { "null" } else { "now()" };
    let record = if state == "executed" { ", correlation_id = gen_random_uuid()" } else { "" };
    let attempt = match state {
        "confirmed" => ", attempt = gen_random_uuid(), attempt_until = now() + interval '1 hour'",
        _ => "",
    };
    format!("status = '{state}', {decision}, completed_at = {completed}{record}{attempt}")
}

/// Brings a pending proposal into this state, by changes that the ledger allows.
async fn bring(db: &Database, proposal: &Value, to: &str) {
    let way: &[&str] = match to {
        "pending" => &[],
        "confirmed" | "rejected" | "expired" => &[to],
        _ => &["confirmed", to],
    };
    for state in way {
        db.run(&format!("update countersign.proposal set {} where proposal_id = '{}'", columns(state), id(proposal)))
            .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ledger_refuses_every_other_change_of_state() {
    // It refuses a superuser as well, unless the trigger is disabled.
    let db = database().await;
    let server = Server::studio(&db).await;
    let client = db.connect().await;
    for (number, (from, allowed)) in ALLOWED.into_iter().enumerate() {
        for (other, to) in STATES.into_iter().enumerate() {
            let proposal = server.propose("upsert_package", price(&format!("{}", 200 + number * 10 + other))).await;
            bring(&db, &proposal, from).await;
            let change =
                format!("update countersign.proposal set {} where proposal_id = '{}'", columns(to), id(&proposal));
            let changed = client.simple_query(&change).await;
            assert_eq!(changed.is_ok(), allowed.contains(&to), "{from} to {to}: {changed:?}");
            let expected = if changed.is_ok() { to } else { from };
            assert_eq!(state(&db, &proposal).await, expected);
            bring_to_an_end(&db, &proposal).await;
        }
    }
    let kept = server.propose("upsert_package", price("99")).await;
    for forbidden in [
        format!("delete from countersign.proposal where proposal_id = '{}'", id(&kept)),
        "truncate countersign.proposal".to_owned(),
        format!("update countersign.proposal set params = '{{}}' where proposal_id = '{}'", id(&kept)),
        format!("update countersign.proposal set expires_at = 'infinity' where proposal_id = '{}'", id(&kept)),
        format!("update countersign.proposal set account_id = 'mallory' where proposal_id = '{}'", id(&kept)),
    ] {
        assert!(client.simple_query(&forbidden).await.is_err(), "{forbidden}");
    }
    server.close().await;
}

/// So that the cap of those that wait is not reached.
async fn bring_to_an_end(db: &Database, proposal: &Value) {
    db.run(&format!(
        "update countersign.proposal set {} where proposal_id = '{}' and status = 'pending'",
        columns("expired"),
        id(proposal)
    ))
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_action_on_every_state_works_or_explains_its_refusal() {
    let db = database().await;
    // One that is confirmed is another server's for now: a confirm waits for it, within its deadline.
    let mut command = Server::studio_command(&db);
    command.args(["--call-deadline-ms", "1000"]);
    let server = Server::start(command).await;
    let codes: [(&str, &str, &str); 7] = [
        ("pending", "ok", "ok"),
        ("confirmed", "duplicate_in_flight", "duplicate_in_flight"),
        ("rejected", "proposal_rejected", "ok"),
        ("expired", "proposal_expired", "proposal_expired"),
        ("executed", "proposal_closed", "proposal_closed"),
        ("failed", "proposal_closed", "proposal_closed"),
        ("stale", "proposal_stale", "proposal_stale"),
    ];
    for (number, (from, confirmed, rejected)) in codes.into_iter().enumerate() {
        for (tool, expected) in [("confirm_proposal", confirmed), ("reject_proposal", rejected)] {
            let value = format!("{}", 200 + number * 2 + usize::from(tool == "reject_proposal"));
            let proposal = server.propose("upsert_package", price(&value)).await;
            bring(&db, &proposal, from).await;
            let before = db.value(PRICE).await;
            let arguments = match tool {
                "confirm_proposal" => agreement(&proposal),
                _ => json!({"proposal_id": proposal["proposal_id"], "reason": "no"}),
            };
            let envelope = server.call(tool, arguments).await;
            let said = envelope["error"]["code"].as_str().unwrap_or("ok");
            assert_eq!(said, expected, "{tool} of a {from} one: {envelope}");
            let after = match (from, tool) {
                ("pending", "confirm_proposal") => "executed",
                ("pending", _) => "rejected",
                _ => from,
            };
            assert_eq!(state(&db, &proposal).await, after, "{tool} of a {from} one");
            let writes = (from, tool) == ("pending", "confirm_proposal");
            assert_eq!(db.value(PRICE).await != before, writes, "{tool} of a {from} one");
            if said != "ok" {
                assert!(!envelope["error"]["hint"].as_str().unwrap_or_default().is_empty(), "{envelope}");
            }
        }
        let expected = if from == "pending" { "done" } else { from };
        for decision in ["confirmed", "rejected"] {
            let value = format!("{}", 300 + number * 2 + usize::from(decision == "rejected"));
            let proposal = server.propose("upsert_package", price(&value)).await;
            bring(&db, &proposal, from).await;
            let said = decide_as_person(&db, &proposal, decision, "reviewer").await;
            assert_eq!(said, expected, "a person, {decision}, of a {from} one");
            if (from, decision) == ("pending", "confirmed") {
                let executed = "select 1 from countersign.proposal where status = 'executed' and proposal_id =";
                db.first_value(&format!("{executed} '{}'", id(&proposal))).await;
            }
        }
    }
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reviewer_approves_only_pending_proposals() {
    let db = database().await;
    let mut command = Server::studio_command(&db);
    command.args(["--profile", "admin", "--execute-sql=any"]);
    let server = Server::start(command).await;
    for (number, from) in STATES.into_iter().enumerate() {
        let proposal = server.propose("execute_sql", json!({"sql": format!("select {number}")})).await;
        // Not by this server: it would carry out what is confirmed.
        if from != "pending" {
            let approval =
                "insert into countersign.approval (proposal_id, number, person, decided_by, decided_via) values";
            db.run(&format!("{approval} ('{}', 1, 'ben', 'ben', 'command_line')", id(&proposal))).await;
            let row = columns(from).replace("confirm_proposal", "command_line");
            for step in if ["confirmed", "rejected", "expired"].contains(&from) {
                vec![row.clone()]
            } else {
                vec![columns("confirmed").replace("confirm_proposal", "command_line"), row.clone()]
            } {
                db.run(&format!("update countersign.proposal set {step} where proposal_id = '{}'", id(&proposal)))
                    .await;
            }
        }
        let expected = if from == "pending" { "done" } else { from };
        assert_eq!(super::approve(&db, &proposal).await, expected, "approve a {from} one");
    }
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_account_has_no_such_proposal() {
    let db = database().await;
    let server = Server::studio(&db).await;
    let proposal = server.propose("upsert_package", price("150")).await;
    let mut stranger = Server::studio_command(&db);
    stranger.env("COUNTERSIGN_ACCOUNT", "north.light");
    let stranger = Server::start(stranger).await;
    stranger.fail("confirm_proposal", agreement(&proposal), "not_found").await;
    stranger.fail("reject_proposal", json!({"proposal_id": proposal["proposal_id"]}), "not_found").await;
    stranger.fail("get_proposal", json!({"proposal_id": proposal["proposal_id"]}), "not_found").await;
    let listed = stranger.succeed("list_proposals", json!({})).await;
    assert_eq!(listed["data"], json!({"proposals": [], "count": 0}));
    // A proposal that never existed gets an equal message.
    let nothing = json!({"proposal_id": "00000000-0000-4000-8000-000000000000", "digest": "0".repeat(64)});
    let missing = stranger.fail("confirm_proposal", nothing, "not_found").await;
    let foreign = stranger.fail("confirm_proposal", agreement(&proposal), "not_found").await;
    assert_eq!(missing, foreign);
    // And the right account needs the right digest.
    let wrong = json!({"proposal_id": proposal["proposal_id"], "digest": "0".repeat(64)});
    server.fail("confirm_proposal", wrong, "digest_mismatch").await;
    server.fail("confirm_proposal", json!({"proposal_id": proposal["proposal_id"]}), "invalid_params").await;
    assert_eq!(state(&db, &proposal).await, "pending");
    server.succeed("confirm_proposal", agreement(&proposal)).await;
    let wrong = json!({"proposal_id": proposal["proposal_id"], "digest": "0".repeat(64)});
    server.fail("confirm_proposal", wrong, "digest_mismatch").await;
    stranger.close().await;
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_profile_without_the_tool_cannot_confirm_its_proposals() {
    let db = database().await;
    let server = Server::studio(&db).await;
    let proposal = server.propose("upsert_package", price("150")).await;
    let folder =
        testkit_config("[profiles.helper]\ntools = [\"confirm_proposal\", \"get_proposal\", \"create_booking\"]\n");
    let mut command = Server::studio_command(&db);
    command.arg("--config").arg(folder.path()).args(["--profile", "helper"]);
    let helper = Server::start(command).await;
    helper.fail("confirm_proposal", agreement(&proposal), "not_permitted").await;
    assert_eq!(state(&db, &proposal).await, "pending");
    helper.close().await;
    server.close().await;
}

fn testkit_config(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}
