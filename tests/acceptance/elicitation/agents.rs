//! Clients without a person: the agent does not agree for its user, and an answer that nobody gave is none.

use serde_json::{Value, json};
use testkit::{RawStdioServer, Server, database, run_countersign};

use super::within::{asked, say};
use super::{assert_pending, change, envelope, price, proposals};

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_does_not_confirm_and_a_person_does_in_a_terminal() {
    let db = database().await;
    let mut command = Server::studio_command(&db);
    command.env_remove("COUNTERSIGN_AGENT_CONFIRMS");
    let server = Server::start(command).await;
    let answer = server.succeed("upsert_package", change()).await;
    let proposal = &answer["data"]["proposal"];
    let id = proposal["proposal_id"].as_str().unwrap();
    let way = format!("`countersign proposals approve {}`", &id[..8]);
    let is_told = |text: &Value| text.as_str().is_some_and(|text| text.contains(&way));
    assert!(is_told(&answer["data"]["message"]), "{answer}");
    let confirm = json!({"proposal_id": id, "digest": proposal["digest"]});
    let error = server.fail("confirm_proposal", confirm.clone(), "not_permitted").await;
    assert!(is_told(&error["hint"]), "{error}");
    assert_pending(&db).await;
    // The person may be the one for whom the agent proposed: the account, the user and the login have one name here.
    let approved = run_countersign(&db.url(), &["proposals", "approve", id, "--yes"]).await.succeeded();
    assert!(approved.out.contains("Executed: correlation id"), "{}", approved.out);
    assert_eq!(price(&db).await, "99.00");
    assert_eq!(proposals(&db).await, [["executed", "command_line", "NULL"]]);
    // The agent gets the outcome of what a person has confirmed.
    let done = server.succeed("confirm_proposal", confirm).await;
    assert_eq!(done["data"]["status"], "executed", "{done}");
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_the_operator_lets_it_the_agent_passes_an_agreement_on_which_is_said() {
    let db = database().await;
    let server = Server::studio(&db).await;
    let proposal = server.propose("upsert_package", change()).await;
    let id = proposal["proposal_id"].as_str().unwrap();
    let confirm = json!({"proposal_id": id, "digest": proposal["digest"]});
    let done = server.succeed("confirm_proposal", confirm).await;
    assert_eq!(done["data"]["status"], "executed", "{done}");
    let shown = run_countersign(&db.url(), &["proposals", "show", id]).await.succeeded().out;
    assert!(shown.contains("default (passed on by the agent), via confirm_proposal"), "{shown}");
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_declines_by_itself_refuses_nothing() {
    let db = database().await;
    let mut command = Server::studio_command(&db);
    command.env_remove("COUNTERSIGN_AGENT_CONFIRMS");
    let mut server = RawStdioServer::capable(command, "2025-11-25", json!({"elicitation": {}})).await;
    let question = asked(&mut server, 1, "upsert_package", change()).await;
    server.send(&json!({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}}).to_string()).await;
    let answer = server.receive().await;
    let data = &envelope(&answer)["data"];
    assert_eq!(data["requires_approval"], true, "{answer}");
    assert!(data["message"].as_str().unwrap().contains("answered by the client itself"), "{answer}");
    assert_pending(&db).await;
    // Of another proposal than the shown one nobody is asked, and the reason is said.
    let other = json!({"proposal_id": data["proposal"]["proposal_id"], "digest": "0".repeat(64)});
    let answer = server.request(9, "tools/call", json!({"name": "confirm_proposal", "arguments": other})).await;
    assert_eq!(envelope(&answer)["error"]["code"], "digest_mismatch", "{answer}");
    // Asked again, the client does it again; a person who takes their time is heard.
    let confirm = json!({"proposal_id": data["proposal"]["proposal_id"], "digest": data["proposal"]["digest"]});
    let question = asked(&mut server, 2, "confirm_proposal", confirm.clone()).await;
    server.send(&json!({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}}).to_string()).await;
    let answer = server.receive().await;
    assert_eq!(envelope(&answer)["data"]["status"], "pending", "{answer}");
    assert!(
        envelope(&answer)["data"]["message"].as_str().unwrap().contains("countersign proposals approve"),
        "{answer}"
    );
    assert_pending(&db).await;
    let question = asked(&mut server, 3, "confirm_proposal", confirm).await;
    say(&mut server, &question, json!({"action": "decline"})).await;
    let answer = server.receive().await;
    assert_eq!(envelope(&answer)["error"]["code"], "proposal_rejected", "{answer}");
    assert_eq!(proposals(&db).await, [["rejected", "elicitation", "declined by the user"]]);
    assert!(server.close().await);
}
