//! A reviewer asks the agent instead of deciding: the proposal stays pending, and the agent sees who asked what.

use serde_json::{Value, json};
use testkit::audit::{audit, run_audit};
use testkit::{CommandOutput, Database, Server, database, run_countersign};

use crate::console::{Console, path, proposed, status};

/// A text that breaks pages, terminals and log entries which do not make it harmless.
const HOSTILE: &str = "Why?</q><script>alert(1)</script>\u{202e}\u{1b}[2J\nkind decision";

async fn reviewer(db: &Database) -> String {
    db.login("reviewer", "countersign_approver").await
}

fn id(proposal: &Value) -> &str {
    proposal["proposal_id"].as_str().unwrap()
}

async fn run_proposals(url: &str, arguments: &[&str]) -> CommandOutput {
    run_countersign(url, &[&["proposals"], arguments].concat()).await
}

async fn whole(server: &Server, proposal: &Value) -> Value {
    server.succeed("get_proposal", json!({"proposal_id": id(proposal)})).await["data"].clone()
}

async fn deletion(server: &Server, proposal: &Value, reason: &str) -> Value {
    let package = &proposal["params"]["package_id"];
    server.propose("delete_package", json!({"package_id": package, "reason": reason})).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_agent_sees_who_asked_what_and_the_proposal_waits_as_it_was() {
    let db = database().await;
    let (console, url) = (Console::on(&db).await, reviewer(&db).await);
    let (server, proposal) = proposed(&db, "Sunset").await;
    let listed = server.succeed("list_proposals", json!({})).await;
    assert_eq!(listed["data"]["proposals"][0].get("questions"), None, "{listed}");

    let mut anna = console.browser(&db, "anna", &[]).await;
    let asked = anna.post(&format!("{}/ask", path(&proposal)), &[("text", HOSTILE)]).await;
    assert_eq!(asked.status, 303, "{}", asked.body);
    let said = run_proposals(&url, &["ask", id(&proposal), "Is it still sold?"]).await;
    assert!(said.code == 0 && said.out.contains("The proposal still waits"), "{} {}", said.out, said.err);

    let found = whole(&server, &proposal).await;
    assert_eq!((&found["status"], &found["digest"]), (&json!("pending"), &proposal["digest"]));
    let questions = found["questions"].as_array().unwrap();
    assert_eq!((&questions[0]["by"], &questions[0]["question"]), (&json!("anna"), &json!(HOSTILE)), "{found}");
    assert_eq!(questions[1]["by"], format!("reviewer_{}", db.name()), "the login has asked: {found}");
    assert!(found["how_to_answer"].as_str().unwrap().contains("takes the place"), "{found}");
    let listed = server.succeed("list_proposals", json!({})).await;
    assert_eq!(listed["data"]["proposals"][0]["questions"], 2, "{listed}");

    let page = anna.get(&path(&proposal)).await.body;
    assert!(page.contains("anna has asked") && page.contains("Is it still sold?"), "{page}");
    assert!(!page.contains("<script>") && !page.contains(['\u{202e}', '\u{1b}']), "{page}");
    assert!(anna.get("/").await.body.contains("A reviewer has asked the agent."));
    let shown = run_proposals(&url, &["show", id(&proposal)]).await.out;
    assert!(shown.contains("by anna: Why?") && !shown.contains(['\u{202e}', '\u{1b}']), "{shown}");
    let list = run_proposals(&url, &["list", "--wide"]).await.out;
    assert!(list.contains("pending, 2 questions"), "{list}");

    // It can still be approved, as it was shown.
    let digest = proposal["digest"].as_str().unwrap();
    let approved = anna.post(&format!("{}/approve", path(&proposal)), &[("digest", digest)]).await;
    assert_eq!(approved.status, 303, "{}", approved.body);
    let late = run_proposals(&url, &["ask", id(&proposal), "And now?"]).await;
    assert!(late.code == 1 && !late.err.is_empty(), "{} {}", late.out, late.err);
    assert_eq!(db.value("select count(*) from countersign.question").await, "2");

    audit(&db, &["seal"]).await;
    let entries = db.value("select string_agg(entry, '' order by leaf_index) from countersign.leaf").await;
    assert!(entries.contains("kind question\n") && entries.contains("person anna\n"), "{entries}");
    let verified = run_audit(&db.url(), &["verify"]).await;
    assert_eq!(verified.code, 0, "{} {}", verified.out, verified.err);
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_call_with_an_answer_takes_the_place_of_the_proposal() {
    let db = database().await;
    let url = reviewer(&db).await;
    let (server, proposal) = proposed(&db, "Sunset").await;
    // The control: without a question, another reason is the proposal that waits.
    assert_eq!(deletion(&server, &proposal, "Nobody books it.").await["proposal_id"], proposal["proposal_id"]);
    assert_eq!(run_proposals(&url, &["ask", id(&proposal), "Why?"]).await.code, 0);
    let answer = deletion(&server, &proposal, "Nobody books it.").await;
    assert_ne!(answer["proposal_id"], proposal["proposal_id"]);
    assert_eq!(answer["reason"], "Nobody books it.");
    let before = whole(&server, &proposal).await;
    assert_eq!(
        (&before["status"], &before["newer_proposal"]),
        (&json!("rejected"), &answer["proposal_id"]),
        "{before}"
    );
    assert_eq!(before["decision_reason"], "The agent has answered with a new proposal.");
    // The answer once more is the proposal that waits.
    assert_eq!(deletion(&server, &proposal, "Nobody books it.").await["proposal_id"], answer["proposal_id"]);
    assert_eq!(status(&db, &answer).await, "pending");
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn questions_are_bounded_and_only_reviewers_ask() {
    let db = database().await;
    let (console, url) = (Console::on(&db).await, reviewer(&db).await);
    let (server, proposal) = proposed(&db, "Sunset").await;
    let mut anna = console.browser(&db, "anna", &[]).await;
    let ask = format!("{}/ask", path(&proposal));
    for (text, expected) in [(" ".to_owned(), "needs a text"), ("\u{e9}".repeat(1_001), "1000 characters")] {
        let page = anna.post(&ask, &[("text", &text)]).await;
        assert!(page.status == 400 && page.body.contains(expected), "{}", page.body);
        let said = run_proposals(&url, &["ask", id(&proposal), &text]).await;
        assert_eq!(said.code, 2, "{}", said.err);
    }
    let mut auditor = console.browser(&db, "olga", &["--role", "auditor"]).await;
    assert_eq!(auditor.post(&ask, &[("text", "Why?")]).await.status, 403);
    // A server does not ask itself, and an agent does not look as if a reviewer had.
    let by_server = format!(
        "select countersign.decide_proposal('{}', 'default', 'asked', 'console', null, 'x', null, '0')",
        id(&proposal)
    );
    assert_eq!(db.value(&by_server).await, "not_yours");
    for at in 0..10 {
        assert_eq!(anna.post(&ask, &[("text", &format!("{at} {}", "\u{e9}".repeat(990)))]).await.status, 303);
    }
    let page = anna.post(&ask, &[("text", "One more?")]).await;
    assert!(page.status == 403 && page.body.contains("10 questions at most"), "{}", page.body);
    let found = server.succeed("get_proposal", json!({"proposal_id": id(&proposal)})).await;
    assert!(found["data"].to_string().len() <= 4 << 10, "{} bytes: {found}", found["data"].to_string().len());
    assert!(found["data"]["questions"][2]["question"].as_str().unwrap().starts_with("9 "), "the newest ones: {found}");
    let rest = server.succeed("get_proposal", json!({"proposal_id": id(&proposal), "rows": "all"})).await;
    assert_eq!(rest["data"]["questions"].as_array().unwrap().len(), 10, "{rest}");
    server.close().await;
}
