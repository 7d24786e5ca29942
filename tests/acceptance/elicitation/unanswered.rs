//! The user does not answer: time is up, the call is taken back, the client or the server goes away. Nothing is written, and
//! the proposal waits.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use testkit::{Database, RawStdioServer, Server, database, poll};

use super::within::{asked, say};
use super::{assert_pending, change, envelope, price, proposals, propose, server_with_user};

/// A session whose user can be asked.
async fn session(db: &Database) -> RawStdioServer {
    RawStdioServer::capable(Server::studio_command(db), "2025-11-25", json!({"elicitation": {}})).await
}

/// That the question is not open any more.
fn assert_taken_back(line: &Value, question: &Value) {
    assert_eq!(line["method"], "notifications/cancelled", "{line}");
    assert_eq!(line["params"]["requestId"], question["id"], "{line}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_answer_in_time_the_proposal_waits_and_can_be_confirmed_later() {
    let db = database().await;
    let mut command = Server::studio_command(&db);
    command.env("COUNTERSIGN_ASK_TIMEOUT_MS", "300");
    let mut server = RawStdioServer::capable(command, "2025-06-18", json!({"elicitation": {}})).await;
    let question = asked(&mut server, 1, "upsert_package", change()).await;
    assert_taken_back(&server.receive().await, &question);
    let answer = server.receive().await;
    assert_eq!(answer["id"], 1);
    let data = envelope(&answer)["data"].clone();
    assert_eq!(
        (&data["requires_approval"], &data["proposal"]["status"]),
        (&json!(true), &json!("pending")),
        "{answer}"
    );
    // Too late. The answer to the next request shows that it has been read.
    say(&mut server, &question, json!({"action": "accept"})).await;
    server.request(2, "tools/list", json!({})).await;
    assert_pending(&db).await;

    let confirm = json!({"proposal_id": data["proposal"]["proposal_id"], "digest": data["proposal"]["digest"]});
    let question = asked(&mut server, 3, "confirm_proposal", confirm.clone()).await;
    assert_taken_back(&server.receive().await, &question);
    let answer = server.receive().await;
    assert_eq!((&answer["id"], &envelope(&answer)["data"]["status"]), (&json!(3), &json!("pending")), "{answer}");
    assert_eq!(envelope(&answer)["data"].get("result"), None);
    assert_pending(&db).await;
    let question = asked(&mut server, 4, "confirm_proposal", confirm).await;
    say(&mut server, &question, json!({"action": "accept"})).await;
    let answer = server.receive().await;
    assert_eq!((&answer["id"], &envelope(&answer)["data"]["status"]), (&json!(4), &json!("executed")), "{answer}");
    assert_eq!((price(&db).await, proposals(&db).await[0][0].as_str()), ("99.00".into(), "executed"));
    assert!(server.close().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_who_never_answers_does_not_block_other_calls() {
    let db = database().await;
    let (server, questions) = server_with_user(&db, None).await;
    let working = async {
        poll::until("a question", async || !questions.lock().unwrap().is_empty()).await;
        server.query("select 1 as n").await
    };
    tokio::select! {
        rows = working => assert_eq!(rows, [json!({"n": 1})]),
        envelope = server.call("upsert_package", change()) => panic!("nobody has answered: {envelope}"),
    }
    assert_pending(&db).await;
    server.close().await;
    assert_pending(&db).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_cancels_its_call_learns_that_the_question_is_closed() {
    let db = database().await;
    let confirm = propose(&db).await;
    for (tool, arguments) in [("upsert_package", change()), ("confirm_proposal", confirm)] {
        let mut server = session(&db).await;
        let question = asked(&mut server, 5, tool, arguments).await;
        let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}});
        server.send(&cancel.to_string()).await;
        // A user who accepts now must know that nothing came of it.
        assert_taken_back(&server.receive().await, &question);
        say(&mut server, &question, json!({"action": "accept"})).await;
        // The next line is the answer to this one: the cancelled call has none.
        server.request(6, "tools/list", json!({})).await;
        assert_pending(&db).await;
        assert_eq!(server.close_and_read().await, (Vec::new(), true));
        assert_pending(&db).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_closes_its_end_while_its_user_thinks_leaves_the_proposal_waiting() {
    // The user could think for two minutes: that it ends within the patience of a test shows that nobody waits for them.
    let db = database().await;
    let mut server = session(&db).await;
    let question = asked(&mut server, 1, "upsert_package", change()).await;
    let (lines, is_good) = server.close_and_read().await;
    assert!(is_good);
    let answer = lines.iter().find(|line| line["id"] == 1 && line.get("method").is_none());
    let answer = answer.unwrap_or_else(|| panic!("the call is answered: {lines:?}"));
    assert_eq!(envelope(answer)["data"]["requires_approval"], true, "{answer}");
    for line in lines.iter().filter(|line| line.get("method").is_some()) {
        assert_taken_back(line, &question);
    }
    assert_pending(&db).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_stopped_while_a_user_thinks_ends_at_once() {
    let db = database().await;
    let mut server = session(&db).await;
    asked(&mut server, 1, "upsert_package", change()).await;
    kill(Pid::from_raw(server.pid().try_into().unwrap()), Signal::SIGTERM).unwrap();
    let (lines, is_good) = server.ended().await;
    assert!(is_good, "{lines:?}");
    assert_pending(&db).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_refuses_the_question_leaves_the_proposal_waiting() {
    let db = database().await;
    let mut server = session(&db).await;
    let question = asked(&mut server, 1, "upsert_package", change()).await;
    let error = json!({"code": -32601, "message": "Elicitation not supported"});
    server.send(&json!({"jsonrpc": "2.0", "id": question["id"], "error": error}).to_string()).await;
    let answer = server.receive().await;
    assert_eq!(envelope(&answer)["data"]["requires_approval"], true, "{answer}");
    assert_pending(&db).await;
    assert!(server.close().await);
}
